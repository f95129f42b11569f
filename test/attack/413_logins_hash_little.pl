# P73: nodes log in by passwords, and a server at a member's address says that the password is to be hashed 2^31 - 1 times (SCRAM). It
# needs to know nothing for that. libpq would do so for an hour, in each worker that calls the member, and nobody could end it. Now
# the login is refused, whether it comes in one piece or byte by byte, with TLS or without, also if the connection is closed behind it,
# and all goes on.

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

system_or_bail('openssl', 'req', '-new', '-x509', '-days', '30', '-nodes', '-newkey', 'rsa:2048', '-subj', '/CN=evil',
	'-keyout', "$folder/evil.key", '-out', "$folder/evil.crt");
append_to_file("$folder/passwords", "*:*:*:$role:sesame\n");
chmod 0600, "$folder/passwords" or die "chmod: $!";
for my $node ($first, $second)
{
	my $server = $node->server;
	$node->sql("SET password_encryption = 'scram-sha-256'; ALTER ROLE $role PASSWORD 'sesame'");
	$server->append_conf('postgresql.conf', "shard.peer_passfile = '$folder/passwords'");
	my $hba = slurp_file($server->data_dir . '/pg_hba.conf');
	unlink $server->data_dir . '/pg_hba.conf';
	append_to_file($server->data_dir . '/pg_hba.conf', "host all $role all scram-sha-256\n$hba");
	$server->restart;
}
is($second->eventually(sprintf q{SELECT shard_join('%s', '%s')}, $first->dsn, $second->dsn), 2, 'a node joins by passwords');
$cluster->wait_up;
$cluster->start_recorder;
my $near = $cluster->entity_at('recorder', 1);
my $far = $cluster->entity_at('recorder', 2);

append_to_file("$folder/server.py", <<'PYTHON');
import base64, socket, ssl, struct, sys, threading, time
port, folder, tls, how, iterations = int(sys.argv[1]), sys.argv[2], sys.argv[3] == 'tls', sys.argv[4], sys.argv[5]
pieces = how == 'pieces'
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(folder + '/evil.crt', folder + '/evil.key')

def read(caller, count):
    data = b''
    while len(data) < count:
        more = caller.recv(count - len(data))
        if not more:
            raise OSError('the end')
        data += more
    return data

def say(caller, kind, body):
    data = b'R' + struct.pack('!II', 8 + len(body), kind) + body
    for part in ([data[i:i + 1] for i in range(len(data))] if pieces else [data]):
        caller.sendall(part)
        if pieces:
            time.sleep(0.002)

def serve(caller):
    try:
        caller.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        length, code = struct.unpack('!II', read(caller, 8))
        if code == 80877103:
            caller.sendall(b'S' if tls else b'N')
            if tls:
                caller = context.wrap_socket(caller, server_side=True)
            length, code = struct.unpack('!II', read(caller, 8))
        read(caller, length - 8)
        say(caller, 10, b'SCRAM-SHA-256\0\0')
        _, length = struct.unpack('!cI', read(caller, 5))
        first = read(caller, length - 4)
        nonce = first[first.index(b'r=') + 2:]
        answer = b'r=' + nonce + b'x,s=' + base64.b64encode(b'salt') + b',i=' + iterations.encode()
        if how in ('split', 'cut'):
            # in two records of TLS, or without its end, and the end of the connection, all at once
            data = b'R' + struct.pack('!II', 8 + len(answer), 11) + answer
            caller.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
            caller.sendall(data[:7])
            if how == 'split':
                caller.sendall(data[7:])
            socket.socket.shutdown(caller, socket.SHUT_WR)
            caller.recv(1)
            raise OSError('the end')
        say(caller, 11, answer)
        while caller.recv(1):
            print('answered', flush=True)
    except (OSError, struct.error):
        pass
    caller.close()

listener = socket.create_server(('127.0.0.1', port))
print('listening', flush=True)
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
PYTHON

# Serves at the address of node 2.
sub serve
{
	my (@how) = @_;
	my ($out, $err) = ('', '');
	my $evil = IPC::Run::start([ 'python3', "$folder/server.py", $second->{port}, $folder, @how ], '>', \$out, '2>', \$err);
	$evil->pump until $out =~ /listening/ || !$evil->pumpable;
	like($out, qr/listening/, "a server with @how") or diag($err);
	return ($evil, \$out);
}

$second->server->stop;
$first->sql(ShardCluster::tell_recorder($far, 1));
for my $how ([qw(plain whole)], [qw(plain pieces)], [qw(tls whole)])
{
	my $log = -s $first->server->logfile;
	my ($evil) = serve(@$how, 2147483647);
	$first->wait_until(q{SELECT last_error ~ 'hashed 2147483647 times.*65536' FROM shard_peers WHERE node = 2},
		"P73 node 1 to say why it does not log in (@$how)");
	pass('P73 a region worker does not hash');
	ShardCluster::wait_for_condition(sub { slurp_file($first->server->logfile, $log) =~ /no control link to node 2\s.*\s.*DETAIL: .*hashed 2147483647 times/ },
		'the log of node 1 to say so');
	pass('P73 nor does the control worker');
	is($first->sql(sprintf q{SELECT shard_ask('recorder', '%s', '[1, 1]', '5 s') IS NOT NULL}, $near), 't', 'what is here is handled');
	$evil->kill_kill;
	$log = -s $first->server->logfile;
	$first->wait_until(q{SELECT last_error !~ 'hashed' FROM shard_peers WHERE node = 2}, 'nobody to be there any more');
	ShardCluster::wait_for_condition(sub { slurp_file($first->server->logfile, $log) =~ /no control link to node 2\s.*\s.*DETAIL: .*refused/ },
		'the control worker to find nobody, either');
}
for my $how ([ qw(tls split), 'sent a message that is not part of a login' ], [ qw(plain cut), 'closed the connection within a message' ])
{
	my ($tls, $way, $words) = @$how;
	my ($evil) = serve($tls, $way, 2147483647);
	$first->wait_until("SELECT last_error ~ '$words' FROM shard_peers WHERE node = 2", "P73 node 1 not to log in ($tls $way)");
	pass("P73 nor if it is closed at once ($tls $way)");
	is($first->sql(sprintf q{SELECT shard_ask('recorder', '%s', '[1, 1]', '5 s') IS NOT NULL}, $near), 't', 'what is here is handled');
	$evil->kill_kill;
	$first->wait_until("SELECT last_error !~ '$words' FROM shard_peers WHERE node = 2", 'nobody to be there any more');
}
# The control: so many are done, and answered.
my ($evil, $out) = serve('plain', 'pieces', 4096);
$evil->pump until $$out =~ /answered/;
pass('a login that comes byte by byte is gone on with');
$evil->kill_kill;

$second->server->start;
$cluster->wait_up;
$cluster->wait_recorded($far, 2, 1);
pass('when the member is back it has what waited');
done_testing;
