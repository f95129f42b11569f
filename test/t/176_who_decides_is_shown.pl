# Q09, C25: a coordinator that hears no majority of the voters is none, and nobody shows it as one; each
# node says in shard_health() whom it misses.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(3, proxy => 1);
my ($one, $two, $three) = $cluster->nodes;
my $shown = q{SELECT string_agg(node::text, ' ') FROM shard_members WHERE coordinator};
my $says = q{SELECT coalesce(bool_or(p ~ '%s'), false) FROM shard_health(), unnest(problems) p};
my $lost = 'no coordinator.*no majority of the voters';
$_->wait_value($shown, 1, 'node ' . $_->n . ' to know the coordinator') for $cluster->nodes;

# --- the coordinator is cut off ------------------------------------------------------------------

$cluster->proxy->partition([1], [ 2, 3 ]);
like($one->error_of('SELECT shard_evacuate(3)') // 'done',
	qr/SH100: it is not known.*DETAIL:  The coordinator has changed.*HINT:  .*call the function again|there is no coordinator/s,
	'G6: what only it knows is not done, unless it knows already that it cannot be');
$one->wait_value($shown, '', 'node 1 to show nobody as coordinator');
pass('Q09: who hears no majority does not show itself as coordinator');
$one->wait_value(sprintf($says, "$lost: nodes 2, 3 are not heard"), 't', 'node 1 to say whom it misses');
pass('and says that there is no majority, and whom it misses');
$_->wait_value($shown, 2, 'node ' . $_->n . ' to know the next one') for $two, $three;
is($two->sql(sprintf($says, 'no coordinator')), 'f', 'where a majority is there is a coordinator');
like($one->error_of('SELECT shard_evacuate(3)'), qr/55000: .*there is no coordinator/, 'commands are refused at once without one');
$cluster->proxy->heal;
$_->wait_value($shown, 2, 'node ' . $_->n . ' to know the same one') for $cluster->nodes;
pass('all know one when it heals');
is($two->sql('SELECT count(*) FROM shard_members WHERE evacuated'), 0, 'G6: and it is not done');
$one->sql('SELECT shard_evacuate(3)');
$two->wait_value('SELECT node FROM shard_members WHERE evacuated', 3, 'node 2 to learn that, repeated, it is (G6)');
$one->sql('SELECT shard_evacuate(3, evacuate => false)');

# --- two are gone --------------------------------------------------------------------------------

$_->server->stop for $two, $three;
$one->wait_value($shown, '', 'node 1 to be alone');
$one->wait_value(sprintf($says, $lost), 't', 'node 1 to say that there is no majority');
$three->server->start;
$_->wait_until(q{SELECT count(*) = 1 FROM shard_members WHERE coordinator}, 'node ' . $_->n . ' to know a coordinator')
  for $one, $three;
isnt($one->sql($shown), '', 'two of three are enough');
$one->wait_value(sprintf($says, 'no coordinator'), 'f', 'node 1 to be content with it');
$two->server->start;
$cluster->wait_up;
$cluster->logs_are_clean(@ShardNodes::link_troubles);
done_testing();
