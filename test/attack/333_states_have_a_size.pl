# B2: composites that are twice in one another, 2^17 attributes in 17 types: each control worker wrote all of them out, with 132 MB, or gigabytes for two levels more. Such a type is
# no state, 54000, and one that became so later is not described.

use strict;
use warnings FATAL => 'all';

use PostgreSQL::Test::Utils;
use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(2);
my ($one, $two) = $cluster->nodes;
my $levels = 16;
my $nested = join "\n", map { sprintf 'CREATE TYPE n_%d AS (a n_%d, b n_%d);', $_, $_ - 1, $_ - 1 } 1 .. $levels;
$cluster->sql_everywhere(<<"SQL");
CREATE ROLE mallory LOGIN;
GRANT CREATE ON DATABASE postgres TO mallory;
CREATE SCHEMA AUTHORIZATION mallory;
CREATE FUNCTION keep(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN message;
SET ROLE mallory;
SET search_path = mallory, public;
CREATE TYPE n_0 AS (a int, b int);
$nested
CREATE FUNCTION hn(state n_$levels, message jsonb) RETURNS n_$levels LANGUAGE plpgsql AS \$\$ BEGIN RETURN state; END \$\$;
CREATE TYPE grows AS (a int);
CREATE TYPE holds AS (g grows);
CREATE FUNCTION hg(state holds, message jsonb) RETURNS holds LANGUAGE plpgsql AS \$\$ BEGIN RETURN state; END \$\$;
SQL
my $peak = sub {
	my $pid = $_[0]->sql(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'shard control'});
	my ($kb) = slurp_file("/proc/$pid/status") =~ /VmHWM:\s+(\d+)/;
	return ($pid, $kb);
};
my @before = map { [ $peak->($_) ] } $cluster->nodes;

for my $node ($cluster->nodes)
{
	my ($code, $out, $error) = $node->server->psql('postgres', q{\set VERBOSITY verbose
		SET ROLE mallory; SELECT shard_start('n', 'mallory.hn')});
	like($error, qr/54000: type (?:mallory\.)?n_16 has too many attributes for states/, 'B2: it is refused');
}
$_->sql(q{SET ROLE mallory; SELECT shard_start('g', 'mallory.hg')}) for $cluster->nodes;
$cluster->wait_registered;
$_->sql(q{SET ROLE mallory; SET search_path = mallory; ALTER TYPE grows ADD ATTRIBUTE b n_16}) for $cluster->nodes;
$_->sql(q{SELECT shard_start('after', 'keep', 4)}) for $cluster->nodes;
is($one->sql(q{SELECT shard_ask('after', 'a', '1', '60 s')}), 1, 'the cluster goes on');
for my $node ($cluster->nodes)
{
	$node->wait_until(q{SELECT problems::text LIKE '%states of entity type%g%cannot be compared%type mallory.holds has too many attributes%' FROM shard_health()}, 'shard_health() to say so');
	my ($pid, $kb) = $peak->($node);
	my ($old, $then) = @{ shift @before };
	is($pid, $old, 'the control worker lives');
	cmp_ok($kb - $then, '<', 32 * 1024, 'with little more memory');
	is(scalar(() = slurp_file($node->server->logfile) =~ /cannot be compared with those of other nodes/g), 1, 'and the log says it once');
}
$_->sql(q{SET ROLE mallory; SET search_path = mallory; ALTER TYPE grows DROP ATTRIBUTE b}) for $cluster->nodes;
$_->wait_until('SELECT ok FROM shard_health()', 'all to be well') for $cluster->nodes;

done_testing();
