# What shard_health says of many entities at once, with long errors, stands as it was said, whatever else it looks at
# behind that.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use ShardMutant;
use Test::More;

my $node = ShardCluster->create('first');
$node->safe_psql('postgres', q{
CREATE FUNCTION fails(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION '%', repeat('A', 900); END $$;
CREATE FUNCTION own(id text) RETURNS int IMMUTABLE LANGUAGE sql RETURN id::int;
SELECT shard_start('wide', 'fails', number_of_shards => 40, shard_id_extractor => 'own', supervision => 'escalate',
	shard_failure_backoff => '1 h', max_retry_backoff => '1 h');
SELECT count(shard_tell('wide', i::text, '{}')) FROM generate_series(0, 39) i});
$node->wait_for_value(q{SELECT count(*) FROM shard_region_stats WHERE paused_until > now()}, 40, 'all shards to pause');

my $said = q{SELECT count(*) || ' ' || count(*) FILTER (WHERE p ~ '^shard \d+ of entity type "wide" pauses until '
	AND p ~ ': A{80,}[^;]*; see shard_history\(\); a change of the handler or of the type''s settings ends the pause$')
	FROM shard_health(), unnest(problems) p};

ShardMutant::prove(
	{
		promise => 'each of the sentences is whole, ten times',
		broken_by => ['HEALTH_IN_SPI'],
		run => sub {
			# a build that is broken so may take the server with it: that is a difference, too
			my @got = map { my ($status, $out) = $node->psql('postgres', $said); $status == 0 ? $out : "ended by $status" } 1 .. 10;
			return (join(', ', @got), join(', ', ('10 10') x 10));
		},
	});

done_testing();
