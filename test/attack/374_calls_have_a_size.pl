# P46: who has got the role of the links calls with messages of the control plane that have a hundred megabytes, or with very many. What is
# larger than any honest call is refused, and what is not takes memory in proportion.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use ShardWire;
use Test::More;

use constant { GET_DELTA => 16, LEARN => 15, MEGABYTE => 1024 * 1024 };

my $cluster = ShardNodes->create(2);
my $node = $cluster->coordinator;
my ($other) = $cluster->others($node->n);
my $liar = ShardWire::Member->new($other, $node);

# The most memory that the control worker has had, in megabytes.
sub peak
{
	my ($pid) = $node->server->worker_pids('%control%');
	my ($kb) = PostgreSQL::Test::Utils::slurp_file("/proc/$pid/status") =~ m{^VmHWM:\s+(\d+) kB}m;
	return int($kb / 1024);
}

# Bytes that are made where they are called with: of a front, so many times others, and an end.
sub says
{
	my ($front, $count, $bytes, $end) = @_;
	my ($hex, $part, $last) = map { unpack 'H*', $_ } $front, $bytes, $end // '';
	return $liar->call("DO \$do\$ DECLARE answer bytea; BEGIN CALL shard_peer.control(decode('$hex' || repeat('$part', $count) || '$last', 'hex'), answer); END \$do\$;\n");
}

# A message with so many of the smallest entries there are.
sub many_entries
{
	my ($count) = @_;
	my $entry = ShardWire::Member::_entry([ 1, 0, 0, 0 ]);
	# its head, with a list of no entries behind it, whose count is replaced
	my $head = $liar->message(LEARN, entries => [$entry = [ 1, 0, 0, 0 ]]);
	my $one = ShardWire::Member::_entry($entry);
	substr($head, -length($one) - 1) = ShardWire::wire_uint($count);
	return (ShardWire::wire_uint(length($head) + $count * length $one) . $head, $one);
}

# On a slow machine the control worker may take longer for a long one than its backend waits: 55P03, ask again.
sub heard { my @call = @_; my $errors = '55P03'; for (1 .. 10) { last if $errors ne '55P03'; $errors = (says(@call))[1] } return $errors }

my $pid = join ' ', $node->server->worker_pids('%control%');
my $before = peak();
for my $size (65, 150)
{
	my ($front, $one) = many_entries(int($size * MEGABYTE / 5));
	my (undef, $errors, $text) = says($front, int($size * MEGABYTE / 5), $one);
	is($errors, '54000', "P46 a call of $size MB is refused") or diag(substr $text, 0, 400);
	like($text, qr/calls of the control plane have 67108864 at most/, 'P46 with the bound');
}
cmp_ok(peak() - $before, '<', 50, 'P46 before the control worker has got anything');

my ($front, $one) = many_entries(int(60 * MEGABYTE / 5));
is(heard($front, int(60 * MEGABYTE / 5), $one), '', 'P46 one of 60 MB, of the smallest entries, is heard');
cmp_ok(peak() - $before, '<', 200, 'P46 and nothing made of it, as it is no message');
($front, $one) = many_entries(4 * MEGABYTE);
is(heard($front, 4 * MEGABYTE, $one), '', 'P46 so is one of 20 MB, with as many entries as there may be');
cmp_ok(peak() - $before, '<', 500, 'P46 in memory that is bounded');

my $small = ShardWire::wire_bytes($liar->message(GET_DELTA, n => 1));
is((says('', 1001, $small))[1], '54000', 'P46 a call of 1001 messages is refused');
is((says('', 1000, $small))[1], '', 'P46 one of 1000 is not');
note('peak ' . (peak() - $before) . ' MB');
is(join(' ', $node->server->worker_pids('%control%')), $pid, 'P46 the control worker is what it was');
$cluster->wait_up;
$cluster->start_recorder;
my $entity = $cluster->entity_at('recorder', $node->n);
$other->sql(ShardCluster::tell_recorder($entity, 'x'));
$cluster->wait_recorded($entity, $node->n, 'x');
pass('P46 and the cluster at work');
done_testing;
