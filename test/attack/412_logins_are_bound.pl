# P49: nodes log in by passwords, and somebody at a member's address, with a certificate of his own, passes on what is said: he has a
# session then, unless the login has to be bound to the certificate of the server. Then nodes speak to servers with TLS only, and
# health says why not to another one.

use strict;
use warnings FATAL => 'all';

use IPC::Run;
use PostgreSQL::Test::Utils;
use ShardCluster;
use ShardNodes;
use Test::More;

plan skip_all => 'needs the program openssl' if system('openssl version >/dev/null 2>&1') != 0;
plan skip_all => 'needs python3 with ssl' if system('python3 -c "import ssl" 2>/dev/null') != 0;

my $cluster = ShardNodes->create(2, join => 0);
my ($first, $second) = $cluster->nodes;
my $role = $ShardNodes::peer_role;
my $folder = PostgreSQL::Test::Utils::tempdir;

plan skip_all => 'the server was built without TLS'
  if $first->sql(q{SELECT count(*) FROM pg_settings WHERE name = 'ssl_library' AND setting <> ''}) == 0;

for my $name (qw(server relay))
{
	system_or_bail('openssl', 'req', '-new', '-x509', '-days', '30', '-nodes', '-newkey', 'rsa:2048',
		'-subj', "/CN=$name", '-keyout', "$folder/$name.key", '-out', "$folder/$name.crt");
	chmod 0600, "$folder/$name.key" or die "chmod: $!";
}
append_to_file("$folder/passwords", "*:*:*:$role:sesame\n");
chmod 0600, "$folder/passwords" or die "chmod: $!";
for my $node ($first, $second)
{
	my $server = $node->server;
	$node->sql("SET password_encryption = 'scram-sha-256'; ALTER ROLE $role PASSWORD 'sesame'");
	$server->append_conf('postgresql.conf', <<CONF);
ssl = on
ssl_cert_file = '$folder/server.crt'
ssl_key_file = '$folder/server.key'
shard.peer_passfile = '$folder/passwords'
shard.peer_channel_binding = 'require'
CONF
	my $hba = slurp_file($server->data_dir . '/pg_hba.conf');
	unlink $server->data_dir . '/pg_hba.conf';
	append_to_file($server->data_dir . '/pg_hba.conf', "host all $role all scram-sha-256\n$hba");
	$server->restart;
}
is($second->eventually(sprintf q{SELECT shard_join('%s', '%s')}, $first->dsn, $second->dsn), 2, 'a node joins by passwords that are bound');
$cluster->wait_up;
$cluster->wait_reachable;
is($_->sql("SELECT count(*) > 0 AND bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE usename = '$role'"),
	't', 'all links to node ' . $_->n . ' are encrypted') for $cluster->nodes;
$cluster->start_recorder;
my $far = $cluster->entity_at('recorder', 2);
$first->sql(ShardCluster::tell_recorder($far, 1));
$cluster->wait_recorded($far, 2, 1);
pass('messages flow');

# --- somebody in between --------------------------------------------------------------------------

# He has TLS on the side of who calls, and calls the member without, so that it offers no binding.
my $port = PostgreSQL::Test::Cluster::get_free_port();
append_to_file("$folder/relay.py", <<'PYTHON');
import socket, ssl, struct, sys, threading
port, target, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(folder + '/relay.crt', folder + '/relay.key')
listener = socket.create_server(('127.0.0.1', port))
print('listening', flush=True)

def pass_on(source, sink):
    try:
        while data := source.recv(65536):
            sink.sendall(data)
    except OSError:
        pass
    for end in (source, sink):
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

def serve(caller):
    try:
        length, code = struct.unpack('!II', caller.recv(8, socket.MSG_WAITALL))
        caller.sendall(b'S')
        caller = context.wrap_socket(caller, server_side=True)
        member = socket.create_connection(('127.0.0.1', target))
    except (OSError, struct.error):
        caller.close()
        return
    threading.Thread(target=pass_on, args=(caller, member), daemon=True).start()
    pass_on(member, caller)

while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
PYTHON
my ($out, $err) = ('', '');
my $relay = IPC::Run::start([ 'python3', "$folder/relay.py", $port, $second->server->port, $folder ], '>', \$out, '2>', \$err);
$relay->pump until $out =~ /listening/ || !$relay->pumpable;
like($out, qr/listening/, 'somebody listens') or diag($err);
my $between = sprintf 'host=127.0.0.1 port=%d dbname=%s user=%s', $port, $second->db, $role;

# The error, '' if there is none. Links that are made anew may cost a coordinator its majority for a moment, so it is looked for each time.
sub set_address
{
	my ($dsn) = @_;
	my ($node, $error);
	ShardCluster::wait_for_condition(sub { $node = $cluster->coordinator }, 'a coordinator');
	$node->server->psql($node->db, "SELECT shard_set_address('$dsn', 2)", stderr => \$error);
	return $error;
}
like(set_address($between), qr/channel binding/, 'P49 a login that is passed on is not given, and the error says why');

# The control: without the setting it is.
for my $node ($cluster->nodes)
{
	$node->server->append_conf('postgresql.conf', "shard.peer_channel_binding = 'prefer'");
	$node->server->reload;
}
ShardCluster::wait_for_condition(sub { set_address($between) eq '' }, 'the login through somebody in between');
pass('P49 unless the setting allows it');
ShardCluster::wait_for_condition(sub { set_address($second->dsn) eq '' }, 'the address to be right again');

# --- a server without TLS -------------------------------------------------------------------------

$_->server->append_conf('postgresql.conf', "shard.peer_channel_binding = 'require'") for $cluster->nodes;
$second->server->append_conf('postgresql.conf', 'ssl = off');
$_->server->reload for $cluster->nodes;
# A setting counts for connections that begin later, and neither the server nor the workers say when they have read it: links that
# begin before that stay, so they are ended until there are only new ones.
ShardCluster::wait_for_condition(
	sub {
		$second->sql("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = '$role'");
		return $first->sql(q{SELECT array_to_string(problems, '; ') ~ 'node 2 [^;]*channel binding' FROM shard_health()}) eq 't';
	},
	'health to say so');
pass('a server without TLS is not logged in to, and health says why');
$relay->kill_kill;
done_testing;
