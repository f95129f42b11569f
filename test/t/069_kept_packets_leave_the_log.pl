# A node that is away does not keep the log of the others from being emptied: what waits for it moves to
# a table. It is handled in order when the node is back, also after a crash of the origin.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use ShardNodes;
use ShardNoise;
use Test::More;

my $cluster = ShardNodes->create(2, conf => "shard.region_workers = 2\nshard.inbox_max_size = '8MB'");
my ($here, $there) = $cluster->nodes;
$cluster->start_recorder;
my $far  = $cluster->entity_at('recorder', 2);
my $near = $cluster->entity_at('recorder', 1, 'n');
$cluster->drain;

$there->server->stop('immediate');

# Half of the limit for the node that is away, then several times the limit for this one.
my $tell = sub {
	my ($entity, $from, $to) = @_;
	return join '', map { qq{SELECT shard_tell('recorder', '$entity', jsonb_build_object('what', '$_', 'noise', $ShardNoise::noise));\n} } $from .. $to;
};
my ($far_told, $near_told) = (0, 0);
for my $round (1 .. 16)
{
	$here->sql($tell->($far, $far_told + 1, $far_told + 100));
	$far_told += 100;
	for (1 .. 4)
	{
		$here->wait_until(q{SELECT sum(pg_relation_size(c.oid)) < 6 * 1024 * 1024 FROM pg_class c
			WHERE relnamespace = 'shard'::regnamespace AND relname ~ '^inbox_[0-7]$'},
			'the log to be emptied');
		$here->sql($tell->($near, $near_told + 1, $near_told + 100));
		$near_told += 100;
	}
}
cmp_ok($here->sql('SELECT sum(rows) FROM shard.outbox_kept'), '>', 0, 'packets have left the log');
pass('and the log made room for messages of other nodes');
$cluster->wait_recorded($near, 1, 1 .. $near_told);

$here->server->crash;
$here->server->recover;
$there->server->start;
$cluster->wait_recorded($far, 2, 1 .. $far_told);
pass('what waited is handled in order');
$cluster->drain;
$here->wait_value('SELECT count(*) FROM shard.outbox_kept', '0', 'kept packets to be gone');

$cluster->logs_are_clean(@ShardNodes::link_troubles);
done_testing();
