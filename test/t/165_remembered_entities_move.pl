# Remembered entities run again, without a message, where their shard comes up: after a move, at the nodes that are left
# after one has left, when a lost node is back, and after a full stop of the cluster (M01, M05, M07). Who passivated
# does not (M03). One that cannot start is quarantined at its new home, too.

use strict;
use warnings FATAL => 'all';

use ShardMutant;
use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(3, conf => 'shard.rebalance_interval = 0');
my ($one, $two, $three) = $cluster->nodes;
$cluster->sql_everywhere(q{
CREATE TABLE seen (pos bigserial, entity text, what text);
CREATE TABLE broken (entity text);
CREATE FUNCTION note(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	IF message->>'what' = 'start' AND EXISTS (SELECT FROM broken b WHERE b.entity = (shard_self()).entity_id) THEN
		RAISE EXCEPTION 'cannot start';
	END IF;
	INSERT INTO seen (entity, what) SELECT entity_id, message->>'what' FROM shard_self();
	RETURN jsonb_build_object('count', coalesce((state->>'count')::int, 0) + 1);
END $$;
SELECT shard_start('note', 'note', number_of_shards => 12, remember_entities => true, start_message => '{"what": "start"}',
	entity_restart_backoff => '10 ms', max_attempts => 3);
});
$cluster->wait_registered;
$one->sql(q{SELECT count(shard_tell('note', 'e' || i, '{"what": "message"}')) FROM generate_series(1, 60) i});
$cluster->drain;

my $state = q{SELECT state || ' ' || waiting FROM shard_region_state WHERE entity_id = '%s'};
my ($mover, $bad, $gone);

# Three entities of one shard of node 1: one that runs, one that cannot start, one that has passivated.
my ($shard) = split /\n/, $one->sql(q{SELECT shard FROM shard_entity.note GROUP BY shard HAVING count(*) >= 3 ORDER BY count(*) DESC, shard LIMIT 1});
($mover, $bad, $gone) = split /\n/, $one->sql("SELECT entity_id FROM shard_entity.note WHERE shard = $shard ORDER BY entity_id LIMIT 3");

my $sound = ShardMutant::prove(
	{
		promise => 'quarantine moves with its shard, and who passivated stays away',
		broken_by => ['QUARANTINE_LEFT'],
		run => sub {
			$one->sql("INSERT INTO broken VALUES ('$bad')");
			$one->sql("SELECT shard_passivate('note', '$bad')");
			$one->sql("SELECT shard_passivate('note', '$gone')");
			$cluster->drain;
			$one->sql(qq{SELECT shard_tell('note', '$bad', '{"what": "behind"}')});
			$one->wait_value(sprintf($state, $bad), 'quarantined 1', 'it to be quarantined');
			$cluster->move('note', $shard, 2);
			$cluster->wait_home('note', $shard, 2);
			$cluster->wait_settled;
			$two->wait_until("SELECT count(*) = 1 FROM shard_region_state WHERE entity_id = '$bad'", 'its new home to know of it');
			return ($two->sql(sprintf $state, $bad), 'quarantined 1');
		},
	},
	{
		promise => 'M01: an entity runs at the new home of its shard, without a message',
		broken_by => ['ARRIVAL_UNSEEN'],
		run => sub {
			$cluster->move('note', $shard, 3);
			$cluster->wait_home('note', $shard, 3);
			$cluster->wait_settled;
			$three->wait_value("SELECT count(*) FROM shard_region_stats WHERE shard = $shard AND recovering", 0, 'all of the shard to be started');
			$three->wait_until('SELECT count(*) > 0 FROM shard_region_state', 'its other entities') unless $ENV{SHARD_MUTANT};
			return ($three->sql("SELECT string_agg(what, ' ') FROM seen WHERE entity = '$mover'"), 'start');
		},
	});

if (!$sound)
{
	done_testing();
	exit;
}

is($three->sql("SELECT count(*) FROM shard_region_state WHERE entity_id = '$gone'"), 0, 'M03: who passivated does not run');
is($one->sql("SELECT count(*) FROM shard_region_state WHERE shard = $shard"), 0, 'nor does any at the old home');
$three->wait_value(sprintf($state, $bad), 'quarantined 1', 'the quarantined one to be so there, too');
$three->sql("SELECT shard_start_entity('note', '$bad')");
$cluster->drain;
is($three->sql("SELECT string_agg(what, ' ' ORDER BY pos) FROM seen WHERE entity = '$bad'"), 'start behind', 'mended, it starts, and what waited is handled');
$one->sql('TRUNCATE broken');

sub running
{
	my $sum = 0;
	$sum += $_->sql(q{SELECT count(*) FROM shard_region_state WHERE state = 'running'}) for $cluster->nodes;
	return $sum;
}

sub wait_running
{
	my ($why) = @_;
	ShardCluster::wait_for_condition(sub { running() == 59 }, $why);
	return;
}

wait_running('all but one to run');

# M05, M07: a node is lost, and comes back.
my $of_two = $two->sql(q{SELECT count(*) FROM shard_entity.note WHERE remembered});
$two->sql('TRUNCATE seen');
$two->server->crash;
$two->server->recover;
$cluster->wait_up;
wait_running('M05: all to run again when the node is back');
is($two->sql(q{SELECT count(DISTINCT entity) || coalesce(string_agg(DISTINCT what, ' '), '') FROM seen}), "${of_two}start", 'M07: unprompted');

# A full stop, in two ways.
for my $way ('fast', 'immediate')
{
	$_->server->stop($way) for $cluster->nodes;
	$_->server->recover for $cluster->nodes;
	$cluster->wait_up;
	wait_running("all to run again after a full stop, $way");
	pass("a full stop, $way");
}

# A node leaves.
is($two->sql(q{SELECT shard_leave('60 s')}), 't', 'a node leaves');
$cluster->has_left(2);
wait_running('all to run at the others');
$cluster->drain;
$cluster->logs_are_clean(qr/cannot start|not yet accepting connections|database system is (?:starting up|shutting down)/);
done_testing();
