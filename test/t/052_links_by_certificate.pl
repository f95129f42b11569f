# Links by TLS with verify-full and client certificates: no password anywhere, and a server or a client
# without the right certificate is refused. With a certification authority made for the test.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use PostgreSQL::Test::Utils;
use Test::More;

plan skip_all => 'needs the program openssl' if system('openssl version >/dev/null 2>&1') != 0;

my $cluster = ShardNodes->create(3, databases => 1, join => 0);
my ($first, $second, $third) = $cluster->nodes;
my $server = $first->server;
my $role = $ShardNodes::peer_role;
my $folder = PostgreSQL::Test::Utils::tempdir;
my $data = $server->data_dir;

plan skip_all => 'the server was built without TLS'
  if $server->psql('postgres', "ALTER SYSTEM SET ssl_min_protocol_version = 'TLSv1.2'") != 0
  || $server->safe_psql('postgres', q{SELECT count(*) FROM pg_settings WHERE name = 'ssl_library' AND setting <> ''}) == 0;

# --- certificates --------------------------------------------------------------------------------

# An authority, or with $signer a certificate of that one for a name.
sub certificate
{
	my ($name, $subject, $signer) = @_;
	system_or_bail('openssl', 'req', '-new', '-x509', '-newkey', 'rsa:2048', '-nodes', '-days', '3',
		'-subj', "/CN=$subject", '-keyout', "$folder/$name.key", '-out', "$folder/$name.crt")
	  unless $signer;
	if ($signer)
	{
		append_to_file("$folder/$name.ext", "subjectAltName=IP:127.0.0.1,DNS:localhost\n");
		system_or_bail('openssl', 'req', '-new', '-newkey', 'rsa:2048', '-nodes', '-subj', "/CN=$subject",
			'-keyout', "$folder/$name.key", '-out', "$folder/$name.csr");
		system_or_bail('openssl', 'x509', '-req', '-in', "$folder/$name.csr", '-CA', "$folder/$signer.crt",
			'-CAkey', "$folder/$signer.key", '-CAcreateserial', '-days', '3', '-extfile', "$folder/$name.ext",
			'-out', "$folder/$name.crt");
	}
	chmod 0600, "$folder/$name.key" or die "chmod: $!";
	return;
}

certificate('authority', 'authority of a test');
certificate('server', '127.0.0.1', 'authority');
certificate('client', $role, 'authority');
certificate('somebody', 'somebody', 'authority');
certificate('stranger', 'another authority');

$server->append_conf('postgresql.conf', <<CONF);
ssl = on
ssl_ca_file = '$folder/authority.crt'
ssl_cert_file = '$folder/server.crt'
ssl_key_file = '$folder/server.key'
CONF
my $hba = slurp_file("$data/pg_hba.conf");
unlink "$data/pg_hba.conf";
append_to_file("$data/pg_hba.conf", "hostssl all $role samehost cert\nhostnossl all $role samehost reject\n$hba");
$server->restart;

# How the server connects, from now on.
sub set
{
	my (%but) = @_;
	my %option = (sslmode => 'verify-full', sslrootcert => "$folder/authority.crt", sslcert => "$folder/client.crt",
		sslkey => "$folder/client.key", %but);
	$server->append_conf('postgresql.conf', join "\n", map { "shard.peer_$_ = '$option{$_}'" } sort keys %option);
	$server->reload;
	$second->wait_until("SELECT current_setting('shard.peer_$_') = '$option{$_}'", "shard.peer_$_") for sort keys %option;
	return;
}

# --- refused -------------------------------------------------------------------------------------

sub fails
{
	my ($settings, $pattern, $why) = @_;
	set(%$settings);
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($status, undef, $err) = $second->try("SELECT shard_join('@{[$first->dsn]}')");
	isnt($status, 0, "$why: refused");
	like($err, $pattern, "$why: says so");
	return;
}

fails({ sslmode => 'disable' }, qr/pg_hba\.conf rejects/, 'without TLS');
fails({ sslcert => '', sslkey => '' }, qr/requires a valid client certificate|certificate/, 'without a certificate');
fails({ sslcert => "$folder/somebody.crt", sslkey => "$folder/somebody.key" },
	qr/certificate authentication failed/, "with somebody else's certificate");
fails({ sslrootcert => "$folder/stranger.crt" }, qr/certificate verify failed/, 'a server that another authority vouches for');

# --- joined --------------------------------------------------------------------------------------

set();
is($second->sql("SELECT shard_join('@{[$first->dsn]}')"), 2, 'with the certificate there is a way in, and back');
is($third->sql("SELECT shard_join('@{[$second->dsn]}', '@{[$third->dsn]}')"), 3, 'also for a third one');
$cluster->wait_up;
$cluster->wait_reachable;
is($first->sql("SELECT count(*) > 0 AND bool_and(ssl AND client_dn = '/CN=$role') FROM pg_stat_ssl s JOIN pg_stat_activity a USING (pid) WHERE a.usename = '$role'"),
	't', 'all links are encrypted and known by their certificate');

# --- and messages flow, large ones, too ----------------------------------------------------------

$first->sql(q{CREATE FUNCTION keep(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS
	$$BEGIN PERFORM shard_reply(jsonb_build_object('length', length(message->>'text'), 'text', message->>'text')); RETURN message - 'text'; END$$});
$_->sql(q{CREATE OR REPLACE FUNCTION keep(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS
	$$BEGIN PERFORM shard_reply(jsonb_build_object('length', length(message->>'text'), 'text', message->>'text')); RETURN message - 'text'; END$$;
	SELECT shard_start('keep', 'keep(jsonb,jsonb)', 12)}) for $cluster->nodes;
$cluster->wait_registered;
for my $length (1, 8000, 16384, 100_000, 900_000)
{
	is($first->sql(<<SQL), "$length $length $length $length $length $length", "asks and answers of $length characters");
SELECT string_agg(length(a->>'text')::text, ' ')
FROM generate_series(1, 6) i, shard_ask('keep', i::text, jsonb_build_object('text', repeat('x', $length)), '60 s') a
SQL
}
ok($first->sql(q{SELECT count(DISTINCT node) FROM shard_homes}) > 1, 'of entities on several nodes');

done_testing();
