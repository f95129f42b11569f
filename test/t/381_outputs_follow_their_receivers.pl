# What a shard with replicas has told waits for its backup, and meanwhile the type that it is for is resharded: it comes to the
# entity that it was told, which is in another shard of a type with another number (Q29, E64). Also after a start, and if that happened twice.
# And if the type's extractor raises an error then, or does not come back, or a session is resharding the type: it waits for that,
# and nobody else does.

use strict;
use warnings FATAL => 'all';

use PostgreSQL::Test::Utils;
use ShardMutant;
use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(2, conf => "shard.rebalance_interval = 0\nshard.voters = 1");
my ($one, $two) = $cluster->nodes;
$cluster->sql_everywhere(q{
CREATE FUNCTION does(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	IF message ? 'tell' THEN PERFORM shard_tell('plain', id::text, jsonb_build_object('from', message->>'tell')) FROM generate_series(1, 8) id; END IF;
	IF message ? 'place' THEN PERFORM shard_tell('placed', 'x', '{}'); END IF;
	IF message ? 'noop' THEN RETURN state; END IF;
	RETURN jsonb_build_object('n', coalesce((state->>'n')::int, 0) + 1);
END $$;
});
$_->sql(q{SELECT shard_start('kept', 'does', 4, replicas => 1)}) for $one, $two;
$one->sql(q{SELECT shard_start('plain', 'does', 4)});
$cluster->wait_registered;
my $entity = $cluster->entity_at('kept', 1, 'e');
$one->sql(q{SELECT shard_ask('plain', i::text, '{}') FROM generate_series(1, 8) i});

sub ask { my ($type, $id, $time) = @_; return $one->try("SELECT shard_ask('$type', '$id', '{}', '$time')->>'n'") }

sub tells
{
	my ($n, $whom) = @_;
	$whom //= 'tell';
	$one->sql("SELECT shard_tell('kept', '$entity', '{\"$whom\": \"$n\"}')");
	$one->wait_value("SELECT state->>'n' FROM shard_entity.kept WHERE entity_id = '$entity'", $n, "turn $n");
	return;
}

# How often the one that tells has been called.
sub turns { return $one->sql("SELECT coalesce((SELECT state->>'n' FROM shard_entity.kept WHERE entity_id = '$entity'), '0')") }

# The backup is a member that is heard, and stores nothing until its fault is cleared; meanwhile that is told.
sub tells_unreleased
{
	$two->server->set_fault('store_before_commit', 'freeze');
	tells(turns() + 1, @_);
	ShardCluster::wait_for_condition(sub { $two->server->fault_happened }, 'a record to be at the backup');
	return;
}

sub reshard
{
	my ($shards) = @_;
	$one->sql(q{SELECT shard_stop_type('plain')});
	$one->sql("CALL shard_reshard('plain', $shards)");
	$one->sql("SELECT shard_start('plain', 'does', $shards)");
	return;
}

# States of all receivers, and dead letters.
my $seen = q{SELECT (SELECT string_agg(state->>'n', ' ' ORDER BY entity_id) FROM shard_entity.plain) || ', ' || (SELECT count(*) FROM shard_dead_letters)};

sub told { my ($type) = @_; return $one->sql("SELECT sum((state->>'n')::int) FROM shard_entity.$type") }

# A type whose extractor does what table way says.
$one->sql(q{
CREATE TABLE way (how text);
INSERT INTO way VALUES ('sound');
GRANT SELECT ON way TO PUBLIC;
CREATE FUNCTION modulo(id text) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE h text := (SELECT how FROM public.way);
BEGIN
	IF h = 'raise' THEN RAISE 'no shard today'; END IF;
	WHILE h = 'loop' LOOP h := h; END LOOP;
	WHILE h = 'stay' LOOP
		-- one in the other, since a cancel comes while the inner one catches the one before
		BEGIN
			LOOP
				BEGIN PERFORM pg_sleep(1); EXCEPTION WHEN query_canceled THEN NULL; END;
			END LOOP;
		EXCEPTION WHEN query_canceled THEN NULL;
		END;
	END LOOP;
	RETURN 3;
END $$;
});
my $place = q{shard_id_extractor => 'modulo', handler_timeout => '1 s'};
$one->sql("SELECT shard_start('placed', 'does', 4, $place)");
$one->sql(q{SELECT shard_ask('placed', 'x', '{}')});

# Says it to that type, and reshards it, before it leaves.
sub tells_and_reshards
{
	my ($shards, $how) = @_;
	$one->sql(q{UPDATE way SET how = 'sound'});
	tells_unreleased('place');
	$one->sql(q{SELECT shard_stop_type('placed')});
	$one->sql("CALL shard_reshard('placed', $shards)");
	$one->sql("SELECT shard_start('placed', 'does', $shards, $place)");
	$one->sql("UPDATE way SET how = '$how'");
	$two->server->clear_fault;
	return;
}

sub arrives
{
	my ($name) = @_;
	my $value = told('placed') + 1;
	$one->sql(q{UPDATE way SET how = 'sound'});
	$one->wait_value(q{SELECT state->>'n' FROM shard_entity.placed}, $value, $name);
	is($one->sql(q{SELECT count(*) FROM shard_dead_letters}), 0, 'and nothing is a dead letter');
	return;
}

my $unplaced = q{SELECT EXISTS (SELECT FROM shard_health() h, unnest(h.problems) p
	WHERE p ~ 'have told a type that was resharded since then is not sent: 1, one of them that of shard \d+ of entity type "kept"')};

my $sound = ShardMutant::prove(
	{
		promise => 'what was told to a type that is resharded comes to it',
		broken_by => ['OUTPUTS_TO_FORMER_SHARDS'],
		run => sub {
			tells_unreleased();
			reshard(16);
			tells(2);
			reshard(32);
			$one->server->crash_postmaster;
			$one->server->start;
			$cluster->wait_up;
			tells(3);
			reshard(8);
			$two->server->clear_fault;
			$one->sql("SELECT shard_ask('kept', '$entity', '{}', '60 s')");
			$one->wait_until(q{SELECT shard_drain('1 s')}, 'all to be handled');
			return ($one->sql($seen), '4 4 4 4 4 4 4 4, 0');
		},
	},
	{
		promise => 'while a session reshards a type, what was told to it stays, and turns commit',
		broken_by => ['OUTPUTS_BESIDE_RESHARDING'],
		run => sub {
			my $was = told('plain');
			tells_unreleased();
			$one->sql(q{SELECT shard_stop_type('plain')});
			$one->server->set_fault('reshard_renumbered', 'freeze');
			my $session = $one->session;
			$session->send(q{CALL shard_reshard('plain', 16);});
			ShardCluster::wait_for_condition(sub { $one->server->fault_happened }, 'the type to be resharded');
			$two->server->clear_fault;
			if ($ENV{SHARD_MUTANT})
			{
				ShardCluster::wait_for_condition(sub { PostgreSQL::Test::Utils::slurp_file($one->server->logfile) =~ /entity type "plain" is being resharded/ }, 'a turn to fail');
				return ((ask('kept', $entity, '2 s'))[0], 0);
			}
			my ($status) = ask('kept', $entity, '60 s');
			$one->server->clear_fault;
			$session->receive;
			$session->close;
			$one->sql(q{SELECT shard_start('plain', 'does', 16)});
			$one->wait_value(q{SELECT sum((state->>'n')::int) FROM shard_entity.plain}, $was + 8, 'what was told');
			return ($status . ' ' . $one->sql(q{SELECT count(*) FROM shard_dead_letters}), '0 0');
		},
	},
	{
		promise => 'an extractor that cannot be ended holds up others no longer than a handler would',
		broken_by => ['EXTRACTOR_UNWATCHED'],
		run => sub {
			tells_and_reshards(8, 'stay');
			if ($ENV{SHARD_MUTANT})
			{
				# The answer of the first turn may come before what was told is about to leave; it is so in the second one.
				ask('kept', $entity, '5 s');
				return ((ask('kept', $entity, '20 s'))[0], 0);
			}
			$one->wait_until(q{SELECT problem ~ 'could not be cancelled' FROM shard_types WHERE type_name = 'placed'}, 'its type to be suspended');
			my ($status) = ask('kept', $entity, '60 s');
			$one->wait_until($unplaced, 'health to name the shard whose receiver is not found');
			$one->sql(q{SELECT shard_alter('placed', 'handler', 'does')});
			arrives('what has waited for it comes');
			return ($status, 0);
		},
	});
unless ($sound)
{
	done_testing();
	exit;
}

# --- an extractor that raises an error, or does not come back ----------------------------------------------

for my $how ('raise', 'loop')
{
	tells_and_reshards($how eq 'raise' ? 16 : 32, $how);
	$one->wait_until($unplaced, "health to name the shard whose receiver is not found: $how");
	is((ask('kept', $entity, '60 s'))[0], 0, 'others go on');
	arrives("what has waited for it comes: $how");
	$one->wait_until(qq{SELECT NOT ($unplaced)}, 'health to be content again');
}
like(PostgreSQL::Test::Utils::slurp_file($one->server->logfile), qr/a message to entity "x" of entity type "placed", which was resharded since it was told, has no shard: no shard today/, 'the log says why');
done_testing();
