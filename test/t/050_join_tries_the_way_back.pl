# shard_join makes an empty node a member only if all members will reach it at its own address; what
# is refused says why and changes nothing; a join that was interrupted is finished by calling it again.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use PostgreSQL::Test::Utils;
use Test::More;

my $cluster = ShardNodes->create(5, databases => 1, join => 0);
my ($first, $second, $third, $fourth, $fifth) = $cluster->nodes;
my $server = $first->server;
my ($port, $role) = ($server->port, $ShardNodes::peer_role);

# An address in this server.
sub dsn_of
{
	my ($db, %but) = @_;
	my %option = (host => '127.0.0.1', port => $port, dbname => $db, user => $role, %but);
	return join ' ', map { "$_=$option{$_}" } sort keys %option;
}

# A join that has to fail so; the error is shown with SQLSTATE, detail and hint.
sub fails
{
	my ($node, $arguments, $pattern, $why) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($status, undef, $err) = $node->server->psql($node->db, "SELECT shard_join($arguments)",
		extra_params => [ '-v', 'VERBOSITY=verbose' ]);
	isnt($status, 0, "$why: refused");
	like($err, $pattern, "$why: says so");
	return;
}

sub quoted { return join ', ', map { "'$_'" } @_ }

my $seed = dsn_of($first->db);

# --- addresses that cannot be used ---------------------------------------------------------------

fails($second, quoted("$seed password=secret"), qr/22023: .*"password" is not allowed.*HINT: .*passfile/s,
	'a password');
fails($second, quoted("$seed options=-cwork_mem=1GB"), qr/22023: .*"options" is not allowed.*HINT/s, 'options');
fails($second, quoted($seed, dsn_of($second->db, application_name => 'x')),
	qr/22023: own_dsn .*"application_name"/, 'an own address with a name');
fails($second, quoted('nonsense'), qr/22023: .*not a connection string.*HINT/s, 'no address');
fails($second, quoted(''), qr/22023: .*empty/, 'an empty address');
fails($second, 'NULL', qr/22004: /, 'NULL');

# --- seeds that are none -------------------------------------------------------------------------

fails($second, quoted('dbname=nowhere'), qr/socket "\S+\.$port".*database "nowhere" does not exist/s,
	'no host: this server, where it listens');
fails($second, quoted(dsn_of('nowhere')), qr/3D000: .*does not exist.*CONTEXT: .*seed/s, 'no such database');
fails($second, quoted(dsn_of($first->db, user => 'nobody')),
	qr/28000: .*FATAL: +role "nobody" does not exist(?!.*miscinit\.c).*HINT:  The server's process connects.*user=.*operating system user/s,
	'a role that does not exist there: who connects, and how to name another');
$server->safe_psql('postgres', "CREATE ROLE guarded LOGIN PASSWORD 'secret'");
my $hba = $server->data_dir . '/pg_hba.conf';
my $rules = PostgreSQL::Test::Utils::slurp_file($hba);
open my $file, '>', $hba or die "cannot write $hba: $!";
print {$file} "host all guarded 127.0.0.1/32 scram-sha-256\n$rules";
close $file or die "cannot write $hba: $!";
$server->reload;
ShardCluster::wait_for_condition(sub { $server->safe_psql('postgres', q{SELECT count(*) FROM pg_hba_file_rules WHERE user_name = '{guarded}'}) eq '1' }, 'the rule');
fails($second, quoted(dsn_of($first->db, user => 'guarded')), qr/28P01: .*no password supplied.*HINT:  .*shard\.peer_passfile/s,
	'a password that nobody gave: where it belongs');
fails($second, quoted(dsn_of($second->db)), qr/22023: .*this node itself.*HINT/s, 'the node itself');
$server->safe_psql('postgres', 'CREATE DATABASE plain');
fails($second, quoted(dsn_of('plain')), qr/(?:3F000|42501): /, 'a database without the extension');
$server->safe_psql('plain', 'CREATE EXTENSION shard');
fails($second, quoted(dsn_of('plain')), qr/42501: .*HINT: .*shard_allow_peer/s, 'a role without rights there');

# --- own addresses that are not ours -------------------------------------------------------------

fails($second, quoted($seed, dsn_of($third->db)), qr/55000: .*another node answers.*HINT: .*own_dsn/s,
	"another node's address");
fails($second, quoted($seed, dsn_of($second->db, port => 1)), qr/08001: .*cannot be reached.*HINT: .*own_dsn/s,
	'an address where nobody is');
is($second->sql('SELECT string_agg(node || status, $$ $$) FROM shard_members'), '1up',
	'after all of that, the node is alone as before');

# --- nodes that may not join ---------------------------------------------------------------------

$third->sql(<<'SQL');
CREATE FUNCTION keep(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN message;
SELECT shard_start('keep', 'keep(jsonb,jsonb)', 8);
SELECT shard_tell('keep', 'a', '{}');
SQL
$server->drain($third->db);
fails($third, quoted($seed), qr/55000: .*HINT: /s, 'a node with entities');
fails($third, quoted(dsn_of('nowhere')), qr/55000: the database has entities of type "keep"/, 'whatever the seed');
fails($third, quoted($seed, dsn_of($third->db, port => 1)), qr/55000: the database has entities of type "keep"/, 'and whatever its own address');

# --- and those that may --------------------------------------------------------------------------

is($second->sql("SELECT shard_join('$seed')"), 2, 'an empty node joins, its own address is made up');
is($second->sql("SELECT shard_join('$seed')"), 2, 'the same again is no second join');
is($first->sql('SELECT dsn FROM shard_members WHERE node = 1'), $seed,
	'the founder goes by the address at which it was reached');
like($first->sql('SELECT dsn FROM shard_members WHERE node = 2'),
	qr/host=127\.0\.0\.1 .*port='?$port\b.*dbname='?@{[$second->db]}\b.*user='?$role\b/,
	'the other one by where it came from, with its own port and database');
fails($first, quoted(dsn_of('plain')), qr/55000: the node's own cluster has other members/, 'a member of one cluster that wants into another');
fails($second, quoted(dsn_of('nowhere')), qr/55000: the node's own cluster has other members/, 'whether it is there or not');
fails($second, quoted(dsn_of($second->db)), qr/22023: .*this node itself/, 'a member, into itself');

# --- a join that was interrupted -----------------------------------------------------------------

my ($status) = $server->psql($fourth->db,
	"SET statement_timeout = '30 ms'; SELECT shard_join('" . dsn_of($second->db) . "')");
isnt($status, 0, 'a join is cancelled on its way');
is($fourth->sql("SELECT shard_join('" . dsn_of($second->db) . "')"), 3,
	'called again it goes on; any member is a seed, and the number was given once');
is($first->sql('SELECT string_agg(node || status, $$ $$ ORDER BY node) FROM shard_members'), '1up 2up 3up',
	'nobody joined twice');

# --- types: equal ones are one, others are refused -----------------------------------------------

my $keep = 'CREATE FUNCTION keep2(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN message';
$first->sql("$keep; SELECT shard_start('other', 'keep2(jsonb,jsonb)', 4); SELECT shard_start('same', 'keep2(jsonb,jsonb)', 4)");
$fifth->sql("$keep; SELECT shard_start('same', 'keep2(jsonb,jsonb)', 8)");
fails($fifth, quoted($seed), qr/55000: .*"same" has other settings/, 'a type with other settings');
is($fifth->sql('SELECT string_agg(node || status, $$ $$) FROM shard_members'), '1up', 'and nothing has changed');
$fifth->sql("SELECT shard_drop_type('same'); SELECT shard_start('same', 'keep2(jsonb,jsonb)', 4)");
is($fifth->sql("SELECT shard_join('$seed')"), 4, 'with equal settings it joins');
$cluster->wait_registered($first, $fifth);
$first->sql(q{SELECT shard_tell('same', 'e' || i, '{"a": 1}') FROM generate_series(1, 50) i});
$first->wait_value(q{SELECT sum(entities), count(DISTINCT node) FROM shard_cluster_stats() WHERE type_name = 'same'}, '50|2',
	'all to be handled, at both nodes that have the type');
pass('and the type is one, though its numbers were two');

# --- who may -------------------------------------------------------------------------------------

$server->safe_psql('postgres', 'CREATE ROLE somebody LOGIN');
for my $call ("shard_join('$seed')", 'shard_leave()', 'shard_down(1)', 'shard_write_off(1)', 'shard_admit(1, 2)',
	'shard_force_voters(ARRAY[1])', "shard_allow_peer('somebody')")
{
	my (undef, undef, $err) = $server->psql($third->db, "SELECT $call",
		extra_params => [ '-v', 'VERBOSITY=verbose', '-U', 'somebody' ]);
	like($err, qr/42501: permission denied for function/, "$call is not for everybody");
}

done_testing();
