# P19: statements that give somebody an address are left out of the server's log. Nobody hides what he does by
# writing the function's name into it.

use strict;
use warnings FATAL => 'all';

use PostgreSQL::Test::Utils;
use ShardCluster;
use Test::More;

my $server = ShardCluster->create('node', conf => 'log_statement = none');
$server->safe_psql('postgres', 'CREATE ROLE mallory LOGIN');

# What the log has of a statement of mallory's that fails.
sub logged
{
	my ($sql) = @_;
	my $offset = -s $server->logfile;
	my ($status) = $server->psql('postgres', $sql, extra_params => [ '-U', 'mallory' ]);
	isnt($status, 0, "fails: $sql");
	return slurp_file($server->logfile, $offset);
}

# --- words -------------------------------------------------------------------------------------------

like(logged("SELECT 1/0 $_"), qr/STATEMENT:\s+SELECT 1\/0 \Q$_\E/, "P19: logged whole: $_")
  for '/* shard_join */', '/* shard_join(1) */', '/* /* */ shard_join( */', 'AS shard_join', 'AS "shard_join"', q{, 'shard_join'},
  q{, 'shard_join is a function'}, 'AS xshard_join, (1)', 'AS journal_dsn', 'FROM (SELECT 1) AS shard_join';

# --- calls -------------------------------------------------------------------------------------------

sub begins
{
	my ($sql, $begin) = @_;
	my $log = logged($sql);
	unlike($log, qr/STATEMENT:/, "P19: left out: $sql");
	unlike($log, qr/sesame/, 'P19: with what is secret');
	like($log, qr/DETAIL:.*The statement may have an address in it and is left out; it begins with: \Q$begin\E\n/s, 'P19: but for how it begins');
	return;
}
begins(q{SELECT 1/0 WHERE shard_join('sesame') IS NULL}, 'SELECT 1/0 WHERE ');
begins(q{SELECT 1/0, 'shard_join(sesame)'}, 'SELECT 1/0, ');
begins(q{SELECT 1/0 /* sesame */ + shard_join('')}, 'SELECT 1/0 ');
begins(q{SELECT 'it''s --', 1/0, shard_join /* sesame */ ('')}, 'SELECT ');
begins(q{SELECT E'\\' --', shard_join('sesame')}, 'SELECT ');
begins(q{SELECT $x$ ' $x$, "a", SHARD_JOIN('sesame'), 1/0}, 'SELECT ');
begins(q{SELECT "it's", "shard_join" ('sesame')}, q{SELECT "it's", });
begins(q{DO $$ BEGIN EXECUTE 'SELECT shard_join(''sesame'')'; END $$}, 'DO ');
begins(q{SELECT shard_join(sesame}, 'SELECT ');
begins(q{SET shard.journal_dsn TO 'sesame' oops}, 'SET shard.');
begins(q{SELECT 1/0, set_config('shard.journal_dsn', 'sesame', false)}, 'SELECT 1/0, set_config(');
like(logged(q{SELECT shard_join('host=h password=sesame')}), qr/DETAIL:.*it begins with: SELECT /, 'P19: also of a role without the right');
$server->log_is_clean;
done_testing();
