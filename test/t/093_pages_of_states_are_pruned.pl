# An entity that is written in each turn keeps to its page: old versions of its row go when the next message comes, without
# waiting for vacuum.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use Test::More;

my $node = ShardCluster->create('pruned', conf => "autovacuum = off\nshard.region_workers = 1");
$node->start_recorder;
$node->safe_psql('postgres', q{
	CREATE FUNCTION adds(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM shard_reply('1');
		RETURN jsonb_build_object('n', coalesce((state->>'n')::int, 0) + 1);
	END $$;
	SELECT shard_start('adds', 'adds(jsonb,jsonb)', 1)});
my $script = $node->basedir . '/ask.sql';
open(my $file, '>', $script) or die;
print $file "SELECT shard_ask('adds', 'one', '{}');\n";
close($file);
is(system('pgbench', '-n', '-t', 2000, '-h', $node->host, '-p', $node->port, '-f', $script, 'postgres'), 0,
	'one entity is asked 2000 times');
is($node->safe_psql('postgres', "SELECT state->>'n' FROM shard_entity.adds"), '2000', 'it has written each time');
my $pages = $node->safe_psql('postgres', "SELECT pg_relation_size('shard_entity.adds') / 8192");
cmp_ok($pages, '<=', 4, "its table has $pages pages");
$node->log_is_clean;

done_testing();
