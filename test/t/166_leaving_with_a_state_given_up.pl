# N1, M20: rows of a former shard, which its users hold until its state is given up elsewhere, stay where they
# are, for whoever wants to look at them. They keep nobody from leaving.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(3, conf => 'shard.rebalance_interval = 0');
$cluster->start_counter;
my ($one, $two, $three) = $cluster->nodes;
$one->get($_) for 0 .. 11;
my ($shard) = grep { $cluster->home_of('counter', $_) == 3 } 0 .. 11;
$one->add($_, 1) for $shard, $shard + 12;
$cluster->drain;

my $own = "SELECT coalesce(max(state), 'none') FROM shard.own WHERE shard = $shard";
my $left = "SELECT count(*) FROM shard_entity.counter WHERE shard = $shard";
my $holder = $three->session;
$holder->query("BEGIN; SELECT FROM shard_entity.counter WHERE entity_id = '$shard' FOR SHARE;");
$cluster->move('counter', $shard, 2);
$cluster->wait_home('counter', $shard, 2);
$three->wait_value($left, 1, 'all rows to go but the one that somebody holds');
is($three->sql($own), 'sealed', 'the shard is not forgotten');

$one->sql("SELECT shard_pin('counter', $shard, 1)");
$two->server->crash;
$cluster->has_left(2);
$one->eventually('SELECT shard_write_off(2)');
$cluster->wait_home('counter', $shard, 1);
is($one->get($shard), '0 from node1', 'its state is given up, and it begins anew elsewhere');
$three->wait_value("SELECT node FROM shard.route WHERE shard = $shard", 1, 'its former home to hear of it');
$holder->query('COMMIT;');
$holder->close;

is($three->sql(q{SELECT shard_leave('60 s')}), 't', 'its former home leaves');
is($three->sql($left), 1, 'what it had stays');
is($one->get($shard), '0 from node1', 'and is of no use to anybody');
$cluster->has_left(3);
$_->server->log_is_clean(@ShardNodes::link_troubles) for $one;
done_testing();
