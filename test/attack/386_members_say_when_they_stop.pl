# P61: who has the role of the links says in the names of all members that they go down, so that no shard gets a home any more, and messages
# for those that have none wait for ever. Members are given shards as before.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use ShardWire;
use Test::More;

use constant { REGISTER => 64, STOPPED => 78 };

my $cluster = ShardNodes->create(2);
$cluster->start_recorder;
my $coordinator = $cluster->coordinator;
my ($other) = $cluster->others($coordinator->n);
my $type = $coordinator->sql(q{SELECT type_id FROM shard.type WHERE type_name = 'recorder'});

# So many entities of shards that have no home yet.
sub homeless
{
	my ($count) = @_;
	my (%home, @found);
	$home{$_} = 1 for split /\n/, $coordinator->sql(q{SELECT shard FROM shard_homes});
	for (my $i = 1; @found < $count && $i < 10_000; $i++)
	{
		my $shard = $cluster->shard_of('recorder', "fresh-$i");
		push @found, "fresh-$i" unless $home{$shard}++;
	}
	return @found;
}

sub get_homes
{
	my ($what) = @_;
	my @fresh = homeless(4);
	is(scalar @fresh, 4, "P61 $what: shards without a home");
	$other->sql(ShardCluster::tell_recorder($_, 1, 2)) for @fresh;
	for my $entity (@fresh)
	{
		my $shard = $cluster->shard_of('recorder', $entity);
		$coordinator->wait_until("SELECT EXISTS (SELECT FROM shard_homes WHERE shard = $shard AND node > 0)", "a home of shard $shard");
		$cluster->node($coordinator->sql("SELECT node FROM shard_homes WHERE shard = $shard"))
		  ->wait_until("SELECT state->>'count' = '2' FROM shard_entity.recorder WHERE entity_id = '$entity'", "messages of $entity");
		pass("P61 $what: $entity has a home, and is handled");
	}
	is($coordinator->sql('SELECT count(*) FROM shard.parked') + $other->sql('SELECT count(*) FROM shard.parked'), 0, "P61 $what: nothing waits for a home");
}

for my $name ($coordinator, $other)
{
	my $liar = ShardWire::Member->new($name, $coordinator);
	is(($liar->control(STOPPED))[1], '', 'P61 node ' . $name->n . ' stops, somebody says');
}
get_homes('said so');

# By the registration of each, with the types that it has: it hears of that, and says its own.
for my $name ($coordinator, $other)
{
	my $liar = ShardWire::Member->new($name, $coordinator);
	my $n = ($liar->decided)[1];
	is(($liar->control(REGISTER, n => $n, commit_n => $n, token => 1 << 61, nodes => [$type], flag => 1))[1], '', 'P61 node ' . $name->n . ' is registered as one that stops');
}
get_homes('registered so');
done_testing;
