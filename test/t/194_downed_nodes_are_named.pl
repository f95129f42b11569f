# A node that was downed and whose server runs: there, commands say that it was downed, not that there is no coordinator;
# at the others, who do not hear it any more, shard_health() names the harmless ways back first, and giving it up once.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(3, databases => 1);
my ($one, $two, $three) = $cluster->nodes;
$cluster->start_counter;
my ($id) = $cluster->entities_at('counter', 3, 1, '');
my $shard = $id % 12;
$one->sql('SELECT shard_down(3)');
$three->wait_until(q{SELECT problems::text ~ 'was downed' FROM shard_health()}, 'node 3 to know it');

my $downed = qr/55000: this node was downed\n.*HINT:  Restart its server, or call shard_admit\(3, \d+\) here/s;
like($three->error_of($_) // '', $downed, "$_ at the node")
  for 'SELECT shard_down(3)', 'SELECT shard_rebalance()', q{SELECT shard_pin('counter', 1, 2)}, "SELECT shard_move('counter', $shard, 2)",
  'SELECT shard_write_off(3)', 'SELECT shard_leave(cancel => true)';
my ($out, $said);
$three->server->psql($three->db, 'SELECT shard_leave()', stdout => \$out, stderr => \$said);
like($said, qr/ERROR:  this node was downed/, 'so does shard_leave()');
unlike($said, qr/NOTICE/, 'and advises nothing that is refused there');

for my $node ($one, $two)
{
	$node->wait_value(q{SELECT reachable FROM shard_members WHERE node = 3}, 'f', 'node ' . $node->n . ' to hear it no more');
	like($node->sql(q{SELECT string_agg(p, '; ') FROM shard_health(), unnest(problems) p WHERE p ~ '^node 3'}),
		qr/^node 3 is down: .* restart its server if it runs, or call shard_admit\(3, 2\) there; if not, start it; .*shard_write_off\(3\)$/,
		'node ' . $node->n . ' says how it comes back');
	is($node->sql(q{SELECT count(*) FROM shard_health(), unnest(problems) p WHERE p ~ 'write_off'}), 1, 'giving it up is named once');
	like($node->sql(q{SELECT string_agg(p, '; ') FROM shard_health(), unnest(problems) p WHERE p ~ 'counter'}),
		qr/^entity type "counter": \d+ shards? waits? for node 3, which was downed$/, 'what waits for it is said');
}
$three->sql('SELECT shard_admit(3, 2)');
$_->wait_until('SELECT ok FROM shard_health()', 'node ' . $_->n . ' to be well') for $one, $two, $three;
pass('what was said helps');
done_testing();
