# Nodes that speak by TLS with certificates of one authority, as doc/operations.md tells to set them up: who has no certificate
# of it, one of another name or one that is over, as a server or as a client, is not spoken to, and health names the node and why
# (P30). Certificates are replaced while nodes run.

use strict;
use warnings FATAL => 'all';

use PostgreSQL::Test::Utils;
use ShardCluster;
use ShardNodes;
use Test::More;

plan skip_all => 'needs the program openssl' if system('openssl version >/dev/null 2>&1') != 0;

my $cluster = ShardNodes->create(2, join => 0);
my ($first, $second) = $cluster->nodes;
my $role = $ShardNodes::peer_role;
my $folder = PostgreSQL::Test::Utils::tempdir;

plan skip_all => 'the server was built without TLS'
  if $first->sql(q{SELECT count(*) FROM pg_settings WHERE name = 'ssl_library' AND setting <> ''}) == 0;

# --- as told in doc/operations.md -----------------------------------------------------------------

sub authority
{
	my ($name) = @_;
	system_or_bail('openssl', 'req', '-new', '-x509', '-days', '30', '-nodes', '-newkey', 'rsa:2048',
		'-subj', "/CN=$name of the nodes", '-keyout', "$folder/$name.key", '-out', "$folder/$name.crt");
	return;
}

# A key and its certificate. What is replaced is there at every moment, whole.
sub certificate
{
	my ($file, $subject, %opt) = @_;
	my $signer = $opt{signer} // 'authority';
	my $new = "$folder/new";
	unlink "$new.ext";
	append_to_file("$new.ext", 'subjectAltName=' . ($opt{names} // 'IP:127.0.0.1') . "\n");
	system_or_bail('openssl', 'req', '-new', '-nodes', '-newkey', 'rsa:2048', '-subj', "/CN=$subject",
		'-keyout', "$new.key", '-out', "$new.csr");
	system_or_bail('openssl', 'x509', '-req', '-in', "$new.csr", '-days', $opt{days} // 30, '-CA', "$folder/$signer.crt",
		'-CAkey', "$folder/$signer.key", '-CAcreateserial', '-extfile', "$new.ext", '-out', "$new.crt");
	# One of no days is over after the second in which it was made; fewer days not every openssl gives.
	ShardCluster::wait_for_condition(sub { system('openssl', 'x509', '-checkend', '0', '-noout', '-in', "$new.crt") != 0 }, 'its end')
	  if ($opt{days} // 30) == 0;
	chmod 0600, "$new.key" or die "chmod: $!";
	rename "$new.$_", "$folder/$file.$_" or die "rename: $!" for qw(key crt);
	return;
}

authority($_) for qw(authority stranger);
for my $node ($first, $second)
{
	my ($n, $server) = ($node->n, $node->server);
	certificate("server$n", '127.0.0.1');
	certificate("client$n", $role);
	$server->append_conf('postgresql.conf', <<CONF);
ssl = on
ssl_ca_file = '$folder/authority.crt'
ssl_cert_file = '$folder/server$n.crt'
ssl_key_file = '$folder/server$n.key'
shard.peer_sslmode = 'verify-full'
shard.peer_sslrootcert = '$folder/authority.crt'
shard.peer_sslcert = '$folder/client$n.crt'
shard.peer_sslkey = '$folder/client$n.key'
CONF
	my $hba = slurp_file($server->data_dir . '/pg_hba.conf');
	unlink $server->data_dir . '/pg_hba.conf';
	append_to_file($server->data_dir . '/pg_hba.conf', "hostssl all $role samehost cert\nhost all $role all reject\n$hba");
	$server->restart;
}

is($second->eventually(sprintf q{SELECT shard_join('%s', '%s')}, $first->dsn, $second->dsn), 2, 'a node joins by certificates');
$cluster->wait_up;
$cluster->wait_reachable;
is($_->sql("SELECT count(*) > 0 AND bool_and(ssl AND client_dn = '/CN=$role') FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE usename = '$role'"),
	't', 'all links to node ' . $_->n . ' are encrypted, and known by certificates') for $cluster->nodes;
$cluster->start_recorder;
my %far = map { $_ => $cluster->entity_at('recorder', $_) } 1, 2;
my $sent = 0;

# Links that stand are not made anew by what happens to certificates: end them.
sub reconnect
{
	$_->server->reload for $cluster->nodes;
	$_->sql("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = '$role'") for $cluster->nodes;
	return;
}

sub speaks
{
	my ($why) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$cluster->wait_reachable;
	$sent++;
	$first->sql(ShardCluster::tell_recorder($far{2}, $sent, $sent));
	$second->sql(ShardCluster::tell_recorder($far{1}, $sent, $sent));
	$cluster->wait_recorded($far{$_}, $_, 1 .. $sent) for 1, 2;
	pass("$why: messages flow, both ways");
	$_->wait_until('SELECT ok FROM shard_health()', 'node ' . $_->n . ' to be well') for $cluster->nodes;
	return;
}
speaks('with certificates');

# Node 1 says that it cannot call node 2, and why; nothing gets there.
sub is_silent
{
	my ($pattern, $why) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	reconnect();
	$first->wait_until("SELECT array_to_string(problems, '; ') ~ 'node 2 [^;]*$pattern' FROM shard_health()", "health to say: $why");
	pass("P30 $why: health names the node, and why");
	return;
}

# --- servers that are somebody else ---------------------------------------------------------------

certificate('server2', '127.0.0.1', signer => 'stranger');
is_silent('certificate verify failed', 'a server of another authority');
is($second->sql(sprintf q{SELECT count(*) FROM pg_stat_activity WHERE usename = '%s'}, $role), 0, 'and is not spoken to');
certificate('server2', 'elsewhere.example', names => 'DNS:elsewhere.example');
is_silent('does not match host name', 'a server of another name');
certificate('server2', '127.0.0.1', days => 0);
is_silent('certificate verify failed', 'a server whose certificate is over');
certificate('server2', '127.0.0.1');
reconnect();
speaks('a new certificate of a server, by reload');

# --- clients that are somebody else ---------------------------------------------------------------

certificate('client1', $role, signer => 'stranger');
is_silent('(unknown ca|certificate)', 'a client of another authority');
certificate('client1', 'somebody');
is_silent('certificate authentication failed', 'a client of another name');
certificate('client1', $role, days => 0);
is_silent('certificate expired', 'a client whose certificate is over');
certificate('client1', $role);
reconnect();
speaks('a new certificate of a client');

done_testing();
