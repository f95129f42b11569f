# A type of which messages are in the inbox that nobody has read is not dropped without force: whether they are committed,
# sent by who drops it, or by a transaction that is open; and who sends one while it is dropped hears of it. With force it is
# said how many they are, to the caller and in the log, and what becomes of them, too.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use Test::More;

my $node = ShardCluster->create('dropped', conf => 'shard.region_workers = 1');
$node->safe_psql('postgres', q{
	CREATE TABLE seen (what jsonb);
	CREATE FUNCTION fresh(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO seen VALUES (message);
		RETURN NULL;
	END $$});

sub start { $node->safe_psql('postgres', q{SELECT shard_start('fresh', 'fresh(jsonb,jsonb)')}); return }
sub sending { my ($count) = @_; return qq{SELECT count(shard_tell('fresh', i::text, to_jsonb(i))) FROM generate_series(1, $count) i;} }
sub told { my ($count) = @_; $node->safe_psql('postgres', sending($count)); return }
sub drop { my ($force) = @_; return q{SELECT shard_drop_type('fresh'} . ($force ? ', force => true' : '') . ');' }

# What the server says to SQL, with SQLSTATE.
sub said
{
	my ($sql) = @_;
	my ($status, $out, $err) = $node->psql('postgres', "\\set VERBOSITY verbose\n$sql");
	return $err;
}

sub failure
{
	my ($session, $sql) = @_;
	return eval { $session->query($sql); 1 } ? '' : $@;
}

# What became of what a session has sent.
sub failure_of
{
	my ($session) = @_;
	return eval { $session->receive; 1 } ? '' : $@;
}

# No message is read until it goes on. The type's worker, which began with it, is there once it has handled one.
my @workers;
sub stop_worker
{
	$node->safe_psql('postgres', q{SELECT shard_tell('fresh', 'first', '"first"')});
	$node->drain;
	$node->safe_psql('postgres', q{DELETE FROM seen WHERE what = '"first"'});
	@workers = $node->worker_pids('%region%');
	$node->stop_idle(@workers);
	return;
}
sub go_on { kill 'CONT', @workers; $node->drain; return }

start();
told(2);
$node->drain;
is(said('BEGIN;' . drop() . 'ROLLBACK;'), '', 'what is handled is in nobody\'s way');

stop_worker();
told(3);
like(said(drop()), qr/2BP01: cannot drop entity type "fresh" because it is in use\nDETAIL: .*is empty; waiting messages: 3; dead letters: 0\.\nHINT: .*shard_drain/,
	'unread messages keep the type');
go_on();
is($node->safe_psql('postgres', 'SELECT count(*) FROM seen'), 5, 'they are handled');

start();
like(said('BEGIN;' . sending(1) . drop() . 'COMMIT;'), qr/2BP01.*waiting messages: 1;.* this transaction has sent: 1\./s, 'so does one of the same transaction');
start();
like(said('BEGIN;' . sending(100) . drop() . 'COMMIT;'), qr/2BP01.*waiting messages: 100;.* this transaction has sent: 100\./s, 'also of those that it has written');
start();
like(said('SELECT shard_tell(\'fresh\', \'1\', \'1\'), shard_drop_type(\'fresh\');'), qr/2BP01.*waiting messages: 1;/s, 'and in the same statement');

# Transactions that have not ended are not waited for.
start();
my $sender = $node->session;
$sender->query('BEGIN;' . sending(100));
like(said(drop()), qr/2BP01.*waiting messages: 0;.* transactions that are open: [1-9]/s, 'so do messages of an open transaction');
$sender->query('ROLLBACK;');
start();
$sender->query('BEGIN;' . sending(1) . q{PREPARE TRANSACTION 'sent';});
like(said(drop()), qr/2BP01.* transactions that are open: 1\./s, 'and of a prepared one');
$node->safe_psql('postgres', q{ROLLBACK PREPARED 'sent'});

# What is sent in between is not lost: the one who drops is told, or the one who sends.
start();
my $dropper = $node->session;
$dropper->query('BEGIN;' . drop());
told(1);
like(failure($dropper, 'COMMIT;'), qr/cannot drop entity type "fresh" because messages were sent to it meanwhile/, 'who drops hears of what came meanwhile');
$node->drain;
is($node->safe_psql('postgres', 'SELECT count(*) FROM seen'), 6, 'and that is handled');

start();
$dropper->query('BEGIN; SAVEPOINT a;' . drop() . 'ROLLBACK TO a;');
told(1);
is(failure($dropper, 'COMMIT;'), '', 'unless nothing is dropped');
$node->drain;

start();
$sender->query('BEGIN;' . sending(1));
is(said(drop()), '', 'what nobody can see keeps nothing');
like(failure($sender, 'COMMIT;'), qr/entity type "fresh" was dropped before messages to it were committed/, 'but its sender hears of it');
is(said('SET client_min_messages = warning; BEGIN; SAVEPOINT a; SELECT shard_start(\'fresh\', \'fresh(jsonb,jsonb)\');' . sending(1) . 'ROLLBACK TO a; COMMIT;'), '',
	'nobody is told about what he has not sent');
is($node->safe_psql('postgres', 'SELECT count(*) FROM shard.dead_letter'), 0, 'nothing was given up');

# What was put aside between the look and the end keeps it, too.
start();
$node->set_fault('drop_looked', 'freeze');
$dropper->query('SELECT 1;');
$dropper->send(drop());
ShardCluster::wait_for_condition(sub { $node->fault_happened }, 'the drop to have looked');
told(1);
$node->wait_until('SELECT count(*) = 1 FROM shard.held', 'the message to be put aside');
$node->clear_fault;
like(failure_of($dropper), qr/cannot drop entity type "fresh" because it is in use/, 'what is put aside meanwhile is not deleted');
$node->drain;
is($node->safe_psql('postgres', 'SELECT count(*) FROM seen'), 8, 'but handled');
like(failure($dropper, 'BEGIN;' . drop() . q{PREPARE TRANSACTION 'drop';}), qr/cannot prepare a transaction that has dropped an entity type without force/,
	'who prepares it would look too early');
$dropper->query('ROLLBACK;');

# A forced one that was rolled back gives up nothing.
$sender->query('BEGIN; SAVEPOINT a;' . drop(1) . 'ROLLBACK TO a;' . sending(1));
is(said(drop()), '', 'somebody else drops it');
like(failure($sender, 'COMMIT;'), qr/entity type "fresh" was dropped before/, 'and the sender hears of it');

# With force it is said what is given up.
start();
stop_worker();
told(500);
like(said(drop(1)), qr/NOTICE: .*messages of entity type "fresh" that are still in the inbox: 500\nDETAIL: .*become dead letters/, 'force says how many are not read');
like(PostgreSQL::Test::Utils::slurp_file($node->logfile), qr/LOG: .*drops entity type "fresh" with force, and gives up messages: 500\n.*still in the inbox: 500/,
	'so does the log');
go_on();
is($node->safe_psql('postgres', q{SELECT count(*), count(type_name), count(DISTINCT sqlstate) FROM shard_dead_letters WHERE hint ~ 'shard_redrive\(\) cannot send the message again'}),
	'500|0|1', 'they are dead letters, which say that they cannot be sent again');
like(PostgreSQL::Test::Utils::slurp_file($node->logfile), qr/WARNING: .*messages of entity types that are not here became dead letters: \d+\n.*was dropped here/,
	'the log says what came when the type was gone');
start();
like(said('SELECT shard_redrive(ARRAY[(SELECT min(id) FROM shard.dead_letter)]);'), qr/42704: entity type of dead letter \d+ does not exist\nDETAIL: .*dropped.*\nHINT: .*shard_tell/,
	'and whoever sends one again is told how it can be');

is(said('BEGIN; SET client_min_messages = warning;' . sending(1) . drop(1) . 'COMMIT;'), '', 'who gives up his own may');

# The log says it once a minute, and the worker that ends says what it has not said.
start();
stop_worker();
told(7);
$dropper->query('SET client_min_messages = warning;' . drop(1));
go_on();
$node->drain;
my $given_up = $node->safe_psql('postgres', 'SELECT count(*) FROM shard_dead_letters WHERE type_name IS NULL');
ok($given_up >= 507, 'more became dead letters');
$node->restart;
my $log = PostgreSQL::Test::Utils::slurp_file($node->logfile);
my $said = 0;
$said += $1 while $log =~ /WARNING: .*messages of entity types that are not here became dead letters: (\d+)/g;
is($said, $given_up, 'the log has told all of them');

start();
is(said('BEGIN;' . drop() . 'DROP EXTENSION shard; COMMIT;'), '', 'the extension may go with its last type');
$node->log_is_clean;
done_testing();
