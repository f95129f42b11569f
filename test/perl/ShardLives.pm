package ShardLives;

=head1 NAME

ShardLives - the third entity type of ShardLedger, whose entities have a life: remembered, supervised, passivated, timed

=head1 DESCRIPTION

Entities of type C<alive> are remembered, have a start and a stop message, leave memory when they are idle or too many,
make timers and cancel them, end themselves, and fail, at their starts, too. What they are told is in the books of
L<ShardLedger>, and audited there with all else; so are the timers that fire once, as messages of kind C<timer>, and
the stop message by which an entity ends itself, of kind C<left>. The rest is in a book of its own:

=over

=item lives

One row per call of the handler, written by it, with the call's number in the life of the entity, C<seq>, which is
counted in the state: so what each incarnation began and ended with can be read off.

=item commanded

Entities that a client has passivated: whether those are remembered in the end nobody can say.

=item barred

Entities that cannot start, as a test wants it.

=back

Timers by their names: C<once> and C<client> fire once; C<every> fires five times and is cancelled by its handler; one
named C<never> is cancelled by the transaction that makes it; C<far> is due in an hour, and by turns made and cancelled by
messages that the entity handles wherever it lives: always under the same name, so that a cancel or a schedule that comes
out of order fails, or leaves what is not to be there.

=cut

use strict;
use warnings FATAL => 'all';

use PostgreSQL::Test::Utils;
use Time::HiRes qw(time usleep);

my $patience = $PostgreSQL::Test::Utils::timeout_default // 180;

our $books = <<'SQL';
CREATE TABLE lives (
    entity text NOT NULL,
    seq    bigint NOT NULL,
    what   text NOT NULL,      -- start, stop, left, tick of a timer, message
    timer  text,               -- which ticks; or of kind "every", which the message has made
    due    timestamptz,        -- of a tick,
    fired  bigint,             -- and its number
    pid    int NOT NULL DEFAULT pg_backend_pid(),
    at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    node   int NOT NULL DEFAULT 0
);
CREATE INDEX ON lives (entity);
CREATE TABLE commanded (entity text);
CREATE TABLE barred (entity text);
SQL

# What a ledger does not say otherwise. Far fewer entities in memory than there are; starts fail now and then for good,
# so often in a row, too, that some are quarantined. The longest pause of a shard is longer than the window: attempts count,
# so a message that fails for good would else never be given up.
my %settings = (
	remember_entities => 'true', start_message => q('{"act": "start"}'), stop_message => q('{"act": "stop"}'),
	passivation_strategy => q('lru'), active_entity_limit => 8, passivate_idle_after => q('300 ms'),
	entity_restart_backoff => q('20 ms'), max_attempts => 2, retry_backoff => q('10 ms'), max_retry_backoff => q('100 ms'),
	max_restarts => 1, restart_window => q('50 ms'), shard_failure_backoff => q('20 ms'));

my $type = <<'SQL';
CREATE FUNCTION ledger_alive(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    self  text := (SELECT entity_id FROM shard_self());
    act   text := message->>'act';
    seq   bigint := coalesce((state->>'seq')::bigint, 0) + 1;
    pos   bigint := coalesce((state->>'count')::bigint, 0) + 1;
    timer record;
    made  text;
BEGIN
    SELECT * INTO timer FROM shard_timer();
    IF timer.due > clock_timestamp() THEN
        RAISE EXCEPTION 'ledger: timer % came early', timer.name;
    ELSIF act = 'never' THEN
        RAISE EXCEPTION 'ledger: timer % fires, and was cancelled', timer.name;
    ELSIF act = 'start' AND (nextval('ledger_flake') % 16 = 0 OR EXISTS (SELECT FROM barred b WHERE b.entity = self)) THEN
        RAISE EXCEPTION 'ledger: told to fail to start' USING ERRCODE = 'invalid_parameter_value';
    ELSIF act IN ('start', 'stop', 'left', 'tick') AND nextval('ledger_flake') % 16 = 1 THEN
        RAISE EXCEPTION 'ledger: told to fail for now' USING ERRCODE = 'serialization_failure';
    END IF;
    state := coalesce(state, '{}') || jsonb_build_object('seq', seq);
    IF message ? 's' AND pos % 11 = 3 AND NOT state ? 'every' THEN
        made := 'every' || pos;
    END IF;
    INSERT INTO lives (entity, seq, what, timer, due, fired)
    SELECT self, seq, CASE WHEN act IN ('start', 'stop', 'left', 'tick') THEN act ELSE 'message' END,
           CASE act WHEN 'tick' THEN timer.name ELSE made END, timer.due, timer.fired;

    IF message ? 's' THEN
        PERFORM ledger_do(self, pos, message);
        state := state || jsonb_build_object('count', pos, 'hash', ledger_step(coalesce(state->>'hash', ''), message));
        IF act = 'left' THEN
            state := state - 'leaves';
        ELSIF pos % 17 = 5 AND NOT state ? 'leaves' THEN
            PERFORM shard_passivate(ledger_note('@' || self || '/left', pos, 0, 'left', self, 'left'));
            state := state || '{"leaves": true}';
        END IF;
        IF pos % 5 = 1 THEN
            PERFORM shard_schedule('alive', self, ledger_note('@' || self || '/timer', pos, 0, 'timer', self,
                CASE pos % 3 WHEN 0 THEN 'flaky' ELSE 'plain' END), after => pos % 7 * interval '60 ms', name => 'once' || pos);
        END IF;
        IF pos % 7 = 2 THEN
            PERFORM shard_schedule('alive', self, '{"act": "never"}', after => '0', name => 'never' || pos);
            PERFORM shard_cancel('alive', self, 'never' || pos);
        END IF;
        IF made IS NOT NULL THEN
            PERFORM shard_schedule('alive', self, '{"act": "tick"}', every => '60 ms', name => made,
                missed => (ARRAY['all', 'once', 'skip'])[1 + pos % 3]);
            state := state || jsonb_build_object('every', made);
        END IF;
        IF pos % 4 = 1 AND state ? 'far' THEN
            PERFORM shard_cancel('alive', self, 'far');
            state := state - 'far';
        ELSIF pos % 4 = 1 THEN
            PERFORM shard_schedule('alive', self, '{"act": "never"}', after => '1 h', name => 'far');
            state := state || '{"far": "far"}';
        END IF;
    ELSIF act = 'tick' AND timer.fired >= 5 THEN
        PERFORM shard_cancel('alive', self, timer.name);
        IF state->>'every' = timer.name THEN
            state := state - 'every';
        END IF;
    END IF;
    RETURN state;
END $$;
SELECT shard_start('alive', 'ledger_alive(jsonb,jsonb)'/*settings*/);

-- For the audit.
CREATE FUNCTION ledger_lives() RETURNS TABLE (entity_id text, state jsonb, remembered boolean) STABLE LANGUAGE sql AS
    'SELECT entity_id, state, remembered FROM shard_entity.alive';

-- Entities that are remembered and have not started since their worker has begun.
CREATE FUNCTION ledger_asleep() RETURNS bigint STABLE LANGUAGE sql AS $$
    SELECT count(*) FROM shard_entity.alive e
    WHERE remembered AND NOT EXISTS (
        SELECT FROM lives l JOIN pg_stat_activity a USING (pid)
        WHERE l.entity = e.entity_id AND l.what = 'start' AND l.at >= a.backend_start
              AND a.backend_type = 'shard region' AND a.datname = current_database())
$$;

-- What is still to come of them; mends those that cannot start.
CREATE FUNCTION ledger_unrest() RETURNS text LANGUAGE sql AS $$
    SELECT nullif(concat_ws(', ',
        (SELECT 'quarantined ' || nullif(count(shard_start_entity(type_name, entity_id)), 0) FROM shard_region_state
         WHERE type_name = 'alive' AND state = 'quarantined'),
        (SELECT 'in memory ' || nullif(count(*), 0) FROM shard_region_state WHERE type_name = 'alive'),
        (SELECT 'waiting ' || nullif(count(*), 0) FROM shard_inbox WHERE type_name = 'alive'),
        (SELECT 'timers ' || nullif(count(*), 0) FROM shard_timers WHERE type_name = 'alive' AND name NOT LIKE 'far%'),
        'asleep ' || nullif(ledger_asleep(), 0)), '')
$$;
SQL

# The entity type; $given are settings of the ledger (", name => value"), which come before those here.
sub type
{
	my ($given) = @_;
	my $all = $given . join '', map { ", $_ => $settings{$_}" } grep { $given !~ /\b$_ =>/ } sort keys %settings;
	return $type =~ s{/\*settings\*/}{$all}r;
}

# As the audit of ShardLedger: it is for books of which nothing more is to come but timers in an hour.
our $audit = <<'SQL';
WITH mine AS (
    SELECT *, lag(what) OVER (PARTITION BY entity ORDER BY seq) AS before, row_number() OVER (PARTITION BY entity ORDER BY seq) AS place
    FROM lives WHERE entity LIKE :'round' || '-%'
), states AS (
    SELECT * FROM ledger_lives() WHERE entity_id LIKE :'round' || '-%'
), counted AS (
    SELECT entity, count(*) AS count, bool_and(seq = place) AS gapless, (array_agg(what ORDER BY seq DESC))[1] AS last
    FROM mine GROUP BY entity
), ticks AS (
    SELECT entity, timer, count(*), count(DISTINCT fired) AS numbers, min(fired) AS least, max(fired) AS most,
           count(DISTINCT due) AS times, extract(epoch FROM max(due) - min(due)) * 1000 AS ms,
           substr(timer, 6)::bigint % 3 = 0 AS misses_nothing
    FROM mine WHERE what = 'tick' GROUP BY entity, timer
), made AS (
    SELECT m.entity, m.timer, coalesce(t.count, 0) AS ticks
    FROM mine m LEFT JOIN ticks t USING (entity, timer) WHERE m.what <> 'tick' AND m.timer IS NOT NULL
), violations AS (
    SELECT 'P2: calls and states of a life differ' AS violation, coalesce(entity, entity_id) AS entity
    FROM counted FULL JOIN states ON entity_id = entity
    WHERE (count, gapless) IS DISTINCT FROM ((state->>'seq')::bigint, true)
    UNION ALL
    SELECT 'P4: two nodes had a life at once', entity FROM mine GROUP BY entity, seq HAVING count(DISTINCT node) > 1
    UNION ALL
    SELECT 'E12: no start message before ' || what, entity
    FROM mine WHERE what <> 'start' AND (before IS NULL OR before IN ('stop', 'left'))
    UNION ALL
    SELECT 'E10: remembered, and has ended itself', entity FROM counted JOIN states ON entity_id = entity
    WHERE last = 'left' AND remembered AND entity NOT IN (SELECT c.entity FROM commanded c)
    UNION ALL
    SELECT 'E10: forgotten after ' || last, entity FROM counted JOIN states ON entity_id = entity
    WHERE last <> 'left' AND NOT remembered AND entity NOT IN (SELECT c.entity FROM commanded c)
    UNION ALL
    SELECT 'E31: a timer is gone that was not cancelled', entity_id
    FROM states s WHERE s.state ? 'far' AND NOT EXISTS (
        SELECT FROM shard_timers t WHERE (t.type_name, t.entity_id, t.name) = ('alive', s.entity_id, s.state->>'far'))
    UNION ALL
    SELECT 'E31: a timer is there that was cancelled', t.entity_id
    FROM shard_timers t LEFT JOIN states s USING (entity_id)
    WHERE t.type_name = 'alive' AND t.entity_id LIKE :'round' || '-%' AND t.name IS DISTINCT FROM s.state->>'far'
    UNION ALL
    SELECT 'E32: a timer did not fire as often as it was to', entity
    FROM made WHERE ticks <> 5
    UNION ALL
    SELECT 'E32: a firing was handled twice', entity FROM ticks WHERE count <> numbers OR count <> times
    UNION ALL
    SELECT 'E34: a firing was left out', entity
    FROM ticks WHERE least <> 1 OR most <> count OR (misses_nothing AND ms <> (count - 1) * 60)
    UNION ALL
    SELECT 'E31: a timer that nobody made', entity FROM ticks t
    WHERE NOT EXISTS (SELECT FROM made m WHERE (m.entity, m.timer) = (t.entity, t.timer))
)
SELECT violation || ' (' || count(*) || ', as ' || min(entity) || ')' FROM violations GROUP BY violation ORDER BY violation;
SQL

# Waits until at each place nothing moves any more: all that was due has fired, all that is remembered has started, and
# nobody is in memory. Places are functions that run a query and return its answer, undef if there is none.
sub settle { return _wait('SELECT ledger_unrest()', @_) }

# Waits until all that is remembered has started since the last fault (P6). Those that cannot start are mended.
sub wait_awake { return _wait(q{SELECT substring(ledger_unrest() from 'asleep.*')}, @_) }

sub _wait
{
	my ($query, @places) = @_;
	my $deadline = time + $patience;
	for my $place (@places)
	{
		while (1)
		{
			my $left = $place->($query);
			last if defined $left && $left eq '';
			die 'lives do not come to rest: ' . ($left // 'no answer') if time > $deadline;
			usleep(50_000);
		}
	}
	return;
}

1;
