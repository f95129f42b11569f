# The role as which nodes connect may call the peer procedures and nothing else; what it sends, be it
# any bytes, is refused without harm; no password is in a catalog, a view or pg_stat_activity: it is in
# the password file of a setting.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use PostgreSQL::Test::Utils;
use Test::More;

my $secret = 'open-sesame';
my $cluster = ShardNodes->create(3, databases => 1, join => 0);
my ($first, $second, $third) = $cluster->nodes;
my $server = $first->server;
my ($port, $role) = ($server->port, $ShardNodes::peer_role);

# SQL as the peer role that has to fail so.
sub fails
{
	my ($sql, $pattern, $why) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my (undef, undef, $err) = $server->psql($first->db, $sql,
		extra_params => [ '-v', 'VERBOSITY=verbose', '-U', $role ]);
	like($err, $pattern, $why);
	return;
}

# --- rights --------------------------------------------------------------------------------------

is($first->sql(<<SQL), '', 'nothing else was granted to the role');
SELECT c.oid::regclass FROM pg_class c WHERE c.relnamespace = 'shard'::regnamespace
	AND c.relkind = 'r' AND has_table_privilege('$role', c.oid, 'SELECT, INSERT, UPDATE, DELETE, TRUNCATE')
SQL
is($first->sql("SELECT string_agg(n, ' ') FROM unnest(ARRAY['shard', 'shard_peer']) n WHERE has_schema_privilege('$role', n, 'USAGE')"),
	'shard_peer', 'it may look into one schema');
is($first->sql("SELECT bool_and(has_function_privilege('$role', oid, 'EXECUTE')) FROM pg_proc WHERE pronamespace = 'shard_peer'::regnamespace"),
	't', 'and call all that is there');
is($first->sql("SELECT bool_or(has_function_privilege('public', oid, 'EXECUTE')) FROM pg_proc WHERE pronamespace = 'shard_peer'::regnamespace"),
	'f', 'which nobody else may');
fails('SELECT * FROM shard.control', qr/42501/, 'tables are closed to it');
fails(q{SELECT shard_tell('keep', 'a', '{}')}, qr/42704|42501/, 'it cannot send as a client');
fails(q{SELECT shard_down(1)}, qr/42501/, 'it is no operator');
fails(q{SELECT shard_allow_peer('link')}, qr/42501/, 'it cannot pass its rights on');

# --- any bytes -----------------------------------------------------------------------------------

my @procedures = split /\n/, $first->sql(
	q{SELECT proname FROM pg_proc WHERE pronamespace = 'shard_peer'::regnamespace ORDER BY 1});
cmp_ok(@procedures, '>=', 4, "procedures: @procedures");
$first->wait_until('SELECT ok FROM shard_health()', 'all workers to run');
my $pid = join ' ', sort($first->workers);
for my $procedure (@procedures)
{
	fails("CALL shard_peer.$procedure(NULL, NULL)", qr/^(?:psql.*ERROR:  (?:22004|08P01)|$)/, "$procedure(NULL)");
	my $before = $server->safe_psql('postgres', 'SELECT pg_postmaster_start_time()');
	# One session each, many calls; errors do not end it.
	my $calls = $first->sql(<<SQL);
SELECT setseed(0.4);
SELECT string_agg(format('CALL shard_peer.$procedure(%L, NULL);', bytes), ' ')
FROM (SELECT decode(string_agg(lpad(to_hex((random() * 255)::int), 2, '0'), ''), 'hex') AS bytes
	FROM generate_series(1, 200) call, generate_series(1, 40) at WHERE at <= call % 40 + 1 GROUP BY call) b
SQL
	$calls =~ s/^\s+//;
	$server->psql($first->db, "SET statement_timeout = '20 s'; $calls", on_error_stop => 0,
		extra_params => [ '-U', $role ]);
	is($server->safe_psql('postgres', 'SELECT pg_postmaster_start_time()'), $before, "$procedure: no harm by random bytes");
}
is(join(' ', sort($first->workers)), $pid, 'and the workers are those from before');

# --- procedures of somebody else -----------------------------------------------------------------

my $strong = $server->safe_psql('postgres', 'SELECT current_user');
$server->safe_psql('postgres', "CREATE DATABASE lair OWNER $role");
my $lair = "host=127.0.0.1 port=$port dbname=lair user=$strong";
my ($at_seed, $at_itself) = map { "SELECT shard_join($_)" } "'$lair', '@{[$second->dsn]}'", "'@{[$first->dsn]}', '$lair'";

# Both ways, asked by the joining node and by its seed, are refused.
sub refused
{
	my ($pattern, $why) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	for my $join ($at_seed, $at_itself)
	{
		my ($status, undef, $err) = $second->try($join);
		isnt($status, 0, "$why: refused");
		like($err, $pattern, "$why: says so");
	}
	return;
}

refused(qr/does not have extension "shard"/, 'a database without the extension');
$server->safe_psql('lair', <<'SQL', extra_params => [ '-U', $role ]);
CREATE SCHEMA shard_peer;
CREATE TABLE shard_peer.loot (who text);
CREATE PROCEDURE shard_peer.who(call bytea, INOUT answer bytea) LANGUAGE plpgsql AS
	$$BEGIN INSERT INTO shard_peer.loot VALUES (current_user); END$$;
CREATE PROCEDURE shard_peer.call_back(call bytea, INOUT answer bytea) LANGUAGE plpgsql AS
	$$BEGIN INSERT INTO shard_peer.loot VALUES (current_user); END$$;
SQL
refused(qr/procedures of schema shard_peer that are not the extension's/, 'P14 procedures of the role');
is($server->safe_psql('lair', 'SELECT count(*) FROM shard_peer.loot'), 0, 'and were not called');
$server->safe_psql('lair', q{CALL shard_peer.who('', NULL)});
is($server->safe_psql('lair', 'SELECT who FROM shard_peer.loot'), $strong, 'though they could have been');
$server->safe_psql('lair', 'DROP SCHEMA shard_peer CASCADE');
$server->safe_psql('lair', 'CREATE EXTENSION shard');
$server->safe_psql('lair', q{CREATE FUNCTION shard_peer.more() RETURNS int LANGUAGE sql RETURN 1});
refused(qr/procedures of schema shard_peer that are not the extension's/, 'P14 one more beside those of the extension');
$server->safe_psql('postgres', 'DROP DATABASE lair WITH (FORCE)');

# --- passwords -----------------------------------------------------------------------------------

my $folder = PostgreSQL::Test::Utils::tempdir;
append_to_file("$folder/pass", "*:*:*:$role:$secret\n");
chmod 0600, "$folder/pass" or die "chmod: $!";
$server->safe_psql('postgres', "ALTER ROLE $role PASSWORD '$secret'");
# What its sessions begin with does not matter, either.
$server->safe_psql('postgres', "ALTER ROLE $role SET $_") for q{statement_timeout = '1ms'}, q{search_path = nowhere},
  'default_transaction_read_only = on', q{default_transaction_isolation = 'serializable'},
  q{idle_session_timeout = '1ms'}, q{lock_timeout = '1ms'};
my $hba = slurp_file($server->data_dir . '/pg_hba.conf');
unlink $server->data_dir . '/pg_hba.conf';
append_to_file($server->data_dir . '/pg_hba.conf', "host all $role samehost scram-sha-256\n$hba");
# What libpq finds for itself is for others: the environment that a server was started with, a home.
$ENV{PGPASSFILE} = "$folder/pass";
$server->restart;
delete $ENV{PGPASSFILE};

my ($status, undef, $err) = $second->try("SELECT shard_join('" . $first->dsn . "')");
isnt($status, 0, 'without the password there is no way in');
like($err, qr/password/, 'and libpq says what is missing');
append_to_file("$folder/wrong", "*:*:*:$role:not $secret\n");
chmod 0600, "$folder/wrong" or die "chmod: $!";
$server->append_conf('postgresql.conf', "shard.peer_passfile = '$folder/wrong'");
$server->reload;
$second->wait_until(q{SELECT setting <> '' FROM pg_settings WHERE name = 'shard.peer_passfile'}, 'the setting');
($status, undef, $err) = $second->try("SELECT shard_join('" . $first->dsn . "')");
isnt($status, 0, 'with a wrong password there is none, either');
like($err, qr/password authentication failed.*HINT: +The file that setting shard\.peer_passfile of this node names.*is not the one that the role has there/s, 'and the hint is about the file of passwords');
$server->append_conf('postgresql.conf', "shard.peer_passfile = '$folder/pass'");
$server->reload;
$second->wait_until(q{SELECT setting ~ 'pass$' FROM pg_settings WHERE name = 'shard.peer_passfile'}, 'the setting');
is($second->eventually("SELECT shard_join('" . $first->dsn . "')"), 2, 'with a password file there is');
like($second->sql('SELECT dsn FROM shard_members WHERE node = 2'), qr/user='$role'/, "the way back is like the way there");
is($third->eventually("SELECT shard_join('" . $first->dsn . "', '" . $third->dsn . "')"), 3, 'for a third one, too');

$first->wait_until(q{SELECT count(*) = 3 AND bool_and(reachable AND status = 'up') FROM shard_members}, 'three members');
unlike($first->sql(q{SELECT string_agg(a::text, ' ') FROM pg_stat_activity a}), qr/$secret/,
	'no password in pg_stat_activity');
unlike($first->sql(q{SELECT string_agg(encode(value, 'escape'), ' ') FROM shard.control}), qr/$secret/,
	'nor in what the cluster knows');
unlike($first->sql(q{SELECT string_agg(m::text, ' ') FROM shard_members m}), qr/$secret/, 'nor in views');
unlike(slurp_file($server->logfile), qr/connection .*$secret/, 'nor in errors of connections');

# Addresses are for operators and monitors.
$server->safe_psql('postgres', 'CREATE ROLE somebody LOGIN; CREATE ROLE monitor LOGIN IN ROLE pg_monitor');
my $query = q{SELECT count(dsn) FROM shard_members};
is($server->safe_psql($first->db, $query, extra_params => [ '-U', 'somebody' ]), 0, 'others see no addresses');
is($server->safe_psql($first->db, $query, extra_params => [ '-U', 'monitor' ]), 3, 'monitors do');

done_testing();
