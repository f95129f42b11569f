# C27, P3: messages of one session to one entity are handled in the order of sending, those that
# waited for a home mixed with those that did not, in one transaction and in many.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(3, conf => 'shard.region_workers = 2');
$cluster->start_recorder;

my %expected;
for my $node ($cluster->nodes)
{
	my $n = $node->n;
	# The first messages of each entity wait for its home, the next ones perhaps not.
	my $sql = '';
	for my $i (1 .. 30)
	{
		for my $entity (map { "from-$n-$_" } 1 .. 12)
		{
			$sql .= ShardCluster::tell_recorder($entity, $i);
			push @{ $expected{$entity} }, $i;
		}
		$sql .= "BEGIN;\n" . join('', map { ShardCluster::tell_recorder("from-$n-$_", "t$i") } 1 .. 12) . "COMMIT;\n" if $i % 10 == 0;
		push @{ $expected{"from-$n-$_"} }, "t$i" for $i % 10 == 0 ? 1 .. 12 : ();
	}
	$node->sql($sql);
}
$cluster->drain;
my $wrong = 0;
for my $entity (sort keys %expected)
{
	my $want = join(' ', @{ $expected{$entity} }) . ' = ' . @{ $expected{$entity} };
	my $got = $cluster->recorded($entity);
	next if $got =~ /^\Q$want\E at \d$/;
	$wrong++;
	diag("$entity: $got");
}
is($wrong, 0, 'C27: every entity has all its messages in order, at one node');
$cluster->logs_are_clean;
done_testing();
