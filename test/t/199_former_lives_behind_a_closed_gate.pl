# A node that is a pair of servers, with the gate "standby": its primary is killed, and its standby promoted and admitted. Then the old primary
# comes up again with its own synchronous_standby_names, so its gate is closed, and what it would claim its place by waits there.
# It hears all the same that another incarnation lives (I4): it says so, takes no messages, and advises nobody to open its gate.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(3, standbys => [2]);
my ($one, $two, $three) = $cluster->nodes;
$cluster->start_recorder;
my ($here, $there) = ($cluster->entity_at('recorder', 2), $cluster->entity_at('recorder', 1));
$cluster->add_standby(2);
$two->server->append_conf('postgresql.conf', "synchronous_standby_names = '*'");
$two->server->reload;
$one->wait_until(q{SELECT gate = 'standby' FROM shard_members WHERE node = 2}, 'the gate at the standby');
my $incarnation = $one->sql('SELECT incarnation FROM shard_members WHERE node = 2');
$one->sql(ShardCluster::tell_recorder($here, 1, 10));
$cluster->wait_recorded($here, 2, 1 .. 10);
$cluster->wait_standby(2);

$two->server->stop('immediate');
my $old = $cluster->promote(2);
$one->wait_until("SELECT status = 'up' AND reachable AND incarnation > $incarnation FROM shard_members WHERE node = 2", 'the promoted standby to be admitted');
$cluster->wait_reachable;
$one->sql(ShardCluster::tell_recorder($here, 11));
$cluster->wait_recorded($here, 2, 1 .. 11);
pass('the promoted standby is the node');

$old->start;
$old->wait_until(q{SELECT array_to_string(problems, ' ') ~ 'this node handles no messages: incarnation \d+ of this node lives, and this database is a former life of it' FROM shard_health()},
	'the old primary to hear of it');
is($old->safe_psql('postgres', 'SHOW synchronous_standby_names'), '*', 'the old primary hears that another incarnation lives, behind its closed gate');
is($old->safe_psql('postgres', q{SELECT fenced IS NULL FROM shard.node}), 't', 'not for good: an operator may still let it in');
my (undef, undef, $error) = $old->psql('postgres', "\\set VERBOSITY verbose\n" . ShardCluster::tell_recorder($here, 'zombie'));
like($error, qr/ERROR:  55000: this node waits for its admission and takes no messages\n.*HINT:  Send at another member/s, 'it takes no messages, rather than keep their senders waiting');
(undef, undef, $error) = $old->psql('postgres', "\\set VERBOSITY verbose\n" . qq{SELECT shard_ask('recorder', '$here', '{"n": "zombie"}', '3 s')});
like($error, qr/ERROR:  55\d\d\d:/, 'nor asks');
# The gate is said to be closed after 10 s, by then to those who are to open it.
$old->wait_until(q{SELECT now() - pg_postmaster_start_time() > '15 s'}, 'time for a closed gate to be said');
unlike($old->safe_psql('postgres', q{SELECT array_to_string(problems, '; ') FROM shard_health()}), qr/the gate is at|shard\.gate|no coordinator/,
	'its health advises neither a standby nor another gate, and misses no coordinator, which the others have');
$one->sql(ShardCluster::tell_recorder($here, 12));
$cluster->wait_recorded($here, 2, 1 .. 12);
pass('the others go on with the new one');

# Open, its gate lets it claim its place: in vain.
$old->append_conf('postgresql.conf', "synchronous_standby_names = ''");
$old->reload;
$_->wait_until(q{SELECT claimed FROM shard_members WHERE node = 2}, 'node ' . $_->n . ' to see that the place of node 2 is claimed') for $one, $three;
like($old->safe_psql('postgres', q{SELECT array_to_string(problems, '; ') FROM shard_health()}), qr/this database is a former life of it/, 'with its gate open it is a former life, too');
$one->sql(ShardCluster::tell_recorder($here, 13));
$two->sql(ShardCluster::tell_recorder($there, 1, 3));
$cluster->wait_recorded($here, 2, 1 .. 13);
$cluster->wait_recorded($there, 1, 1 .. 3);
pass('and harms nobody');
$old->stop('immediate');

# Cut off from all others it cannot know. Then its health names what may be first, and the gate last.
$_->server->stop('fast') for $cluster->nodes;
$old->append_conf('postgresql.conf', "synchronous_standby_names = '*'");
$old->start;
$old->wait_until(q{SELECT array_to_string(problems, '; ') ~ 'the gate is at the synchronous standbys.*; this start is not admitted, and another incarnation of the node may live: .*end this server.*; only if no standby of it was promoted, .*shard.gate' FROM shard_health()},
	'its health to say that another incarnation may live');
pass('a closed gate of a node that is not admitted is not to be opened before that is clear');
$old->stop('immediate');
done_testing();
