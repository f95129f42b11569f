--
-- Timers of entities: shard_schedule, shard_cancel, shard_set_receive_timeout.
--
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS shard;
RESET client_min_messages;
CREATE SCHEMA timers_test;
SET search_path = timers_test, public;
SET intervalstyle = postgres;

CREATE TABLE seen (pos bigserial, entity text, message jsonb, timer text, due timestamptz, fired int8, at timestamptz DEFAULT clock_timestamp());
CREATE FUNCTION note(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    me text := (SELECT entity_id FROM shard_self());
BEGIN
    INSERT INTO timers_test.seen (entity, message, timer, due, fired) SELECT me, message, t.* FROM shard_timer() t;
    CASE message->>'do'
    WHEN 'fail' THEN RAISE EXCEPTION 'no' USING HINT = 'never';
    WHEN 'again' THEN PERFORM shard_schedule('timed', me, '"from a handler"', after => '1 ms', name => 'again');
    WHEN 'other' THEN PERFORM shard_schedule('timed', 'another', '"for another"', after => '0 s');
    WHEN 'put' THEN
        PERFORM shard_cancel('timed', me, 'put');
        PERFORM shard_schedule('timed', me, message->'what', after => '1 h', name => 'put');
    WHEN 'twice' THEN
        PERFORM shard_schedule('timed', me, '1', after => '1 h', name => 'twice');
        PERFORM shard_schedule('timed', me, '2', after => '1 h', name => 'twice');
    WHEN 'caught' THEN
        BEGIN
            PERFORM shard_schedule('timed', me, '"never"', after => '0 s');
            RAISE division_by_zero;
        EXCEPTION WHEN division_by_zero THEN NULL;
        END;
    WHEN 'idle' THEN PERFORM shard_set_receive_timeout((message->>'after')::interval, '"idle"');
    WHEN 'stop' THEN
        PERFORM shard_set_receive_timeout('1 h', '"idle"');
        PERFORM shard_stop();
    WHEN 'passivate' THEN PERFORM shard_passivate();
    WHEN 'wrong' THEN PERFORM shard_set_receive_timeout('1 ms', '"idle"');
    ELSE NULL;
    END CASE;
    RETURN coalesce(state, '[]') || message;
END
$$;
CREATE FUNCTION until(condition text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    met boolean;
BEGIN
    FOR i IN 1 .. 3000 LOOP
        EXECUTE 'SELECT ' || condition INTO met;
        IF met THEN
            RETURN;
        END IF;
        PERFORM pg_sleep(0.01);
    END LOOP;
    RAISE 'never: %', condition;
END
$$;
CREATE VIEW now_set AS
SELECT entity_id, name, every, message, fired, missed, receive_timeout FROM shard_timers WHERE type_name = 'timed' ORDER BY entity_id, name;
CREATE VIEW dead AS SELECT * FROM shard_dead_letters WHERE type_name = 'timed';
SET client_min_messages = warning;
SELECT shard_start('timed', 'note', max_attempts => 1, max_message_size => 10240);
RESET client_min_messages;

-- What cannot be one. Nothing of it is stored.
SELECT shard_schedule('timed', 'e', '1');
SELECT shard_schedule('timed', 'e', '1', at => now(), after => '1 s');
SELECT shard_schedule('timed', 'e', '1', at => 'infinity');
SELECT shard_schedule('timed', 'e', '1', at => '2000-01-01 00:00:00+00');
SELECT shard_schedule('timed', 'e', '1', after => '-1 s');
SELECT shard_schedule('timed', 'e', '1', after => '299999 years');
SELECT shard_schedule('timed', 'e', '1', every => '0 s');
SELECT shard_schedule('timed', 'e', '1', every => '9.999 ms');
SELECT shard_schedule('timed', 'e', '1', every => '1 day -1 s');
SELECT shard_schedule('timed', 'e', '1', after => '1 s', missed => 'some');
SELECT shard_schedule('timed', 'e', '1', after => '1 s', missed => NULL);
SELECT shard_schedule('timed', 'e', '1', after => '1 s', name => '');
SELECT shard_schedule('timed', 'e', '1', after => '1 s', name => repeat('x', 256));
SELECT shard_schedule('timed', '', '1', after => '1 s');
SELECT shard_schedule('timed', NULL, '1', after => '1 s');
SELECT shard_schedule('timed', 'e', NULL, after => '1 s');
SELECT shard_schedule(NULL, 'e', '1', after => '1 s');
SELECT shard_schedule('none', 'e', '1', after => '1 s');
SELECT shard_cancel('timed', 'e', NULL);
SELECT shard_cancel('timed', 'e', '');
SELECT shard_set_receive_timeout('1 s', '1');
SELECT shard_timer();
SELECT shard_schedule('timed', 'e', to_jsonb(repeat('x', 11000)), after => '1 s');
SELECT shard_drain();
SELECT * FROM now_set;

-- At its time the message comes, once; the handler sees whose it is. A time a little in the past is the present.
SELECT shard_schedule('timed', 'once', '"after"', after => '10 ms', name => 'a');
SELECT shard_schedule('timed', 'once', '"at"', at => now() - interval '30 s', name => 'b');
SELECT length(shard_schedule('timed', 'once', '"unnamed"', after => '0 s'));
SELECT until('count(*) = 3 FROM seen WHERE entity = ''once''');
SELECT message, CASE WHEN length(timer) < 32 THEN timer END AS timer, fired, at >= due AS in_time FROM seen WHERE entity = 'once' ORDER BY message;
SELECT jsonb_array_length(shard_ask('timed', 'once', '"asked"'));
SELECT shard_drain();
SELECT * FROM now_set;

-- Rolled back, it was never made; nor ended.
BEGIN;
SELECT shard_schedule('timed', 'rolled', '1', after => '0 s', name => 'r');
ROLLBACK;
SELECT shard_schedule('timed', 'kept', '"kept"', after => '1 h', name => 'k');
BEGIN;
SELECT shard_cancel('timed', 'kept', 'k');
SAVEPOINT s;
SELECT shard_schedule('timed', 'kept', '1', after => '1 h', name => 'l');
ROLLBACK TO s;
ROLLBACK;
SELECT shard_drain();
SELECT * FROM now_set;

-- A name is given once. The second is a dead letter that says so; it can be sent again when the name is free.
SELECT shard_schedule('timed', 'kept', '"second"', after => '1 h', name => 'k');
SELECT shard_tell('timed', 'kept', '{"do": "twice"}');
SELECT shard_drain();
SELECT entity_id, message->'message' AS message, sqlstate, error, regexp_replace(detail, 'at .*, ', 'at ..., ') AS detail, hint FROM dead ORDER BY id;
SELECT * FROM now_set;
BEGIN;
SELECT shard_cancel('timed', 'kept', 'k');
SELECT shard_schedule('timed', 'kept', '"third"', after => '1 h', name => 'k');
SELECT shard_cancel('timed', 'kept', 'twice');
SELECT shard_cancel('timed', 'kept', 'no such timer');
COMMIT;
SELECT shard_drain();
SELECT shard_redrive(ARRAY(SELECT id FROM dead WHERE message->'message' = '2'));
SELECT shard_drain();
SELECT * FROM now_set;
SELECT count(*) FROM (SELECT shard_cancel('timed', entity_id, name) FROM now_set) c;
DELETE FROM shard.dead_letter WHERE id IN (SELECT id FROM dead);

-- From handlers: for themselves, for others, in place of another one; not what an exception block took back.
SELECT shard_tell('timed', 'h', '{"do": "again"}');
SELECT shard_tell('timed', 'h', '{"do": "other"}');
SELECT shard_tell('timed', 'h', '{"do": "caught"}');
SELECT shard_tell('timed', 'h', '{"do": "put", "what": 1}');
SELECT shard_tell('timed', 'h', '{"do": "put", "what": 2}');
SELECT until('count(*) = 2 FROM seen WHERE message::text LIKE ''"f%''');
SELECT entity, message, timer IS NOT NULL AS fired FROM seen WHERE message::text LIKE '"f%' ORDER BY entity;
SELECT shard_drain();
SELECT * FROM now_set;
SELECT shard_cancel('timed', 'h', 'put');

-- A handler that fails: the firing is over, and its message a dead letter, which can be sent again.
SELECT shard_schedule('timed', 'f', '{"do": "fail"}', after => '0 s', name => 'f');
SELECT until('count(*) = 1 FROM dead');
SELECT entity_id, message, sqlstate, error, hint FROM dead;
SELECT * FROM now_set;
SELECT shard_redrive(ARRAY(SELECT id FROM dead));
SELECT until('count(*) = 1 FROM dead');
DELETE FROM shard.dead_letter WHERE id IN (SELECT id FROM dead);

-- Every so often, until it is ended.
SELECT shard_schedule('timed', 'e', '"every"', every => '20 ms', name => 'e');
SELECT until('count(*) >= 3 FROM seen WHERE entity = ''e''');
SELECT shard_cancel('timed', 'e', 'e');
SELECT shard_drain();
SELECT * FROM now_set;
SELECT bool_and(fired = n) AS counted, bool_and(at >= due) AS in_time, count(DISTINCT due) = count(*) AS each_once
FROM (SELECT *, row_number() OVER (ORDER BY pos) AS n FROM seen WHERE entity = 'e') s;
SELECT shard_schedule('timed', 'far', '"far"', at => '2999-12-31 23:00:00+00', every => '1 month 1 day', name => 'far', missed => 'skip');
SELECT shard_drain();
SELECT * FROM now_set;
SELECT shard_cancel('timed', 'far', 'far');

-- The receive time-out: as long as messages come it rests. It stays until it is ended, or the entity stops.
SELECT shard_tell('timed', 'r', '{"do": "idle", "after": "30 ms"}');
SELECT until('count(*) >= 2 FROM seen WHERE entity = ''r'' AND message = ''"idle"''');
SELECT bool_and(timer = '') AS unnamed, bool_and(at >= due) AS in_time FROM seen WHERE entity = 'r' AND message = '"idle"';
SELECT shard_tell('timed', 'r', '{"do": "idle", "after": "1 h"}');
SELECT shard_drain();
SELECT entity_id, name, message, receive_timeout FROM now_set;
SELECT shard_tell('timed', 'r', '{"do": "idle", "after": null}');
SELECT shard_drain();
SELECT * FROM now_set;
SELECT shard_tell('timed', 'r', '{"do": "idle", "after": "1 h"}');
SELECT shard_drain();
SELECT shard_tell('timed', 'r', '{"do": "stop"}');
SELECT shard_drain();
SELECT * FROM now_set;
SELECT shard_tell('timed', 'r', '{"do": "idle", "after": "1 h"}');
SELECT shard_drain();
SELECT shard_passivate('timed', 'r');
SELECT shard_drain();
SELECT * FROM now_set;
SELECT shard_tell('timed', 'r', '{"do": "wrong"}');
SELECT shard_drain();
SELECT sqlstate, error, detail FROM dead;
DELETE FROM shard.dead_letter WHERE id IN (SELECT id FROM dead);

-- A batch handler has the message of its receive time-out in its batches.
CREATE FUNCTION crowd(state jsonb, messages jsonb[]) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    IF '"rest"' = ANY (messages) THEN PERFORM shard_set_receive_timeout('30 ms', '"idle"'); END IF;
    IF '"end"' = ANY (messages) THEN PERFORM shard_set_receive_timeout(NULL, NULL); END IF;
    RETURN jsonb_build_object('idle', coalesce((state->>'idle')::int, 0) + (SELECT count(*) FROM unnest(messages) m WHERE m = '"idle"'));
END
$$;
SET client_min_messages = warning;
SELECT shard_start('crowd', 'crowd');
RESET client_min_messages;
SELECT shard_tell('crowd', 'b', '"rest"');
SELECT until('(state->>''idle'')::int >= 2 FROM shard_entity.crowd');
SELECT entity_id, name, receive_timeout FROM shard_timers WHERE type_name = 'crowd';
SELECT shard_tell('crowd', 'b', '"end"');
SELECT shard_drain();
SELECT count(*) FROM shard_timers WHERE type_name = 'crowd';
SELECT count(*) FROM shard_dead_letters WHERE type_name = 'crowd';
SET client_min_messages = warning;
SELECT shard_drop_type('crowd', force => true);
RESET client_min_messages;

-- A type that does not run keeps what fires meanwhile.
SELECT shard_schedule('timed', 's', '"stopped"', after => '2 s', name => 's');
SELECT shard_drain();
SELECT shard_stop_type('timed');
SELECT until('count(*) = 1 FROM shard_inbox WHERE entity_id = ''s'' AND place = ''stash''');
SET client_min_messages = warning;
SELECT shard_start('timed', 'note', max_attempts => 1, max_message_size => 10240);
RESET client_min_messages;
SELECT until('count(*) = 1 FROM seen WHERE entity = ''s''');
SELECT message, timer FROM seen WHERE entity = 's';

-- Who may not read messages sees that there is a timer; who may not send makes none.
SELECT shard_schedule('timed', 'secret', '"secret"', after => '1 h', name => 'secret');
SELECT shard_drain();
CREATE ROLE timers_reader;
REVOKE EXECUTE ON FUNCTION note FROM PUBLIC;
SET ROLE timers_reader;
SELECT type_name, entity_id, name, due, every, message FROM shard_timers;
SELECT shard_schedule('timed', 'secret', '1', after => '1 s');
SELECT shard_cancel('timed', 'secret', 'secret');
RESET ROLE;

-- A receive time-out that fails is given up as any message, and harms no other one that is due with it.
CREATE FUNCTION quiet(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    IF message ? 'then' THEN
        PERFORM shard_set_receive_timeout('100 ms', message->'then');
        RETURN '0';
    ELSIF message = '"fail"' THEN
        RAISE EXCEPTION 'no';
    ELSIF message = '"stop"' THEN
        PERFORM shard_stop();
        RETURN NULL;
    END IF;
    RETURN (state::int + 1)::text;
END
$$;
SET client_min_messages = warning;
SELECT shard_start('quiet', 'quiet');
RESET client_min_messages;
SELECT shard_tell('quiet', 'fails', '{"then": "fail"}'), shard_tell('quiet', 'a', '{"then": "count"}'), shard_tell('quiet', 'b', '{"then": "count"}');
SELECT until('(SELECT count(*) >= 2 FROM shard_dead_letters WHERE type_name = ''quiet'')');
SELECT until('(SELECT count(*) = 2 FROM shard_entity.quiet WHERE entity_id IN (''a'', ''b'') AND state::int >= 2)');
SELECT DISTINCT entity_id, sqlstate FROM shard_dead_letters WHERE type_name = 'quiet';
-- it ends with its entity, however soon that comes
SELECT shard_tell('quiet', 'short', '{"then": "count"}'), shard_tell('quiet', 'short', '"stop"');
SELECT shard_tell('quiet', 'left', '{"then": "count"}'), shard_passivate('quiet', 'left');
SELECT until('NOT EXISTS (SELECT FROM shard_region_state WHERE entity_id IN (''short'', ''left''))');
SELECT count(*) FROM shard_timers WHERE entity_id IN ('short', 'left');
-- a limit without effect is refused, as it is at the start
SELECT shard_alter('quiet', 'active_entity_limit', '10');
SET client_min_messages = warning;
SELECT shard_drop_type('quiet', force => true);
RESET client_min_messages;

-- A timer keeps its type from being dropped.
CREATE FUNCTION forgets(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN NULL::jsonb;
SET client_min_messages = warning;
SELECT shard_start('forgets', 'forgets');
RESET client_min_messages;
SELECT shard_schedule('forgets', 'x', '1', after => '1 h', name => 'x');
SELECT shard_drain();
SELECT shard_drop_type('forgets');
SELECT shard_drop_type('forgets', force => true);
SELECT count(*) FROM shard.timer WHERE type_id NOT IN (SELECT type_id FROM shard.type);
SELECT shard_drop_type('timed', force => true);
SELECT count(*) FROM shard.timer;
SET client_min_messages = warning;
DROP SCHEMA timers_test CASCADE;
DROP ROLE timers_reader;
