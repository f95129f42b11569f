--
-- Supervision: what becomes of an entity, its message and its shard when a handler fails.
--
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS shard;
RESET client_min_messages;
CREATE SCHEMA supervision_test;
SET search_path = supervision_test, public;

CREATE TABLE mended (yes boolean);
-- Fails with the SQLSTATE that the message asks for, until it is mended.
CREATE FUNCTION fragile(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    IF message ? 'fail' AND NOT EXISTS (SELECT FROM supervision_test.mended) THEN
        RAISE EXCEPTION USING ERRCODE = message->>'fail', MESSAGE = 'no';
    END IF;
    RETURN coalesce(state, '[]') || coalesce(message->'n', message);
END
$$;
CREATE FUNCTION last_digit(id text) RETURNS int IMMUTABLE LANGUAGE sql RETURN right(id, 1)::int;
CREATE FUNCTION until(condition text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    met boolean;
BEGIN
    FOR i IN 1 .. 3000 LOOP
        EXECUTE 'SELECT ' || condition INTO met;
        IF met THEN
            RETURN;
        END IF;
        PERFORM pg_sleep(0.02);
    END LOOP;
    RAISE 'not met: %', condition;
END
$$;
CREATE TABLE asked (sqlstate text);
CREATE FUNCTION decide(sqlstate text, message text, attempts int) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO supervision_test.asked VALUES (sqlstate);
    IF sqlstate = 'AA004' THEN
        RAISE 'the decider fails, too';
    END IF;
    RETURN CASE sqlstate
        WHEN 'AA001' THEN 'resume' WHEN 'AA002' THEN 'stop' WHEN 'AA003' THEN 'nonsense' WHEN 'AA005' THEN 'restart'
        WHEN '40001' THEN CASE WHEN message = 'no' AND attempts < 3 THEN 'restart' ELSE 'resume' END
        WHEN '40000' THEN CASE WHEN attempts < 3 THEN NULL ELSE 'resume' END END;
END
$$;

-- Bad input.
SELECT shard_start('x', 'fragile', supervision => 'retire');
SELECT shard_start('x', 'fragile', supervision => NULL);
SELECT shard_start('x', 'fragile', decider => 'nobody');
SELECT shard_start('x', 'fragile', decider => 'last_digit');
CREATE FUNCTION decides_late(sqlstate text, message text, attempts int8) RETURNS text LANGUAGE sql RETURN 'stop';
CREATE FUNCTION decides_much(sqlstate text, message text, attempts int) RETURNS SETOF text LANGUAGE sql RETURN 'stop';
SELECT shard_start('x', 'fragile', decider => 'decides_late');
SELECT shard_start('x', 'fragile', decider => 'decides_much');
SELECT shard_start('x', 'fragile', max_restarts => -1);
SELECT shard_start('x', 'fragile', max_restarts => 101);
SELECT shard_start('x', 'fragile', restart_window => '0');
SELECT shard_start('x', 'fragile', shard_failure_backoff => NULL);
SELECT shard_start('x', 'fragile', shard_failure_backoff => '8 days');
SELECT count(*) FROM shard_types WHERE type_name = 'x';
SELECT shard_history('x', 'a');

SELECT shard_start('fragile', 'fragile', number_of_shards => 10, shard_id_extractor => 'last_digit', retry_backoff => '10 ms', max_attempts => 3);
SELECT shard_alter('fragile', 'supervision', 'retire');
SELECT shard_alter('fragile', 'decider', 'last_digit');
CREATE FUNCTION tell(entity text, message jsonb) RETURNS void LANGUAGE sql
AS $$ SELECT public.shard_tell('fragile', entity, message) $$;
CREATE VIEW letters AS SELECT entity_id, message, sqlstate, attempts FROM shard_dead_letters WHERE type_name = 'fragile' ORDER BY id;
CREATE VIEW history AS SELECT e.entity_id, h.number, h.sqlstate, h.error, h.attempts, h.decision, h.outcome, h.pause <= '1 s' AS short
FROM (VALUES ('a1'), ('b1'), ('c1'), ('d1'), ('e1'), ('f1'), ('g1'), ('h1')) e (entity_id), shard_history('fragile', e.entity_id) h
ORDER BY 1, 2;

-- Restart: what may pass is tried again, the rest is given up; the entity goes on with its state.
SELECT tell('a1', '1'), tell('a1', '{"fail": "P0001"}'), tell('a1', '{"fail": "58030"}'), tell('a1', '2');
SELECT shard_drain();
SELECT state FROM shard_entity.fragile WHERE entity_id = 'a1';
SELECT * FROM letters WHERE entity_id = 'a1';
SELECT * FROM history WHERE entity_id = 'a1';

-- Resume: given up at once, but for what is nobody's fault here.
SELECT shard_alter('fragile', 'supervision', 'resume');
SELECT tell('b1', '{"fail": "58030"}'), tell('b1', '{"fail": "40P01", "n": "patient"}'), tell('b1', '3');
SELECT until('(SELECT attempts > 3 FROM shard_inbox WHERE type_name = ''fragile'' AND attempts > 0)');
INSERT INTO mended VALUES (true);
SELECT shard_drain();
DELETE FROM mended;
SELECT state FROM shard_entity.fragile WHERE entity_id = 'b1';
SELECT * FROM letters WHERE entity_id = 'b1';
SELECT * FROM history WHERE entity_id = 'b1';

-- Stop: the entity leaves memory, and the next message starts it again.
SELECT shard_alter('fragile', 'supervision', 'stop');
SELECT tell('c1', '1'), tell('c1', '{"fail": "58030"}');
SELECT shard_drain();
SELECT count(*) FROM shard_region_state WHERE type_name = 'fragile' AND entity_id = 'c1';
SELECT tell('c1', '2');
SELECT shard_drain();
SELECT count(*) FROM shard_region_state WHERE type_name = 'fragile' AND entity_id = 'c1';
SELECT state FROM shard_entity.fragile WHERE entity_id = 'c1';
SELECT * FROM history WHERE entity_id = 'c1';

-- A decider says what it is to be, by the error; it changes nothing. Without a word of it the setting decides.
SELECT shard_alter('fragile', 'decider', 'decide');
SELECT shard_alter('fragile', 'supervision', 'restart');
SELECT tell('d1', '0'), tell('d1', '{"fail": "AA001"}'), tell('d1', '{"fail": "AA002"}'), tell('d1', '{"fail": "AA003"}'),
       tell('d1', '{"fail": "AA004"}'), tell('d1', '{"fail": "40001"}'), tell('d1', '{"fail": "40000"}'), tell('d1', '1');
SELECT shard_drain();
SELECT state FROM shard_entity.fragile WHERE entity_id = 'd1';
SELECT * FROM letters WHERE entity_id = 'd1';
SELECT * FROM history WHERE entity_id = 'd1';
SELECT count(*) FROM asked;
-- its restart is another attempt, whatever the error
SELECT tell('d1', '{"fail": "AA005"}');
SELECT shard_drain();
SELECT attempts FROM letters WHERE sqlstate = 'AA005';
-- asks are not judged
SELECT shard_ask('fragile', 'd1', '{"fail": "AA002"}');
SELECT count(*) FROM shard_history('fragile', 'd1') WHERE sqlstate = 'AA002';
-- while it is missing the type waits
DROP FUNCTION decide(text, text, int);
SELECT problem FROM shard_types WHERE type_name = 'fragile';
SELECT tell('d1', '2');
SELECT until('(SELECT count(*) = 1 FROM shard_inbox WHERE type_name = ''fragile'' AND place = ''stash'')');
SELECT shard_alter('fragile', 'decider', NULL);
SELECT shard_drain();
SELECT state FROM shard_entity.fragile WHERE entity_id = 'd1';

-- Escalate: nothing of the shard runs for a while, and then it goes on with the same message; other shards do not notice.
SELECT shard_alter('fragile', 'supervision', 'escalate'), shard_alter('fragile', 'shard_failure_backoff', '1 h');
SELECT tell('e1', '{"fail": "P0001", "n": "first"}'), tell('e1', '2');
SELECT until('(SELECT paused_until IS NOT NULL FROM shard_region_stats WHERE type_name = ''fragile'' AND shard = 1)');
SELECT tell('x1', '1'), tell('x2', '1');
SELECT until('(SELECT state = ''[1]'' FROM shard_entity.fragile WHERE entity_id = ''x2'')');
SELECT until('(SELECT count(*) = 3 FROM shard_inbox WHERE type_name = ''fragile'' AND place = ''stash'')');
\set VERBOSITY terse
SELECT shard_ask('fragile', 'y1', '1', '100 ms');
\set VERBOSITY default
SELECT shard_ask('fragile', 'y2', '1');
SELECT entity_id, attempts, next_at > now() + '40 min' AS pauses, sqlstate, error, waits_for FROM shard_inbox WHERE type_name = 'fragile' ORDER BY seq;
SELECT shard, paused_until > now() + '40 min' AS paused FROM shard_region_stats WHERE type_name = 'fragile' AND paused_until IS NOT NULL;
SELECT ok, count(*), min(regexp_replace(p, 'until .*: entity', 'until ...: entity')) FROM shard_health(), unnest(problems) p WHERE p ~ 'fragile' GROUP BY 1;
SELECT * FROM history WHERE entity_id = 'e1';
SELECT count(*) FROM letters WHERE entity_id = 'e1';
-- a shorter pause counts at once
INSERT INTO mended VALUES (true);
SELECT shard_alter('fragile', 'max_retry_backoff', '100 ms'), shard_alter('fragile', 'shard_failure_backoff', '100 ms');
SELECT shard_drain();
SELECT entity_id, state FROM shard_entity.fragile WHERE entity_id IN ('e1', 'x1') ORDER BY 1;
SELECT count(*) FROM shard_region_stats WHERE type_name = 'fragile' AND paused_until IS NOT NULL;
DELETE FROM mended;
-- it goes on so until the message is handled, or another decision gives it up
SELECT tell('f1', '{"fail": "P0001"}'), tell('f1', '2');
SELECT until('(SELECT attempts > 3 FROM shard_inbox WHERE type_name = ''fragile'' AND attempts > 0)');
SELECT count(*) FROM letters WHERE entity_id = 'f1';
SELECT shard_alter('fragile', 'supervision', 'resume');
SELECT shard_drain();
SELECT state FROM shard_entity.fragile WHERE entity_id = 'f1';

-- After max_restarts within the window the shard pauses, too, whatever else was decided.
SELECT shard_alter('fragile', 'max_restarts', '2');
SELECT tell('g1', jsonb_build_object('fail', 'P0001', 'n', n)) FROM generate_series(1, 4) n;
SELECT until('(SELECT attempts > 1 FROM shard_inbox WHERE type_name = ''fragile'' AND attempts > 0)');
SELECT message->'n' AS given_up FROM letters WHERE entity_id = 'g1';
SELECT number, sqlstate, attempts, decision, outcome FROM history WHERE entity_id = 'g1' AND number <= 4;
INSERT INTO mended VALUES (true);
SELECT shard_drain();
SELECT state FROM shard_entity.fragile WHERE entity_id = 'g1';
DELETE FROM mended;
SELECT shard_alter('fragile', 'max_restarts', NULL);

-- A pause of a time that is long over for those who mended its reason: a change of the type or its handler ends it.
SELECT shard_alter('fragile', 'shard_failure_backoff', '1 h'), shard_alter('fragile', 'max_retry_backoff', '1 h'),
       shard_alter('fragile', 'supervision', 'escalate');
SELECT tell('i1', '{"fail": "P0001"}'), tell('i1', '1');
SELECT until('(SELECT paused_until IS NOT NULL FROM shard_region_stats WHERE type_name = ''fragile'' AND shard = 1)');
SELECT shard_alter('fragile', 'supervision', 'resume');
SELECT until('(SELECT state = ''[1]'' FROM shard_entity.fragile WHERE entity_id = ''i1'')');
SELECT attempts FROM letters WHERE entity_id = 'i1';
-- that of max_restarts has no other end but without it
SELECT shard_alter('fragile', 'max_restarts', '0');
SELECT tell('i2', '{"fail": "P0001"}'), tell('i2', '1');
SELECT until('(SELECT attempts = 1 FROM shard_inbox WHERE type_name = ''fragile'' AND attempts > 0)');
SELECT shard_alter('fragile', 'shard_failure_backoff', '59 min');
SELECT until('(SELECT attempts = 2 FROM shard_inbox WHERE type_name = ''fragile'' AND attempts > 0)');
SELECT paused_until > now() + '40 min' AS paused FROM shard_region_stats WHERE type_name = 'fragile' AND shard = 2;
SELECT shard_alter('fragile', 'max_restarts', NULL);
SELECT until('(SELECT state = ''[1]'' FROM shard_entity.fragile WHERE entity_id = ''i2'')');
-- a type that was stopped meanwhile is mended by its start
SELECT shard_alter('fragile', 'max_restarts', '0');
SELECT tell('i3', '{"fail": "P0001"}'), tell('i3', '1');
SELECT until('(SELECT attempts = 1 FROM shard_inbox WHERE type_name = ''fragile'' AND attempts > 0)');
SELECT shard_stop_type('fragile');
SELECT attempts, waits_for FROM shard_inbox WHERE type_name = 'fragile' ORDER BY seq;
SELECT shard_alter('fragile', 'max_restarts', NULL);
SELECT shard_start('fragile', 'fragile', number_of_shards => 10, shard_id_extractor => 'last_digit', retry_backoff => '10 ms', max_attempts => 3,
                   max_retry_backoff => '1 h', supervision => 'resume', shard_failure_backoff => '59 min');
SELECT until('(SELECT state = ''[1]'' FROM shard_entity.fragile WHERE entity_id = ''i3'')');

-- Of each entity the last 20 failures are kept.
SELECT count(tell('h1', '{"fail": "P0001"}')) FROM generate_series(1, 30);
SELECT shard_drain();
SELECT count(*), min(number), max(number) FROM history WHERE entity_id = 'h1';
-- of starts as many, beside those of messages, which max_restarts counts
SELECT tell('j1', '{"fail": "P0001"}'), shard_passivate('fragile', 'j1');
SELECT shard_drain();
INSERT INTO shard.history (type_id, shard, entity, seq, sqlstate, error, attempts, decision, outcome)
SELECT type_id, shard, entity, seq + n, 'P0001', 'no', n, 'start', 'retry' FROM shard.history, generate_series(1, 30) n WHERE entity = 'j1';
SELECT shard_alter('fragile', 'max_restarts', '1'), shard_alter('fragile', 'start_message', '{"fail": "P0001"}');
SELECT tell('j1', '{"fail": "P0001", "n": 2}');
SELECT until('(SELECT max(number) > 31 FROM shard_history(''fragile'', ''j1''))');
SELECT shard_alter('fragile', 'start_message', NULL);
SELECT until('(SELECT attempts = 1 FROM shard_inbox WHERE type_name = ''fragile'' AND attempts > 0)');
SELECT decision, outcome, count(*) FROM shard_history('fragile', 'j1') GROUP BY 1, 2 ORDER BY min(number);
SELECT shard_alter('fragile', 'max_restarts', NULL);
SELECT shard_drain();

-- They are for members of the owner.
CREATE ROLE regress_shard_stranger;
GRANT USAGE ON SCHEMA supervision_test TO regress_shard_stranger;
SET ROLE regress_shard_stranger;
\set VERBOSITY terse
SELECT shard_history('fragile', 'h1');
\set VERBOSITY default
RESET ROLE;
-- A decider that the owner may not execute is refused.
CREATE ROLE regress_shard_owner;
GRANT regress_shard_owner TO CURRENT_USER;
CREATE FUNCTION secret(sqlstate text, message text, attempts int) RETURNS text LANGUAGE sql RETURN 'stop';
REVOKE EXECUTE ON FUNCTION secret FROM PUBLIC;
SELECT shard_alter('fragile', 'owner', 'regress_shard_owner');
SELECT shard_alter('fragile', 'decider', 'secret');

-- All of it goes with the type.
SELECT shard_drop_type('fragile', force => true);
SELECT count(*) FROM shard.history;
SET client_min_messages = warning;
DROP SCHEMA supervision_test CASCADE;
DROP ROLE regress_shard_stranger, regress_shard_owner;
