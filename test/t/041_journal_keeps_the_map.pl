# shard.state_store_mode = persistence (R14): a journal keeps the cluster's map, no member votes. Any member can
# coordinate; without the journal known shards go on and new ones wait; it restarts with what it knew.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = ShardCluster->create('journal', extension => 0);
my $way = sprintf "host=%s port=%d user=%s", $node->host, $node->port, $node->safe_psql('postgres', 'SELECT current_user');

$node->append_conf('postgresql.conf', <<CONF);
shard.state_store_mode = persistence
shard.journal_dsn = '$way dbname=j'
shard.journal_database = 'j'
CONF
$node->restart;
$node->safe_psql('postgres', "CREATE DATABASE $_") for qw(j one two three);
$node->safe_psql('j', 'CREATE EXTENSION shard');

sub coordinator_worker
{
	my ($db) = @_;
	return $node->safe_psql('postgres', qq{SELECT pid FROM pg_stat_activity WHERE backend_type = 'shard control' AND datname = '$db'});
}

sub total
{
	my $sum = 0;
	$sum += $node->safe_psql($_, 'SELECT coalesce(sum(state), 0) FROM shard_entity.t') for qw(one two three);
	return $sum;
}

# Twice, for what was sent at one may be handled at another that has been looked at already.
sub drain_all
{
	$node->drain($_) for (qw(one two three)) x 2;
	return;
}

# --- the journal -----------------------------------------------------------------------------------

ShardCluster::wait_for_condition(sub { slurp_file($node->logfile) =~ /is to be a journal, and has no synchronous standby/ }, 'the warning');
pass('a journal without a standby does not run by itself');
$node->append_conf('postgresql.conf', 'shard.journal_ha = off');
$node->restart;
$node->wait_until(q{SELECT voter_state = 'unused' AND node_id = 65535 FROM shard.node}, 'the journal', 'j');
pass('unless somebody says so');

# --- a cluster -------------------------------------------------------------------------------------

$node->safe_psql($_, q{CREATE EXTENSION shard; CREATE FUNCTION h(s int, m jsonb) RETURNS int LANGUAGE sql RETURN coalesce(s, 0) + 1}) for qw(one two three);
is($node->safe_psql('two', "SELECT shard_join('$way dbname=one')"), 2, 'the second joins');
is($node->safe_psql('three', "SELECT shard_join('$way dbname=two')"), 3, 'and the third');
$node->wait_until('SELECT NOT bool_or(voter) FROM shard_members', 'the vote to go to the journal', 'one');
pass('no member votes');
$node->safe_psql($_, q{SELECT shard_start('t', 'h')}) for qw(one two three);
$node->safe_psql('one', q{SELECT shard_tell('t', 'e' || i, '1') FROM generate_series(1, 100) i});
drain_all();
is(total(), 100, 'messages are handled on three nodes');

# --- without it ------------------------------------------------------------------------------------

my $journal = coordinator_worker('j');
$node->stop_idle($journal);
is($node->safe_psql('two', q{SELECT shard_ask('t', 'e7', '1', '60 s')}), 2, 'without the journal, shards with a home go on');
kill 'CONT', $journal;

# --- a coordinator is lost ---------------------------------------------------------------------------

my $first = $node->safe_psql('two', 'SELECT node FROM shard_members WHERE coordinator');
my $frozen = coordinator_worker({ 1 => 'one', 2 => 'two', 3 => 'three' }->{$first});
my $asked = $first == 3 ? 'two' : 'three';
$node->stop_idle($frozen);
$node->wait_until("SELECT node <> $first FROM shard_members WHERE coordinator", 'another coordinator', $asked);
pass('another member takes over');
$node->safe_psql($asked, q{SELECT shard_tell('t', 'f' || i, '1') FROM generate_series(1, 100) i});
kill 'CONT', $frozen;
drain_all();
is(total(), 201, 'and gives homes');

# --- everything restarts -----------------------------------------------------------------------------

$node->restart;
$node->wait_until('SELECT bool_or(coordinator) FROM shard_members', 'a coordinator after the restart', 'one');
$node->safe_psql('one', q{SELECT shard_tell('t', 'g' || i, '1') FROM generate_series(1, 100) i});
drain_all();
is(total(), 301, 'it goes on after a restart');
is($node->safe_psql('j', 'SELECT voter_state FROM shard.node'), 'ok', 'the journal remembers what it had promised');
my (undef, undef, $err) = $node->psql('j', q{SELECT shard_join('x')});
isnt($err, '', 'a journal does not join');

# --- members agree on who keeps the map --------------------------------------------------------------

# Y10, both ways.
my $other = ShardCluster->create('without');
my $to_other = sprintf "host=%s port=%d user=%s dbname=postgres", $other->host, $other->port, $other->safe_psql('postgres', 'SELECT current_user');
my (undef, undef, $error) = $other->psql('postgres', "\\set VERBOSITY verbose\nSELECT shard_join('$way dbname=one')");
like($error, qr/55000: .*"shard\.state_store_mode" is "persistence" in the cluster, "ddata" on the node.*HINT:  Set shard\.state_store_mode as the members have it, with shard\.journal_dsn/s,
	'who looks for the map at voters does not join those who look in a journal');
$node->safe_psql('postgres', 'CREATE DATABASE four');
$node->safe_psql('four', 'CREATE EXTENSION shard');
(undef, undef, $error) = $node->psql('four', "\\set VERBOSITY verbose\nSELECT shard_join('$to_other')");
like($error, qr/55000: .*"shard\.state_store_mode" is "ddata" in the cluster, "persistence" on the node/, 'nor the other way round');
is($other->safe_psql('postgres', 'SELECT count(*) FROM shard_members'), 1, 'nobody has joined');
is($node->safe_psql('one', 'SELECT count(*) FROM shard_members'), 3, 'anywhere');
$other->stop;
$node->stop;
done_testing();
