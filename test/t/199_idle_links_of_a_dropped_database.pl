# DROP DATABASE and its like end the connections of other nodes, also those that have called nothing yet, and those that
# come in meanwhile; and nobody else's: who makes a link says so as he logs in, and nobody can say it of another's session.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(2, databases => 1, conf => "shard.region_workers = 1\n");
my ($one, $two) = $cluster->nodes;
my $server = $one->server;
my $role = $ShardNodes::peer_role;
$cluster->start_recorder;

sub postgres_sql { my ($sql) = @_; return $server->safe_psql('postgres', $sql) }

# What a statement in database postgres says that fails; '' if it succeeds.
sub error_of
{
	my ($sql) = @_;
	my ($status, undef, $error) = $server->psql('postgres', $sql);
	return $status == 0 ? '' : $error;
}

# --- a link that was made for nothing ------------------------------------------------------------

# Asks that fail for want of a connection have one tried, and nothing calls over it when it stands.
my $there = $cluster->entity_at('recorder', 2);
postgres_sql('ALTER DATABASE node2 CONNECTION LIMIT 0');
my $ask = qq{SELECT shard_ask('recorder', '$there', '{"what": "asked"}', '2 s')};
ShardCluster::wait_for_condition(sub { ($one->error_of($ask) // '') =~ /too many connections/ }, 'asks to fail');
postgres_sql('ALTER DATABASE node2 CONNECTION LIMIT -1');
$server->wait_until(q{SELECT count(*) > 0 FROM pg_stat_activity WHERE datname = 'node2' AND application_name ~ '^shard ask'
	AND state = 'idle' AND query ~ '^(SET [^;]*; *)?SELECT pg_catalog.bool_or'}, 'a link that idles and has called nothing');
is(error_of('ALTER DATABASE node2 RENAME TO other'), '', 'the database can be renamed while a link idles there');
is(error_of('ALTER DATABASE other RENAME TO node2'), '', 'and back');
$cluster->wait_reachable;
$one->sql(ShardCluster::tell_recorder($there, 1));
$cluster->wait_recorded($there, 2, 1);

ShardCluster::wait_for_condition(sub {
	postgres_sql('ALTER DATABASE node2 CONNECTION LIMIT 0');
	postgres_sql(q{SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = 'node2' AND application_name ~ '^shard ask'});
	return ($one->error_of($ask) // '') =~ /too many connections/;
}, 'asks to fail again');
postgres_sql('ALTER DATABASE node2 CONNECTION LIMIT -1');
$server->wait_until(q{SELECT count(*) > 0 FROM pg_stat_activity WHERE datname = 'node2' AND application_name ~ '^shard ask'
	AND state = 'idle' AND query ~ '^(SET [^;]*; *)?SELECT pg_catalog.bool_or'}, 'a link that idles and has called nothing');
is(error_of('CREATE DATABASE copied TEMPLATE node2'), '', 'it can be copied');
postgres_sql('DROP DATABASE copied');
is(error_of('DROP DATABASE node2'), '', 'and dropped');
$cluster->has_left(2);

# --- who is one, and who is not ------------------------------------------------------------------

sub session
{
	my ($db, $what) = @_;
	return ShardCluster::Session->new('host=127.0.0.1 port=' . $server->port . " dbname=$db user=$role $what");
}

postgres_sql('CREATE DATABASE apart');
$server->safe_psql('apart', 'CREATE EXTENSION shard');
$server->wait_until(q{SELECT count(*) = 2 FROM pg_stat_activity WHERE datname = 'apart' AND backend_type ~ '^shard'}, 'its workers');

my $named = session('apart', "application_name='shard ask 0'");
is($named->query('SELECT 1;'), 1, 'a user, whatever name the session has');
like(error_of('ALTER DATABASE apart RENAME TO x'), qr/is being accessed by other users/, 'a user is waited for');
is($named->query('SELECT 2;'), 2, 'and not ended');
$named->close;
$server->wait_until("SELECT count(*) = 0 FROM pg_stat_activity WHERE datname = 'apart' AND usename = '$role'", 'the end of the session');

my $link = session('apart', "options='-c shard.link=on'");
is($link->query('SELECT 1;'), 1, 'a link');
is(error_of('ALTER DATABASE apart RENAME TO x'), '', 'is ended');
ok(!eval { $link->query('SELECT 2;'); 1 }, 'and knows it');
is(error_of('ALTER DATABASE x RENAME TO apart'), '', 'the old name is there again');

$server->safe_psql('apart', "CREATE FUNCTION f() RETURNS void LANGUAGE plpgsql AS 'BEGIN SET shard.link = on; END'");
for ('ALTER DATABASE apart SET shard.link = on', "ALTER ROLE $role SET shard.link = on", 'ALTER ROLE ALL SET shard.link = on',
	'SET shard.link = on', "SELECT set_config('shard.link', 'on', false)", 'SELECT f()', 'ALTER FUNCTION f() SET shard.link = on',
	'ALTER SYSTEM SET shard.link = on')
{
	my ($status, undef, $error) = $server->psql('apart', $_);
	like($error, qr/"shard.link" cannot be (?:set after connection start|changed)/, "nobody says it of others: $_");
}

# --- one that comes in meanwhile -----------------------------------------------------------------

# A worker that cannot leave keeps the statement waiting, without a lock yet that would keep others out.
$server->wait_until(q{SELECT count(*) = 2 FROM pg_stat_activity WHERE datname = 'apart' AND backend_type ~ '^shard'}, 'the workers');
my $worker = postgres_sql(q{SELECT pid FROM pg_stat_activity WHERE datname = 'apart' AND backend_type = 'shard region'});
kill 'STOP', $worker or die "cannot stop process $worker: $!";
my $dropper = $server->session;
$dropper->send('DROP DATABASE apart;');
$server->wait_until(q{SELECT count(*) = 1 FROM pg_stat_activity WHERE query ~ '^DROP DATABASE apart' AND wait_event_type = 'Extension'},
	'the statement to wait for workers');
my ($status, undef, $error) = $server->psql('apart', "SELECT pg_sleep($ShardCluster::patience)",
	connstr => $server->connstr('apart') . " user=$role options='-c shard.link=on'");
like($error, qr/terminating connection/, 'a link that comes in meanwhile is ended at once');
kill 'CONT', $worker or die "cannot continue process $worker: $!";
ok(eval { $dropper->receive; 1 }, 'the database is dropped') or diag($@);
done_testing();
