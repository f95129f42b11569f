# B1: an owner locks the relation of his state's type for good, in a session or a prepared transaction, and has it looked at again.
# The control worker waits for no relation of a user's, nor does shard_health(), which names him.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(2, conf => 'max_prepared_transactions = 5');
my ($one, $two) = $cluster->nodes;
$cluster->sql_everywhere(<<'SQL');
CREATE ROLE mallory LOGIN;
GRANT CREATE ON DATABASE postgres TO mallory;
CREATE SCHEMA AUTHORIZATION mallory;
CREATE FUNCTION keep(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN message;
SET ROLE mallory;
SET search_path = mallory, public;
CREATE TABLE inner_st(a int);
CREATE TABLE st(a int, b text, c inner_st);
CREATE FUNCTION hst(state st, message jsonb) RETURNS st LANGUAGE plpgsql AS $$ BEGIN RETURN row(1, 'x', NULL)::st; END $$;
SQL
my $start = q{SET ROLE mallory; SELECT shard_start('lockc', 'mallory.hst', 4)};
for my $node ($cluster->nodes)
{
	$node->sql($start);
	$node->sql(q{SELECT shard_start('before', 'keep', 4)});
}
$cluster->wait_registered;

my $worker = q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'shard control'};
my @workers = map { $_->sql($worker) } $cluster->nodes;
my $lives = sub {
	my ($what) = @_;

	is_deeply([ map { $_->sql($worker) } $cluster->nodes ], \@workers, "$what: the control workers live");
	is($two->sql(qq{SELECT shard_ask('before', '$what', '1', '60 s')}), 1, "$what: new shards get homes");
};

# A prepared transaction at one node, on the type that is nested; a session at the other one. A change of their rows in
# pg_class, as by GRANT, which waits for the lock from 18 on, makes others look at the type again. So does a type that is
# started, behind which all have been looked at.
$one->sql(q{SET ROLE mallory; BEGIN; LOCK TABLE mallory.inner_st IN ACCESS EXCLUSIVE MODE; PREPARE TRANSACTION 'lk'});
my $session = $two->server->session_as('mallory');
$session->query(q{BEGIN; LOCK TABLE mallory.st IN ACCESS EXCLUSIVE MODE;});
my $locker = $session->query('SELECT pg_backend_pid();');
$_->sql(q{SET allow_system_table_mods = on; UPDATE pg_class SET relacl = relacl WHERE oid IN ('mallory.st'::regclass, 'mallory.inner_st'::regclass)})
  for $cluster->nodes;
$_->sql(q{SELECT shard_start('after', 'keep', 4)}) for $cluster->nodes;
is($one->sql(q{SELECT shard_ask('after', 'a', '1', '60 s')}), 1, 'B1: a type that is started meanwhile works');
$lives->('B1');
$one->wait_until(q{SELECT problems::text ~ 'entity type ..lockc.. .* prepared transaction ..lk.. of role ..mallory' FROM shard_health()}, 'shard_health() to name the prepared transaction');
$two->wait_until(qq{SELECT problems::text ~ 'entity type ..lockc.. .* process $locker of role ..mallory' FROM shard_health()}, 'shard_health() to name the session');

# The server that begins anew has never seen the type.
$one->server->restart;
$one->wait_until($worker =~ s/SELECT pid/SELECT count(*) = 1/r, 'the control worker');
$workers[0] = $one->sql($worker);
$lives->('restart');
$one->sql(q{SELECT shard_ask('after', 'b', '1', '60 s')});
is($one->sql($worker), $workers[0], 'B1: and lives on after the restart');

# Afterwards all is as before.
$one->sql(q{ROLLBACK PREPARED 'lk'});
$session->query('COMMIT;');
$_->sql(q{SELECT shard_ask('lockc', 'a', '{}', '60 s')}) for $cluster->nodes;
for my $node ($cluster->nodes)
{
	$node->wait_until('SELECT ok FROM shard_health()', 'all to be well');
	unlike(PostgreSQL::Test::Utils::slurp_file($node->server->logfile), qr/shard control.*lock timeout|canceling statement due to lock timeout/, 'no wait was in vain');
}
$session->close;

# Only a superuser can keep a control worker from beginning. Who asks meanwhile hears so.
$one->sql(q{BEGIN; LOCK TABLE shard.control IN ACCESS EXCLUSIVE MODE; PREPARE TRANSACTION 'control'});
$one->server->restart;
my ($code, $out, $error) = $one->server->psql('postgres', q{SELECT shard_ask('before', 'a', '1', '3 s')});
like($error, qr/DETAIL: .*This node handles nothing: its control worker has not begun; see shard_health\(\)/, 'an ask says what is missing');
like($one->error_of(q{SELECT shard_tell('before', 'a', '1')}), qr/55P03: .*whether this node takes messages.*HINT: .*pg_locks/s, 'so does who tells');
$one->sql(q{ROLLBACK PREPARED 'control'});
$one->wait_until('SELECT ok FROM shard_health()', 'all to be well again');
done_testing();
