# Fault 28, 3: a node whose connection slots are all taken is slow to be reached, not wrong; so is one
# whose workers and peers' backends are terminated again and again. What is sent arrives once, in order.

use strict;
use warnings FATAL => 'all';

use ShardNemesis;
use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(2, conf => 'max_connections = 25');
$cluster->start_recorder;
my ($one, $two) = $cluster->nodes;
my ($here, $there) = ($cluster->entity_at('recorder', 1), $cluster->entity_at('recorder', 2));
$cluster->drain;

# Connections that are there stay; so they are ended first.
my $held = ShardNemesis::fill_connections($two->server);
cmp_ok(scalar @$held, '>', 5, 'all connections of node 2 are taken');
$one->sql(q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type LIKE 'shard region%'});
$one->sql(ShardCluster::tell_recorder($there, 1, 10));
$one->wait_until('SELECT last_error IS NOT NULL FROM shard_peers WHERE node = 2', 'an error of the link');
like($one->sql('SELECT last_error FROM shard_peers WHERE node = 2'), qr/connection|slots|clients/, 'the link says why');
close $_ for @$held;
$cluster->wait_recorded($there, 2, 1 .. 10);
pass('it arrives when there is room');

my $sent = 10;
for my $round (1 .. 8)
{
	my ($from, $to) = ($sent + 1, $sent + 20);
	$sent += 20;
	my @sessions = map { $_->session } $one, $two;
	$sessions[0]->send(ShardCluster::tell_recorder($there, $from, $to));
	$sessions[1]->send(ShardCluster::tell_recorder($here, $from, $to));
	$_->sql(q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type LIKE 'shard%' AND backend_type NOT LIKE '%launcher%' OR usename = 'link'})
	  for $one, $two;
	$_->receive for @sessions;
}
$cluster->wait_recorded($there, 2, 1 .. $sent);
$cluster->wait_recorded($here, 1, 11 .. $sent);
pass('terminated processes neither lose nor double');
$cluster->drain;
$cluster->logs_are_clean(@ShardNodes::link_troubles);
done_testing();
