# R11: a node of three leaves, and the coordinator dies when the first move of the leave is decided. The others are two of
# three voters still: one of them takes the office, and the leave ends, while the dead one is away.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(3);
my $coordinator = $cluster->coordinator;
plan skip_all => 'needs a build with fault points'
  unless $coordinator->sql(q{SELECT count(*) FROM pg_settings WHERE name = 'shard.fault_point'});
$cluster->start_recorder(shards => 12, settings => q{, handoff_timeout => '2 s'});
my ($stays, $leaver) = $cluster->others($coordinator->n);
my $entity = $cluster->entity_at('recorder', $leaver->n);
$stays->sql(ShardCluster::tell_recorder($entity, 1, 3));
$cluster->drain;
my $voters = q{SELECT string_agg(node::text, ' ' ORDER BY node) FROM shard_members WHERE voter};
is($stays->sql($voters), '1 2 3', 'three vote');

$coordinator->server->set_fault('move_begun', 'freeze');
my $leaves = $leaver->session;
$leaves->send(q{SELECT shard_leave('1000 s');});
ShardCluster::wait_for_condition(sub { $coordinator->server->fault_happened }, 'the first move of the leave');
is($stays->sql('SELECT status FROM shard_members WHERE node = ' . $leaver->n), 'leaving', 'it leaves');
is($_->sql($voters), '1 2 3', 'node ' . $_->n . ' knows of three voters still') for $stays, $leaver;
$coordinator->server->crash;

$stays->wait_until('SELECT count(*) = 1 FROM shard_members WHERE coordinator AND node <> ' . $coordinator->n, 'another coordinator');
pass('another coordinator takes over');
is($leaves->receive, 't', 'the leave ends');
$cluster->has_left($leaver->n);
is($stays->sql('SELECT status FROM shard_members WHERE node = ' . $leaver->n), 'removed', 'by its decision');
is($stays->sql($voters), $stays->n, 'now the one that stays votes alone');
$stays->sql(ShardCluster::tell_recorder($entity, 4, 6));
is($stays->sql('SELECT count(*) FROM shard_homes WHERE node = ' . $leaver->n), 0, 'it has no shard');

$coordinator->server->clear_fault;
$coordinator->server->recover;
$cluster->wait_up;
$cluster->drain;
is($stays->sql($voters), $stays->n, 'the one that is back does not vote');
is($stays->sql(qq{SELECT state FROM shard_entity.recorder WHERE entity_id = '$entity'}), '{"last": "6", "count": 6}', 'the entity goes on with its state');
$cluster->logs_are_clean(@ShardNodes::link_troubles);
done_testing();
