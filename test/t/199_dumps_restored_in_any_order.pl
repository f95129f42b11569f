# A dump brings state tables without their types. Who restores one and joins, or joins and restores, is told what to do, in each
# order: nobody joins, or is joined, before the types are back; states of shards that live elsewhere are named, and no move
# overwrites them, nor loses what came with the shard (C21, M26).

use strict;
use warnings FATAL => 'all';

use PostgreSQL::Test::Utils;
use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(1, databases => 1, conf => 'shard.rebalance_interval = 0');
my ($source) = $cluster->nodes;
my $server = $source->server;
my $start = q{SELECT shard_start('counter', 'counter(jsonb,jsonb)', number_of_shards => 12, shard_id_extractor => 'modulo_twelve')};
my $restored = qr/states of no entity type.*in table shard_entity\.counter/;
my $dump = $server->basedir . '/states.sql';

# The recipe of doc/operations.md.
my $recipe = "BEGIN; ALTER TABLE shard_entity.counter RENAME TO counter_saved; ALTER TABLE shard_entity.counter_saved SET SCHEMA public;
	SET LOCAL ROLE seller; $start; RESET ROLE; INSERT INTO shard_entity.counter SELECT * FROM public.counter_saved;
	SELECT count(*) || ' in other shards' FROM shard_entity.counter WHERE shard <> shard_shard_id('counter', entity_id);
	COMMIT; DROP TABLE public.counter_saved";
my $aside = q{
CREATE TABLE counter_restored AS SELECT * FROM shard_entity.counter WHERE false;
WITH gone AS (DELETE FROM shard_entity.counter s WHERE NOT EXISTS (SELECT FROM shard_homes h
	WHERE h.type_name = 'counter' AND h.shard = s.shard AND h.here IS NOT NULL) RETURNING s.*)
INSERT INTO counter_restored SELECT * FROM gone;
};

# Who owns the type.
$server->safe_psql('postgres', 'CREATE ROLE seller');
sub let_own { my ($node) = @_; $node->sql('GRANT CREATE ON DATABASE ' . $node->db . ' TO seller'); return }
sub start_type { my ($node) = @_; let_own($node); $cluster->start_counter_at($node, owner => 'seller'); return }

# A node with what was dumped.
sub restore
{
	my ($node) = @_;
	let_own($node);
	command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-d', $server->connstr($node->db), '-f', $dump ], 'a dump is restored');
	return;
}

sub problems { my ($node) = @_; return $node->sql(q{SELECT array_to_string(problems, '; ') FROM shard_health()}) }
sub add_all { my ($node, $n) = @_; $node->sql(qq{SELECT count(shard_tell('counter', i::text, '{"add": $n}')) FROM generate_series(1, 24) i}); $cluster->drain; return }
sub counts { my ($node, $table) = @_; return $node->sql("SELECT count(*) || ' of ' || coalesce(sum((state->>'count')::int), 0) FROM " . ($table // 'shard_entity.counter')) }

start_type($source);
add_all($source, 100);
is(counts($source), '24 of 2400', 'states');
command_ok([ 'pg_dump', '--no-sync', '-d', $server->connstr($source->db), '-f', $dump ], 'they are dumped');
$cluster->has_left(1);

# --- restored, then joined ------------------------------------------------------------------------------

my ($one, $two) = ($cluster->add_node, $cluster->add_node);
restore($one);
is(counts($one), '24 of 2400', 'with its states');
like(problems($one), qr/table shard_entity\.counter has states, and no entity type/, 'health names the table');
like($one->error_of($start), qr/42P07.*restored dump.*SET SCHEMA|42P07.*restored dump.*another schema/s, 'shard_start says what to do');
my $error = $one->error_of(sprintf "SELECT shard_join('%s', '%s')", $two->dsn, $one->dsn) // '';
like($error, qr/55000.*$restored.*HINT: .*Backup and restore/s, 'it cannot join');
$error = $two->error_of(sprintf "SELECT shard_join('%s', '%s')", $one->dsn, $two->dsn) // '';
like($error, qr/55000.*$restored.*HINT: .*Backup and restore/s, 'and cannot be joined');
is($one->sql('SELECT count(*) FROM shard_members'), 1, 'nobody was let in');

is($one->sql($recipe), "\n0 in other shards", 'the recipe, by which all are in their shards');
is($one->sql('SELECT ok FROM shard_health()'), 't', 'with the type back it is well');
$cluster->join_node(3, seed => 2);
is($one->sql('SELECT count(*), max(node), min(reason) FROM shard_homes'), '12|1|states', 'and who joins leaves it the shards of its states');
start_type($two);
add_all($two, 1);
is(counts($one), '24 of 2424', 'states go on');
is(counts($two), '0 of 0', 'and none begins anew');
$cluster->has_left($_) for 2, 3;

# --- joined, then restored ------------------------------------------------------------------------------

my ($a, $b) = ($cluster->add_node, $cluster->add_node);
$cluster->join_node(5, seed => 4);
restore($a);
like(problems($a), qr/table shard_entity\.counter has states, and no entity type/, 'at a member health names the table, too');
start_type($b);
add_all($b, 1);
is(counts($b), '24 of 24', 'entities have begun anew at the other one');
is($a->sql($recipe), "\n0 in other shards", 'the recipe');
$cluster->wait_registered($a);
like(problems($a), qr/state table of entity type "counter" has rows of 12 shards that are not here: shard 0 lives at node 2, .*Restored rows/,
	'health names shards that live elsewhere');
is($b->sql('SELECT ok FROM shard_health()'), 't', 'where they live all is well');
$error = $a->error_of("SELECT shard_move('counter', 5, 1)") // '';
like($error, qr/state table of entity type "counter" on node 1 has rows of shard 5 that no move has brought/, 'none comes here before they are gone');
is(counts($a), '24 of 2400', 'nothing was overwritten');
is(counts($b), '24 of 24', 'nor lost');
is($a->sql(q{SELECT DISTINCT what FROM shard_decisions WHERE shard = 5 AND why LIKE '%no move has brought%'}), 'move refused', 'people can read why');
is($b->get(5), '1 from node5', 'entities go on where they are');

$a->sql("BEGIN; $aside COMMIT");
is($a->sql('SELECT ok FROM shard_health()'), 't', 'with the rows aside it is well');
$cluster->move('counter', 5, 1);
$cluster->wait_home('counter', 5, 1, $a, $b);
is($b->get(5), '1 from node4', 'and the shard comes');
is($b->sql(q{SELECT count(shard_tell('counter', r.id, r.message)) FROM (VALUES ('5', '{"add": 100}'::jsonb)) r (id, message)}), 1, 'what was restored');
$cluster->drain;
is($b->get(5), '101 from node4', 'can be told');
is(counts($a, 'counter_restored'), '24 of 2400', 'since it is all there');

# There and back: rows that a former home has left are in nobody's way, though they stay for a while when somebody holds one.
my $holder = $a->session;
$holder->query('BEGIN; SELECT FROM shard_entity.counter WHERE shard = 5 FOR KEY SHARE;');
$cluster->move('counter', 5, 2);
$cluster->wait_home('counter', 5, 2, $a, $b);
is($a->sql('SELECT state FROM shard.own WHERE shard = 5'), 'sealed', 'rows of a former home that are still there');
unlike(problems($a), qr/no move brings/, 'are nothing that health has to say');
my $from = -s $server->logfile;
$a->sql(q{UPDATE shard_entity.counter SET state = '{"count": 9}' WHERE shard = 5});
$holder->query('COMMIT;');
$cluster->move('counter', 5, 1);
$holder->close;
$cluster->wait_home('counter', 5, 1, $a, $b);
is($b->get(5), '101 from node4', 'a shard comes back to where it was');
ok($server->wait_for_log(qr/WARNING: .*states of shard 5 of entity type "counter" were changed by SQL after the shard had left/, $from),
	'who changed what had left hears so, whoever deletes it');

# --- rows that come when the shard is on its way ---------------------------------------------------------

$server->set_fault('import_begin', 'freeze');
my $mover = $a->session;
$mover->send(q{SELECT shard_move('counter', 7, 1);});
ShardCluster::wait_for_condition(sub { $server->fault_happened }, 'the copy to begin');
$a->sql(q{INSERT INTO shard_entity.counter (shard, entity_id, state) VALUES (7, '7', '{"count": 700}')});
$server->clear_fault;
ok(!eval { $mover->receive; 1 }, 'a move that meets them is given up');
like($@, qr/has rows of shard 7 that no move has brought/, 'with the reason');
$mover->close;
$cluster->wait_home('counter', 7, 2, $a, $b);
is($a->sql('SELECT state FROM shard_entity.counter WHERE shard = 7'), '{"count": 700}', 'the rows are there');
is($b->get(7), '1 from node5', 'and so is what lives elsewhere');
like(problems($a), qr/has rows of 1 shard that is not here: shard 7 lives at node 2;/, 'health says so');
done_testing();
