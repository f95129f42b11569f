# Rows that say what SQL has changed in the state table of a type with replicas cost the worker that meets them nothing for longer (Q33).
# Where their shard has lost its state, they are no messages that could become dead letters; those of its former life wait for the next
# one, and are in no record before.

use strict;
use warnings FATAL => 'all';

use PostgreSQL::Test::Utils;
use ShardCluster;
use Test::More;

my $node = ShardCluster->create('first', conf => 'shard.region_workers = 1');

sub sql { my ($sql) = @_; return $node->safe_psql('postgres', $sql) }

sql(q{CREATE FUNCTION does(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN jsonb_build_object('n', coalesce((state->>'n')::int, 0) + 1);
	SELECT shard_start('anew', 'does', 4, replicas => 1)});
sql(q{SELECT shard_ask('anew', i::text, '{}') FROM generate_series(1, 20) i});

# --- what the worker keeps -------------------------------------------------------------------------------

# Bytes that the worker has in use in contexts that outlive its turns.
sub in_use
{
	my $at = -s $node->logfile;
	sql('SELECT pg_log_backend_memory_contexts(pid) FROM shard_stat_workers WHERE worker = 0');
	my $log;
	ShardCluster::wait_for_condition(sub { $log = slurp_file($node->logfile, $at); return $log =~ /Grand total/ }, 'the worker to say what it keeps');
	my $sum = 0;
	$sum += $_ for $log =~ /shard (?:routes|routing|news): .*; (\d+) used/g;
	return $sum;
}

# The table gets a problem, so that changes wait, or is mended, so that they are told.
sub has_problem
{
	my ($has) = @_;
	sql('ALTER TABLE shard_entity.anew ' . ($has ? 'DISABLE' : 'ENABLE ALWAYS') . ' TRIGGER shard_truncated');
	$node->wait_until(q{SELECT problem IS } . ($has ? 'NOT ' : '') . q{NULL FROM shard_types WHERE type_name = 'anew'}, 'the type to be suspended, or to go on');
	return;
}

# Changes of so many entities wait; what the worker has kept of that.
sub keeps_of
{
	my ($rows) = @_;
	has_problem(1);
	my $before = in_use();
	sql("INSERT INTO shard_entity.anew (shard, entity_id, state) SELECT shard_shard_id('anew', 'm' || i), 'm' || i, '{}' FROM generate_series(1, $rows) i");
	$node->wait_until("SELECT count(*) = $rows FROM shard.held WHERE kind = 24", 'all of them to wait');
	my $kept = in_use() - $before;
	has_problem(0);
	sql(q{DELETE FROM shard_entity.anew WHERE entity_id LIKE 'm%'});
	$node->wait_until('SELECT NOT EXISTS (SELECT FROM shard.held)', 'them to be told');
	return $kept;
}
keeps_of(20);
cmp_ok(keeps_of(5000), '<', 5000 * 8, 'nothing of each row');

# --- a shard that begins anew ----------------------------------------------------------------------------

my $shard = sql(q{SELECT shard_shard_id('anew', '1')});
my $type = sql(q{SELECT type_id FROM shard.type WHERE type_name = 'anew'});
my $own = "shard.own WHERE type_id = $type AND shard = $shard";
my @here = split /\n/, sql("SELECT entity_id FROM shard_entity.anew WHERE shard = $shard ORDER BY entity_id");
cmp_ok(scalar(@here), '>=', 2, 'some are in the shard');

sub waits { my ($entity) = @_; return "SELECT count(*) FROM shard.held WHERE kind = 24 AND entity = '$entity'" }

# A row waits, since the type has a problem, when the shard is lost.
has_problem(1);
sql("UPDATE shard_entity.anew SET state = state WHERE entity_id = '$here[0]'");
sql("SELECT shard_tell('anew', '$here[0]', '{}')");
$node->wait_until('SELECT (' . waits($here[0]) . ') = 1', 'the row to wait');
sql('UPDATE ' . $own =~ s/ WHERE/ SET state = 'sealed', move_id = 4711 WHERE/r);
$node->crash_postmaster;
$node->recover;
sql('ALTER TABLE shard_entity.anew ENABLE ALWAYS TRIGGER shard_truncated');
my $other = $node->session;
$other->query("BEGIN; SELECT FROM shard_entity.anew WHERE entity_id = '$here[1]' FOR UPDATE;");
ShardCluster::wait_for_condition(sub { return ($node->psql('postgres', "SELECT shard_give_up('anew', $shard)"))[0] == 0 }, 'the shard to be given up');
$node->wait_until("SELECT state = 'clearing' FROM $own", 'its rows to go');
is(sql('SELECT count(*) FROM shard.dead_letter WHERE kind = 24'), 0, 'what waited and is no message is no dead letter');
is(sql(q{SELECT count(*) FROM shard.dead_letter WHERE kind = 1}), 1, 'and a message is one');
sql("INSERT INTO shard_entity.anew (shard, entity_id, state) VALUES ($shard, 'former', '{}')");
$node->wait_until('SELECT (' . waits('former') . ') = 1', 'a row of the former life to wait for the next one');
is(sql("SELECT count(*) FROM shard.turn_records($type, $shard) WHERE entity = 'former'"), 0, 'of which nothing is told');
$other->query('COMMIT;');
$other->close;
$node->wait_until("SELECT state = 'active' FROM $own", 'the shard to begin');
$node->wait_until('SELECT (' . waits('former') . ') = 0', 'the row to be looked at then');
is(sql("SELECT string_agg(what, ', ') FROM shard.turn_records($type, $shard) WHERE entity = 'former'"), 'gone', 'what is left of it is told');
is(sql("SELECT shard_ask('anew', '$here[0]', '{}')->>'n'"), 1, 'the shard has begun without its states');

$node->log_is_clean;
done_testing();
