# A shard takes with it what is known of its failures: attempts, the time of the next one, the pause after an escalation,
# and the history of its entities; by a move, and by shard_leave().
#
# Built with the mutant IMPORT_FORGETS_BACKOFF it has to find that it does not (test/mutants.sh).

use strict;
use warnings FATAL => 'all';

use ShardMutant;
use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(2, databases => 1, conf => 'shard.rebalance_interval = 0');
my ($one, $two) = $cluster->nodes;

$cluster->sql_everywhere(q{
CREATE TABLE closed (one int);
CREATE TABLE seen (pos bigserial, entity text, what text);
CREATE FUNCTION fragile(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    IF message ? 'fail' AND EXISTS (SELECT FROM closed) THEN
        RAISE EXCEPTION 'closed' USING ERRCODE = message->>'fail';
    END IF;
    INSERT INTO seen (entity, what) SELECT entity_id, message->>'what' FROM shard_self();
    RETURN jsonb_build_object('count', coalesce((state->>'count')::int, 0) + 1);
END $$;
INSERT INTO closed VALUES (1);
SELECT shard_start('fragile', 'fragile(jsonb,jsonb)', number_of_shards => 8, supervision => 'escalate',
    retry_backoff => '1 h', max_retry_backoff => '1 h', shard_failure_backoff => '1 h');
});
$cluster->wait_registered;
my ($patient, $paused) = map { $cluster->entity_at('fragile', 1, $_) } 'p', 'e';
$paused = $cluster->entity_at('fragile', 1, "e$_") for grep { $cluster->shard_of('fragile', $patient) == $cluster->shard_of('fragile', $paused) } 1 .. 20;
my ($waits_at, $pauses_at) = map { $cluster->shard_of('fragile', $_) } $patient, $paused;
isnt($waits_at, $pauses_at, 'two shards') or BAIL_OUT('no two shards at node 1');
$cluster->drain;

# One message waits for its next attempt, and one pauses its shard.
sub told { my ($entity, $what, $fail) = @_; return qq{SELECT shard_tell('fragile', '$entity', jsonb_build_object('what', '$what'} . ($fail ? ", 'fail', '$fail'" : '') . '))' }
my $state = sub {
	my ($node) = @_;
	return $node->sql(qq{SELECT string_agg(format('%s %s %s', left(entity_id, 1), attempts, next_at > now() + '40 min'), ', ' ORDER BY entity_id DESC)
		FROM shard_inbox WHERE attempts > 0})
	  . '; paused '
	  . $node->sql('SELECT count(*) FROM shard_region_stats WHERE paused_until > now()')
	  . '; judged '
	  . $node->sql("SELECT string_agg(number || ' ' || outcome, ', ') FROM shard_history('fragile', '$paused')");
};
$one->sql(told($patient, 1, '53100') . '; ' . told($paused, 1, 'P0001'));
$one->wait_value('SELECT count(*) FROM shard_inbox WHERE attempts = 1', 2, 'both to fail');

my @scenarios = (
	{
		promise => 'attempts, pauses and history move',
		broken_by => ['IMPORT_FORGETS_BACKOFF'],
		run => sub {
			for my $shard ($waits_at, $pauses_at)
			{
				$cluster->move('fragile', $shard, 2);
				$cluster->wait_home('fragile', $shard, 2);
			}
			$cluster->wait_settled;
			$two->wait_until('SELECT count(*) = 2 FROM shard_inbox', 'the stash to be at the new home');
			return ($state->($two), 'p 1 t, e 1 t; paused 1; judged 1 pause of the shard');
		}
	});

if (ShardMutant::prove(@scenarios))
{
	is($one->sql('SELECT count(*) FROM shard.history'), 0, 'nothing of the history is left at the old home');
	is($one->sql("SELECT count(*) FROM shard_history('fragile', '$paused')"), 0, 'nor shown');

	# What comes for the shard waits at its new home.
	my $other = "x$paused";
	$other .= 'x' while $cluster->shard_of('fragile', $other) != $pauses_at;
	$one->sql(told($other, 2));
	$two->wait_value("SELECT place FROM shard_inbox WHERE entity_id = '$other'", 'stash', 'a message of the shard to wait');

	# The first change of the type that the new home's worker sees ends the pause: the message is tried, and fails again.
	$two->sql(q{SELECT shard_alter('fragile', 'shard_failure_backoff', '59 min')});
	$two->wait_value("SELECT attempts FROM shard_inbox WHERE entity_id = '$paused'", 2, 'the message to be tried again');

	# And back, since its node leaves.
	ok($two->sql('SELECT shard_leave()'), 'node 2 leaves');
	$one->wait_until('SELECT count(*) = 3 FROM shard_inbox', 'the stash to be back');
	is($state->($one), 'p 1 t, e 2 t; paused 1; judged 2 pause of the shard, 1 pause of the shard', 'attempts, pauses and history are as before');
	$one->sql('DELETE FROM closed');
	$one->sql("SELECT shard_alter('fragile', '$_->[0]', '$_->[1]')") for [ retry_backoff => '10 ms' ], [ max_retry_backoff => '10 ms' ], [ shard_failure_backoff => '10 ms' ];
	$one->wait_value("SELECT string_agg(left(entity, 1) || what, ' ' ORDER BY entity DESC) FROM seen", 'x2 p1 e1', 'all to be handled');
	$cluster->logs_are_clean(qr/closed|pauses for/);
}
done_testing();
