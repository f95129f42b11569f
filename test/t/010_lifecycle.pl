# Workers follow the life of extensions and databases: they come with CREATE EXTENSION, come back
# when they end, and are never in the way of DROP EXTENSION, DROP DATABASE and their like.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = ShardCluster->create('lifecycle', extension => 0);

# Region workers of a database, as a query.
sub workers_query
{
	my ($db) = @_;
	return qq{SELECT count(*) FROM pg_stat_activity
		WHERE backend_type = 'shard region' AND datname = '$db'};
}

# Waits until a database has that many workers; the test's line says why it should.
sub workers_become
{
	my ($db, $count, $why) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	ok($node->poll_query_until('postgres', workers_query($db), $count),
		"$db: $count workers, $why");
	return;
}

sub worker_pids_of
{
	my ($db) = @_;
	return $node->safe_psql('postgres',
		qq{SELECT string_agg(pid::text, ' ' ORDER BY pid) FROM pg_stat_activity
			WHERE backend_type = 'shard region' AND datname = '$db'});
}

# Runs a statement in database postgres that has to succeed.
sub succeeds
{
	my ($statement) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($status, undef, $err) = $node->psql('postgres', $statement);
	is($status, 0, $statement) or diag($err);
	return;
}

# Runs a statement that has to fail so.
sub fails
{
	my ($statement, $pattern, %opt) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my (undef, undef, $err) = $node->psql($opt{db} // 'postgres', $statement,
		extra_params => [ '-v', 'VERBOSITY=verbose', $opt{user} ? ('-U', $opt{user}) : () ]);
	like($err, $pattern, "$statement fails");
	return;
}

sub reload
{
	my ($setting) = @_;
	$node->safe_psql('postgres', "ALTER SYSTEM SET $setting");
	$node->reload;
	return;
}

# --- the extension -------------------------------------------------------------------------------

ok($node->poll_query_until('postgres', q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'shard launcher'}, 1),
	'there is a launcher');
$node->safe_psql('postgres', 'CREATE DATABASE plain');
$node->safe_psql('postgres', 'CREATE DATABASE one');
$node->safe_psql('postgres', 'CREATE DATABASE two');
$node->safe_psql($_, 'CREATE EXTENSION shard') for qw(one two);
workers_become('one', 1, 'CREATE EXTENSION');
workers_become('two', 1, 'CREATE EXTENSION in another database');
is($node->safe_psql('postgres', workers_query('plain')), 0, 'plain: none without extension');

$node->safe_psql('plain', 'BEGIN; CREATE EXTENSION shard; ROLLBACK');
$node->safe_psql('plain', 'BEGIN; SAVEPOINT s; CREATE EXTENSION shard; ROLLBACK TO s; COMMIT');
fails(q{BEGIN; CREATE EXTENSION shard; PREPARE TRANSACTION 'created'},
	qr/cannot PREPARE a transaction that has created or updated extension "shard"/, db => 'plain');
is($node->safe_psql('postgres', workers_query('plain')), 0, 'plain: none after a rollback');

my $before = worker_pids_of('one');
$node->safe_psql('postgres', "SELECT pg_terminate_backend($before)");
ok($node->poll_query_until('postgres', workers_query('one') . " AND pid <> $before", 1),
	'one: a terminated worker is replaced');

$node->safe_psql('one', 'DROP EXTENSION shard CASCADE');
workers_become('one', 0, 'DROP EXTENSION');
$node->safe_psql('one', 'CREATE EXTENSION shard');
workers_become('one', 1, 'CREATE EXTENSION again');

$before = worker_pids_of('one');
$node->safe_psql('one', 'BEGIN; DROP EXTENSION shard CASCADE; CREATE EXTENSION shard; COMMIT');
ok($node->poll_query_until('postgres', workers_query('one') . " AND pid <> $before", 1),
	'one: an extension made anew has a new worker');

$before = worker_pids_of('one');
$node->safe_psql('one', 'BEGIN; DROP EXTENSION shard CASCADE; ROLLBACK');
is(worker_pids_of('one'), $before, 'one: a DROP EXTENSION rolled back changes nothing');

# --- databases -----------------------------------------------------------------------------------

succeeds('ALTER DATABASE one RENAME TO first');
workers_become('first', 1, 'RENAME');

succeeds('CREATE DATABASE copy TEMPLATE first');
workers_become('first', 1, 'they return to the template');
workers_become('copy', 1, 'the copy has the extension');

my $tablespace = $node->basedir . '/space';
mkdir $tablespace or die "cannot make $tablespace: $!";
$node->safe_psql('postgres', "CREATE TABLESPACE space LOCATION '$tablespace'");
succeeds('ALTER DATABASE copy SET TABLESPACE space');
workers_become('copy', 1, 'SET TABLESPACE');

succeeds('ALTER DATABASE copy IS_TEMPLATE true');
workers_become('copy', 0, 'a template has none');
succeeds('ALTER DATABASE copy IS_TEMPLATE false');
workers_become('copy', 1, 'no template any more');

succeeds('DROP DATABASE copy');
succeeds('DROP DATABASE two WITH (FORCE)');
succeeds('DROP DATABASE IF EXISTS two');
fails('DROP DATABASE two', qr/database "two" does not exist/);

# Another session is in the way, so the statement fails, and the workers return.
my $session = $node->session('first');
$session->query('SELECT 1;');
$before = worker_pids_of('first');
fails('DROP DATABASE first', qr/is being accessed by other users/);
ok($node->poll_query_until('postgres', workers_query('first') . " AND pid <> $before", 1),
	'first: workers return after a DROP that failed');
$session->close;

# A RENAME keeps them out until its transaction ends.
$session = $node->session;
$session->query('BEGIN; ALTER DATABASE first RENAME TO renamed;');
is($node->safe_psql('postgres', workers_query('first')), 0, 'first: none during a RENAME');
$session->query('ROLLBACK;');
workers_become('first', 1, 'RENAME rolled back');

# Also if its session is killed.
$session->query('BEGIN; ALTER DATABASE first RENAME TO renamed;');
my $pid = $session->query('SELECT pg_backend_pid();');
$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid)");
workers_become('first', 1, 'the session that held a RENAME is gone');
$session->close;

# Whoever has no rights to a database does not stop its workers.
$node->safe_psql('postgres', 'CREATE ROLE stranger LOGIN');
$before = worker_pids_of('first');
fails('DROP DATABASE first', qr/must be owner/, user => 'stranger');
fails('ALTER DATABASE first RENAME TO mine', qr/must be owner/, user => 'stranger');
fails('ALTER DATABASE first SET TABLESPACE space', qr/must be owner/, user => 'stranger');
fails('CREATE DATABASE mine TEMPLATE first', qr/permission denied/, user => 'stranger');
$node->safe_psql('postgres', 'ALTER ROLE stranger CREATEDB');
fails('CREATE DATABASE mine TEMPLATE first', qr/permission denied to copy/, user => 'stranger');
fails('BEGIN; DROP DATABASE first', qr/cannot run inside a transaction block/);
is(worker_pids_of('first'), $before, 'first: its worker was left alone');

# --- settings ------------------------------------------------------------------------------------

# They are for owners of types.
my $type = q{CREATE FUNCTION echo(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN message; SELECT shard_start('thing', 'echo')};
$node->safe_psql('first', $type);
workers_become('first', 1, 'one owner');
reload('shard.region_workers = 3');
workers_become('first', 3, 'shard.region_workers raised');
reload('shard.region_workers = 2');
workers_become('first', 2, 'shard.region_workers lowered');

reload('shard.enabled = off');
workers_become('first', 0, 'shard.enabled is off');
succeeds('CREATE DATABASE copy TEMPLATE first');
succeeds('ALTER DATABASE copy RENAME TO other');
$node->safe_psql('plain', "CREATE EXTENSION shard; $type");
reload('shard.enabled = on');
workers_become($_, 2, 'shard.enabled is on again') for qw(first other plain);

# --- ends of processes ---------------------------------------------------------------------------

my $launchers = q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'shard launcher'};
my $launcher = ($node->worker_pids('%launcher'))[0];
$node->safe_psql('postgres', "SELECT pg_terminate_backend($launcher)");
# Without a launcher nobody could start workers, so nobody needs to wait for one.
succeeds('CREATE DATABASE third TEMPLATE template0');
ok($node->poll_query_until('postgres', "$launchers AND pid <> $launcher", 1),
	'a terminated launcher is replaced');
succeeds('DROP DATABASE other');
workers_become($_, 2, 'a new launcher takes over') for qw(first plain);

$node->crash_process((split ' ', worker_pids_of('first'))[0]);
workers_become($_, 2, 'the server restarted itself') for qw(first plain);
$node->restart;
workers_become($_, 2, 'the server was restarted') for qw(first plain);
$node->log_is_clean;

# --- limits --------------------------------------------------------------------------------------

# Room for two workers of ours, the launcher included.
$node->append_conf('postgresql.conf', "max_logical_replication_workers = 0\nmax_worker_processes = 3");
my $offset = -s $node->logfile;
$node->restart;
ok($node->poll_query_until('postgres', q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'shard region'}, 2),
	'as many workers run as there is room for');
my $warning = qr/could not start shard (?:control|region) of database \d+: no background worker slot is free/;
ShardCluster::wait_for_condition(sub { substr(slurp_file($node->logfile), $offset) =~ $warning },
	'a warning for want of slots');
like(slurp_file($node->logfile), qr/HINT:  Increase max_worker_processes, which is 3, and restart/,
	'the hint names the setting and its value');
for my $db (qw(first plain))
{
	ok($node->poll_query_until($db, q{SELECT problems::text LIKE
			'%the control worker does not run: no background worker slot is free; raise max_worker_processes, which is 3%' FROM shard_health()}),
		"$db: shard_health says so");
}

# --- without preload -----------------------------------------------------------------------------

$node->append_conf('postgresql.conf', "shared_preload_libraries = ''");
$node->restart;
$node->safe_psql('postgres', 'CREATE DATABASE bare');
fails('CREATE EXTENSION shard',
	qr/ERROR:  55000: shard must be loaded at server start.*HINT:  Add shard to shared_preload_libraries and restart the server\./s,
	db => 'bare');
is($node->safe_psql('bare', q{SELECT count(*) FROM pg_extension WHERE extname = 'shard'}), 0,
	'bare: no extension');
$node->safe_psql('first', 'SELECT * FROM shard_types');
is($node->safe_psql('first', q{SELECT shard.type_mode('hosting', 'front'), shard.type_mode(NULL, NULL) IS NULL}), 'proxy|t',
	'first: what a type is can be asked: a node without the library has no roles');
succeeds('DROP DATABASE first');
succeeds('DROP DATABASE plain WITH (FORCE)');

done_testing();
