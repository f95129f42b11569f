# A node whose gate is "local" and that runs under a lease of its identity: its standby may be promoted
# unattended. It is admitted when the lease of the old primary has ended, and not before: by then the old one,
# frozen or cut off, handles nothing any more.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;
use Time::HiRes qw(time);

my $cluster = ShardNodes->create(2, standbys => [2], confs => { 2 => 'shard.identity_lease = on' },
	conf => "shard.rebalance_interval = 0\nshard.lease_ttl = '4s'");
my ($one, $two) = $cluster->nodes;
$cluster->start_recorder;
my ($here, $there) = ($cluster->entity_at('recorder', 2), $cluster->entity_at('recorder', 1));
$cluster->add_standby(2);
$one->sql(ShardCluster::tell_recorder($here, 1, 10));
$two->sql(ShardCluster::tell_recorder($there, 1, 10));
$cluster->wait_recorded($here, 2, 1 .. 10);
$cluster->wait_recorded($there, 1, 1 .. 10);
pass('a node under a lease works');
$cluster->drain;
$cluster->wait_standby(2);
my $incarnation = $one->sql('SELECT incarnation FROM shard_members WHERE node = 2');

# --- the old primary hangs --------------------------------------------------------------------------

$two->server->freeze;
my $frozen = time;
$one->sql(ShardCluster::tell_recorder($here, 11, 20));
my $old = $cluster->promote(2);
$one->wait_until("SELECT status = 'up' AND incarnation > $incarnation FROM shard_members WHERE node = 2", 'the promoted standby to be admitted');
pass('the promoted standby is admitted without an operator');
cmp_ok(time - $frozen, '>', 3, 'when the lease has ended');
$cluster->wait_recorded($here, 2, 1 .. 20);
$two->sql(ShardCluster::tell_recorder($there, 11, 20));
$cluster->wait_recorded($there, 1, 1 .. 20);
pass('and goes on in both directions');

# --- and comes back ---------------------------------------------------------------------------------

my $seen = 'SELECT count(*) FROM seen';
$old->thaw;
$old->wait_until(q{SELECT array_to_string(problems, ' ') ~ 'fenced' FROM shard_health()}, 'the old primary to be fenced');
is($old->safe_psql('postgres', "SELECT count(*) FROM seen WHERE what::int > 10"), 0, 'the old primary has handled nothing since');
$old->stop('immediate');
$cluster->logs_are_clean(@ShardNodes::link_troubles);

# --- cut off from the coordinator --------------------------------------------------------------------

# Its lease cannot be renewed: it stops by itself, and goes on when it can.
$one->server->freeze;
$two->wait_until(q{SELECT array_to_string(problems, ' ') ~ 'lease' FROM shard_health()}, 'the node to say that its lease has ended');
$two->sql(ShardCluster::tell_recorder($here, 21, 25));
$two->sql('SELECT pg_sleep(0.5)');
is($two->sql("SELECT count(*) FROM seen WHERE what IN ('21', '25')"), 0, 'without a lease nothing is handled');
$one->server->thaw;
$cluster->wait_recorded($here, 2, 1 .. 25);
pass('with a new one it is');
done_testing();
