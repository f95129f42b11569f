# P19: somebody who may read the server's log waits for a password in it. An address with a password is refused; neither
# the error nor the server's STATEMENT, CONTEXT and QUERY lines of it have the password, whatever the error is.

use strict;
use warnings FATAL => 'all';

use PostgreSQL::Test::Utils;
use ShardCluster;
use Test::More;

my $server = ShardCluster->create('node', conf => "log_statement = none\nlog_error_verbosity = verbose");
$server->safe_psql('postgres', 'CREATE ROLE nobody LOGIN; CREATE TABLE t (i int)');

my $number = 0;

# SQL in which %s is a password that nobody knows; it has to fail, and its message matches.
sub tell_nobody
{
	my ($why, $sql, $message, %opt) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $secret = 'open' . ++$number . 'sesame';
	my $offset = -s $server->logfile;
	my $knows = delete $opt{client_knows};
	my ($status, undef, $error) = $server->psql('postgres', sprintf($sql, $secret), %opt);
	like($error, $message, "P19: $why");
	unlike($error, qr/$secret/, "P19: $why, and the error has no password") unless $knows;
	my $log = slurp_file($server->logfile, $offset);
	like($log, qr/ERROR:/, "P19: $why, which is in the log");
	unlike($log, qr/$secret/, "P19: $why, without the password");
	return;
}

tell_nobody('an option that is refused', q{SELECT shard_join('host=h password=%s')}, qr/option "password" is not allowed/);
tell_nobody('one in quotes', q{SELECT shard_join($$host=h password='%s x'$$)}, qr/option "password" is not allowed/);
tell_nobody('without quotes', q{SELECT shard_join('host=h password=a %s')}, qr/not a connection string/);
tell_nobody('misspelt', q{SELECT shard_join('host=h pasword=%s')}, qr/not a connection string/);
tell_nobody('as an option', q{SELECT shard_join('host=h %s=x')}, qr/not a connection string/);
tell_nobody('in a URI', q{SELECT shard_join('postgresql://me:%s@h/app')}, qr/option "password" is not allowed/);
tell_nobody('in a URI that is none', q{SELECT shard_join('postgresql://me:%s@[h/app')}, qr/not a connection string/);
tell_nobody('in an address within another one', q{SELECT shard_join('dbname=postgresql://me:%s@h/app')}, qr/option "dbname" is not allowed/);
tell_nobody('of a key', q{SELECT shard_join('host=h sslpassword=%s')}, qr/option "sslpassword" is not allowed/);
tell_nobody('in the own address', q{SELECT shard_join('host=127.0.0.1 port=1', 'host=h password=%s')}, qr/own_dsn cannot be used/);
tell_nobody('in other letters', q{SELECT public."shard_join"(own_dsn => NULL, seed_dsn => 'host=h PASSWORD=%s')}, qr/cannot be used/);
tell_nobody('in a syntax error', q{SELECT shard_join('host=h password=%s') oops, !}, qr/syntax error/, client_knows => 1);
tell_nobody('of a role without the right', q{SELECT shard_join('host=h password=%s')}, qr/permission denied for function shard_join/, extra_params => [ '-U', 'nobody' ]);
tell_nobody('in a transaction that has written', q{BEGIN; INSERT INTO t VALUES (1); SELECT shard_join('host=h password=%s')}, qr/has written/);
tell_nobody('in a block', q{DO $$ BEGIN PERFORM shard_join('host=h password=%s'); END $$}, qr/not allowed/, client_knows => 1);
tell_nobody('in a function', q{CREATE OR REPLACE FUNCTION f() RETURNS int LANGUAGE plpgsql AS $$ BEGIN RETURN shard_join('host=h password=%s'); END $$;
SELECT f()}, qr/not allowed/, client_knows => 1);
tell_nobody('as a setting', q{ALTER SYSTEM SET shard.journal_dsn = 'password=%s' oops}, qr/syntax error/, client_knows => 1);

# What else fails is logged as ever.
my $offset = -s $server->logfile;
$server->psql('postgres', q{SELECT 1/0 AS as_ever});
like(slurp_file($server->logfile, $offset), qr/STATEMENT:\s+SELECT 1\/0 AS as_ever/, 'other statements are in the log');
$server->log_is_clean;
done_testing();
