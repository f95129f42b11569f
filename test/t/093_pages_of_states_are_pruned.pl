# An entity that is written in each turn keeps to its page: old versions of its row go when the page has no room for the next,
# without waiting for vacuum. While there is room nothing is pruned, and not by who only reads.

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
	SELECT shard_start('adds', 'adds(jsonb,jsonb)', 1);
	CREATE FUNCTION looks(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		RETURN CASE WHEN message ? 'look' THEN state
			ELSE jsonb_build_object('n', coalesce((state->>'n')::int, 0) + 1) END;
	END $$;
	SELECT shard_start('looks', 'looks(jsonb,jsonb)', 1);
	CREATE EXTENSION pg_walinspect});
my $script = $node->basedir . '/ask.sql';
open(my $file, '>', $script) or die;
print $file "SELECT shard_ask('adds', 'one', '{}');\n";
close($file);
is(system('pgbench', '-n', '-t', 2000, '-h', $node->host, '-p', $node->port, '-f', $script, 'postgres'), 0,
	'one entity is asked 2000 times');
is($node->safe_psql('postgres', "SELECT state->>'n' FROM shard_entity.adds"), '2000', 'it has written each time');
my $pages = $node->safe_psql('postgres', "SELECT pg_relation_size('shard_entity.adds') / 8192");
cmp_ok($pages, '<=', 4, "its table has $pages pages");

# 100 rows fill more than a page: one that is half full, as the fillfactor has it, would be pruned for each new version.
sub ask_all
{
	my ($message, $times) = @_;
	my $begin = $node->safe_psql('postgres', 'SELECT pg_current_wal_flush_lsn()');

	# one transaction each: its snapshot would keep what is replaced
	$node->safe_psql('postgres', qq{
		DO \$\$ BEGIN
			FOR i IN 0 .. $times * 100 - 1 LOOP
				PERFORM shard_ask('looks', 'e' || i % 100, '$message');
				COMMIT;
			END LOOP;
		END \$\$});
	$node->safe_psql('postgres', 'CHECKPOINT');
	return $node->safe_psql('postgres', qq{
		SELECT count(*) FROM pg_get_wal_records_info('$begin', pg_current_wal_flush_lsn())
		WHERE resource_manager = 'Heap2' AND record_type LIKE 'PRUNE%'
			AND block_ref LIKE '%/' || pg_relation_filenode('shard_entity.looks') || ' %'});
}
ask_all('{}', 1);
my $prunes = ask_all('{}', 20);
cmp_ok($prunes, '>', 0, 'pages that 100 entities share are pruned');
cmp_ok($prunes, '<=', 2000 / 8, "$prunes times for 2000 new versions");
is(ask_all('{"look": true}', 2), '0', 'who only reads prunes nothing');
is($node->safe_psql('postgres', q{
	SELECT count(*), sum((state->>'n')::int), pg_relation_size('shard_entity.looks') / 8192 <= 6 FROM shard_entity.looks}),
	'100|2100|t', 'and the rows keep to their pages');
$node->log_is_clean;

done_testing();
