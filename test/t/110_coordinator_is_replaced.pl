# When the coordinator is killed, freezes or is cut off, another node takes over, within seconds: known
# homes are not concerned, new ones can be had (F15: what it had decided is told again). It comes back
# as a member. The times are printed.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;
use Time::HiRes qw(time);

my $cluster = ShardNodes->create(3, proxy => 1);
$cluster->start_recorder(shards => 1000);
my $proxy = $cluster->proxy;
my $round = 0;

my %loss = (
	'kill -9' => [ sub { $_[0]->server->crash }, sub { $_[0]->server->recover } ],
	'freeze' => [ sub { $_[0]->server->freeze }, sub { $_[0]->server->thaw } ],
	'partition' => [ sub { $proxy->partition([ $_[0]->n ], [ map { $_->n } $cluster->others($_[0]->n) ]) }, sub { $proxy->heal } ],
	'immediate stop' => [ sub { $_[0]->server->stop('immediate') }, sub { $_[0]->server->recover } ]);

for my $name (sort keys %loss)
{
	my ($lose, $return) = @{ $loss{$name} };
	$round++;
	my $coordinator = $cluster->coordinator;
	my ($sender, $other) = $cluster->others($coordinator->n);
	my $known = $cluster->entity_at('recorder', $other->n, "known$round-");
	$cluster->drain;

	my $lost = time;
	$lose->($coordinator);
	$sender->sql(ShardCluster::tell_recorder($known, 1, 3));
	$cluster->wait_recorded($known, $other->n, 1 .. 3);
	pass("$name: known homes are not concerned");

	# Entities of many shards, so that some have no home; none can be on the lost node.
	my @fresh = map { "fresh$round-$_" } 1 .. 20;
	my @unknown = $cluster->homeless('recorder', $sender, @fresh);
	cmp_ok(scalar @unknown, '>', 0, "$name: there are shards without a home");
	$sender->sql(join '', map { ShardCluster::tell_recorder($_, 1, 2) } @unknown);
	ShardCluster::wait_for_condition(sub { !$cluster->homeless('recorder', $sender, @unknown) }, "new homes after $name");
	note(sprintf '%s: new shards had homes %.1f s after the loss', $name, time - $lost);
	my $new = $cluster->coordinator($sender);
	isnt($new->n, $coordinator->n, "$name: another node coordinates");

	my $returned = time;
	$return->($coordinator);
	$cluster->wait_up;
	$cluster->wait_reachable;
	note(sprintf '%s: all were up and in touch %.1f s after the return', $name, time - $returned);
	$cluster->drain;
	my @wrong = grep { $cluster->recorded($_) !~ /^1 2 = 2 at \d$/ } @unknown;
	is("@wrong", '', "$name: all messages were handled, once, in order");
}
$cluster->logs_are_clean(@ShardNodes::link_troubles);
done_testing();
