# What operators' functions say: how far a node is that leaves (G13), why one cannot join, that there is no node to pin
# to yet (X07), that an entity to be tried lives elsewhere, which database a worker's line in the log is about, and why
# a worker was terminated.

use strict;
use warnings FATAL => 'all';

use PostgreSQL::Test::Utils;
use ShardCluster;
use ShardNodes;
use Test::More;

# Each node a database of one server; the third joins at the end.
my $cluster = ShardNodes->create(3, databases => 1, join => 0, conf => 'shard.rebalance_interval = 0');
my ($one, $two, $three) = $cluster->all_nodes;
my $server = $one->server;
$cluster->join_node(2);

# --- a join ----------------------------------------------------------------------------------------

my $join = "SELECT shard_join('" . $one->dsn . "', '" . $three->dsn . "')";
my $plain = q{CREATE FUNCTION plain(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql
	RETURN CASE WHEN message ? 'forget' THEN NULL WHEN message ? 'fail' THEN (message->>'fail')::jsonb ELSE message END};
$three->sql(qq{$plain; SELECT shard_start('plain', 'plain(jsonb,jsonb)', 4, max_attempts => 1)});
$three->sql(q{SELECT shard_ask('plain', 'a', '{}')});
like($three->error_of($join), qr/55000: the database has entities of type "plain"/, 'a node with entities: which');
$three->sql(q{SELECT shard_tell('plain', 'a', '{"forget": 1}')});
$three->wait_until(q{SELECT count(*) = 0 FROM shard_entity.plain}, 'the state to be forgotten');
like($three->error_of($join), qr/55000: the database has shards of entity types: messages of theirs were handled here/,
	'one that has none any more, but shards');
$three->sql(q{SELECT shard_tell('plain', 'b', '{"fail": "no number"}')});
$three->wait_until(q{SELECT count(*) = 1 FROM shard_dead_letters}, 'a dead letter');
like($three->error_of($join), qr/55000: the database has dead letters/, 'one with dead letters');
$three->sql(q{DELETE FROM shard.dead_letter});
$three->sql(q{SELECT shard_drop_type('plain')});

# Handled messages of the type are in the log still.
is($three->sql(q{SELECT count(*) > 0 FROM (SELECT FROM shard.inbox_0 WHERE kind = 1 UNION ALL SELECT FROM shard.inbox_1 WHERE kind = 1) m}),
	't', 'the log has handled messages');
is($three->sql($join), 3, 'and that node has nothing, and joins');
$cluster->wait_up;

# --- a pin -----------------------------------------------------------------------------------------

$cluster->start_recorder(shards => 8);
like($one->error_of(q{SELECT shard_pin('recorder', 0, 9)}),
	qr/42704: there is no node 9.*DETAIL:  A shard can be pinned to a node that has joined; it need not be up\..*shard_join/s,
	'X07: a pin to a node that has not joined is refused, and says so');

# --- a trial ---------------------------------------------------------------------------------------

my $entity = $cluster->entity_at('recorder', 2);
my $shard  = $cluster->shard_of('recorder', $entity);
$one->sql(ShardCluster::tell_recorder($entity, 1, 3));
$cluster->wait_recorded($entity, 2, 1 .. 3);
my $try = qq{SELECT state FROM shard_try('recorder', '$entity', '{"what": "tried"}')};
like($one->error_of($try), qr/55000: the entity lives at node 2.*that of shard $shard of entity type "recorder" is there/s,
	'an entity that lives elsewhere is not tried on no state');
is($two->sql(qq{SELECT state::jsonb->>'count' FROM shard_try('recorder', '$entity', '{"what": "tried"}')}), 4, 'at its home it is tried on its state');

# --- lines of the log ------------------------------------------------------------------------------

like(slurp_file($server->logfile), qr/CONTEXT:  shard control of database "node1"$/m, 'a line of a worker names its database');

# A worker in a turn that does not end is terminated when the launcher wants fewer.
my $keeper = $two->session;
$keeper->query('BEGIN; SELECT FROM gate FOR UPDATE;');
$server->append_conf('postgresql.conf', "shard.handler_lock_timeout = '60s'");
$server->reload;
$one->sql(qq{SELECT shard_tell('recorder', '$entity', '{"what": "held", "gate": true}')});
$two->wait_until(q{SELECT count(*) > 0 FROM pg_stat_activity WHERE datname = current_database()
	AND backend_type LIKE 'shard%' AND wait_event_type = 'Lock'}, 'a worker in the handler');
my ($pid) = split /\n/, $two->sql(q{SELECT pid FROM pg_stat_activity WHERE datname = current_database()
	AND backend_type LIKE 'shard%' AND wait_event_type = 'Lock'});
$server->append_conf('postgresql.conf', 'shard.enabled = off');
$server->reload;
ShardCluster::wait_for_condition(sub { slurp_file($server->logfile) =~
	/\[$pid\] .*FATAL: .*\n(?:.*\n)?.*DETAIL:  It was ended because it was asked to end, and its turn did not end within \d+ ms\./ },
	'the worker to say why it was terminated');
pass('a worker that was terminated says why');
$server->append_conf('postgresql.conf', 'shard.enabled = on');
$server->reload;
$keeper->close;
$cluster->wait_up;
$cluster->wait_recorded($entity, 2, 1 .. 3, 'held');

# --- leaving ---------------------------------------------------------------------------------------

# What keeps it: the state tables differ.
$two->sql('ALTER TABLE shard_entity.recorder ADD COLUMN note text');
my ($status, $out, $said) = $two->try(q{SELECT shard_leave('1 s')});
is("$status $out", '0 f', 'G13: a node that cannot leave yet says so');
($status, $out, $said) = $two->try(q{SELECT shard_leave('100 ms')});
is("$status $out", '0 f', 'G13: called again it does not fail');
like($said, qr/NOTICE:  this node is leaving: \d+ of its shards are still to move/, 'G13: and says how far it is');
my @waiting = map { $two->session } 1, 2;
$_->send(q{SELECT shard_leave('120 s');}) for @waiting;
$two->wait_until(q{SELECT count(*) = 2 FROM pg_stat_activity WHERE query ~ '^SELECT shard_leave' AND state = 'active' AND wait_event_type = 'Extension'}, 'both to wait');
$_->sql('ALTER TABLE shard_entity.recorder ADD COLUMN note text') for $one, $three;
is($_->receive, 't', 'G13: whoever waits hears of the end') for @waiting;
$_->close for @waiting;
($status, $out, $said) = $two->try(q{SELECT shard_leave('10 s')});
is("$status $out", '0 t', 'G13: called after it has left, it is done');
like($said, qr/NOTICE:  this node has left its cluster/, 'G13: and says so');

is($one->sql(q{SELECT count(*) FROM shard_decisions WHERE why = ''}), 0, 'no decision is without a reason');
done_testing();
