# A node that leaves is removed when nothing of it is left: what it has for others is taken in, whoever was
# sending has ended, the rows of its shards are gone. Until then it is exiting, and takes no messages. A
# leave whose time is up goes on, and can be waited for again. A node that was written off while it was away
# says so when it returns, and keeps its data.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(4, conf => 'shard.rebalance_interval = 0');
my ($one, $two, $three, $four) = $cluster->nodes;
$cluster->start_recorder;
my ($there, $mine) = ($cluster->entity_at('recorder', 2, 't'), $cluster->entity_at('recorder', 3, 'm'));
$one->sql(ShardCluster::tell_recorder($mine, 1, 10));
$cluster->wait_recorded($mine, 3, 1 .. 10);

# --- leave, while a message cannot be delivered ----------------------------------------------------

my $state = q{SELECT status FROM shard_members WHERE node = 3};
$two->server->freeze;
$three->sql(ShardCluster::tell_recorder($there, 1, 10));
my $open = $three->session;
$open->query('BEGIN;');
$open->query(ShardCluster::tell_recorder($there, 11));
is($three->sql(q{SELECT shard_leave('4 s')}), 'f', 'a leave whose time is up returns false');
$one->wait_value($state, 'exiting', 'the node to exit: its shards have moved, to those that could be reached');
ShardCluster::wait_for_condition(sub { defined $three->error_of(ShardCluster::tell_recorder('probe', 0)) }, 'the node to hear it');
my ($status, $out, $said) = $three->try(q{SELECT shard_leave('100 ms')});
is("$status $out", '0 f', 'called again it goes on');
like($said, qr/WARNING:  this node has no shards any more, but has not left yet\nDETAIL:  The node waits for the end of transactions that have sent messages: process \d+, [^\n]*\n\d+ messages for node 2 have not been taken in/,
	'and says what it waits for');
like($three->error_of('SELECT shard_leave(cancel => true)'), qr/55000: .*DETAIL:  All its shards have moved, and it is being removed/s,
	'it is too late to cancel');
like($three->error_of(ShardCluster::tell_recorder($mine, 11)), qr/55000: .*leaving its cluster.*HINT: .*another member/s, 'it takes no messages any more');
$one->sql(ShardCluster::tell_recorder($mine, 11, 20));
$two->server->thaw;
$cluster->wait_recorded($there, 2, 1 .. 10);
is($one->sql($state), 'exiting', 'what it had is delivered, but a transaction is still sending');
$open->query('COMMIT;');
$open->close;
is($three->sql(q{SELECT shard_leave('60 s')}), 't', 'then it has left');
$one->wait_value("SELECT coalesce(($state), 'removed')", 'removed', 'it to be no member');
$cluster->wait_recorded($there, 2, 1 .. 11);
pass('all that it had was delivered');
is($three->sql('SELECT count(*) FROM shard.own') + $three->sql('SELECT count(*) FROM shard_entity.recorder'), 0, 'no row of a shard is left');
like($three->error_of("SELECT shard_join('" . $one->dsn . "')"), qr/55000: .*cannot join that cluster again.*This node was node 3 there, which is removed.*shard_reset_cluster_data\(\)/s, 'it does not come back');
$three->wait_until(q{SELECT problems::text ~ 'left' FROM shard_health()}, 'the node to hear it');
like($three->error_of(ShardCluster::tell_recorder($mine, 21)), qr/55000: .*has left its cluster.*HINT: .*drop the extension/s, 'and says that it has left');
$three->server->restart;
$three->wait_until(q{SELECT problems::text ~ 'left' FROM shard_health()}, 'the node to say so after a restart');
like($three->error_of(ShardCluster::tell_recorder($mine, 21)), qr/55000: /, 'also after a restart');
ShardCluster::wait_for_condition(
	sub { grep { $_->sql("SELECT state->>'count' FROM shard_entity.recorder WHERE entity_id = '$mine'") eq '20' } $one, $two, $four },
	'an entity of it to go on');
pass('an entity of it went on elsewhere');
# It is in shard_peers no more, though the workers' links to it may be.
$_->wait_value('SELECT count(*) FROM shard_peers WHERE node = 3', 0, 'no row of a node that is removed') for $one, $two;

# --- written off, and back ---------------------------------------------------------------------------

my $lost = $cluster->entity_at('recorder', 4, 'l');
$one->sql(ShardCluster::tell_recorder($lost, 1, 5));
$cluster->wait_recorded($lost, 4, 1 .. 5);
# What is to be read later has to be on its disk: once it is back it may hear of its end before it handles anything again.
$four->server->drain;
$four->server->crash;
$one->sql(ShardCluster::tell_recorder($lost, 6));
$one->wait_until(q{SELECT NOT reachable FROM shard_members WHERE node = 4}, 'the node to be missed');
$one->eventually('SELECT shard_down(4)');
$one->wait_until(q{SELECT problems::text ~ 'node 4 is down.*shard_write_off' FROM shard_health()}, 'the hint what to do');
$one->sql('SELECT shard_write_off(4)');
$one->sql(ShardCluster::tell_recorder($lost, 7, 9));
my $new;
ShardCluster::wait_for_condition(sub { ($new) = grep { $_->sql(ShardCluster::recorded($lost)) =~ /7 8 9/ } $one, $two; $new }, 'the entity to begin anew');
pass('an entity of a node that was written off begins anew');
$four->server->recover;
$four->wait_until(q{SELECT problems::text ~ 'written off' FROM shard_health()}, 'the node to hear it');
like($four->error_of(ShardCluster::tell_recorder($lost, 10)), qr/55000: .*written off/s, 'one that returns is fenced, and says why');
is($four->sql(ShardCluster::recorded($lost)), '1 2 3 4 5 = 5', 'its data is there to be read');
# --- the coordinator leaves --------------------------------------------------------------------------

# Of two members it alone votes: the other one votes first, and takes the office.
is($cluster->coordinator($two)->n, 1, 'node 1 is the coordinator, and the only voter');
$one->wait_value('SELECT string_agg(node::text, $$ $$) FROM shard_members WHERE voter', '1', 'one of two to vote');
my $own = $cluster->entity_at('recorder', 1, 'c');
$two->sql(ShardCluster::tell_recorder($own, 1, 10));
$cluster->wait_recorded($own, 1, 1 .. 10);
is($one->sql(q{SELECT shard_leave('60 s')}), 't', 'it leaves');
$two->wait_value('SELECT string_agg(node || $$ $$ || status, $$, $$) FROM shard_members WHERE coordinator AND voter', '2 up', 'the last one to be alone');
$two->sql(ShardCluster::tell_recorder($own, 11, 20));
$two->wait_value("SELECT state->>'count' FROM shard_entity.recorder WHERE entity_id = '$own'", 20, 'the entity to go on there');
pass('its shards go on at the last one');
like($two->error_of('SELECT shard_leave()'), qr/55000: .*only member/s, 'which cannot leave');
done_testing();
