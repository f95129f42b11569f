--
-- Remembered entities: their list is a column of the state table, written with
-- their first effect; start messages; entities that cannot start.
--
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS shard;
RESET client_min_messages;
CREATE SCHEMA remember_test;
SET search_path = remember_test, public;

CREATE TABLE seen (pos bigserial, entity text, message jsonb);
CREATE TABLE broken (entity text);
CREATE FUNCTION note(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO remember_test.seen (entity, message) SELECT entity_id, message FROM shard_self();
    IF message ? 'start' AND EXISTS (SELECT FROM remember_test.broken b WHERE b.entity = (shard_self()).entity_id) THEN
        RAISE EXCEPTION 'cannot start';
    END IF;
    CASE message->>'do'
    WHEN 'fail' THEN RAISE EXCEPTION 'no';
    WHEN 'forget' THEN RETURN NULL;
    WHEN 'passivate' THEN PERFORM shard_passivate();
    WHEN 'stop' THEN PERFORM shard_stop();
    WHEN 'id' THEN PERFORM shard_message_id();
    ELSE
    END CASE;
    RETURN jsonb_build_object('count', coalesce((state->>'count')::int, 0) + 1);
END $$;
REVOKE EXECUTE ON FUNCTION note FROM PUBLIC;
CREATE FUNCTION wait_for(condition text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE met boolean := false;
BEGIN
    FOR i IN 1 .. 600 LOOP
        EXECUTE 'SELECT ' || condition INTO met;
        EXIT WHEN met;
        PERFORM pg_sleep(0.1);
    END LOOP;
    RETURN met;
END $$;

-- Bad input stores nothing.
SELECT shard_start('note', 'note', remember_entities => NULL);
SELECT shard_start('note', 'note', entity_recovery_strategy => 'some');
SELECT shard_start('note', 'note', entity_recovery_number => 0);
SELECT shard_start('note', 'note', entity_recovery_frequency => '0');
SELECT shard_start('note', 'note', entity_restart_backoff => '-1 s');
SELECT count(*) FROM shard_types WHERE type_name = 'note';

-- Passivation by idle time is off for a type that remembers, unless it is asked for.
SELECT shard_start('note', 'note', number_of_shards => 4, remember_entities => true, entity_restart_backoff => '10 ms', max_attempts => 3);
SELECT settings->'remember_entities' AS remembers, settings->>'passivation_strategy' AS passivation FROM shard_types WHERE type_name = 'note';
SELECT shard_alter('note', 'remember_entities', 'perhaps');
SELECT shard_alter('note', 'start_message', '{');
SELECT shard_start('idle', 'note', remember_entities => true, passivation_strategy => 'idle');
SELECT settings->>'passivation_strategy' AS passivation FROM shard_types WHERE type_name = 'idle';
SELECT shard_drop_type('idle');

-- The first effect is remembered: of a message, also one after which there is no state, of an ask, and of a start. A message
-- that fails starts its entity all the same.
SELECT shard_tell('note', 'a', '{}'), shard_tell('note', 'b', '{"do": "forget"}'), shard_tell('note', 'c', '{"do": "fail"}'), shard_start_entity('note', 'd');
SELECT shard_ask('note', 'e', '{}');
SELECT shard_drain();
SELECT entity_id, state, remembered FROM shard_entity.note ORDER BY entity_id;
SELECT shard_ask('note', 'b', '{}');

-- shard_passivate and shard_stop forget, and keep the state; an error does not forget. Without state nothing is left.
SELECT shard_tell('note', 'a', '{"do": "fail"}'), shard_tell('note', 'b', '{"do": "passivate"}'), shard_tell('note', 'd', '{"do": "forget"}');
SELECT shard_passivate('note', 'd'), shard_tell('note', 'e', '{"do": "stop"}');
SELECT shard_drain();
SELECT entity_id, state, remembered FROM shard_entity.note ORDER BY entity_id;
SELECT entity_id, state FROM shard_region_state WHERE type_name = 'note' ORDER BY entity_id;
SELECT sum(remembered) AS remembered, bool_or(recovering) AS recovering FROM shard_region_stats WHERE type_name = 'note';

-- What comes behind a passivation starts the entity again, and is remembered.
SELECT shard_passivate('note', 'a'), shard_tell('note', 'a', '{}');
SELECT shard_drain();
SELECT entity_id, state, remembered FROM shard_entity.note WHERE entity_id = 'a';

-- A rolled back send remembers nobody.
BEGIN;
SELECT shard_start_entity('note', 'never');
ROLLBACK;
SELECT shard_drain();
SELECT count(*) FROM shard_entity.note WHERE entity_id = 'never';

-- The start message comes before the first message of each life, in one turn with it; also without remember_entities.
SELECT shard_alter('note', 'start_message', '{"start": true}');
TRUNCATE seen;
SELECT shard_tell('note', 'f', '{"n": 1}'), shard_tell('note', 'f', '{"n": 2}'), shard_passivate('note', 'f'), shard_tell('note', 'f', '{"n": 3}');
SELECT shard_start_entity('note', 'g'), shard_start_entity('note', 'g'), shard_tell('note', 'g', '{"n": 1}');
SELECT shard_drain();
SELECT shard_ask('note', 'h', '{"n": 1}');
SELECT entity, message FROM seen ORDER BY entity, pos;
SELECT shard_start('plain', 'note', number_of_shards => 4, start_message => '{"start": true}');
TRUNCATE seen;
SELECT shard_ask('plain', 'p', '{"n": 1}');
SELECT message FROM seen ORDER BY pos;
SELECT entity_id, state, remembered FROM shard_entity.plain;
SELECT shard_drop_type('plain', force => true);

-- An entity that cannot start tries again, and is quarantined; its messages wait, and others go on.
INSERT INTO broken VALUES ('bad'), ('worse');
SELECT shard_tell('note', 'bad', '{"n": 1}'), shard_tell('note', 'bad', '{"n": 2}'), shard_tell('note', 'good', '{}'), shard_start_entity('note', 'worse');
SELECT wait_for($$ count(*) = 2 FROM shard_region_state WHERE type_name = 'note' AND state = 'quarantined' $$);
SELECT entity_id, state, waiting FROM shard_region_state WHERE entity_id IN ('bad', 'worse', 'good') ORDER BY entity_id;
SELECT count(*) FROM shard_health(), unnest(problems) problem
WHERE problem LIKE 'entities of type "note" cannot start: 2, of which 2 quarantined, %: cannot start; mend the handler %';
SELECT entity_id, place, message, attempts, waits_for, next_at, sqlstate, error FROM shard_inbox WHERE type_name = 'note' ORDER BY seq;
SELECT number, sqlstate, error, attempts, decision, outcome, pause IS NOT NULL AS pauses FROM shard_history('note', 'bad');
SELECT count(*) FROM shard_dead_letters WHERE entity_id IN ('bad', 'worse');
SELECT shard_ask('note', 'bad', '{}', timeout => '1 s');

-- An ask that cannot start its entity says so, and leaves nothing behind, also with a stop message.
SELECT shard_alter('note', 'stop_message', '{"n": "stop"}'), shard_alter('note', 'passivate_idle_after', '50 ms'), shard_alter('note', 'passivation_strategy', 'idle');
INSERT INTO broken VALUES ('asked');
SELECT shard_ask('note', 'asked', '{}', timeout => '10 s');
SELECT wait_for($$ count(*) = 0 FROM shard_region_state WHERE entity_id = 'asked' $$);
SELECT count(*) FROM shard_entity.note WHERE entity_id = 'asked';
SELECT count(*) FROM shard_inbox WHERE entity_id = 'asked';
SELECT shard_alter('note', 'stop_message', NULL), shard_alter('note', 'passivation_strategy', 'none');

-- shard_start_entity tries at once; what waited is handled in order. E05.
DELETE FROM broken WHERE entity = 'bad';
TRUNCATE seen;
SELECT shard_start_entity('note', 'bad');
SELECT shard_drain();
SELECT message FROM seen WHERE entity = 'bad' ORDER BY pos;

-- One of which no message waits may be forgotten instead; else a change of the type has it try again.
SELECT shard_start_entity('note', 'worse');
SELECT shard_drain();
DELETE FROM broken;
SELECT shard_alter('note', 'max_attempts', '4');
SELECT wait_for($$ count(*) = 1 FROM shard_region_state WHERE entity_id = 'worse' AND state = 'running' $$);
SELECT ok FROM shard_health();
INSERT INTO broken VALUES ('worst');
SELECT shard_start_entity('note', 'worst');
SELECT wait_for($$ count(*) = 1 FROM shard_region_state WHERE entity_id = 'worst' AND state = 'quarantined' $$);
SELECT shard_passivate('note', 'worst');
SELECT wait_for($$ count(*) = 0 FROM shard_region_state WHERE entity_id = 'worst' $$);

-- A composite state: an entity without one has null attributes.
CREATE TYPE pair AS (x int, y int);
CREATE FUNCTION pairs(state pair, message jsonb) RETURNS pair LANGUAGE plpgsql AS $$
BEGIN
    IF message ? 'forget' THEN RETURN NULL; END IF;
    INSERT INTO remember_test.seen (entity, message) SELECT entity_id, to_jsonb(state IS NOT DISTINCT FROM NULL) FROM shard_self();
    RETURN ROW((message->>'x')::int, 1);
END $$;
REVOKE EXECUTE ON FUNCTION pairs FROM PUBLIC;
SELECT shard_start('pair', 'pairs', remember_entities => true);
TRUNCATE seen;
SELECT shard_tell('pair', 'a', '{"forget": true}');
SELECT shard_drain();
SELECT entity_id, x, y, remembered FROM shard_entity.pair;
SELECT shard_ask('pair', 'a', '{"x": 7}');
SELECT message FROM seen;
SELECT entity_id, x, y, remembered FROM shard_entity.pair;

-- Switched off, nobody is remembered any more, and flags stay.
SELECT shard_alter('pair', 'remember_entities', 'false');
SELECT shard_tell('pair', 'b', '{"x": 1}');
SELECT shard_drain();
SELECT entity_id, remembered FROM shard_entity.pair ORDER BY entity_id;

-- An entity that cannot start is no message: it keeps no type from being dropped. What waits behind it does.
INSERT INTO broken VALUES ('stuck');
SELECT shard_start('stuck', 'note', remember_entities => true, start_message => '{"start": 1}', max_attempts => 1);
SELECT shard_start_entity('stuck', 'stuck');
SELECT wait_for($$ count(*) = 1 FROM shard_region_state WHERE entity_id = 'stuck' AND state = 'quarantined' $$);
SELECT shard_tell('stuck', 'stuck', '{}');
SELECT wait_for($$ count(*) = 1 FROM shard_inbox WHERE entity_id = 'stuck' AND place = 'stash' $$);
SELECT shard_drop_type('stuck');
SELECT shard_drop_type('stuck', force => true);
SELECT shard_start('stuck', 'note', remember_entities => true, start_message => '{"start": 1}', max_attempts => 1);
SELECT shard_start_entity('stuck', 'stuck');
SELECT wait_for($$ count(*) = 1 FROM shard_region_state WHERE entity_id = 'stuck' AND state = 'quarantined' $$);
SELECT shard_drop_type('stuck');
SELECT count(*) FROM shard.held WHERE entity = 'stuck';

SET client_min_messages = warning;
SELECT shard_drop_type('pair', force => true);
SELECT shard_drop_type('note', force => true);
DROP SCHEMA remember_test CASCADE;
