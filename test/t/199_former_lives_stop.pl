# A node that is a pair of servers, with the gate "local": its standby is promoted and admitted by an operator. Then the old primary comes
# up again, at an address of the node. To itself it has only been restarted, so it handles messages before it is admitted (I4), but only
# until members have told it that another incarnation lives: then it stops, says so, and takes no messages.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(3, standbys => [2]);
my ($one, $two, $three) = $cluster->nodes;
$cluster->start_recorder;
my ($here, $there) = ($cluster->entity_at('recorder', 2), $cluster->entity_at('recorder', 1));
$cluster->add_standby(2);
is($one->sql('SELECT gate FROM shard_members WHERE node = 2'), 'local', 'the gate waits for no standby');
$one->sql(ShardCluster::tell_recorder($here, 1, 10));
$cluster->wait_recorded($here, 2, 1 .. 10);
$cluster->wait_standby(2);

$two->server->stop('immediate');
my $old = $cluster->promote(2);
$one->eventually(q{SELECT shard_admit(2, incarnation + 1) FROM shard_members WHERE node = 2});
$one->wait_until(q{SELECT status = 'up' AND reachable FROM shard_members WHERE node = 2}, 'the promoted standby to be admitted');
$cluster->wait_reachable;
$one->sql(ShardCluster::tell_recorder($here, 11));
$cluster->wait_recorded($here, 2, 1 .. 11);
pass('the promoted standby is the node');

$old->start;
$old->wait_until(q{SELECT array_to_string(problems, ' ') ~ 'this node handles no messages: incarnation \d+ of this node lives, and this database is a former life of it' FROM shard_health()}, 'the old primary to hear of it');
pass('the old primary hears that another incarnation lives, and stops');
is($old->safe_psql('postgres', q{SELECT array_to_string(problems, ' ') ~ 'no coordinator' FROM shard_health()}), 'f', 'it says nothing of a coordinator, which the others have');
my (undef, undef, $error) = $old->psql('postgres', "\\set VERBOSITY verbose\n" . ShardCluster::tell_recorder($here, 'zombie'));
like($error, qr/ERROR:  55000: this node waits for its admission and takes no messages\n.*HINT:  Send at another member/s, 'it takes no messages');
(undef, undef, $error) = $old->psql('postgres', "\\set VERBOSITY verbose\n" . qq{SELECT shard_ask('recorder', '$here', '{"n": "zombie"}', '3 s')});
like($error, qr/ERROR:  55\d\d\d:/, 'nor asks');
$one->sql(ShardCluster::tell_recorder($here, 12));
$cluster->wait_recorded($here, 2, 1 .. 12);
pass('the others go on with the new one');
$old->stop('immediate');
done_testing();
