# What a peer, or an operator, can say in an address: where a node is and as whom to call, and nothing by which the server
# reads a file, loads a library, or tells a password that is not for that place. P11, P12, P13, P15, P18; P26 - P29.

use strict;
use warnings FATAL => 'all';

use IO::Select;
use IO::Socket::INET;
use POSIX qw(mkfifo);
use PostgreSQL::Test::Utils;
use ShardNodes;
use ShardWire;
use Test::More;

my $folder = PostgreSQL::Test::Utils::tempdir;
my $role = $ShardNodes::peer_role;
my $secret = 'of-the-replicas';

# The server's user has a password file for others, with a line for everywhere.
append_to_file("$folder/pgpass", "*:*:*:replicator:$secret\n");
chmod 0600, "$folder/pgpass" or die "chmod: $!";
$ENV{PGPASSFILE} = "$folder/pgpass";
my $cluster = ShardNodes->create(2, databases => 1, join => 0);
delete $ENV{PGPASSFILE};
my ($first, $second) = $cluster->nodes;
my $server = $first->server;
$server->safe_psql('postgres', 'CREATE ROLE operator LOGIN');
$second->sql('GRANT EXECUTE ON FUNCTION shard_join(text, text) TO operator');
$first->sql('GRANT EXECUTE ON FUNCTION shard_health() TO operator');

# Somebody listens, to whom no connection may come.
my $mine = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 50, Proto => 'tcp') or die "socket: $!";
my $port = $mine->sockport;

# What a peer hears when it asks for a call back.
sub call_back
{
	my ($seed, $dsn) = @_;
	my (undef, undef, $error) = $server->psql($first->db,
		"\\set VERBOSITY verbose\n" . call_sql('call_back', join '', map { wire_bytes($_) } $seed, $dsn, '', ''),
		extra_params => [ '-U', $role ]);
	return $error;
}

# What an operator hears.
sub join_by
{
	my ($seed, $dsn) = @_;
	my (undef, undef, $error) = $server->psql($second->db,
		"\\set VERBOSITY verbose\nSELECT shard_join(\$\$$seed\$\$, \$\$$dsn\$\$);", extra_params => [ '-U', 'operator' ]);
	return $error;
}

# Such an address is refused by name, wherever it is said, and nobody is called.
sub refused
{
	my ($name, $dsn, @options) = @_;
	my $good = $second->dsn;
	for my $way ([ 'to call_back', call_back($first->dsn, $dsn) ], [ 'as the seed to call_back', call_back($dsn, $good) ],
		[ 'to shard_join', join_by($first->dsn, $dsn) ], [ 'as the seed to shard_join', join_by($dsn, $good) ])
	{
		my ($where, $error) = @$way;
		like($error, qr/ERROR:  22023: .*(?:is|are) not allowed|ERROR:  22023: .*cannot be used/, "$name, $where: refused");
		like($error, qr/DETAIL:.*HINT:/s, "$name, $where: says what to do");
		like($error, qr/"\Q$_\E"/, "$name, $where: names $_") for @options;
		unlike($error, qr/s3cret/, "$name, $where: keeps the value");
	}
	ok(!IO::Select->new($mine)->can_read(0), "$name: nobody connected");
	return;
}

my $there = "host=127.0.0.1 port=$port";
refused('P11 an engine as a key', "$there sslmode=require sslcert=/etc/ssl/certs/ca-certificates.crt sslkey=$folder/evil.so:k",
	qw(sslmode sslcert sslkey));
refused('P12 a host for the password file, and another one to connect to',
	"host=db-primary hostaddr=127.0.0.1 port=$port user=replicator dbname=app", 'hostaddr');
refused('P18 a pipe as a certificate', "$there sslmode=require sslcert=/proc/self/fd/3 sslkey=/x", qw(sslmode sslcert sslkey));
refused('P18 a pipe as a list of what was revoked', "$there sslcrl=/proc/self/fd/3", 'sslcrl');
refused('P18 a pipe as a password file', "$there passfile=/proc/self/fd/3", 'passfile');
refused('P13 options of a session', "$there options=-cwork_mem=1", 'options');
refused('P13 a password', "$there password=s3cret", 'password');
refused('P13 a password in a URI', "postgresql://me:s3cret\@127.0.0.1:$port/app", 'password');
refused('P13 an address in the name of a database', "$there dbname=postgresql://me:s3cret\@127.0.0.1/app", 'dbname');
like(call_back($first->dsn, 'host=127.0.0.1 port=' . $server->port . " dbname='host=127.0.0.1 port=$port' user=$role"),
	qr/database "host=127\.0\.0\.1 port=$port" does not exist/, 'P13 options in the name of a database are its name');
ok(!IO::Select->new($mine)->can_read(0), 'P13 nobody was called by them');
refused('P26 a service', 'service=replicas', 'service');
refused("P27 a folder where somebody else's socket may be", "host=$folder port=$port");
refused('P27 an abstract name, behind an honest host', "host=127.0.0.1,\@mine port=$port,$port");
refused('P75 more names than a resolver may be asked for', 'host=' . join(',', map { "q$_.invalid" } 1 .. 9));
refused("P28 $_", "$there $_=x", $_)
  for qw(requirepeer krbsrvname target_session_attrs replication sslrootcert sslcrldir sslpassword application_name);

# --- P15: what there is on the machine ------------------------------------------------------------

is(call_back($first->dsn, "host=/etc/ssl port=$port") =~ s{/etc/ssl}{X}gr, call_back($first->dsn, "host=/nowhere port=$port") =~ s{/nowhere}{X}gr,
	'P15: a folder that is there, and one that is not, are the same');
is(call_back($first->dsn, "$there sslrootcert=/etc/passwd") =~ s{/etc/passwd}{X}gr,
	call_back($first->dsn, "$there sslrootcert=/nowhere") =~ s{/nowhere}{X}gr, 'P15: so are files');

# --- P12 again: as a role for which a line is there -----------------------------------------------

# Asks who connects for a password in clear text, and writes down what it hears.
my $pid = fork // die "fork: $!";
if ($pid == 0)
{
	alarm 300;
	# Whatever happens here, the end of the test is not for this process.
	local $SIG{__DIE__} = sub { POSIX::_exit(1) };
	while (my $client = $mine->accept)
	{
		while (sysread $client, my $length, 4)
		{
			sysread $client, my $rest, unpack('N', $length) - 4;
			# No TLS and no GSS; then the role is known.
			if (unpack('N', $rest) >> 16 == 1234) { syswrite $client, 'N'; next; }
			append_to_file("$folder/heard", "connected\n");
			syswrite $client, 'R' . pack('NN', 8, 3);
			my $answer;
			append_to_file("$folder/heard", $answer) if sysread $client, $answer, 1000;
			last;
		}
		close $client;
	}
	POSIX::_exit(0);
}
$mine->close;
like(call_back($first->dsn, "$there user=replicator dbname=app"), qr/password/, 'P12: a password is asked for, and there is none');
append_to_file("$folder/peers", "*:*:*:$role:for-peers\n");
chmod 0600, "$folder/peers" or die "chmod: $!";
$server->append_conf('postgresql.conf', "shard.peer_passfile = '$folder/peers'");
$server->reload;
$first->wait_until(q{SELECT current_setting('shard.peer_passfile') <> ''}, 'the setting');
like(call_back($first->dsn, "$there user=replicator dbname=app"), qr/password/, "P12: nor in the file for peers");
my $heard = slurp_file("$folder/heard");
like($heard, qr/connected/, 'P12: the server did connect');
unlike($heard, qr/$secret/, "P12: and has not told others' password");
kill 'KILL', $pid;
waitpid $pid, 0;

# --- P29: settings, by mistake --------------------------------------------------------------------

sub set
{
	my ($setting, $value) = @_;
	$server->safe_psql('postgres', "ALTER SYSTEM SET $setting = '$value'");
	$server->reload;
	$second->wait_until("SELECT current_setting('$setting') = '$value'", "$setting to be '$value'");
	return;
}

my ($status, undef, $error) = $server->psql('postgres', "ALTER SYSTEM SET shard.peer_sslkey = '$folder/evil.so:k'");
like($error, qr/invalid value for parameter "shard\.peer_sslkey".*DETAIL:.*engine/s, 'P11: an engine is no setting either');
(undef, undef, $error) = $server->psql('postgres', "SET shard.peer_sslmode = 'disable'", extra_params => [ '-U', 'operator' ]);
like($error, qr/cannot be changed now/, 'no session sets how nodes connect');
is($server->safe_psql('postgres', q{SELECT count(*) FROM pg_settings WHERE name LIKE 'shard.peer\_%'}, extra_params => [ '-U', 'operator' ]),
	0, 'nor sees it');
mkfifo("$folder/pipe", 0600) or die "mkfifo: $!";
my $join = sprintf q{SELECT shard_join('%s', '%s connect_timeout=3')}, $first->dsn, $second->dsn;
for my $file ([ 'pipe', 'is not a regular file' ], [ 'nothing', 'No such file' ])
{
	my ($name, $problem) = @$file;
	set('shard.peer_sslcert', "$folder/$name");
	(undef, undef, $error) = $second->try($join);
	like($error, qr/shard\.peer_sslcert: .*$problem/, "P29: a setting whose file is no file: $problem");
	like($first->sql('SELECT problems FROM shard_health()'), qr/shard\.peer_sslcert: .*$problem/, 'P29: health says so');
	my $seen = $server->safe_psql($first->db, 'SELECT problems FROM shard_health()', extra_params => [ '-U', 'operator' ]);
	like($seen, qr/connects to no other/, 'P29: also to others');
	unlike($seen, qr/$folder/, 'P29: without the name');
}
set('shard.peer_sslcert', '');
append_to_file("$folder/open", '');
chmod 0644, "$folder/open" or die "chmod: $!";
my $passwords = $first->sql('SHOW shard.peer_passfile');
set('shard.peer_passfile', "$folder/open");
(undef, undef, $error) = $second->try($join);
like($error, qr/shard\.peer_passfile: .*its mode has to be 0600/, 'a password file that others can read is not one that counts, and the error says so');
set('shard.peer_passfile', $passwords);

# --- honest use, and addresses that were stored before --------------------------------------------

is($second->eventually($join), 2, 'honest nodes join');
$cluster->wait_up;
$cluster->wait_reachable;
$first->wait_until('SELECT ok FROM shard_health()', 'node 1 to be well');
pass('and are well');

# The same length, so that the record stays one.
my ($before, $after) = map { unpack 'H*', $_ } 'connect_timeout=3', 'sslcert=/dev/zero';
$server->safe_psql('postgres', "ALTER SYSTEM SET shard.enabled = off");
$server->restart;
$_->sql("UPDATE shard.control SET value = decode(replace(encode(value, 'hex'), '$before', '$after'), 'hex') WHERE encode(value, 'hex') LIKE '%$before%'")
  for $first, $second;
$server->safe_psql('postgres', 'ALTER SYSTEM RESET shard.enabled');
$server->restart;
$first->wait_until(q{SELECT 'the address of node 2 cannot be used, and is not: option "sslcert" is not allowed' = ANY (problems) FROM shard_health()},
	'P18: health to name an address with a file');
pass('P18: an address that was stored before is not used, and named');
$server->stop('fast');
pass('P18: the server stops');

done_testing();
