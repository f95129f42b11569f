# Timers where a mistake must show: a message of one that comes late, twice, or after it was cancelled (E31, E32); and what
# the handler of an entity makes and ends for it; receive time-outs of entities that leave memory (E37).

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use ShardMutant;
use Test::More;

my $node = ShardCluster->create('narrow', conf => 'shard.region_workers = 1');
$node->safe_psql('postgres', q{
CREATE TABLE seen (pos bigserial, entity text, what text);
CREATE TABLE obstacles ();
CREATE FUNCTION note(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO seen (entity, what) SELECT entity_id, message #>> '{}' FROM shard_self();
    BEGIN
        PERFORM own(entity_id, message #>> '{}') FROM shard_self();
    EXCEPTION WHEN duplicate_object THEN
        INSERT INTO seen (entity, what) SELECT entity_id, 'in use' FROM shard_self();
    END;
    RETURN message;
END $$;
CREATE FUNCTION own(me text, what text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF what = 'stuck' AND EXISTS (SELECT FROM obstacles) THEN
        RAISE serialization_failure;
    ELSIF what = 'twice' THEN
        PERFORM shard_schedule('note', me, '1', after => '1 h', name => 'x');
        PERFORM shard_schedule('note', me, '1', after => '1 h', name => 'x');
    ELSIF what = 'renew' THEN
        PERFORM shard_schedule('note', me, '"renewed"', after => '0 s', name => 'x');
    ELSIF what = 'start' THEN
        PERFORM shard_cancel('starts', me, 'x');
    END IF;
END $$;
SELECT shard_start('note', 'note', retry_backoff => '50 ms', max_retry_backoff => '100 ms');
SELECT shard_start('starts', 'note', start_message => '"start"');
CREATE FUNCTION session(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO seen (entity, what) SELECT entity_id, message #>> '{}' FROM shard_self();
    IF message = '"begin"' THEN PERFORM shard_set_receive_timeout('2 s', '"idle"'); END IF;
    IF message = '"idle"' THEN PERFORM shard_set_receive_timeout(NULL, NULL); END IF;
    RETURN coalesce(state::int, 0) + 1;
END $$;
SELECT shard_start('session', 'session', start_message => '"start"', stop_message => '"stop"', passivate_idle_after => '50 ms');
});

sub sql { return $node->safe_psql('postgres', @_) }

# A timer of the entity, whose message is its name, or something else.
sub schedule
{
	my ($entity, $name, $after, $what) = @_;
	sql(sprintf q{SELECT shard_schedule('note', '%s', '"%s"', after => '%s', name => '%s')}, $entity, $what // $name, $after, $name);
	return;
}

sub all_seen { my ($entity) = @_; return sql("SELECT string_agg(what, ' ' ORDER BY pos) FROM seen WHERE entity = '$entity'") }

# What the entity has seen when the end comes, which is a timer that is due after all that the scenario has.
sub seen
{
	my ($entity) = @_;
	schedule($entity, 'end', '200 ms');
	wait_seen($entity, 'end');
	return all_seen($entity);
}

sub wait_seen
{
	my ($entity, $what) = @_;
	$node->wait_until("SELECT EXISTS (SELECT FROM seen WHERE (entity, what) = ('$entity', '$what'))", "$entity to see $what");
	return;
}

# The worker begins anew, with nothing in memory.
sub restart_worker
{
	my ($old) = $node->worker_pids('%region%');
	sql("SELECT pg_terminate_backend($old)");
	$node->wait_until("SELECT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'shard region' AND pid <> $old)", 'another worker');
	return;
}

sub wait_stash
{
	my ($entity, $messages) = @_;
	$node->wait_until("SELECT count(*) = $messages FROM shard.held WHERE entity = '$entity'", "$messages messages of $entity to wait");
	return;
}

# A timer of a type that is stopped when it is due; the worker has looked at what is due then.
sub stop_with_timer
{
	my ($entity) = @_;
	sql("SELECT shard_schedule('starts', '$entity', '\"x\"', after => '5 s', name => 'y')");
	$node->wait_until("SELECT EXISTS (SELECT FROM shard_timers WHERE entity_id = '$entity')", 'a timer');
	sql(q{SELECT shard_stop_type('starts')});
	$node->wait_until("SELECT due < now() FROM shard_timers WHERE entity_id = '$entity'", 'it to be due');
	schedule('clock', $entity, '0 s');
	wait_seen('clock', $entity);
	return;
}

sub start_again { return sql(q{SELECT shard_start('starts', 'note', start_message => '"start"')}) }

sub seen_by_starts
{
	my ($entity) = @_;
	sql("SELECT shard_schedule('starts', '$entity', '\"end\"', after => '200 ms')");
	wait_seen($entity, 'end');
	return all_seen($entity);
}

ShardMutant::prove(
	{
		promise => 'a timer that is cancelled before it is due does not fire',
		broken_by => ['TIMER_CANCEL_IGNORED'],
		run => sub {
			schedule('cancelled', 'x', '1 s');
			sql(q{SELECT shard_cancel('note', 'cancelled', 'x')});
			schedule('cancelled', 'y', '1 s');
			wait_seen('cancelled', 'y');
			return (seen('cancelled'), 'y end');
		},
	},
	{
		promise => 'a timer fires',
		broken_by => ['TIMER_ENDS_EARLY'],
		run => sub {
			schedule('fires', 'x', '0 s');
			$node->drain;
			$node->wait_until(q{SELECT NOT EXISTS (SELECT FROM shard_timers WHERE entity_id = 'fires')}, 'its row to be gone');
			$node->drain;
			# the end is no timer here, which might not fire either
			sql(q{SELECT shard_tell('note', 'fires', '"end"')});
			wait_seen('fires', 'end');
			return (all_seen('fires'), 'x end');
		},
	},
	{
		promise => 'a timer that has fired does not fire again when the worker looks from the beginning',
		broken_by => ['TIMER_KEPT'],
		run => sub {
			schedule('once', 'x', '0 s');
			wait_seen('once', 'x');
			restart_worker();
			return (seen('once'), 'x end');
		},
	},
	{
		# Two messages of one firing, and between them the timer is made again under its name.
		promise => 'a message of a timer that has fired is none of one that has its name now',
		broken_by => ['TIMER_GENERATION_IGNORED'],
		run => sub {
			sql('INSERT INTO obstacles DEFAULT VALUES');
			schedule('again', 'x', '5 s', 'first');
			$node->wait_until(q{SELECT EXISTS (SELECT FROM shard_timers WHERE entity_id = 'again')}, 'a timer');
			sql(q{SELECT shard_tell('note', 'again', '"stuck"')});
			wait_stash('again', 2);
			sql(q{SELECT shard_cancel('note', 'again', 'x')});
			schedule('again', 'x', '1 h', 'second');
			wait_stash('again', 4);
			restart_worker();
			wait_stash('again', 5);
			sql('DELETE FROM obstacles');
			return (seen('again'), 'stuck first end');
		},
	},
	{
		# Its row was moved meanwhile, and another one is where it was.
		promise => 'a firing is that of its timer, wherever the row is by then',
		broken_by => ['TIMER_PLACE_BELIEVED'],
		run => sub {
			my $rows = 0;
			$node->drain;
			sql('VACUUM FULL shard.timer');
			sql('INSERT INTO obstacles DEFAULT VALUES');
			for (['goes', '1 h'], ['x', '15 s'], ['y', '15 s'])
			{
				my $entity = $_->[0] eq 'goes' ? 'other' : 'moved';
				schedule($entity, $_->[0], $_->[1]);
				$rows++;
				$node->wait_until(qq{SELECT count(*) = $rows FROM shard_timers WHERE entity_id IN ('other', 'moved')}, 'a timer');
			}
			sql(q{SELECT shard_tell('note', 'moved', '"stuck"')});
			wait_stash('moved', 3);
			sql(q{SELECT shard_cancel('note', 'other', 'goes')});
			$node->wait_until(q{SELECT NOT EXISTS (SELECT FROM shard_timers WHERE entity_id = 'other')}, 'a timer to end');
			sql('VACUUM FULL shard.timer');
			sql('DELETE FROM obstacles');
			return (seen('moved'), 'stuck x y end');
		},
	},
	{
		promise => 'timers of a type that is stopped are no messages, however often the worker begins anew',
		broken_by => ['TIMERS_OF_STOPPED_FIRE'],
		run => sub {
			stop_with_timer('left');
			for (1 .. 2)
			{
				restart_worker();
				schedule('clock', "worker $_", '0 s');
				wait_seen('clock', "worker $_");
			}
			my $waiting = sql(q{SELECT count(*) FROM shard_inbox WHERE type_name = 'starts'});
			start_again();
			return ("$waiting " . seen_by_starts('left'), '0 start x end');
		},
	},
	{
		promise => 'they fire when it is started',
		broken_by => ['TIMERS_LEFT_FOR_GOOD'],
		run => sub {
			stop_with_timer('later');
			start_again();
			return (seen_by_starts('later'), 'start x end');
		},
	},
	{
		promise => 'a handler is told that a name of its entity is in use, and what it did is undone',
		broken_by => ['OWN_TIMER_SENT'],
		run => sub {
			sql(q{SELECT shard_tell('note', 'own', '"twice"')});
			$node->drain;
			return (seen('own') . ' ' . sql(q{SELECT count(*) FROM shard_timers WHERE entity_id = 'own'}), 'twice in use end 0');
		},
	},
	{
		promise => 'what the handler of a timer makes under its name stays',
		broken_by => ['OWN_FIRING_REPLACED'],
		run => sub {
			schedule('renewed', 'x', '0 s', 'renew');
			wait_seen('renewed', 'renew');
			return (seen('renewed'), 'renew renewed end');
		},
	},
	{
		promise => 'a timer that the start message has ended does not fire',
		broken_by => ['OWN_FIRING_ENDED'],
		run => sub {
			sql(q{SELECT shard_schedule('starts', 'ended', '"x"', after => '0 s', name => 'x')});
			wait_seen('ended', 'start');
			$node->drain;
			return (all_seen('ended') . ' ' . sql(q{SELECT count(*) FROM shard_history('starts', 'ended')}), 'start 0');
		},
	},
	{
		# Out of memory when the second message comes, and when the time-out is met that it has put off.
		promise => 'a receive time-out is put off by messages alone, and not by what an entity handles as it starts and leaves',
		broken_by => ['STARTS_ARE_HEARD'],
		run => sub {
			sql(q{SELECT shard_tell('session', 's', '"begin"')});
			wait_seen('s', 'stop');
			sql(q{SELECT shard_tell('session', 's', '"more"')});
			$node->wait_until(q{SELECT bool_or(what = 'idle') OR count(*) FILTER (WHERE what = 'start') >= 5 FROM seen WHERE entity = 's'},
				'the time-out, or so many starts without one');
			return (all_seen('s') =~ s/ *(?:start|stop) */ /gr =~ s/^ +| +$//gr =~ s/ +/ /gr, 'begin more idle');
		},
	},
	{
		promise => 'nor by an entity that starts without a message',
		broken_by => ['STARTS_ARE_HEARD'],
		run => sub {
			my $row = q{SELECT version, updated_at FROM shard_entity.session WHERE entity_id = 'u'};
			sql(q{SELECT shard_tell('session', 'u', '"more"')});
			wait_seen('u', 'stop');
			$node->drain;
			my ($version, $written) = split /\|/, sql($row);
			sql(q{SELECT shard_start_entity('session', 'u')});
			$node->wait_until(q{SELECT count(*) = 2 FROM seen WHERE (entity, what) = ('u', 'stop')}, 'it to leave again');
			$node->drain;
			my ($next, $unchanged) = split /\|/, sql($row);
			return (join(' ', $next > $version ? 'written' : 'as it was', $unchanged eq $written ? 'heard then' : 'heard now'), 'written heard then');
		},
	});
$node->log_is_clean unless $ENV{SHARD_MUTANT};
done_testing();
