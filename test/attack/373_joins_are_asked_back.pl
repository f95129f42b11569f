# P45: who has got the role of the links has nodes join that do not exist: none gets a number, whoever joins is called back first. A role
# that is bound to a node joins nobody. Who joins and cannot be reached by the coordinator hears where it was looked for. A node whose
# map has hundreds of members that do not answer starts, and does its work.

use strict;
use warnings FATAL => 'all';

use IO::Socket::INET;
use PostgreSQL::Test::Cluster;
use POSIX ();
use ShardNodes;
use ShardWire;
use Test::More;
use Time::HiRes qw(usleep);

use constant { JOIN => 33, LEARNED => 4, MEMBER => 3, DEAD => 400 };

my $cluster = ShardNodes->create(3);
my $coordinator = $cluster->coordinator;
my ($second, $third) = $cluster->others($coordinator->n);
my $kind = $coordinator->sql('SELECT DISTINCT kind FROM shard.control WHERE store = ' . LEARNED . ' AND a = 3');
my $liar = ShardWire::Member->new($second, $coordinator);
my $members = 'SELECT count(*) FROM shard_members';

# The record of a member, as the map has it, at another port.
sub record_at
{
	my ($port) = @_;
	my $record = pack 'H*', $coordinator->sql("SELECT encode(value, 'hex') FROM shard.control WHERE store = ${\LEARNED} AND kind = $kind AND a = " . $third->n);
	my $old = $third->{port};
	die 'ports of different lengths' if length $old != length $port;
	$record =~ s/port=$old/port=$port/ or die 'no port in the record';
	return $record;
}

sub uuid { my ($n) = @_; return sprintf '00000bad-0000-0000-0000-%012x', $n }

sub joins
{
	my (@tokens) = @_;
	my $port = 10000 + int(rand(50000));
	$port = PostgreSQL::Test::Cluster::get_free_port() while length $port != length $third->{port};
	my $record = record_at($port);
	return join '', map {
		ShardWire::wire_bytes($liar->message(JOIN, from => 0, from_inc => 0, to => 0, uuid => uuid($_), uuid2 => uuid($_ + 1_000_000), entries => [ [ $kind, 0, 0, 0, $record ] ]))
	} @tokens;
}

sub says { my ($role, $bytes) = @_; return ShardWire::Member->new($second, $coordinator, $role)->call(call_sql('control', $bytes)) }

# --- nodes that do not exist ---------------------------------------------------------------------

my @flood = map { joins(map { $_ + 100 * int(rand(1_000_000)) } 1 .. 40) } 1 .. 10;
my ($answers, $errors) = ('', '');
($answers, $errors) = says($ShardNodes::peer_role, $_) for @flood;
is($errors, '', 'P45 four hundred joins of nodes that do not exist are heard');
like(pack('H*', join '', $answers =~ /\\x([0-9a-f]+)/g), qr/8 other nodes are about to join/, 'P45 and most refused at once');
usleep(1_500_000);
says($ShardNodes::peer_role, $_) for @flood;
is($_->sql($members), 3, 'P45 node ' . $_->n . ' knows of none') for $cluster->nodes;

# A role that is bound to a node.
$coordinator->sql(sprintf q{CREATE ROLE bound LOGIN; SELECT shard_allow_peer('bound', %d)}, $second->n);
is((says('bound', joins(7)))[1], '42501', 'P45 a role that is bound to a node does not speak for one that joins');
my $record = record_at($cluster->node(3)->{port});
my $as_member = ShardWire::wire_bytes($liar->message(JOIN, uuid => uuid(8), uuid2 => uuid(9), entries => [ [ $kind, 0, 0, 0, $record ] ]));
my ($answer, $error) = says('bound', $as_member);
is($error, '', 'P45 it may speak for its own node');
is($answer =~ /\\x(?:\s|$)/ ? 'nothing' : $answer, 'nothing', 'P45 which joins nobody, and gets no answer');

# --- who joins really ------------------------------------------------------------------------------

# More of them than there is room for, in one session: a place that is given up is taken by the next one of the same call.
my $flooder = fork() // die "fork: $!";
if ($flooder == 0)
{
	(my $flood = call_sql('control', joins(1 .. 16))) =~ s/;\n/\n\\watch 0.1\n/;
	eval { ShardWire::Member->new($second, $coordinator)->call("SET application_name = 'flood';\n", $flood) };
	# Its connection was ended.
	POSIX::_exit(0);
}
$coordinator->wait_value(q{SELECT count(*) FROM pg_stat_activity WHERE application_name = 'flood'}, 1, 'the flood');
my $fourth = $cluster->add_node;
my $join = sprintf q{SELECT shard_join('%s', '%s')}, $second->dsn, $fourth->dsn;
$error = undef;
my $answer_of = sub { join '', map { pack 'H*', $_ } (says($ShardNodes::peer_role, joins(17)))[0] =~ /\\x([0-9a-f]+)/g };
ShardCluster::wait_for_condition(sub { $answer_of->() =~ /about to join/ }, 'those that do not exist to have taken all places');
$error = $fourth->error_of($join) // 'joined';
like($error, qr/53400: .*8 other nodes are about to join, which is as many as there can be at a time.*HINT:  .*call shard_join\(\) again/s, 'P45 meanwhile who joins hears how many are before it');
$coordinator->sql(q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'flood'});
waitpid $flooder, 0;

# The seed reaches it, the coordinator does not: its role is not let in there. (At its own address it is.)
$_->sql(q{CREATE ROLE other LOGIN; SELECT shard_allow_peer('other')}) for $coordinator, $second, $third;
$coordinator->server->append_conf('postgresql.conf', "shard.peer_user = 'other'");
$coordinator->server->reload;
my $dsn = $fourth->dsn;
do { $error = $fourth->error_of($join) // 'joined' } while $error =~ /53400/;
like($error, qr/08001: .*the coordinator, node ${\$coordinator->n}, did not reach this node at its own address, "\Q$dsn\E": .*role "other" does not exist.*HINT:  In own_dsn, name an address/s,
	'P45 whom the coordinator cannot reach hears where it was looked for');
is($coordinator->sql($members), 3, 'P45 and has no number');
$fourth->sql(q{CREATE ROLE other LOGIN; SELECT shard_allow_peer('other')});
is($fourth->eventually($join), 4, 'P45 then it joins, under the next number');
$cluster->wait_up;
$cluster->start_recorder;

# --- a map with hundreds of members that do not answer ---------------------------------------------

my $silent;
do { $silent = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 1000, Proto => 'tcp') or die "socket: $!" } while length $silent->sockport != length $third->{port};
my $dead = unpack 'H*', record_at($silent->sockport);
my $node = $third;
$node->sql("INSERT INTO shard.control SELECT store, kind, 1000 + i, b, n, deleted, '\\x$dead' FROM shard.control, generate_series(1, ${\DEAD}) i WHERE store = ${\LEARNED} AND kind = $kind AND a = "
	. $node->n);
$node->server->stop('fast');
my $log = -s $node->server->logfile;
$node->server->start;
$node->wait_value($members, 4 + DEAD, 'the node to know its map');
my ($far) = grep { $_->n != $node->n } $cluster->others($coordinator->n);
my $entity = $cluster->entity_at('recorder', $far->n);
$node->sql(ShardCluster::tell_recorder($entity, 'x'));
$cluster->wait_recorded($entity, $far->n, 'x');
pass('P45 a node whose map has hundreds of members that say nothing sends messages after its start');
$entity = $cluster->entity_at('recorder', $node->n);
$far->sql(ShardCluster::tell_recorder($entity, 'y'));
$cluster->wait_recorded($entity, $node->n, 'y');
pass('P45 and handles those of others');
my $text = PostgreSQL::Test::Utils::slurp_file($node->server->logfile, $log);
unlike($text, qr/[Tt]oo many open files|epoll|background worker "shard control" \(PID \d+\) (?:exited|was terminated)/, 'P45 no worker has ended');
my ($pid) = $node->server->worker_pids('%control%');
my $open = () = glob "/proc/$pid/fd/*";
cmp_ok($open, '<', 150, "P45 few connections are on their way at a time: $open descriptors");
done_testing;
