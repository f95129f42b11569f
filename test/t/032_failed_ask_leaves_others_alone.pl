# An ask that fails after its handler has returned, in a turn with other messages, changes nothing:
# the entity keeps the state that the message before gave it, and nobody else's.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use Test::More;

my $node = ShardCluster->create('first', conf => "shard.region_workers = 1\nshard.handler_lock_timeout = '60 s'");
$node->start_recorder;
# The state has a color; what is red cannot be answered with.
$node->safe_psql('postgres', q{
CREATE TYPE color AS ENUM ('red', 'blue');
CREATE FUNCTION color_json(c color) RETURNS json LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
	IF c = 'red' THEN RAISE EXCEPTION 'no answer in red'; END IF;
	RETURN to_json(c::text);
END $$;
CREATE CAST (color AS json) WITH FUNCTION color_json(color);
CREATE TYPE thing AS (owner text, color color);
CREATE FUNCTION thing(state thing, message jsonb) RETURNS thing LANGUAGE plpgsql AS $$
BEGIN
	RETURN (message->>'owner', message->>'color')::thing;
END $$;
SELECT shard_start('thing', 'thing');
});

# Entity, sender, and what becomes of it: the tell, the failing ask and the other ask are one turn.
my $keeper = $node->close_gate;
my @askers;
my $waiting = q{SELECT count(*) = %d FROM pg_stat_activity WHERE state = 'active' AND query LIKE '%%shard_ask%%' AND pid <> pg_backend_pid()};
for my $n (1 .. 5)
{
	$node->safe_psql('postgres', qq{SELECT shard_tell('thing', 'e$n', '{"owner": "owner e$n", "color": "blue"}')});
	# one by one, for the order
	for my $ask ([ "e$n", "wrong $n", 'red' ], [ "f$n", "owner f$n", 'blue' ])
	{
		my $asker = $node->session;
		$asker->send(sprintf q{SELECT shard_ask('thing', '%s', '{"owner": "%s", "color": "%s"}', '180 s')}. ';', @$ask);
		push @askers, $asker;
		$node->wait_until(sprintf($waiting, scalar @askers), 'an ask to wait');
	}
}
$keeper->query('COMMIT;');
my @failed = grep { !eval { $_->receive; 1 } } @askers;
is(scalar @failed, 5, 'asks without an answer fail');
$node->drain;

is($node->safe_psql('postgres', q{SELECT string_agg(concat_ws(' ', entity_id, owner, color), ', ' ORDER BY entity_id) FROM shard_entity.thing}),
	join(', ', map { my $e = $_; map { "$e$_ owner $e$_ blue" } 1 .. 5 } 'e', 'f'),
	'each entity has its own state');
# and as it is in memory
is($node->safe_psql('postgres', q{SELECT count(*) FROM shard_dead_letters}), 0, 'no message was given up');

$node->log_is_clean;
done_testing();
