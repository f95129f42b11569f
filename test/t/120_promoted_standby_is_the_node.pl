# A node that is a pair of servers, gate "standby": its standby is promoted and is the same node under
# a new incarnation, admitted by itself; nothing that anybody saw is lost, messages sent to it and by it
# are handled once and in order. What the standby lacked, nobody had seen. The old primary, frozen all
# the while, is fenced when it thaws.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(3, standbys => [2]);
my ($one, $two, $three) = $cluster->nodes;
$cluster->start_recorder;
my ($here, $there) = ($cluster->entity_at('recorder', 2), $cluster->entity_at('recorder', 1));
my $standby = $cluster->add_standby(2);
like(($standby->psql('postgres', 'SELECT * FROM shard_stat_inbox'))[2], qr/the inbox cannot be read on a standby/, 'a standby says that it cannot show the inbox');
# The gate follows, and the cluster decides so (G3).
$two->server->append_conf('postgresql.conf', "synchronous_standby_names = '*'");
$two->server->reload;
$one->wait_until(q{SELECT gate = 'standby' FROM shard_members WHERE node = 2}, 'the gate at the standby');
$one->sql(ShardCluster::tell_recorder($here, 1, 10));
$two->sql(ShardCluster::tell_recorder($there, 1, 10));
$cluster->wait_recorded($here, 2, 1 .. 10);
$cluster->wait_recorded($there, 1, 1 .. 10);
pass('both ways');
my $incarnation = $one->sql('SELECT incarnation FROM shard_members WHERE node = 2');

# The standby gets nothing any more; so nothing leaves, though it was committed.
$cluster->stop_replication(2);
$one->sql(ShardCluster::tell_recorder($here, 11, 20));
my $hasty = $two->session;
$hasty->query('SET synchronous_commit = local;');
$hasty->query(ShardCluster::tell_recorder($there, 'unseen'));
$hasty->close;
$one->sql(ShardCluster::tell_recorder($there, 'meanwhile'));
$cluster->wait_recorded($there, 1, 1 .. 10, 'meanwhile');

$two->server->freeze;
my $old = $cluster->promote(2);
$one->wait_until("SELECT status = 'up' AND incarnation > $incarnation FROM shard_members WHERE node = 2", 'the promoted standby to be admitted');
pass('the promoted standby is admitted by itself');
$cluster->wait_recorded($here, 2, 1 .. 20);
pass('what was sent to the node is handled once, in order');
$two->sql(ShardCluster::tell_recorder($there, 11, 20));
$cluster->wait_recorded($there, 1, 1 .. 10, 'meanwhile', 11 .. 20);
pass('what the standby lacked was seen by nobody; what it sends is handled');

$old->thaw;
$old->wait_until(q{SELECT array_to_string(problems, ' ') ~ 'fenced' FROM shard_health()}, 'the old primary to be fenced');
pass('the thawed old primary is fenced');
my ($status, undef, $error) = $old->psql('postgres', "SET synchronous_commit = local;\n" . ShardCluster::tell_recorder($there, 'zombie'));
isnt($status, 0, 'and takes no messages');
like($error, qr/HINT/, 'with a hint');
$one->sql(ShardCluster::tell_recorder($here, 21));
$cluster->wait_recorded($here, 2, 1 .. 21);
$cluster->wait_recorded($there, 1, 1 .. 10, 'meanwhile', 11 .. 20);
pass('the others go on with the new one');
$old->stop('immediate');
$cluster->logs_are_clean(@ShardNodes::link_troubles);
done_testing();
