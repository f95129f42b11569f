# What a home keeps in memory until its backup has stored what it did is bounded: then its shard rests, what comes for it waits
# in its stash, and asks are not begun. When the backup is back all goes on (Q45).

use strict;
use warnings FATAL => 'all';

use ShardMutant;
use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(2, conf => "shard.rebalance_interval = 0\nshard.voters = 1\nshard.region_workers = 1");
my ($one, $two) = $cluster->nodes;
$cluster->sql_everywhere(q{
CREATE TABLE seen (n int);
CREATE FUNCTION sees(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	IF message ? 'n' THEN INSERT INTO seen VALUES ((message->>'n')::int); END IF;
	RETURN state;
END $$;
CREATE FUNCTION tells(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	n int := coalesce((state->>'n')::int, 0) + 1;
BEGIN
	IF message ? 'noop' THEN RETURN state; END IF;
	PERFORM shard_tell('plain', 'p', jsonb_build_object('n', n, 'long', repeat('x', 1000000)));
	RETURN jsonb_build_object('n', n);
END $$;
});
$_->sql(q{SELECT shard_start('kept', 'tells', 4, replicas => 1)}) for $one, $two;
$_->sql(q{SELECT shard_start('plain', 'sees', 4)}) for $one, $two;
$cluster->wait_registered;
$cluster->allocate('plain', 'p');
my $entity = $cluster->entity_at('kept', 1, 'e');

my $handled = "coalesce((SELECT (state->>'n')::int FROM shard_entity.kept WHERE entity_id = '$entity'), 0)";
my $waiting = "(SELECT count(*) FROM shard.held WHERE place = 'stash')";
my $most = 25;

# How many were handled while the backup is away: some; all; none but these.
sub while_away
{
	$two->server->stop('immediate');
	for my $i (1 .. $most)
	{
		$one->sql("SELECT shard_tell('kept', '$entity', '{}')");
		$one->wait_value("SELECT $handled + $waiting", $i, "message $i to be handled, or to wait");
	}
	my $n = $one->sql("SELECT $handled");
	return $n < 10 ? "only $n" : $n < 20 ? 'some' : $n;
}

if (ShardMutant::prove(
	{
		promise => 'a shard rests when too much of it waits',
		broken_by => ['WAITS_WITHOUT_BOUND'],
		run => sub { return (while_away(), 'some') },
	}))
{
	like($one->error_of("SELECT shard_ask('kept', '$entity', '{}', '10 s')"), qr/rests: as much of what it did as may waits for its copies/, 'an ask says so, and is not begun');
	$two->server->start;
	$one->wait_value("SELECT $handled", $most, 'all to be handled');
	my $at = $cluster->home_of('plain', 'p');
	$cluster->node($at)->wait_value('SELECT count(*) FROM seen', $most, 'what they told');
	is($cluster->node($at)->sql('SELECT string_agg(n::text, \' \' ORDER BY ctid) FROM seen'), join(' ', 1 .. $most), 'once, in order');
}
done_testing();
