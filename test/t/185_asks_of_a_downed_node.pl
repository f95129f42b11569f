# Asks to and from a node that was downed are certainly not executed, and say so: 55P03 with what they waited for, or 55000 at
# the node itself; never "outcome unknown". So do sending and redrive there.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(3, databases => 1);
my ($one, $two, $three) = $cluster->nodes;
$cluster->sql_everywhere(q{
CREATE FUNCTION careful(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	IF message ? 'fail' THEN
		RAISE EXCEPTION 'not now' USING ERRCODE = '40001';
	END IF;
	RETURN to_jsonb(coalesce(state::int, 0) + (NOT message ? 'noop')::int);
END $$;
SELECT shard_start('careful', 'careful', 12, retry_backoff => '10 min', max_retry_backoff => '10 min');
});
$cluster->wait_registered;
my ($free, $rests) = $cluster->entities_at('careful', 3, 2);

# Asks that wait at node 3 when it is downed: its own, and of another node.
$one->sql("SELECT shard_tell('careful', '$rests', '{\"fail\": 1}')");
$three->wait_until("SELECT attempts = 1 FROM shard_inbox WHERE entity_id = '$rests'", 'an entity to rest');
my @waiting = map { $_->session } $one, $three;
$_->send("SELECT shard_ask('careful', '$rests', '{}', '15 s');") for @waiting;
$_->wait_until(q{SELECT count(*) = 1 FROM pg_stat_activity WHERE datname = current_database() AND query ~ '^SELECT shard_ask' AND wait_event_type = 'Extension'},
	'an ask at node ' . $_->n) for $one, $three;
$three->wait_until(q{SELECT count(*) = 1 FROM pg_stat_activity WHERE datname = current_database() AND usename = '} . $ShardNodes::peer_role . q{'
	AND query ~ 'shard_peer.ask' AND wait_event_type = 'Extension'}, 'the one of node 1 at node 3');
$one->sql('SELECT shard_down(3)');
$_->wait_value('SELECT status FROM shard_members WHERE node = 3', 'down', 'node ' . $_->n . ' to see that node 3 is down') for $cluster->nodes;

# Later ones, each with less time than a call waits for news.
for my $node ($one, $two)
{
	like($node->error_of("SELECT shard_ask('careful', '$free', '{}', '$_')") // '', qr/55P03: .*it was not executed\nDETAIL:  Its home, node 3, is down\./,
		'node ' . $node->n . " asks in vain for $_: not executed, since its home is down") for '100 ms', '1 s', '2 s';
}
$three->wait_until(q{SELECT problems::text ~ 'was downed' FROM shard_health()}, 'node 3 to say so');
my $refused = qr/55000: this node was downed and takes no messages/;
like($three->error_of("SELECT shard_ask('careful', '$free', '{}', '2 s')") // '', $refused, 'at the node itself an ask is refused');
like($three->error_of(q{SELECT shard_tell('careful', 'a', '{}')}) // '', $refused, 'so is a message');
like($three->error_of('SELECT shard_redrive()') // '', $refused, 'and a redrive');
like($three->error_of("SELECT shard_join('" . $one->dsn . "')") // '', qr/55000: this node was downed\nDETAIL: .*\nHINT:  Restart its server, or call shard_admit\(3, \d+\) here/,
	'it does not wait to be up again');
for my $n (0, 1)
{
	ok(!eval { $waiting[$n]->receive; 1 }, 'an ask that waited there fails');
	like($@, qr/it was not executed\nDETAIL:  Node 3 handles nothing: this incarnation was downed\./, 'not executed either, ' . ('asked elsewhere', 'asked there')[$n]);
}
$_->close for @waiting;

$three->sql('SELECT shard_admit(3, incarnation + 1) FROM shard_members WHERE self');
is($one->eventually("SELECT shard_ask('careful', '$free', '{}', '10 s')"), 1, 'back again, it is asked');
is($three->sql("SELECT state::int FROM shard_entity.careful WHERE entity_id = '$free'"), 1, 'and none of those in vain was executed');
done_testing();
