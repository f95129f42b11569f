# Remembered entities run again after each kind of death, without a message, each with its start message first;
# who passivated does not (M01, M03, E03). The list is written with the first effect; a start that fails harms no
# other entity, and quarantine outlives a crash (M29). With strategy constant they start bit by bit (M23), and a
# message does not wait for that.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use ShardMutant;
use Test::More;

my $node = ShardCluster->create('first', fsync => 1, conf => 'shard.region_workers = 2');
$node->safe_psql('postgres', q{
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
SELECT shard_start('note', 'note', number_of_shards => 20, remember_entities => true, start_message => '{"what": "start"}',
	entity_restart_backoff => '10 ms', max_attempts => 3);
SELECT shard_start('bare', 'note', number_of_shards => 20, remember_entities => true);
});

my $running = q{SELECT count(*) FROM shard_region_state WHERE type_name = '%s' AND state = 'running'};
my $sends = 0;

# Sends to entities that are new, and waits until all is handled.
sub tell_new
{
	my ($type, $count) = @_;
	my $prefix = 'e' . ++$sends . '-';
	$node->safe_psql('postgres', qq{SELECT count(shard_tell('$type', '$prefix' || i, '{"what": "message"}')) FROM generate_series(1, $count) i});
	$node->drain;
	return $prefix;
}

sub value { return $node->safe_psql('postgres', $_[0]) }

my $sound = ShardMutant::prove(
	{
		promise => 'the first version of a row says that the entity is remembered',
		broken_by => ['REMEMBERED_LATE'],
		run => sub {
			tell_new('bare', 10);
			return (value('SELECT count(*) FROM shard_entity.bare WHERE version = 1 AND remembered'), 10);
		},
	},
	{
		promise => 'the start message comes first',
		broken_by => ['START_LATE'],
		run => sub {
			my $prefix = tell_new('note', 1);
			return (value("SELECT string_agg(what, ' ' ORDER BY pos) FROM seen WHERE entity LIKE '$prefix%'"), 'start message');
		},
	},
	{
		promise => 'E03, M03: who passivates is not remembered',
		broken_by => ['PASSIVATE_REMEMBERS'],
		run => sub {
			my $prefix = tell_new('bare', 3);
			value("SELECT shard_passivate('bare', '${prefix}2')");
			$node->drain;
			$node->stop('fast');
			$node->recover;
			$node->wait_for_value(q{SELECT count(*) FROM shard_region_stats WHERE recovering}, 0, 'all to be started');
			return (value("SELECT string_agg(entity_id, ' ' ORDER BY entity_id) FROM shard_region_state WHERE entity_id LIKE '$prefix%'"),
				"${prefix}1 ${prefix}3");
		},
	},
	{
		promise => 'M29: an entity that cannot start holds up no other one',
		broken_by => ['RECOVERY_SKIPS'],
		run => sub {
			my $prefix = tell_new('note', 200);
			my $count = value(q{SELECT count(*) - 1 FROM shard_entity.note});
			# the last one of all, so that others of its shard have started in the turn that it undoes
			value("INSERT INTO broken VALUES ('${prefix}99')");
			$node->stop('fast');
			$node->recover;
			$node->wait_for_value(q{SELECT count(*) FROM shard_region_state WHERE state = 'quarantined'}, 1, 'one to be quarantined');
			$node->wait_for_value(q{SELECT count(*) FROM shard_region_stats WHERE recovering}, 0, 'all others to be started');
			my $got = value(sprintf $running, 'note');
			value('TRUNCATE broken');
			value("SELECT shard_start_entity('note', '${prefix}99')");
			$node->drain;
			return ($got, $count);
		},
	});

if (!$sound)
{
	done_testing();
	exit;
}

my %death = (
	'kill -9 of everything' => sub { $node->crash },
	'kill -9 of the worker' => sub { $node->crash_process(($node->worker_pids('%region%'))[0]) },
	'immediate stop' => sub { $node->stop('immediate') },
	'fast stop' => sub { $node->stop('fast') });
my %remembered = map { $_ => value("SELECT count(*) FROM shard_entity.$_ WHERE remembered") } 'note', 'bare';
for my $name (sort keys %death)
{
	value('TRUNCATE seen');
	$death{$name}->();
	$node->recover;
	$node->wait_for_value(sprintf($running, $_), $remembered{$_}, "all of type $_ to run after $name") for sort keys %remembered;
	is(value(q{SELECT count(DISTINCT entity) || ' ' || string_agg(DISTINCT what, ' ') FROM seen}), "$remembered{note} start",
		"M01: each has its start message, and no other, after $name");
}

# The state counts each start, too: what a start does is committed once for each life.
my $odd = value(q{SELECT entity_id FROM shard_entity.note LIMIT 1});
value("INSERT INTO broken VALUES ('$odd')");
$node->crash;
$node->recover;
$node->wait_for_value(q{SELECT state FROM shard_region_state WHERE entity_id = '} . $odd . q{'}, 'quarantined', 'one that cannot start to be quarantined');
value(qq{SELECT shard_tell('note', '$odd', '{"what": "$_"}')}) for 1 .. 3;
my $failures = value(q{SELECT attempts FROM shard.held WHERE place = 'start'});
is($failures, 3, 'M29: after three attempts');
$node->crash;
$node->recover;
$node->wait_for_value(sprintf($running, 'note'), $remembered{note} - 1, 'the others to run again');
is(value(q{SELECT attempts FROM shard.held WHERE place = 'start'}), 3, 'quarantine outlives a crash');
is(value(qq{SELECT state || ' ' || waiting FROM shard_region_state WHERE entity_id = '$odd'}), 'quarantined 3', 'its messages wait');
is(value(q{SELECT count(*) FROM shard_health(), unnest(problems) p WHERE p LIKE 'entities of type "note" cannot start: 1, of which 1 quarantined%'}), 1,
	'and shard_health says so');
value('TRUNCATE broken');
value('TRUNCATE seen');
value("SELECT shard_start_entity('note', '$odd')");
$node->drain;
is(value("SELECT string_agg(what, ' ' ORDER BY pos) FROM seen WHERE entity = '$odd'"), 'start 1 2 3', 'mended, it starts, and they are handled in order');

# M23. Two workers: a period of an hour lets each start so many, whichever shards they are of.
value(q{SELECT shard_alter('bare', 'entity_recovery_number', '2')});
value(q{SELECT shard_alter('bare', 'entity_recovery_frequency', '1 h')});
value(q{SELECT shard_alter('bare', 'entity_recovery_strategy', 'constant')});
$node->stop('fast');
$node->recover;
$node->wait_for_value(sprintf($running, 'note'), $remembered{note}, 'the other type to run');
$node->wait_until(q{SELECT count(*) >= 2 FROM shard_region_state WHERE type_name = 'bare'}, 'some to start');
cmp_ok(value(sprintf $running, 'bare'), '<=', 4, 'M23: no more than the rate allows');
is(value(q{SELECT bool_or(recovering) FROM shard_region_stats WHERE type_name = 'bare'}), 't', 'the others are still to start');
my $last = value(q{SELECT entity_id FROM shard_entity.bare WHERE remembered AND entity_id NOT IN (SELECT entity_id FROM shard_region_state) LIMIT 1});
value(qq{SELECT shard_ask('bare', '$last', '{"what": "message"}')});
pass('a message does not wait for that');
value(q{SELECT shard_alter('bare', 'entity_recovery_frequency', '10 ms')});
$node->wait_for_value(sprintf($running, 'bare'), $remembered{bare}, 'all to run with a higher rate');
$node->wait_for_value(q{SELECT count(*) FROM shard_region_stats WHERE recovering}, 0, 'nobody to be left');
is(value(q{SELECT sum(remembered) FROM shard_region_stats WHERE type_name = 'bare'}), $remembered{bare}, 'all are counted');

# Idle is idle: once all have started turns end, and nothing is written meanwhile.
$node->drain;
my $written = q{SELECT pg_current_wal_insert_lsn() || ' ' || pg_snapshot_xmax(pg_current_snapshot())};
my ($before, $quiet) = ('', 0);
ShardCluster::wait_for_condition(
	sub {
		my $now = value($written);
		$quiet = $now eq $before ? $quiet + 1 : 0;
		$before = $now;
		return $quiet >= 20;
	},
	'nothing to be written while nobody starts');
pass('an idle node writes nothing');
$node->log_is_clean(qr/cannot start/);
done_testing();
