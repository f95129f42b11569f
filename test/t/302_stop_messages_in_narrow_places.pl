# Stop messages, and entities that are to leave memory while something of them waits: the places where a stop message
# could overtake, be handled twice or too late, or an entity be let go too early, are gone to on purpose. Builds with the
# mistake that belongs to each are noticed here (test/mutants.sh).

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use ShardMutant;
use Test::More;

my $node = ShardCluster->create('first', conf => 'shard.region_workers = 1');
$node->safe_psql('postgres', q{
CREATE TABLE closed (one int);
CREATE TABLE seen (pos bigserial, entity text, what text);
CREATE FUNCTION recorder(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    IF message ? 'fussy' AND EXISTS (SELECT FROM closed) THEN
        RAISE EXCEPTION 'closed' USING ERRCODE = 'serialization_failure';
    END IF;
    IF message ? 'fail' THEN RAISE EXCEPTION 'failed on demand'; END IF;
    INSERT INTO seen (entity, what) SELECT entity_id, message->>'what' FROM shard_self();
    IF message ? 'late' THEN PERFORM shard_passivate('{"what": "own", "fussy": 1}'); END IF;
    IF message ? 'bye' THEN PERFORM shard_passivate('{"what": "own"}'); END IF;
    RETURN jsonb_build_object('count', coalesce((state->>'count')::int, 0) + 1);
END $$;
});

sub start
{
	my ($type, $settings) = @_;
	return $node->safe_psql('postgres', "SELECT shard_start('$type', 'recorder', number_of_shards => 1, max_attempts => 1000000,
		max_retry_backoff => '100 ms', $settings)");
}

sub message
{
	my ($type, $entity, $what, $more) = @_;
	return "SELECT shard_tell('$type', '$entity', jsonb_build_object('what', '$what')" . ($more ? " || '$more'" : '') . ');';
}

sub send_all { return $node->safe_psql('postgres', "BEGIN; @_ COMMIT;") }

# What an entity has handled, once a message that is sent now is.
sub seen
{
	my ($type, $entity) = @_;
	send_all(message($type, $entity, 'end'));
	$node->wait_until("SELECT EXISTS (SELECT FROM seen WHERE (entity, what) = ('$entity', 'end'))", "entity $entity to handle its last message");
	return $node->safe_psql('postgres', "SELECT string_agg(what, ' ' ORDER BY pos) FROM seen WHERE entity = '$entity'");
}

my @scenarios = (
	{
		promise => 'a stop message goes behind what waits of its entity',
		broken_by => ['STOP_OVERTAKES'],
		run => sub {
			start('patient', q{stop_message => '{"what": "stopped"}'});
			send_all('INSERT INTO closed VALUES (1);');
			send_all(message('patient', 'a', 1), message('patient', 'a', 2, '{"fussy": 1}'));
			$node->wait_until(q{SELECT EXISTS (SELECT FROM shard_inbox WHERE entity_id = 'a' AND attempts > 0)}, 'a message that waits');
			send_all(q{SELECT shard_passivate('patient', 'a');});
			send_all(message('patient', 'b', 1));
			$node->wait_until(q{SELECT EXISTS (SELECT FROM seen WHERE entity = 'b')}, 'another entity');
			send_all('DELETE FROM closed;');
			return (seen('patient', 'a'), '1 2 stopped end');
		},
	},
	{
		promise => 'what a handler asks twice is done once',
		broken_by => ['STOP_TWICE'],
		run => sub {
			start('polite', q{passivation_strategy => 'none'});
			send_all(message('polite', 'c', 1, '{"bye": 1}'), message('polite', 'c', 2, '{"bye": 1}'));
			$node->wait_until(q{SELECT EXISTS (SELECT FROM seen WHERE (entity, what) = ('c', 'own'))}, 'a stop message');
			return (seen('polite', 'c'), '1 2 own end');
		},
	},
	{
		# It is tried again in a careful turn, in which the row that it has written is to be written once more.
		promise => 'who is told to leave has one stop message, also if that has failed at first',
		broken_by => ['STOP_AGAIN'],
		run => sub {
			start('kept', q{remember_entities => true, stop_message => '{"what": "usual"}'});
			send_all('INSERT INTO closed VALUES (1);');
			send_all(message('kept', 'k', 1, '{"late": 1}'));
			$node->wait_until(q{SELECT EXISTS (SELECT FROM shard_inbox WHERE entity_id = 'k' AND attempts > 0)}, 'a stop message that waits');
			send_all(message('kept', 'k', 2));
			send_all('DELETE FROM closed;');
			return (seen('kept', 'k'), '1 own 2 end');
		},
	},
	{
		# The second message has the turn rolled back in which the first one has asked.
		promise => 'an entity that has asked in a turn that is undone asks again',
		broken_by => ['STOP_NOT_UNDONE'],
		run => sub {
			start('undone', q{passivation_strategy => 'none'});
			send_all(message('undone', 'd', 0));
			$node->drain;
			send_all(message('undone', 'd', 1, '{"bye": 1}'), message('undone', 'e', 1, '{"fail": 1}'));
			$node->wait_until(q{SELECT EXISTS (SELECT FROM shard_dead_letters WHERE entity_id = 'e')}, 'a dead letter');
			$node->drain;
			return (seen('undone', 'd'), '0 1 own end');
		},
	},
	{
		# A sender that commits between the turn that decides and the one that meets the row.
		promise => 'an entity that gets a message before its stop message stays',
		broken_by => ['STOP_NEVER_VOID'],
		run => sub {
			start('busy', q{passivate_idle_after => '1 h', stop_message => '{"what": "stopped"}'});
			send_all(message('busy', 'f', 1));
			$node->drain;
			my $sender = $node->session;
			$sender->query('BEGIN; ' . message('busy', 'f', 2));
			$node->set_fault('stop_decided', 'freeze');
			send_all(q{SELECT shard_alter('busy', 'passivate_idle_after', '10 ms');});
			ShardCluster::wait_for_condition(sub { $node->fault_happened }, 'the worker to decide');
			send_all(q{SELECT shard_alter('busy', 'passivate_idle_after', '1 h');});
			$sender->query('COMMIT;');
			$node->clear_fault;
			$node->wait_until(q{SELECT EXISTS (SELECT FROM seen WHERE (entity, what) = ('f', '2'))}, 'the late message');
			$node->drain;
			$sender->close;
			return (seen('busy', 'f'), '1 2 end');
		},
	},
	{
		promise => 'an entity over the limit of which a message waits stays in memory',
		broken_by => ['PASSIVATED_WAITING'],
		run => sub {
			start('narrow', q{passivation_strategy => 'lru', active_entity_limit => 1});
			send_all('INSERT INTO closed VALUES (1);');
			send_all(message('narrow', 'g', 1), message('narrow', 'g', 2, '{"fussy": 1}'));
			$node->wait_until(q{SELECT EXISTS (SELECT FROM shard_inbox WHERE entity_id = 'g' AND attempts > 0)}, 'a message that waits');
			for my $other ('h' .. 'k')
			{
				send_all(message('narrow', $other, 1));
				$node->wait_until("SELECT EXISTS (SELECT FROM seen WHERE entity = '$other')", 'another entity');
			}
			send_all(message('narrow', 'g', 3));
			send_all(message('narrow', 'l', 1));
			$node->wait_until(q{SELECT EXISTS (SELECT FROM seen WHERE entity = 'l')}, 'another entity');
			send_all('DELETE FROM closed;');
			return (seen('narrow', 'g'), '1 2 3 end');
		},
	},
);

ShardMutant::prove(@scenarios);
done_testing();
