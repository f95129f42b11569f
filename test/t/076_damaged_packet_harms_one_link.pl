# A packet that cannot be read keeps messages from the node that it is for, and from no other; it is
# reported once, and all goes on when the packet is there again.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use ShardNodes;
use ShardNoise;
use PostgreSQL::Test::Utils;
use Test::More;

my $cluster = ShardNodes->create(3, conf => "shard.region_workers = 1\nshard.inbox_max_size = '8MB'");
my ($here, $there, $other) = $cluster->nodes;
$cluster->start_recorder;
my $far     = $cluster->entity_at('recorder', 2);
my $near    = $cluster->entity_at('recorder', 1, 'n');
my $healthy = $cluster->entity_at('recorder', 3, 'h');
$cluster->drain;

$there->server->stop('immediate');

# What waits for the node that is away moves to the table, since others fill the log.
my $tell = sub {
	my ($entity, $from, $to) = @_;
	return join '', map { qq{SELECT shard_tell('recorder', '$entity', jsonb_build_object('what', '$_', 'noise', $ShardNoise::noise));\n} } $from .. $to;
};
my ($far_told, $near_told) = (0, 0);
while ($here->sql('SELECT count(*) FROM shard.outbox_kept') == 0)
{
	$here->sql($tell->($far, $far_told + 1, $far_told + 50));
	$far_told += 50;
	for (1 .. 4)
	{
		$here->wait_until(q{SELECT sum(pg_relation_size(c.oid)) < 6 * 1024 * 1024 FROM pg_class c
			WHERE relnamespace = 'shard'::regnamespace AND relname ~ '^inbox_[0-7]$'},
			'the log to be emptied');
		$here->sql($tell->($near, $near_told + 1, $near_told + 100));
		$near_told += 100;
	}
}
$here->sql('CREATE TABLE lost AS SELECT * FROM shard.outbox_kept');
$here->sql('DELETE FROM shard.outbox_kept');

$there->server->start;
$here->wait_until(q{SELECT last_error LIKE 'packet % for node 2, lane %, is damaged' FROM shard_peers WHERE node = 2},
	'the damage to be seen');
$here->sql($tell->($healthy, 1, 20));
$cluster->wait_recorded($healthy, 3, 1 .. 20);
pass('messages reach another node');

$here->sql('INSERT INTO shard.outbox_kept SELECT * FROM lost');
$cluster->wait_recorded($far, 2, 1 .. $far_told);
pass('and that one as well, when the packet is there again');
my $log = slurp_file($here->server->logfile);
my $reports = () = $log =~ /ERROR: .*packet \d+ for node 2, lane \d+, is damaged/g;
is($reports, 1, 'the damage was reported once');
done_testing();
