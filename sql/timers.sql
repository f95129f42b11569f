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
    WHEN 'own' THEN
        PERFORM shard_schedule('timed', me, '3', after => '1 h', name => 'own');
        PERFORM shard_schedule('timed', me, '4', after => '1 h', name => 'own');
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

-- A name is given once. The second is a dead letter that says so; it can be sent again when the name is free. In the
-- entity's handler it is an error.
SELECT shard_schedule('timed', 'kept', '"second"', after => '1 h', name => 'k');
SELECT shard_schedule('timed', 'kept', '1', after => '1 h', name => 'twice');
SELECT shard_schedule('timed', 'kept', '2', after => '1 h', name => 'twice');
SELECT shard_drain();
SELECT shard_tell('timed', 'kept', '{"do": "own"}');
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
    IF '"make"' = ANY (messages) THEN PERFORM shard_schedule('crowd', 'c', '"idle"', after => '1 h', name => 'made'); END IF;
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
-- what comes before a CANCEL in the same turn is handled before it
SELECT shard_tell('crowd', 'c', '"make"'), shard_cancel('crowd', 'c', 'made');
SELECT shard_drain();
SELECT count(*) FROM shard_timers WHERE type_name = 'crowd';
SELECT count(*) FROM shard_dead_letters WHERE type_name = 'crowd';
SET client_min_messages = warning;
SELECT shard_drop_type('crowd', force => true);
RESET client_min_messages;

-- What a handler makes and ends for its own entity is done at once. The steps of a message, which may be undone; what is
-- wrong in one is caught, and written down.
CREATE TABLE wrong (pos bigserial, entity text, sqlstate text, error text, detail text, hint text);
CREATE FUNCTION foreign_step(me text) RETURNS text LANGUAGE sql SECURITY DEFINER
AS $$ SELECT shard_schedule('own', me, '"foreign"', after => '1 h', name => 'foreign') $$;
CREATE FUNCTION steps(me text, list jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    s jsonb;
    m text;
    d text;
    h text;
BEGIN
    FOR s IN SELECT * FROM jsonb_array_elements(list) LOOP
        BEGIN
            CASE s->>0
            WHEN 'make' THEN PERFORM shard_schedule('own', me, coalesce(s->2, '[]'), after => '1 h', name => s->>1);
            WHEN 'now' THEN PERFORM shard_schedule('own', me, coalesce(s->2, '[]'), after => '0 s', name => s->>1);
            WHEN 'end' THEN PERFORM shard_cancel('own', me, s->>1);
            WHEN 'undo' THEN
                PERFORM timers_test.steps(me, s->1);
                RAISE division_by_zero;
            WHEN 'fail' THEN RAISE SQLSTATE 'SH999' USING MESSAGE = 'failed';
            WHEN 'other' THEN PERFORM shard_schedule(s->>1, s->>2, '[]', after => '1 h', name => s->>3);
            WHEN 'foreign' THEN PERFORM timers_test.foreign_step(me);
            WHEN 'leave' THEN PERFORM shard_passivate(s->1);
            WHEN 'count' THEN
                INSERT INTO timers_test.wrong (entity, error)
                SELECT me, count(*) || ' timers' FROM shard_timers WHERE (type_name, entity_id) = ('own', me);
            WHEN 'mark' THEN INSERT INTO timers_test.wrong (entity, error) VALUES (me, s->>1);
            END CASE;
        EXCEPTION
        WHEN SQLSTATE 'SH999' THEN RAISE;
        WHEN division_by_zero THEN NULL;
        WHEN OTHERS THEN
            GET STACKED DIAGNOSTICS m = MESSAGE_TEXT, d = PG_EXCEPTION_DETAIL, h = PG_EXCEPTION_HINT;
            INSERT INTO timers_test.wrong (entity, sqlstate, error, detail, hint)
            VALUES (me, SQLSTATE, m, regexp_replace(d, 'at .*, ', 'at ..., '), h);
        END;
    END LOOP;
END
$$;
CREATE FUNCTION own(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    PERFORM timers_test.steps(entity_id, message) FROM shard_self();
    RETURN to_jsonb(coalesce(state::int, 0) + 1);
END
$$;
CREATE VIEW owned AS
SELECT entity_id, name, every, message, fired FROM shard_timers WHERE type_name IN ('own', 'starter', 'batch') ORDER BY entity_id, name;
SET client_min_messages = warning;
SELECT shard_start('own', 'own', max_attempts => 1, max_message_size => 10240);
RESET client_min_messages;
-- several; one in place of another; one that is ended again; a name in use, also of a timer that a client has made
SELECT shard_schedule('own', 'a', '"client"', after => '1 h', name => 'client');
SELECT shard_tell('own', 'a', '[["make", "1"], ["make", "2"], ["count"], ["make", "1", "again"], ["end", "1"], ["make", "1", "another"], ["make", "3"], ["end", "3"], ["end", "none"], ["make", "client"], ["count"]]');
SELECT shard_tell('own', 'a', '[["make", ""], ["make", "request:1"], ["end", ""], ["end", null]]');
SELECT shard_drain();
SELECT sqlstate, error, detail, hint FROM wrong ORDER BY pos;
SELECT * FROM owned;
TRUNCATE wrong;
-- what an exception block takes back is as it was, whatever it was
SELECT shard_tell('own', 'a', '[["undo", [["make", "4"], ["end", "2"], ["end", "1"], ["make", "1", "undone"], ["now", "5", [["mark", "never"]]], ["count"]]], ["count"], ["now", "6", [["mark", "6"]]]]');
SELECT until($$count(*) = 1 FROM wrong WHERE error = '6'$$);
SELECT error FROM wrong ORDER BY pos;
SELECT * FROM owned;
TRUNCATE wrong;
-- and so is what a handler did that fails, of an ask, too; a trial does nothing
SELECT shard_tell('own', 'a', '[["make", "4"], ["end", "1"], ["fail"]]');
\set SHOW_CONTEXT never
SELECT shard_ask('own', 'a', '[["make", "4"], ["end", "1"], ["fail"]]');
\set SHOW_CONTEXT errors
SELECT shard_ask('own', 'a', '[["make", "4", "asked"], ["end", "client"]]');
SELECT state, told FROM shard_try('own', 'a', '[["make", "1"], ["end", "1"], ["make", "5"]]');
SELECT error FROM shard_dead_letters WHERE type_name = 'own';
SELECT * FROM owned;
SELECT count(*) FROM (SELECT shard_cancel('own', entity_id, name) FROM owned) c;
SELECT shard_drain();
-- a timer that fires is over, or due again, when its handler runs
SELECT shard_tell('own', 'b', '[["now", "once", [["make", "once", "made by itself"], ["count"]]]]');
SELECT shard_schedule('own', 'c', '[["end", "ended"], ["count"]]', at => now(), every => '1 h', name => 'ended');
SELECT shard_schedule('own', 'd', '[["make", "used"], ["count"]]', at => now(), every => '1 h', name => 'used');
SELECT shard_schedule('own', 'e', '[["end", "replaced"], ["make", "replaced", "made by itself"], ["count"]]', at => now(), every => '1 h', name => 'replaced');
SELECT shard_schedule('own', 'f', '[["undo", [["end", "undone"]]], ["count"]]', at => now(), every => '1 h', name => 'undone');
SELECT until($$count(*) = 5 FROM wrong WHERE error LIKE '%timers'$$);
SELECT entity, sqlstate, error FROM wrong ORDER BY entity, pos;
SELECT * FROM owned;
TRUNCATE wrong;
-- one whose message is on its way already does not come
BEGIN;
SELECT shard_schedule('own', 'g', '[["end", "second"]]', at => now() - interval '2 s', name => 'first');
SELECT shard_schedule('own', 'g', '[["mark", "second"]]', at => now() - interval '1 s', name => 'second');
SELECT shard_schedule('own', 'g', '[["mark", "third"]]', at => now(), name => 'third');
COMMIT;
SELECT until($$count(*) = 1 FROM wrong WHERE error = 'third'$$);
SELECT error FROM wrong;
TRUNCATE wrong;
-- of others it is a message: of another entity, by its bytes; of another type; to an entity that has the name
SELECT shard_tell('own', 'h', '[["other", "own", "H", "x"], ["other", "own", "H", "x"], ["other", "timed", "h", "x"], ["make", "x"]]');
SELECT until($$count(*) = 1 FROM shard_dead_letters WHERE type_name = 'own' AND sqlstate = '42710'$$);
SELECT until($$count(*) = 3 FROM shard_timers WHERE name = 'x'$$);
SELECT entity_id, sqlstate, error FROM shard_dead_letters WHERE type_name = 'own' AND sqlstate = '42710';
SELECT type_name, entity_id, name FROM shard_timers WHERE name = 'x' ORDER BY 1, 2;
SELECT error FROM wrong;
SELECT shard_cancel('timed', 'h', 'x');
-- from its stop message
SELECT shard_tell('own', 'i', '[["make", "1"], ["leave", [["end", "1"], ["make", "1", "of the stop message"]]]]');
SELECT until($$EXISTS (SELECT FROM owned WHERE message = '"of the stop message"')$$);
-- the right is the right to send, of who calls
CREATE ROLE timers_friend;
GRANT USAGE ON SCHEMA timers_test TO timers_friend;
REVOKE EXECUTE ON FUNCTION own FROM PUBLIC;
ALTER FUNCTION foreign_step OWNER TO timers_friend;
SELECT shard_ask('own', 'j', '[["foreign"]]');
GRANT EXECUTE ON FUNCTION own TO timers_friend;
SELECT shard_ask('own', 'j', '[["foreign"], ["count"]]');
SELECT sqlstate, error FROM wrong ORDER BY pos;
SELECT * FROM owned WHERE entity_id IN ('i', 'j');
TRUNCATE wrong;
-- an entity that starts with the message of a timer has its start message before, which may end the timer, or replace it
CREATE FUNCTION starter(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    me text := (SELECT entity_id FROM shard_self());
BEGIN
    INSERT INTO timers_test.wrong (entity, error) VALUES (me, message #>> '{}');
    IF message = '"start"' THEN
        IF me LIKE '% ended' THEN PERFORM shard_cancel('starter', me, 'x'); END IF;
        IF me LIKE 'made%' THEN PERFORM shard_schedule('starter', me, '"new"', after => '1 h', name => 'x'); END IF;
    END IF;
    RETURN '0';
END
$$;
SET client_min_messages = warning;
SELECT shard_start('starter', 'starter', start_message => '"start"', max_attempts => 1);
RESET client_min_messages;
SELECT shard_schedule('starter', e, '"old"', at => now(), name => 'x') FROM unnest('{kept,is ended,made when ended}'::text[]) e;
SELECT until($$count(*) = 4 FROM wrong$$);
SELECT shard_drain();
SELECT entity, error FROM wrong ORDER BY entity, pos;
SELECT entity_id, name, message FROM shard_timers WHERE type_name = 'starter';
-- a batch handler
CREATE FUNCTION batch(state jsonb, messages jsonb[]) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    me text := (SELECT entity_id FROM shard_self());
BEGIN
    PERFORM shard_cancel('batch', me, 'x');
    PERFORM shard_schedule('batch', me, messages[cardinality(messages)], after => '1 h', name => 'x');
    RETURN '0';
END
$$;
SET client_min_messages = warning;
SELECT shard_start('batch', 'batch', max_attempts => 1);
RESET client_min_messages;
SELECT shard_tell('batch', 'k', '"first"');
SELECT shard_tell('batch', 'k', '"second"');
SELECT shard_drain();
SELECT entity_id, name, message FROM shard_timers WHERE type_name = 'batch';
SELECT count(*) FROM shard_dead_letters WHERE type_name IN ('batch', 'starter');
SET client_min_messages = warning;
SELECT shard_drop_type('own', force => true), shard_drop_type('starter', force => true), shard_drop_type('batch', force => true);
RESET client_min_messages;

-- Timers of a type that does not run wait where they are.
SELECT shard_schedule('timed', 's', '"stopped"', after => '2 s', name => 's');
SELECT shard_drain();
SELECT shard_stop_type('timed');
SELECT until('due < clock_timestamp() FROM shard_timers WHERE entity_id = ''s''');
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
-- Timers that are late are in shard_health(), if their type can run.
SELECT shard_schedule('timed', 'late', '1', after => '1 h', name => 'a'), shard_schedule('timed', 'late', '2', after => '1 h', name => 'b');
SELECT shard_drain();
SET client_min_messages = warning;
SELECT shard_start('idle', 'forgets');
RESET client_min_messages;
SELECT shard_stop_type('idle');
-- none of it is committed, or it would fire
BEGIN;
UPDATE shard.timer SET due = due - interval '2 h' WHERE entity = 'late';
SELECT regexp_replace(p, 'since [^;]*;', 'since ...;') FROM shard_health(), unnest(problems) p WHERE p ~ 'late';
-- any number of older ones, of a type that does not run, hides none
INSERT INTO shard.timer SELECT r.* FROM shard.timer t, shard.type y, generate_series(1, 1000) n,
    jsonb_populate_record(t, jsonb_build_object('type_id', y.type_id, 'name', n, 'due', t.due - interval '1 h')) r
WHERE t.entity = 'late' AND t.name = 'a' AND y.type_name = 'idle';
SELECT regexp_replace(p, 'since [^;]*;', 'since ...;') FROM shard_health(), unnest(problems) p WHERE p ~ 'late';
ROLLBACK;
SELECT shard_stop_type('timed');
BEGIN;
UPDATE shard.timer SET due = due - interval '2 h' WHERE entity = 'late';
SELECT count(*) FROM shard_health(), unnest(problems) p WHERE p ~ 'are late';
ROLLBACK;
SELECT shard_drop_type('idle', force => true);
SELECT shard_start('timed', 'note', max_attempts => 1, max_message_size => 10240);
SELECT shard_cancel('timed', 'late', 'a'), shard_cancel('timed', 'late', 'b');
SELECT shard_drain();

-- A row that was damaged fires once more, and ends.
SELECT shard_schedule('timed', 'hurt', '"hurt"', after => '1 h', every => '1 h', name => 'hurt', missed => 'all');
SELECT shard_drain();
UPDATE shard.timer SET every = '0', due = clock_timestamp() + interval '500 ms' WHERE name = 'hurt';
SELECT shard_schedule('timed', 'hurt', '"at once"', after => '0 s', name => 'poke');
SELECT until('(SELECT count(*) = 0 FROM shard_timers WHERE entity_id = ''hurt'')');
SELECT message FROM seen WHERE entity = 'hurt' ORDER BY message::text;

-- A schedule that is refused is no failure of the entity: it is not supervised, and pauses nothing.
SET client_min_messages = warning;
SELECT shard_start('strict', 'note', supervision => 'escalate', shard_failure_backoff => '1 h', max_retry_backoff => '1 h');
RESET client_min_messages;
SELECT shard_schedule('strict', 'e', '1', after => '1 h', name => 'twice') FROM generate_series(1, 2);
SELECT shard_drain();
SELECT entity_id, sqlstate, attempts FROM shard_dead_letters WHERE type_name = 'strict';
SELECT count(*) FROM shard_history('strict', 'e');
SELECT count(*) FROM shard_region_stats WHERE paused_until IS NOT NULL;
SELECT shard_drop_type('strict', force => true);

SELECT shard_drop_type('timed', force => true);
SELECT count(*) FROM shard.timer;
SET client_min_messages = warning;
DROP SCHEMA timers_test CASCADE;
DROP ROLE timers_reader;
DROP ROLE timers_friend;
