# Fault 12: connections between nodes are cut exactly between COMMIT and its reply, and just before the
# call, for every kind of call, again and again: messages are handled once and in order.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(2, proxy => 1);
$cluster->start_recorder;
my ($one, $two) = $cluster->nodes;
my $proxy = $cluster->proxy;
my ($here, $there) = ($cluster->entity_at('recorder', 1), $cluster->entity_at('recorder', 2));
$cluster->drain;

my $sent = 0;
for my $procedure ('receive', 'hello', 'control')
{
	for my $how ('cut_reply', 'cut_query')
	{
		for my $nth ($procedure eq 'receive' ? (1, 2) : 1)
		{
			$proxy->$how(1, 2, $nth, $procedure);
			$proxy->$how(2, 1, $nth, $procedure);
			$one->sql(ShardCluster::tell_recorder($there, $sent + 1, $sent + 5));
			$two->sql(ShardCluster::tell_recorder($here, $sent + 1, $sent + 5));
			$sent += 5;
			# A hello needs a new connection.
			if ($procedure eq 'hello') { $proxy->reset_links(1, 2); $proxy->reset_links(2, 1) }
			$cluster->wait_recorded($there, 2, 1 .. $sent);
			$cluster->wait_recorded($here, 1, 1 .. $sent);
		}
	}
	pass("calls of \"$procedure\" cut");
}
$cluster->drain;
$cluster->wait_recorded($there, 2, 1 .. $sent);
$cluster->wait_recorded($here, 1, 1 .. $sent);
pass('nothing is handled twice afterwards');
cmp_ok($proxy->fired, '>=', 6, 'connections were cut indeed');
$cluster->logs_are_clean(@ShardNodes::link_troubles);
done_testing();
