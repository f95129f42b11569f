# Shards of a type with replicas, at a home that is alone in its set: what a turn does is in one record, which a crash leaves or takes as a
# whole; what it tells leaves when it is released, once (Q5, Q28, Q29, Q35).

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use ShardMutant;
use Test::More;

my $node = ShardCluster->create('first', conf => 'shard.region_workers = 1');
my $db = 'postgres';

sub sql { my ($sql) = @_; return $node->safe_psql($db, $sql) }

# What a message asks for happens in this order; state: how many were handled.
my $does = q{
CREATE TABLE seen (id text);
CREATE FUNCTION does(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	IF message ? 'id' THEN INSERT INTO seen VALUES (message->>'id'); END IF;
	IF message ? 'tell' THEN PERFORM shard_tell(message->>'type', message->>'tell', coalesce(message->'with', '{}')); END IF;
	IF message ? 'undone' THEN
		BEGIN
			PERFORM shard_tell(message->>'type', message->>'undone', '{}');
			PERFORM shard_schedule(message->>'type', entity_id, '{}', after => '1 hour', name => 'undone') FROM shard_self();
			RAISE EXCEPTION 'undone';
		EXCEPTION WHEN raise_exception THEN NULL;
		END;
	END IF;
	IF message ? 'timer' THEN PERFORM shard_schedule('alone', entity_id, '{}', after => '1 hour', name => message->>'timer') FROM shard_self(); END IF;
	IF message ? 'fail' THEN RAISE EXCEPTION 'fails'; END IF;
	IF message ? 'end' THEN RETURN NULL; END IF;
	IF message ? 'look' THEN RETURN state; END IF;
	RETURN jsonb_build_object('n', coalesce((state->>'n')::int, 0) + 1);
END $$;
};
sql($does);

# Alone: its shards have no copies elsewhere, and are released behind the node's own gate.
sql(q{SELECT shard_start('alone', 'does', 4, replicas => 1, max_attempts => 1)});
sql(q{SELECT shard_ask('alone', i::text, '{}') FROM generate_series(1, 8) i});
my $type = sql(q{SELECT type_id FROM shard.type WHERE type_name = 'alone'});

# Records of the shard of an entity: rows of a section, behind a turn.
sub items
{
	my ($section, $what, $entity, $after) = @_;
	my $shard = sql("SELECT shard_shard_id('alone', '$entity')");
	return sql(sprintf q{SELECT string_agg(%s, ' ' ORDER BY turn, what) FROM shard.turn_records(%d, %d) WHERE section = '%s' AND turn > %d},
		$what, $type, $shard, $section, $after // 0);
}

sub last_turn
{
	my ($entity) = @_;
	return sql("SELECT coalesce(max(turn), 0) FROM shard.turn_records($type, shard_shard_id('alone', '$entity'))");
}

sub n { my ($entity) = @_; return sql("SELECT state->>'n' FROM shard_entity.alone WHERE entity_id = '$entity'") }

my @scenarios = (
	{
		promise => 'what a subtransaction told that was undone is not told',
		broken_by => ['NOTES_NOT_UNDONE'],
		run => sub {
			my ($before, $turn) = (n('8'), last_turn('1'));
			sql(q{SELECT shard_tell('alone', '1', '{"type": "alone", "undone": "8"}'); SELECT shard_ask('alone', '1', '{}')});
			$node->drain;
			return (join(' ', n('8') - $before, items('outputs', 'entity', '1', $turn), items('keys', 'what', '1', $turn)), '0  ');
		},
	},
	{
		promise => 'outputs are in the record of their turn, and leave behind it',
		broken_by => ['OUTPUTS_AT_ONCE'],
		run => sub {
			my ($before, $turn) = (n('5'), last_turn('2'));
			sql(q{SELECT shard_ask('alone', '2', '{"type": "alone", "tell": "5"}')});
			$node->wait_until(sprintf(q{SELECT state->>'n' = '%d' FROM shard_entity.alone WHERE entity_id = '5'}, $before + 1), 'what was told');
			my $left = items('outputs', 'what', '2', $turn);
			$node->wait_until("SELECT EXISTS (SELECT FROM shard.turn_records($type, shard_shard_id('alone', '2')) WHERE section = 'odone' AND turn > $turn)", 'it to be done') if $left;
			return (items('outputs', 'entity', '2', $turn) . ' ' . (items('odone', 'what', '2', $turn) eq $left ? 'done' : 'left'), '5 done');
		},
	});
if (!ShardMutant::prove(@scenarios))
{
	done_testing();
	exit;
}

# --- what is in records ------------------------------------------------------------------------------

is(items('columns', 'what', '1'), sql(q{SELECT string_agg(attname, ' ' ORDER BY attname) FROM pg_attribute WHERE attrelid = 'shard_entity.alone'::regclass AND attnum > 0}),
	'the first record names the columns');
my $turn = last_turn('3');
sql(q{SELECT shard_ask('alone', '3', '{"timer": "t"}')});
is(items('images', 'entity', '3', $turn), '3', 'an image of the state');
is(items('keys', 'entity || what', '3', $turn), '3timers t', 'and the timer');
$turn = last_turn('3');
sql(q{SELECT shard_ask('alone', '3', '{"look": true}')});
is(last_turn('3'), $turn, 'who only looks leaves no record');
sql(q{SELECT shard_tell('alone', '3', '{"fail": true}')});
$node->wait_until(q{SELECT count(*) = 1 FROM shard_dead_letters WHERE type_name = 'alone'}, 'a dead letter');
is(items('letters', 'entity || what', '3', $turn), '3fails', 'a dead letter is in the record');
like(items('keys', 'what', '3', $turn), qr/history/, 'and the failure');
$turn = last_turn('3');
sql(q{SELECT shard_ask('alone', '3', '{"end": true}')});
is(items('images', 'what', '3', $turn), 'gone', 'a state that is gone');

# Each record says the one before.
is(sql("SELECT count(*) FILTER (WHERE section = 'record') - (max(turn) - min(turn) + 1) FROM shard.turn_records($type, shard_shard_id('alone', '3'))"), 0, 'turns are dense');

# --- crashes -----------------------------------------------------------------------------------------

my $records = last_turn('2');
my ($id, @told) = (0);
for my $point (qw(turn_recorded turn_recorded_committed output_left output_left_committed))
{
	$node->set_fault($point, 'crash');
	until ($node->fault_happened)
	{
		$id++;
		my ($status) = $node->psql($db, qq[SELECT shard_tell('alone', '2', '{"type": "alone", "tell": "6", "with": {"id": $id}}')]);
		push @told, $id if $status == 0;
		ShardCluster::wait_for_condition(sub { $node->fault_happened || ($node->psql($db, "SELECT count(*) FROM seen WHERE id = '$id'"))[1] eq '1' }, "message $id") if $status == 0;
	}
	$node->clear_fault;
	$node->recover;
	$node->wait_until(sprintf(q{SELECT count(DISTINCT id) = %d FROM seen WHERE id = ANY ('{%s}')}, scalar @told, join ',', @told), "what was told to be there after a crash at $point");
	sql(q{SELECT shard_drain('60 s')});
	is(sql('SELECT count(*) - count(DISTINCT id) FROM seen'), 0, "once, with a crash at $point");
}
cmp_ok(last_turn('2'), '>', $records, 'turns go on from where they were');
is(sql("SELECT count(*) - count(DISTINCT turn) FROM shard.turn_records($type, shard_shard_id('alone', '2')) WHERE section = 'record'"), 0, 'each number was given once');

done_testing();
