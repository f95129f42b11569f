# What shard_health() reads of many shards that are sealed, with a description of their states that is long, outlives the query that finds
# them: it says what is there, and the server goes on.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

use constant { COLUMNS => 80, SHARDS => 32 };

my $cluster = ShardNodes->create(2);
my ($node) = $cluster->nodes;
my $columns = join ', ', map { sprintf '%s_%02d timestamptz', 'a_column_with_a_long_name' x 2, $_ } 1 .. COLUMNS;
$cluster->sql_everywhere(sprintf q{
CREATE TYPE wide AS (%s);
CREATE FUNCTION wide(state wide, message jsonb) RETURNS wide LANGUAGE plpgsql AS $$ BEGIN RETURN state; END $$;
SELECT shard_start('wide', 'wide', %d);
}, $columns, SHARDS);
$cluster->wait_registered($_) for $cluster->nodes;
$cluster->allocate('wide', map { "e$_" } 1 .. 200);
$cluster->drain;
my $own = q{shard.own WHERE state = 'active' AND type_id = (SELECT type_id FROM shard.type WHERE type_name = 'wide')};
my $here = $node->sql("SELECT count(*) FROM $own");
cmp_ok($here, '>', 4, "$here shards are here");
my $checkpointer = q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'};
my $started = $node->sql($checkpointer);

# As they are between seal and copy. Nobody else gets to see it.
my $sealed = $own =~ s/ WHERE/ SET state = 'sealed', move_id = 4711 WHERE/r;
for my $time (1 .. 3)
{
	my (undef, $out, $err) = $node->try("BEGIN;\nUPDATE $sealed;\nSELECT p FROM shard_health() h, unnest(h.problems) p WHERE p LIKE '%is sealed here%';\nROLLBACK;");
	is($err, '', "time $time: health is asked");
	is(scalar(() = $out =~ /^entity type "wide": shard \d+ is sealed here in epoch 0 for move 4711, /gm), $here, 'and names all of them');
}
is($node->sql($checkpointer), $started, 'the server goes on with the same processes');
$node->wait_until('SELECT ok FROM shard_health()', 'health');
done_testing;
