# A shard moves with messages that wait for another attempt: at its new home they go before everything
# newer, and nothing of them is left, shown or run at the old one. The shard comes back in the same way.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(2, databases => 1, conf => 'shard.rebalance_interval = 0');
my ($one, $two) = $cluster->nodes;

# Fails for the moment as long as there is a row in table closed.
$cluster->sql_everywhere(q{
CREATE TABLE closed (one int);
CREATE TABLE seen (pos bigserial, entity text, what text);
CREATE FUNCTION recorder(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    IF message ? 'noop' THEN RETURN state; END IF;
    IF EXISTS (SELECT FROM closed) AND message->>'what' <> '1' THEN
        RAISE EXCEPTION 'closed' USING ERRCODE = 'serialization_failure';
    END IF;
    INSERT INTO seen (entity, what) SELECT entity_id, message->>'what' FROM shard_self();
    RETURN jsonb_build_object('count', coalesce((state->>'count')::int, 0) + 1);
END $$;
SELECT shard_start('recorder', 'recorder(jsonb,jsonb)', number_of_shards => 8, max_attempts => 1000,
    retry_backoff => '100 ms', max_retry_backoff => '1 s');
});
$cluster->wait_registered;
my $entity = $cluster->entity_at('recorder', 1);
my $shard = $cluster->shard_of('recorder', $entity);
$cluster->drain;
my $waiting = qq{SELECT count(*), string_agg(DISTINCT place, ' ') FROM shard_inbox WHERE entity_id = '$entity'};
my $in_memory = qq{SELECT count(*) FROM shard_region_state WHERE entity_id = '$entity'};
my $count = "SELECT coalesce(sum(parked), 0) FROM shard_region_stats WHERE shard = $shard";

$one->sql(ShardCluster::tell_recorder($entity, 1));
$cluster->wait_recorded($entity, 1, 1);
$cluster->sql_everywhere('INSERT INTO closed VALUES (1)');
$one->sql(ShardCluster::tell_recorder($entity, 2, 5));
$one->wait_value($waiting, '4|stash', 'messages 2 to 5 to wait in the stash');

$cluster->move('recorder', $shard, 2);
$cluster->wait_home('recorder', $shard, 2);
$cluster->wait_settled;
$two->wait_value($waiting, '4|stash', 'the stash to be at the new home');
$two->wait_value($in_memory, 1, 'the new home to know who waits');
is($one->sql($waiting), '0|', 'nothing of it is left at the old home');
$one->wait_value($in_memory, 0, 'its memory to be rid of it, too');
$one->wait_value($count, 0, 'and its counts');
is($one->sql('SELECT count(*) FROM shard.held'), 0, 'nor in its tables');

# Newer ones, from both nodes, wait behind; an ask waits for all of them.
$one->sql(ShardCluster::tell_recorder($entity, 6, 7));
$two->wait_value($waiting, '6|stash', 'newer messages of the other node to wait behind');
$two->sql(ShardCluster::tell_recorder($entity, 8, 9));
$two->wait_value($waiting, '8|stash', 'newer messages of its own to wait behind');
$one->sql('DELETE FROM closed');
is($one->sql(ShardCluster::recorded($entity)), '1', 'the old home handles none of them');

# And back, with a stash that was renumbered once and has got more since.
$one->sql('INSERT INTO closed VALUES (1)');
$cluster->move('recorder', $shard, 1);
$cluster->wait_home('recorder', $shard, 1);
$cluster->wait_settled;
$one->wait_value($waiting, '8|stash', 'the stash to be back');
is($two->sql($waiting), '0|', 'nothing of it is left where it was');
$cluster->sql_everywhere('DELETE FROM closed');
$one->wait_value(ShardCluster::recorded($entity), '1 2 3 4 5 6 7 8 9 = 9', 'all to be handled once, in their order');
is($two->sql('SELECT count(*) FROM seen'), 0, 'and none at the other node');

$cluster->drain;
$cluster->logs_are_clean(qr/closed/);
done_testing();
