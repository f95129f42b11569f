# C21, C25: without coordinator and majority, shards whose home is known run on; messages for unknown
# ones wait, durably and visibly, an ask for one says why it waited; all flow on when a majority is back.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(3);
$cluster->start_recorder;
my ($one, $two, $three) = $cluster->nodes;
my $here  = $cluster->entity_at('recorder', 3);
$cluster->drain;

$_->server->freeze for $one, $two;
$three->sql(ShardCluster::tell_recorder($here, 1, 5));
$cluster->wait_recorded($here, 3, 1 .. 5);
pass('C25: a shard whose home is here runs on');

# Of 64 shards these meet some that have no home.
my @fresh = map { "fresh$_" } 1 .. 100;
my ($unknown) = $cluster->homeless('recorder', $three, @fresh);
ok($unknown, 'some shard has no home yet');
$three->sql(ShardCluster::tell_recorder($unknown, 1, 5));
$three->wait_until("SELECT count(*) = 5 FROM shard_inbox WHERE entity_id = '$unknown'", 'messages to wait');
pass('C21: messages for others wait and are seen');
my $error = $three->error_of(qq{SELECT shard_ask('recorder', '$unknown', '{"what": "ask"}', '1 s')});
like($error, qr/ERROR/, 'an ask is given up after its time');
note($error);

# Not lost by a restart, either.
$three->server->crash;
$three->server->recover;
is($three->sql("SELECT count(*) FROM shard_inbox WHERE entity_id = '$unknown'"), 5, 'they survive a crash');

$_->server->thaw for $one, $two;
$cluster->wait_up;
$cluster->drain;
like($cluster->recorded($unknown), qr/^1 2 3 4 5 = 5 at [123]$/, 'C21: they are handled when there is a majority');
$cluster->logs_are_clean(@ShardNodes::link_troubles);
done_testing();
