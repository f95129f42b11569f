# P64: who has got the role of the links has nodes join that do not exist, each with a thousand entity types, in many calls of many
# messages at once. Nobody looks at their types before they are called back, calls are served by turns for a while, and the
# coordinator keeps its office and decides meanwhile. What is too long is refused, and who sent it hears that.

use strict;
use warnings FATAL => 'all';

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use POSIX ();
use ShardNodes;
use ShardWire;
use Test::More;
use Time::HiRes qw(time);

use constant { JOIN => 33, LEARNED => 4, TYPE => 7, FLOODERS => 4, MESSAGES => 100, TYPES => 1024 };

my $cluster = ShardNodes->create(3);
my $coordinator = $cluster->coordinator;
my ($second) = $cluster->others($coordinator->n);
my $liar = ShardWire::Member->new($second, $coordinator);

# Types of the cluster, with which others are compared.
$cluster->sql_everywhere('CREATE FUNCTION keep(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN message');
$coordinator->eventually(join '', map { sprintf "SELECT shard_start('t%04d', 'keep', 1);\n", $_ } 0 .. 99);
my $kept = 'FROM shard.control WHERE store = ' . LEARNED;
my $type = pack 'H*', $coordinator->sql("SELECT encode(value, 'hex') $kept AND kind = ${\TYPE} ORDER BY a LIMIT 1");
die 'no name in the record' unless $type =~ /t0000/;
my $kind = $coordinator->sql("SELECT DISTINCT kind $kept AND a = 3 AND kind < ${\TYPE} AND kind > 5");
my $member = pack 'H*', $coordinator->sql("SELECT encode(value, 'hex') $kept AND kind = $kind AND a = 3");
my $port = PostgreSQL::Test::Cluster::get_free_port();
$member =~ s/port=\d{5}/port=$port/ or die 'no port in the record';

sub types
{
	my ($count) = @_;
	return map { [ TYPE, 0, 0, 0, $type =~ s/t0000/sprintf('u%04d', $_)/er ] } 1 .. $count;
}

sub join_of
{
	my ($n, @types) = @_;
	my $uuid = '00000bad-0000-0000-0000-%012x';
	return ShardWire::wire_bytes($liar->message(JOIN, from => 0, from_inc => 0, to => 0, uuid => sprintf($uuid, $n), uuid2 => sprintf($uuid, $n + 1_000_000),
		entries => [ [ $kind, 0, 0, 0, $member ], @types ]));
}

sub says { return ShardWire::Member->new($second, $coordinator)->call(@_) }
sub text_of { my ($answers) = @_; return pack 'H*', join '', $answers =~ /\\x([0-9a-f]+)/g }

# What is too long.
my ($answers, $errors, $text) = says(call_sql('control', join_of(1, types(TYPES + 1))));
is($errors, '', 'P64 a node with more types than a node can have is heard');
like(text_of($answers), qr/too many entity types or shards: the node has 1025 entity types, and can bring 1024/, 'P64 and hears that it has too many');
my @long = map { [ TYPE, 0, 0, 0, $type . "\0" x 5000 ] } 1 .. TYPES;
(undef, $errors, $text) = says(call_sql('control', join_of(2, @long)));
is($errors, '54000', 'P64 one whose types take more bytes than a cluster has room for is not read');
like($text, qr/a node that wants to join describes itself to node \d in too many bytes/, 'P64 and hears that');

# The flood.
my $before = -s $coordinator->server->logfile;
my $call = join '', map { join_of($_, types(TYPES)) } 10 .. 9 + MESSAGES;
my $file = "$PostgreSQL::Test::Utils::tmp_check/flood.sql";
PostgreSQL::Test::Utils::append_to_file($file, call_sql('control', $call) x 5);
my $flooding = q{SELECT count(*) FROM pg_stat_activity WHERE application_name = 'flood' AND state = 'active'};
my @flooders = map {
	my $pid = fork() // die "fork: $!";
	if ($pid == 0)
	{
		# its connection is ended
		eval { ShardWire::Member->new($second, $coordinator)->call("SET application_name = 'flood';\n", "\\i $file\n" x 100) };
		POSIX::_exit(0);
	}
	$pid
} 1 .. FLOODERS;
$coordinator->wait_value($flooding, FLOODERS, 'the flood');
my $slowest = 0;
for my $i (1 .. 20)
{
	my $began = time;
	$second->eventually("SELECT shard_start('d$i', 'keep')");
	my $took = time - $began;
	$slowest = $took if $took > $slowest;
}
pass(sprintf 'P64 meanwhile types get numbers, the slowest in %.2f s', $slowest);
# Between two calls a session is idle.
cmp_ok($coordinator->sql(q{SELECT count(*) FROM pg_stat_activity WHERE application_name = 'flood'}), '>', 0, 'P64 they flood still');
my $log = PostgreSQL::Test::Utils::slurp_file($coordinator->server->logfile, $before);
unlike($log, qr/control worker did not answer in time/, 'P64 and each call is answered');
is($second->sql('SELECT count(*) FROM shard_members'), 3, 'P64 nobody has joined');
$coordinator->sql(q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'flood'});
waitpid $_, 0 for @flooders;

# Who joins really.
my $fourth = $cluster->add_node;
is($fourth->eventually(sprintf q{SELECT shard_join('%s', '%s')}, $second->dsn, $fourth->dsn), 4, 'P64 then a node joins');
done_testing;
