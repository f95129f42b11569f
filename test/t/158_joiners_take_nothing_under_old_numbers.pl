# A node that was let into a cluster gives its types the cluster's numbers. If its server goes down in between, nobody may send
# there when it comes up again before that is done, not even before its control worker has spoken: what was sent under the
# old numbers could not be given others, and the node would handle nothing.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(2, join => 0, conf => 'shard.rebalance_interval = 0');
my ($one, $two) = $cluster->all_nodes;
my $keep = q{CREATE FUNCTION keep(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT message';};
$one->sql("$keep SELECT shard_start('first', 'keep(jsonb,jsonb)', 8); SELECT shard_start('second', 'keep(jsonb,jsonb)', 8)");
$two->sql("$keep SELECT shard_start('second', 'keep(jsonb,jsonb)', 8)");

# These locks are there again after a crash: the types cannot be given their numbers, then the control worker cannot begin.
my $prepare = sub { $two->sql("BEGIN; LOCK TABLE shard.$_[0] IN SHARE MODE; PREPARE TRANSACTION '$_[0]'") };
$prepare->('route');
my $join = $two->session;
$join->send("SELECT shard_join('" . $one->dsn . "', '" . $two->dsn . "');");
$two->wait_until('SELECT count(*) = 2 FROM shard_members', 'it to be a member');
like($two->error_of(q{SELECT shard_tell('second', 'a', '{"n": 1}')}), qr/55000: .*joining a cluster/s, 'a node that has not its types\' numbers yet takes no messages');
$prepare->('node');
$two->server->crash;
$join->close;
$two->server->recover;
like($two->error_of(q{SELECT shard_tell('second', 'a', '{"n": 1}')}), qr/55000: .*joining a cluster/s, 'nor does it after a crash, from the first moment');
$two->sql("ROLLBACK PREPARED '$_'") for qw(node route);
$two->eventually(q{SELECT shard_tell('second', 'a', '{"n": 2}')});
$cluster->wait_up;
is($two->eventually(q{SELECT shard_ask('second', 'a', '{"n": 3}')}), '{"n": 3}', 'then it handles messages');
done_testing();
