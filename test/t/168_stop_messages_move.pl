# Entities of a shard that moves, with stop messages under way: what their handlers have sent is delivered once, behind
# what asked for it; what a worker has decided by itself means nothing at the new home; nothing is lost or out of order.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(2, databases => 1, conf => 'shard.region_workers = 1');
my ($one, $two) = $cluster->nodes;

# What is wrong is counted in the state, which moves with the entity: a message out of order; an own stop message that comes
# twice, or before the message that asked; one of the type's for an entity that has had nothing since it was stopped.
$cluster->sql_everywhere(q{
CREATE FUNCTION actor(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    last int := coalesce((state->>'last')::int, 0);
    bad  int := coalesce((state->>'bad')::int, 0);
    own  int := coalesce((state->>'own')::int, 0);
    ran  boolean := true;
BEGIN
    IF message ? 'n' THEN
        bad := bad + (last + 1 <> (message->>'n')::int)::int;
        last := message->>'n';
        IF last % 5 = 0 THEN PERFORM shard_passivate(jsonb_build_object('own', last)); END IF;
    ELSIF message ? 'own' THEN
        bad := bad + ((message->>'own')::int <> own + 5 OR last < (message->>'own')::int)::int;
        own := message->>'own';
        ran := false;
    ELSE
        bad := bad + (NOT coalesce((state->>'ran')::boolean, false))::int;
        ran := false;
    END IF;
    RETURN jsonb_build_object('last', last, 'bad', bad, 'own', own, 'ran', ran);
END $$;
});
$_->sql(q{SELECT shard_start('actor', 'actor', number_of_shards => 8, passivation_strategy => 'lru', active_entity_limit => 8,
	passivate_idle_after => '20 ms', stop_message => '{}')}) for $cluster->nodes;
$cluster->wait_registered;

# One session sends for each entity, so its messages have an order; the shards go to and fro meanwhile.
my $entities = 100;
my $sender = $one->session;
for my $round (1 .. 30)
{
	$sender->query("SELECT count(shard_tell('actor', 'e' || i, '{\"n\": $round}')) FROM generate_series(1, $entities) i;");
	next if $round % 3;
	my $shard = $round / 3 % 8;
	my $target = $one->sql("SELECT node FROM shard_homes WHERE type_name = 'actor' AND shard = $shard") == $one->n ? $two : $one;
	$cluster->move('actor', $shard, $target->n, $one);
}
$sender->close;
$cluster->drain;

my $wanted = join '|', $entities, 30, 0, 30;
my $all = q{SELECT count(*), min((state->>'last')::int), sum((state->>'bad')::int), min((state->>'own')::int) FROM };
my @rows = map { split /\n/, $_->sql(q{SELECT state FROM shard_entity.actor}) } $cluster->nodes;
is($one->sql($all . '(VALUES ' . join(', ', map { "('$_'::jsonb)" } @rows) . ') v (state)'), $wanted,
	'each message and each stop message once, in order');
is($_->sql('SELECT count(*) FROM shard_dead_letters'), 0, 'no dead letters at node ' . $_->n) for $cluster->nodes;

# A node that leaves takes no stop message along.
$two->sql('SELECT shard_leave()');
$cluster->wait_home('actor', [ 0 .. 7 ], $one->n, $one);
$one->sql(q{SELECT shard_alter('actor', 'passivation_strategy', 'none')});
$one->sql("SELECT count(shard_tell('actor', 'e' || i, '{\"n\": 31}')) FROM generate_series(1, $entities) i;");
$one->server->drain($one->db);
is($one->sql($all . 'shard_entity.actor'), join('|', $entities, 31, 0, 30), 'and nothing is stopped twice or lost by a leave');
done_testing();
