# A node is away for long: messages for it wait durably, up to buffer_size, then shard_tell gets an
# error with a hint and nothing is lost; a restart of the sender in between keeps them; when the node is
# back all are handled in order, and sending goes on. Messages for others are not concerned.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(2);
$cluster->sql_everywhere(q{
CREATE TABLE seen (pos bigserial, entity text, what text);
CREATE FUNCTION recorder(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	IF message ? 'noop' THEN RETURN state; END IF;
	INSERT INTO seen (entity, what) SELECT entity_id, message->>'what' FROM shard_self();
	RETURN jsonb_build_object('count', coalesce((state->>'count')::int, 0) + 1);
END $$;
SELECT shard_start('recorder', 'recorder', buffer_size => 100);
});
my ($one, $two) = $cluster->nodes;
my ($here, $there) = ($cluster->entity_at('recorder', 1), $cluster->entity_at('recorder', 2));
$cluster->drain;

$two->server->freeze;
my ($sent, $error) = (0);
for my $batch (1 .. 200)
{
	my $sql = ShardCluster::tell_recorder($there, map { $_ } $sent + 1, $sent + 10);
	$error = $one->error_of("BEGIN;\n${sql}COMMIT;");
	last if $error;
	$sent += 10;
}
ok($error, "the sender is refused after $sent messages");
cmp_ok($sent, '>=', 50, 'not long before buffer_size');
like($error // '', qr/53|buffer_size/, 'by the limit');
like($error // '', qr/HINT/, 'with a hint');
$one->sql(ShardCluster::tell_recorder($here, 1, 3));
$cluster->wait_recorded($here, 1, 1 .. 3);
pass('messages for entities of this node are not concerned');
cmp_ok($one->sql('SELECT outbox_messages FROM shard_peers WHERE node = 2'), '>=', $sent, 'shard_peers counts what waits');

$one->server->crash;
$one->server->recover;
$two->server->thaw;
$cluster->wait_recorded($there, 2, 1 .. $sent);
pass('all are handled in order when the node is back');
$cluster->drain;
$one->sql(ShardCluster::tell_recorder($there, $sent + 1, $sent + 10));
$cluster->wait_recorded($there, 2, 1 .. $sent + 10);
pass('sending goes on');
is($one->sql('SELECT outbox_messages FROM shard_peers WHERE node = 2'), 0, 'nothing waits');
$cluster->logs_are_clean(@ShardNodes::link_troubles);
done_testing();
