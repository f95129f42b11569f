--
-- What a handler may do: know itself and the sender, reply, tell, stop; all of
-- it commits with its state, or nothing of it happens.
--
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS shard;
RESET client_min_messages;
CREATE SCHEMA handler_test;
SET search_path = handler_test, public;
CREATE TABLE diary (n serial, who text, what text);
CREATE FUNCTION actor(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    step jsonb;
    self record;
    sender record;
BEGIN
    SELECT * INTO self FROM shard_self();
    SELECT * INTO sender FROM shard_sender();
    state := coalesce(state, '[]');
    FOR step IN SELECT * FROM jsonb_array_elements(message) LOOP
        CASE step->>'do'
            WHEN 'note' THEN state := state || (step->'note');
            WHEN 'who' THEN state := state || jsonb_build_array(self.type_name, self.entity_id, sender.type_name, sender.entity_id);
            WHEN 'write' THEN INSERT INTO handler_test.diary (who, what) VALUES (self.entity_id, step->>'what');
            WHEN 'count' THEN state := state || to_jsonb((SELECT count(*) FROM handler_test.diary));
            WHEN 'tell' THEN PERFORM shard_tell(coalesce(step->>'type', 'actor'), step->>'to', step->'message');
            WHEN 'reply' THEN PERFORM shard_reply(step->'message');
            WHEN 'fail' THEN RAISE EXCEPTION 'failed on demand';
            WHEN 'try' THEN
                BEGIN
                    INSERT INTO handler_test.diary (who, what) VALUES (self.entity_id, 'undone');
                    PERFORM shard_tell('actor', step->>'to', '[{"do": "note", "note": "undone"}]');
                    RAISE EXCEPTION 'x';
                EXCEPTION WHEN raise_exception THEN
                    state := state || '"caught"';
                END;
            WHEN 'stop' THEN PERFORM shard_stop();
            WHEN 'passivate' THEN PERFORM shard_passivate();
            WHEN 'forget' THEN RETURN NULL;
            WHEN 'id' THEN state := state || to_jsonb(shard_message_id());
        END CASE;
    END LOOP;
    RETURN state;
END
$$;
SELECT shard_start('actor', 'actor');
CREATE FUNCTION tell(to_whom text, what jsonb) RETURNS void LANGUAGE sql
AS $$ SELECT public.shard_tell('actor', to_whom, what) $$;
CREATE VIEW states AS SELECT entity_id, state FROM shard_entity.actor ORDER BY 1;

-- Itself, and the sender: a client, or an entity; a reply goes to the latter, to nobody for a client.
SELECT tell('a', '[{"do": "who"}, {"do": "reply", "message": "to nobody"}]');
SELECT tell('b', '[{"do": "tell", "to": "c", "message": [{"do": "who"}, {"do": "reply", "message": [{"do": "who"}]}]}]');
SELECT shard_drain('30 s'), shard_drain('30 s'), shard_drain('30 s');
SELECT * FROM states;

-- Told by a handler, in order; to itself as well, which comes later; of another type.
CREATE FUNCTION other(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN message;
SELECT shard_start('other', 'other');
SELECT tell('d', '[{"do": "tell", "to": "d", "message": [{"do": "note", "note": 3}]}, {"do": "note", "note": 1},
    {"do": "tell", "to": "e", "message": [{"do": "note", "note": 1}]}, {"do": "tell", "to": "e", "message": [{"do": "note", "note": 2}]},
    {"do": "tell", "type": "other", "to": "e", "message": "hello"}, {"do": "note", "note": 2}]');
SELECT shard_drain('30 s'), shard_drain('30 s');
SELECT * FROM states WHERE entity_id IN ('d', 'e');
SELECT entity_id, state FROM shard_entity.other;

-- A handler that fails leaves no state, no row, no message; those before and after it in the same
-- batch do, and each sees what those before it did.
SELECT tell('f', '[{"do": "write", "what": "one"}, {"do": "tell", "to": "g", "message": [{"do": "note", "note": "from one"}]}, {"do": "count"}]'),
       tell('f', '[{"do": "note", "note": "never"}, {"do": "write", "what": "never"}, {"do": "tell", "to": "g", "message": [{"do": "note", "note": "never"}]}, {"do": "fail"}]'),
       tell('f', '[{"do": "write", "what": "three"}, {"do": "tell", "to": "g", "message": [{"do": "note", "note": "from three"}]}, {"do": "count"}]'),
       tell('new', '[{"do": "note", "note": "never"}, {"do": "fail"}]');
SELECT shard_drain('30 s'), shard_drain('30 s');
SELECT * FROM states WHERE entity_id IN ('f', 'g', 'new');
SELECT who, what FROM diary ORDER BY n;
SELECT entity_id, sqlstate, error, attempts FROM shard_dead_letters WHERE type_name = 'actor' ORDER BY entity_id;
-- an exception block undoes its part only
SELECT tell('h', '[{"do": "note", "note": 1}, {"do": "try", "to": "i"}, {"do": "write", "what": "kept"}, {"do": "tell", "to": "i", "message": [{"do": "note", "note": "kept"}]}]');
SELECT shard_drain('30 s'), shard_drain('30 s');
SELECT * FROM states WHERE entity_id IN ('h', 'i');
SELECT who, what FROM diary WHERE who = 'h';
-- unknown types and bad ids are errors of the handler
SELECT tell('j', '[{"do": "tell", "type": "no such", "to": "x", "message": 1}]'), tell('j', '[{"do": "tell", "to": "", "message": 1}]');
SELECT shard_drain();
SELECT sqlstate, error FROM shard_dead_letters WHERE type_name = 'actor' AND entity_id = 'j' ORDER BY id;

-- Stopped or passivated: out of memory, the state stays. Forgotten: the row is gone.
SELECT tell('k', '[{"do": "note", "note": 1}, {"do": "stop"}]'), tell('l', '[{"do": "note", "note": 1}, {"do": "passivate"}]'),
       tell('m', '[{"do": "note", "note": 1}]'), tell('n', '[{"do": "note", "note": 1}]');
SELECT shard_passivate('actor', 'm'), shard_start_entity('actor', 'o');
SELECT tell('n', '[{"do": "forget"}]');
SELECT shard_drain();
SELECT * FROM states WHERE entity_id IN ('k', 'l', 'm', 'n', 'o');
SELECT entity_id, state FROM shard_region_state WHERE type_name = 'actor' AND entity_id IN ('k', 'l', 'm', 'o') ORDER BY 1;
SELECT tell('k', '[{"do": "note", "note": 2}]'), tell('l', '[{"do": "note", "note": 2}]'),
       tell('m', '[{"do": "note", "note": 2}]'), tell('n', '[{"do": "note", "note": 2}]');
SELECT shard_drain();
SELECT * FROM states WHERE entity_id IN ('k', 'l', 'm', 'n');
SELECT entity_id, version, remembered FROM shard_entity.actor WHERE entity_id IN ('k', 'n') ORDER BY 1;

-- Each message has an id of its own.
SELECT count(tell('p', '[{"do": "id"}]')) FROM generate_series(1, 100);
SELECT shard_drain();
SELECT count(DISTINCT id) AS ids FROM shard_entity.actor, jsonb_array_elements_text(state) id WHERE entity_id = 'p';
SELECT shard_ask('actor', 'p', '[{"do": "id"}]');

-- Outside of a handler there is nothing to know; an SQL handler may do the same.
SELECT * FROM shard_self();
SELECT * FROM shard_sender();
SELECT shard_reply('1');
SELECT shard_stop();
SELECT shard_passivate();
SELECT shard_message_id();
CREATE FUNCTION in_sql(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql AS $$
    SELECT shard_tell('other', 'from sql', message);
    SELECT jsonb_build_object('self', (SELECT s FROM shard_self() s), 'message', message);
$$;
SELECT shard_start('in_sql', 'in_sql');
SELECT shard_ask('in_sql', 'a', '"hello"');
SELECT shard_drain();
SELECT entity_id, state FROM shard_entity.other WHERE entity_id = 'from sql';

DROP VIEW states;
SET client_min_messages = warning;
SELECT shard_drop_type('actor', force => true), shard_drop_type('other', force => true), shard_drop_type('in_sql', force => true);
DELETE FROM shard.dead_letter;
DROP SCHEMA handler_test CASCADE;
