--
-- What becomes of a message whose handler fails: given up at once, or tried
-- again while others go on and its entity's later messages wait.
--
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS shard;
RESET client_min_messages;
CREATE SCHEMA failure_test;
SET search_path = failure_test, public;
CREATE TABLE calls (n serial, entity text, message jsonb);
CREATE SEQUENCE attempt;
CREATE TABLE gate (closed boolean);
INSERT INTO gate VALUES (true);
-- Keeps messages; fails on demand: with a SQLSTATE, until it was called often enough, while the gate is closed.
CREATE FUNCTION fragile(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO failure_test.calls (entity, message) VALUES ((shard_self()).entity_id, message);
    IF message ? 'until' THEN
        IF nextval('failure_test.attempt') < (message->>'until')::int THEN
            RAISE EXCEPTION USING ERRCODE = message->>'state', MESSAGE = 'not yet', DETAIL = 'some detail', HINT = 'some hint';
        END IF;
    ELSIF message ? 'gate' AND (SELECT closed FROM failure_test.gate) THEN
        RAISE EXCEPTION 'the gate is closed' USING ERRCODE = '55P03';
    ELSIF message ? 'state' THEN
        RAISE EXCEPTION USING ERRCODE = message->>'state', MESSAGE = 'never';
    ELSIF message ? 'spin' THEN
        PERFORM pg_sleep(60);
    END IF;
    RETURN coalesce(state, '[]') || jsonb_build_array(message);
END
$$;
SELECT shard_start('fragile', 'fragile', retry_backoff => '10 ms', max_retry_backoff => '40 ms');
CREATE FUNCTION tell(entity text, message jsonb) RETURNS void LANGUAGE sql
AS $$ SELECT public.shard_tell('fragile', entity, message) $$;
CREATE VIEW letters AS SELECT id, entity_id, message, sqlstate, error, detail, hint, context, attempts FROM shard_dead_letters WHERE type_name = 'fragile';

-- A permanent error: given up at once, with everything that one has to know; others are not touched,
-- the entity's own neither.
SELECT tell('a', '1'), tell('a', '{"state": "P0001"}'), tell('a', '2'), tell('b', '1'), tell('a', '{"state": "22012"}'), tell('b', '2');
SELECT shard_drain();
SELECT entity_id, state FROM shard_entity.fragile ORDER BY 1;
SELECT entity_id, message, sqlstate, error, context, attempts FROM letters ORDER BY id;
SELECT entity, message FROM calls ORDER BY entity, n;

-- A passing one: tried again with its later messages behind it, while others go on.
SELECT tell('c', '1'), tell('c', '{"state": "40001", "until": 4}'), tell('c', '2'), tell('d', '1');
SELECT tell('c', '3');
SELECT shard_drain();
SELECT entity_id, state FROM shard_entity.fragile WHERE entity_id IN ('c', 'd') ORDER BY 1;
SELECT last_value >= 4 AS often FROM attempt;
SELECT count(*) FROM letters WHERE entity_id = 'c';
-- what the failed attempts did beside is undone
SELECT entity, message FROM calls WHERE entity = 'c' ORDER BY n;

-- After max_attempts it is given up, and the later ones go on.
SELECT setval('attempt', 1);
SELECT tell('e', '1'), tell('e', '{"state": "40002", "until": 1000}'), tell('e', '2'), tell('e', '{"state": "58030", "until": 1000}'), tell('e', '3');
SELECT shard_drain();
SELECT state FROM shard_entity.fragile WHERE entity_id = 'e';
SELECT message, sqlstate, error, detail, hint, attempts FROM letters WHERE entity_id = 'e' ORDER BY id;
-- (what an error says is for the type's owner)
CREATE ROLE regress_shard_stranger;
SET ROLE regress_shard_stranger;
SELECT DISTINCT sqlstate, error, detail, hint, context FROM shard_dead_letters;
RESET ROLE;
DROP ROLE regress_shard_stranger;
SELECT last_value >= 10 AS often FROM attempt;
SELECT detail, hint FROM shard.dead_letter ORDER BY id DESC LIMIT 1;

-- It is run once for each attempt, but at the first, when it is not known which one of many fails.
SELECT setval('attempt', 1, false);
SELECT tell('e2', '{"state": "40002", "until": 1000}');
SELECT shard_drain();
SELECT attempts, (SELECT last_value BETWEEN 5 AND 6 FROM attempt) AS run_once FROM letters WHERE entity_id = 'e2';
-- Which ones may pass, and which not; those that others are to blame for, or a server that is short of something, are
-- tried until they do, however often.
SELECT shard_alter('fragile', 'max_attempts', '2');
SELECT count(tell(state, jsonb_build_object('state', state)))
FROM unnest('{40000,40002,40003,57P01,57P02,57P03,58000,58030,55000,57014,57000,23505,42P01,XX000,0A000,08006}'::text[]) state;
SELECT shard_drain();
SELECT attempts, array_agg(sqlstate ORDER BY sqlstate) FROM letters WHERE entity_id = sqlstate GROUP BY 1 ORDER BY 1;

SELECT setval('attempt', 1);
SELECT count(tell('trouble ' || state, jsonb_build_object('state', state, 'until', 60)))
FROM unnest('{40001,40P01,53000,53100,53200,53300,53400,55P03}'::text[]) state;
SELECT shard_drain();
SELECT count(*) AS handled FROM shard_entity.fragile WHERE entity_id LIKE 'trouble %';
SELECT count(*) AS given_up FROM letters WHERE entity_id LIKE 'trouble %';

-- While one waits for its next attempt it can be seen, with what it waits for.
SELECT shard_alter('fragile', 'max_attempts', '5');
SELECT shard_alter('fragile', 'max_retry_backoff', '1 hour');
SELECT shard_alter('fragile', 'retry_backoff', '1 hour');
-- (its shard has its home by then)
SELECT shard_start_entity('fragile', 'f');
SELECT shard_drain();
SELECT tell('f', '1'), tell('f', '{"gate": true}'), tell('f', '2');
SELECT shard_ask('fragile', 'g', '1');
SELECT message, place, attempts, next_at > now() + '47 min' AS later, sqlstate, error FROM shard_inbox
WHERE type_name = 'fragile' ORDER BY seq;
SELECT state, waiting FROM shard_region_state WHERE type_name = 'fragile' AND entity_id = 'f';
-- others go on, its own wait behind it; an ask would overtake them, so it waits, too
SELECT tell('f', '3'), tell('g', '2');
SELECT shard_ask('fragile', 'g', '3');
SELECT count(*) FROM shard_inbox WHERE type_name = 'fragile';
\set VERBOSITY terse
SELECT shard_ask('fragile', 'f', '4', '100 ms');
\set VERBOSITY default
-- A shorter limit counts at once.
UPDATE gate SET closed = false;
SELECT shard_alter('fragile', 'retry_backoff', '10 ms');
SELECT shard_alter('fragile', 'max_retry_backoff', '20 ms');
SELECT shard_drain();
SELECT state FROM shard_entity.fragile WHERE entity_id = 'f';

-- Handlers that take too long are ended, and given up.
SELECT shard_alter('fragile', 'handler_timeout', '1 s');
SELECT tell('h', '1'), tell('h', '{"spin": true}'), tell('h', '2'), tell('i', '1');
SELECT shard_ask('fragile', 'j', '{"spin": true}', '1 min');
SELECT shard_drain();
SELECT entity_id, state FROM shard_entity.fragile WHERE entity_id IN ('f', 'h', 'i', 'j') ORDER BY 1;
SELECT entity_id, message, sqlstate, error, attempts FROM letters WHERE entity_id >= 'f' ORDER BY id;

-- One poisonous message in the middle of many, of one entity and of many.
SELECT shard_alter('fragile', 'handler_timeout', NULL);
SELECT count(tell('p', CASE i WHEN 1000 THEN '{"state": "22012"}' ELSE to_jsonb(i) END)) FROM generate_series(1, 2000) i;
SELECT count(tell('q' || i % 100, CASE i WHEN 1000 THEN '{"state": "22012"}' ELSE to_jsonb(i) END)) FROM generate_series(1, 2000) i;
SELECT shard_drain();
SELECT left(entity_id, 1) AS entity, sum(jsonb_array_length(state)) AS messages,
       bool_and(state = (SELECT jsonb_agg(i) FROM generate_series(1, 2000) i
                         WHERE i <> 1000 AND (entity_id = 'p' OR 'q' || i % 100 = entity_id))) AS in_order
FROM shard_entity.fragile WHERE entity_id ~ '^[pq]' GROUP BY 1 ORDER BY 1;
SELECT entity_id, message, attempts FROM letters WHERE entity_id ~ '^[pq]' ORDER BY entity_id;
SELECT left(entity, 1) AS entity, count(*) FROM calls WHERE entity ~ '^[pq]' GROUP BY 1 ORDER BY 1;
-- Many of them: each entity's others are handled in order, exactly once.
SELECT count(tell('r' || i % 10, CASE WHEN i % 7 = 0 THEN '{"state": "22012"}' ELSE to_jsonb(i) END)) FROM generate_series(1, 700) i;
SELECT shard_drain();
SELECT sum(jsonb_array_length(state)) AS messages,
       bool_and(state = (SELECT jsonb_agg(i) FROM generate_series(1, 700) i WHERE i % 7 <> 0 AND 'r' || i % 10 = entity_id)) AS in_order
FROM shard_entity.fragile WHERE entity_id ~ '^r';
SELECT count(*) FROM letters WHERE entity_id ~ '^r';
SELECT count(*) FROM calls WHERE entity ~ '^r';

SET client_min_messages = warning;
SELECT shard_drop_type('fragile', force => true);
SELECT count(*) FROM shard_dead_letters;
DROP SCHEMA failure_test CASCADE;
