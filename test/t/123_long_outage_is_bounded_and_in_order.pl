# A node is silent for long: messages for it wait durably, up to buffer_size, then shard_tell gets an
# error with a hint and nothing is lost; a crash of the sender in between keeps them; when the node is
# back all are handled in order, and sending goes on.

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
$cluster->wait_registered;
my ($one, $two) = $cluster->nodes;
my $there = $cluster->entity_at('recorder', 2);
$cluster->drain;

$two->server->freeze;
my ($sent, $error) = (0);
ShardCluster::wait_for_condition(
	sub {
		$error = $one->error_of("BEGIN;\n" . ShardCluster::tell_recorder($there, $sent + 1, $sent + 10) . 'COMMIT;');
		$sent += 10 unless $error;
		return defined $error;
	},
	'the sender to be refused');
# A silent node is found out by a time-out: so long what was sent may still be on its way.
note("refused after $sent messages");
cmp_ok($sent, '>=', 100, 'the sender is refused, not before buffer_size');
like($error, qr/53400.*buffer/, 'by the limit');
like($error, qr/HINT/, 'with a hint');
$one->wait_until("SELECT outbox_messages >= $sent FROM shard_peers WHERE node = 2", 'shard_peers to count what waits');

$one->server->crash;
$one->server->recover;
$two->server->thaw;
$cluster->wait_recorded($there, 2, 1 .. $sent);
pass('all are handled in order when the node is back');
$cluster->drain;
$one->sql(ShardCluster::tell_recorder($there, $sent + 1, $sent + 10));
$cluster->wait_recorded($there, 2, 1 .. $sent + 10);
pass('sending goes on');
$one->wait_value('SELECT outbox_messages FROM shard_peers WHERE node = 2', 0, 'nothing to wait any more');
$cluster->logs_are_clean(@ShardNodes::link_troubles);
done_testing();
