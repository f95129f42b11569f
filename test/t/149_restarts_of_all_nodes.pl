# Rolling restart and full stop: nodes are restarted one after the other with a new version of the application
# and other roles, which count from then on; all are stopped, one by one and at once, and started in any order.
# Nothing is lost, and no shard changes its home by it.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(3, conf => 'shard.rebalance_interval = 0');
my ($one, $two, $three) = $cluster->nodes;
$cluster->start_recorder;
my @entities = map { $cluster->entity_at('recorder', $_, "n$_") } 1 .. 3;
my $sent = 0;
my %homes = $cluster->homes('recorder');

sub send_and_check
{
	my ($why) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$sent += 5;
	$one->sql(ShardCluster::tell_recorder($_, $sent - 4, $sent)) for @entities;
	$cluster->wait_recorded($entities[ $_ - 1 ], $_, 1 .. $sent) for 1 .. 3;
	my %now = $cluster->homes('recorder');
	is_deeply(\%now, \%homes, $why);
	return;
}

send_and_check('messages flow');

# --- rolling restart with a new version -------------------------------------------------------------

for my $node ($three, $two, $one)
{
	my $n = $node->n;
	$node->sql(q{ALTER SYSTEM SET shard.app_version = '2.0.0'});
	$node->sql(q{ALTER SYSTEM SET shard.roles = 'worker, edge'}) if $n == 2;
	$node->server->restart;
	$cluster->wait_up;
	$_->wait_value("SELECT app_version FROM shard_members WHERE node = $n", '2.0.0', "node $n under its new version, as node " . $_->n . ' sees it') for $cluster->nodes;
}
is($one->sql('SELECT roles FROM shard_members WHERE node = 2'), '{worker,edge}', 'new roles count, too');
send_and_check('after a rolling restart');

# --- settings that mean nothing ----------------------------------------------------------------------

like($one->error_of(q{ALTER SYSTEM SET shard.roles = 'a,,b'}), qr/22023: .*shard.roles.*DETAIL/s, 'a list of roles is checked');
like($one->error_of(q{ALTER SYSTEM SET shard.roles = 'a,b,c,d,e,f,g,h,i'}), qr/22023: .*DETAIL: .*8 roles, not 9/s, 'and how many there are');
like($one->error_of(q{ALTER SYSTEM SET shard.role_min_members = 'a=1, b'}), qr/22023: .*DETAIL: .*"b" is not role=number/s, 'minimums of roles as well');
like($one->error_of(q{ALTER SYSTEM SET shard.role_min_members = 'a=0'}), qr/22023: .*DETAIL: .*between 1 and 1000/s, 'with their numbers');

# --- all of them ---------------------------------------------------------------------------------------

$_->server->stop('fast') for $one, $two, $three;
$_->server->start for $three, $one, $two;
$cluster->wait_up;
send_and_check('after a full stop, one by one');

# Messages wait for a server that is down, at all that are up and at those that come up.
$three->server->stop('fast');
$sent += 5;
$one->sql(ShardCluster::tell_recorder($entities[2], $sent - 4, $sent));
$two->server->stop('fast');
$one->server->stop('fast');
$_->server->start for $two, $three, $one;
$cluster->wait_up;
$cluster->wait_recorded($entities[2], 3, 1 .. $sent);
$one->sql(ShardCluster::tell_recorder($_, $sent - 4, $sent)) for @entities[ 0, 1 ];
send_and_check('what waited when all were stopped is handled');

$_->server->crash for $cluster->nodes;
$_->server->recover for $two, $three, $one;
$cluster->wait_up;
send_and_check('after a power cut of all');
done_testing();
