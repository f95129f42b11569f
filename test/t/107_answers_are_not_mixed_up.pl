# C19: two thousand entities of twenty shards asked at the same time from all nodes: each answer is of
# the entity that was asked.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(3, conf => 'shard.region_workers = 2');
$cluster->sql_everywhere(q{
CREATE FUNCTION echo(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	PERFORM shard_reply(jsonb_build_object('id', (SELECT entity_id FROM shard_self()), 'said', message));
	RETURN message;
END $$;
SELECT shard_start('echo', 'echo(jsonb,jsonb)', number_of_shards => 20);
});
$cluster->wait_registered;

my @sessions;
for my $node ($cluster->nodes)
{
	for my $part (1 .. 3)
	{
		my $session = $node->session;
		my $of = $node->n * 3 + $part;
		$session->send(qq{SELECT count(*) FILTER (WHERE a->>'id' = 'e' || i AND a->'said' = to_jsonb(i)) FROM
			(SELECT i, shard_ask('echo', 'e' || i, to_jsonb(i), '60 s') AS a FROM generate_series($of, 2000, 9) i OFFSET 0) x;});
		push @sessions, $session;
	}
}
my $right = 0;
$right += $_->receive for @sessions;
is($right, 2000 - 3, 'C19: every answer is that of its entity');
is(join(' ', map { $_->sql('SELECT count(*) > 0 FROM shard_entity.echo') } $cluster->nodes), 't t t', 'all nodes took part');
$cluster->logs_are_clean;
done_testing();
