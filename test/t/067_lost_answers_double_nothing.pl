# A call whose answer is lost between its COMMIT and the wire, and backends that are terminated in the
# midst of a call: the origin does not know what was received, and hello tells.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use ShardNodes;
use Test::More;
use Time::HiRes qw(usleep);

my $cluster = ShardNodes->create(2, conf => 'shard.region_workers = 2', proxy => 1);
my ($here, $there) = $cluster->nodes;
$cluster->start_recorder;
my @far = $cluster->entities_at('recorder', 2, 8);
$cluster->drain;

my $told = 0;

sub tell_all
{
	my ($count) = @_;
	$here->sql(join '', map { ShardCluster::tell_recorder($_, $told + 1, $told + $count) } @far);
	$told += $count;
	return;
}

# Answers that are lost after the commit.
for my $round (1 .. 5)
{
	$cluster->proxy->cut_reply(1, 2, 1, '^receive$');
	tell_all(20);
	ShardCluster::wait_for_condition(sub { $cluster->proxy->fired =~ /[1-9]/ }, 'an answer to be lost')
	  if $round == 1;
	usleep(100_000);
}
$cluster->wait_recorded($_, 2, 1 .. $told) for @far;
pass('answers that are lost lose and double nothing');

# Calls that are lost before.
for my $round (1 .. 3)
{
	$cluster->proxy->cut_query(1, 2, 1, '^receive$');
	tell_all(20);
	usleep(100_000);
}
$cluster->wait_recorded($_, 2, 1 .. $told) for @far;
pass('nor do calls that are lost');

# Backends that end at any point.
my $ended = 0;
for my $round (1 .. 30)
{
	tell_all(10);
	$ended += $there->sql(q{SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
		WHERE usename = 'link' AND application_name LIKE '%region%'});
	usleep(20_000 * ($round % 4));
}
cmp_ok($ended, '>', 0, "$ended backends were ended");
$cluster->wait_recorded($_, 2, 1 .. $told) for @far;
pass('nor do backends that are ended');

$cluster->drain;
$cluster->logs_are_clean(@ShardNodes::link_troubles, qr/terminating connection due to administrator command/);
done_testing();
