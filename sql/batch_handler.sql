--
-- A batch handler takes all of an entity's messages of a turn, in order. What
-- is about one message raises in it; one poisonous message is found by halving.
--
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS shard;
RESET client_min_messages;
CREATE SCHEMA batch_test;
SET search_path = batch_test, public;
CREATE TABLE batches (entity text, n int);
CREATE FUNCTION fold(state jsonb, messages jsonb[]) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    message jsonb;
BEGIN
    INSERT INTO batch_test.batches VALUES ((shard_self()).entity_id, cardinality(messages));
    state := coalesce(state, '[]');
    FOREACH message IN ARRAY messages LOOP
        CASE message #>> '{}'
            WHEN 'poison' THEN RAISE EXCEPTION 'poison';
            WHEN 'sender' THEN PERFORM shard_sender();
            WHEN 'reply' THEN PERFORM shard_reply('1');
            WHEN 'id' THEN PERFORM shard_message_id();
            WHEN 'tell' THEN PERFORM shard_tell('fold', 'told', to_jsonb((shard_self()).entity_id));
            WHEN 'stop' THEN PERFORM shard_stop();
            WHEN 'forget' THEN state := NULL;
            ELSE NULL;
        END CASE;
        state := state || jsonb_build_array(message);
    END LOOP;
    RETURN state;
END
$$;
SELECT shard_start('fold', 'fold');

-- All messages of the transaction at once, each entity's in order, after the state of before.
SELECT count(shard_tell('fold', 'e' || i % 3, to_jsonb(i))) FROM generate_series(1, 3000) i;
SELECT shard_drain();
SELECT count(shard_tell('fold', 'e' || i % 3, to_jsonb(i))) FROM generate_series(3001, 6000) i;
SELECT shard_drain();
SELECT entity_id, state = (SELECT jsonb_agg(i) FROM generate_series(1, 6000) i WHERE 'e' || i % 3 = entity_id) AS in_order
FROM shard_entity.fold ORDER BY 1;
SELECT entity, sum(n) AS messages, count(*) < 100 AS few_calls FROM batches GROUP BY 1 ORDER BY 1;

-- An ask is a batch of one, behind what was told before; it returns the new state.
SELECT shard_tell('fold', 'ask', '1'), shard_tell('fold', 'ask', '2');
SELECT shard_ask('fold', 'ask', '3');
SELECT shard_ask('fold', 'ask', '"forget"') IS NULL AS forgotten;
SELECT shard_ask('fold', 'ask', '"poison"');
SELECT shard_ask('fold', 'ask', '"reply"');

-- Whose message, and which, has no answer.
SELECT shard_tell_many('fold', '{a,a,a,a,a}', ARRAY['1', '"sender"', '"reply"', '"id"', '2']::jsonb[]);
SELECT shard_drain();
SELECT state FROM shard_entity.fold WHERE entity_id = 'a';
SELECT message, sqlstate, error FROM shard_dead_letters WHERE type_name = 'fold' AND entity_id = 'a' ORDER BY id;

-- One poisonous message among many: it alone is given up, and all others are handled once, in order.
SELECT count(shard_tell('fold', 'p' || i % 2, CASE i WHEN 1234 THEN '"poison"' ELSE to_jsonb(i) END)) FROM generate_series(1, 3000) i;
SELECT shard_drain();
SELECT entity_id, state = (SELECT jsonb_agg(i) FROM generate_series(1, 3000) i WHERE 'p' || i % 2 = entity_id AND i <> 1234) AS in_order
FROM shard_entity.fold WHERE entity_id LIKE 'p_' ORDER BY 1;
SELECT entity_id, message, sqlstate, error, attempts FROM shard_dead_letters WHERE type_name = 'fold' AND entity_id LIKE 'p_';
-- the calls that failed have left nothing
SELECT entity, sum(n) AS messages FROM batches WHERE entity LIKE 'p_' GROUP BY 1 ORDER BY 1;
-- first, last, neighbours
SELECT count(shard_tell('fold', 'q', CASE WHEN i IN (1, 99, 100, 101, 400) THEN '"poison"' ELSE to_jsonb(i) END)) FROM generate_series(1, 400) i;
SELECT shard_drain();
SELECT state = (SELECT jsonb_agg(i) FROM generate_series(1, 400) i WHERE i NOT IN (1, 99, 100, 101, 400)) AS in_order
FROM shard_entity.fold WHERE entity_id = 'q';
SELECT count(*) FROM shard_dead_letters WHERE type_name = 'fold' AND entity_id = 'q';

-- Telling, stopping, forgetting.
SELECT shard_tell_many('fold', '{t,t,t}', ARRAY['1', '"tell"', '"tell"']::jsonb[]);
SELECT shard_tell_many('fold', '{s,s}', ARRAY['1', '"stop"']::jsonb[]), shard_tell_many('fold', '{f,f}', ARRAY['1', '"forget"']::jsonb[]);
SELECT shard_drain('30 s'), shard_drain('30 s');
SELECT entity_id, state FROM shard_entity.fold WHERE entity_id IN ('told', 's', 'f') ORDER BY 1;
SELECT entity_id FROM shard_region_state WHERE type_name = 'fold' AND entity_id = 's';
SELECT shard_tell('fold', 's', '2');
SELECT shard_drain();
SELECT state FROM shard_entity.fold WHERE entity_id = 's';

SET client_min_messages = warning;
SELECT shard_drop_type('fold', force => true);
DELETE FROM shard.dead_letter;
DROP SCHEMA batch_test CASCADE;
