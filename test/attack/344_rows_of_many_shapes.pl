# The server keeps each shape of a row that has no type of its own, for as long as the process lives. A worker that has
# too many of them makes room for another one, and nothing is lost.

use strict;
use warnings FATAL => 'all';

use PostgreSQL::Test::Utils;
use ShardCluster;
use Test::More;

my $node = ShardCluster->create('first', conf => "shard.region_workers = 1\nshard.max_handler_timeout = '10min'");
$node->create_owners('mallory');
$node->as('mallory', <<'SQL');
CREATE FUNCTION mallory.shapes(state int, message jsonb) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
	r record;
	columns text := ',1' || repeat(',null::int', 1600);
BEGIN
	FOR i IN 1 .. coalesce((message->>'n')::int, 0) LOOP
		-- which columns are of another type says which shape it is
		EXECUTE 'SELECT row(' || (SELECT string_agg('1::int' || CASE (i + coalesce(state, 0) * 4096) >> b & 1 WHEN 1 THEN 8 ELSE 4 END, ',') FROM generate_series(0, 15) b) || columns || ')' INTO r;
	END LOOP;
	RETURN coalesce(state, 0) + 1;
END $$;
SET search_path = mallory, public;
SELECT shard_start('shapes', 'mallory.shapes(int, jsonb)', handler_timeout => '10min');
SQL
my $pid = sub { return $node->safe_psql('postgres', q{SELECT pid FROM shard_stat_workers WHERE owners ~ 'mallory'}) };

$node->as('mallory', q{SELECT shard_tell('shapes', 'e', '{"n": 20}')});
$node->drain;
my $before = $pid->();
isnt($before, '', 'his worker is there');
$node->as('mallory', q{SELECT shard_tell('shapes', 'e', '{"n": 20}')});
$node->drain;
is($pid->(), $before, 'some shapes are no matter');

$node->as('mallory', q{SELECT shard_tell('shapes', 'e', '{"n": 900}'), shard_tell('shapes', 'e', '{}')});
$node->wait_until(qq{SELECT pid <> $before FROM shard_stat_workers WHERE owners ~ 'mallory'}, 'a worker without the shapes');
$node->drain;
like(slurp_file($node->logfile), qr/region worker \d+ starts again: what the server keeps for it takes \d{9} bytes/, 'the log says why');
is($node->safe_psql('postgres', q{SELECT state FROM shard_entity.shapes}), 4, 'all messages were handled, once');
$node->stop;
done_testing();
