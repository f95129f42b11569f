--
-- A handler that is replaced, dropped, renamed or no longer fits: the new one
-- takes effect with the next message, and without one messages wait.
--
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS shard;
RESET client_min_messages;
CREATE SCHEMA change_test;
SET search_path = change_test, public;
CREATE FUNCTION changing(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql
RETURN coalesce(state, '[]') || jsonb_build_array('sql', message);
SELECT shard_start('changing', 'changing');
-- what bars the type, and what waits; then the state
CREATE FUNCTION look(OUT problem text, OUT waiting int8, OUT state jsonb) LANGUAGE plpgsql AS $$
BEGIN
    PERFORM shard_drain('30 s');
    problem := (SELECT t.problem FROM shard_types t WHERE t.type_name = 'changing');
    waiting := (SELECT count(*) FROM shard_inbox i WHERE i.type_name = 'changing');
    state := (SELECT e.state FROM shard_entity.changing e WHERE entity_id = 'a');
END
$$;

-- Replaced: by another body, another language, of another volatility.
SELECT shard_tell('changing', 'a', '1');
SELECT shard_drain();
CREATE OR REPLACE FUNCTION changing(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql
RETURN coalesce(state, '[]') || jsonb_build_array('sql again', message);
SELECT shard_tell('changing', 'a', '2');
SELECT shard_drain();
CREATE OR REPLACE FUNCTION changing(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN coalesce(state, '[]') || jsonb_build_array('plpgsql', message);
END
$$;
SELECT shard_tell('changing', 'a', '3');
SELECT shard_ask('changing', 'a', '4');

-- A function that it calls, which may have been inlined.
CREATE FUNCTION helper(message jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE RETURN jsonb_build_array('helper', message);
CREATE OR REPLACE FUNCTION changing(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql
AS $$ SELECT change_test.helper(message) $$;
SELECT shard_ask('changing', 'a', '5');
CREATE OR REPLACE FUNCTION helper(message jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE RETURN jsonb_build_array('helper again', message);
SELECT shard_ask('changing', 'a', '6');
-- When that is gone, each message fails, as with any language; nobody else is held up.
DROP FUNCTION helper;
CREATE FUNCTION bystander(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN message;
SELECT shard_start('bystander', 'bystander');
SELECT shard_tell('changing', 'a', '7');
SELECT shard_ask('changing', 'a', '8');
SELECT shard_ask('bystander', 'a', '"runs"');
SELECT * FROM look();
SELECT message, sqlstate, error FROM shard_dead_letters WHERE type_name = 'changing';

-- Dropped: messages wait in order, for all entities; made again, they are handled.
DROP FUNCTION changing;
SELECT shard_tell('changing', 'a', '9'), shard_tell('changing', 'b', '"b"');
SELECT * FROM look();
SELECT shard_tell('changing', 'a', '10');
SELECT * FROM look();
SELECT shard_ask('changing', 'a', '11');
SELECT shard_ask('bystander', 'a', '"runs"');
CREATE FUNCTION changing(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    RETURN coalesce(state, '[]') || message;
END
$$;
SELECT shard_tell('changing', 'a', '12');
SELECT * FROM look();
SELECT shard_ask('changing', 'a', '13');
SELECT state FROM shard_entity.changing WHERE entity_id = 'b';

-- Renamed, and back; moved to another schema, and back.
ALTER FUNCTION changing RENAME TO renamed;
SELECT shard_tell('changing', 'a', '14');
SELECT * FROM look();
ALTER FUNCTION renamed RENAME TO changing;
SELECT * FROM look();
CREATE SCHEMA change_test_other;
ALTER FUNCTION changing SET SCHEMA change_test_other;
SELECT shard_tell('changing', 'a', '15');
SELECT * FROM look();
-- or another one is named
SELECT shard_alter('changing', 'handler', 'change_test_other.changing');
SELECT * FROM look();

-- Another signature, another result, STRICT, a procedure, no right for the owner.
DROP FUNCTION change_test_other.changing;
CREATE FUNCTION change_test_other.changing(state jsonb, message text) RETURNS jsonb LANGUAGE sql RETURN state;
SELECT shard_tell('changing', 'a', '16');
SELECT * FROM look();
DROP FUNCTION change_test_other.changing;
CREATE FUNCTION change_test_other.changing(state jsonb, message jsonb) RETURNS text LANGUAGE sql RETURN state;
SELECT * FROM look();
DROP FUNCTION change_test_other.changing;
CREATE FUNCTION change_test_other.changing(state jsonb, message jsonb) RETURNS SETOF jsonb LANGUAGE sql RETURN state;
SELECT * FROM look();
DROP FUNCTION change_test_other.changing;
CREATE PROCEDURE change_test_other.changing(state jsonb, message jsonb) LANGUAGE sql AS '';
SELECT * FROM look();
DROP PROCEDURE change_test_other.changing;
CREATE FUNCTION change_test_other.changing(state jsonb, message jsonb) RETURNS jsonb STRICT LANGUAGE sql RETURN message;
SELECT * FROM look();
ALTER FUNCTION change_test_other.changing CALLED ON NULL INPUT;
SELECT * FROM look();
ALTER FUNCTION change_test_other.changing STRICT;
SELECT shard_tell('changing', 'new', '17'), shard_tell('changing', 'a', '18');
SELECT * FROM look();
ALTER FUNCTION change_test_other.changing CALLED ON NULL INPUT;
SELECT * FROM look();
SELECT entity_id, state FROM shard_entity.changing WHERE entity_id = 'new';

-- In a transaction that rolls back nothing has changed.
BEGIN;
DROP FUNCTION change_test_other.changing;
SELECT shard_tell('changing', 'a', '"never"');
ROLLBACK;
SELECT * FROM look();
-- What is wrong with it now is seen at once, before a worker has met it.
BEGIN;
ALTER FUNCTION change_test_other.changing STRICT;
SELECT problem FROM shard_types WHERE type_name = 'changing';
ROLLBACK;

SET client_min_messages = warning;
SELECT shard_drop_type('changing', force => true), shard_drop_type('bystander', force => true);
DELETE FROM shard.dead_letter;
DROP SCHEMA change_test, change_test_other CASCADE;
