--
-- A state that a handler has read from a table, where it is kept out of line,
-- is the entity's own: the table's row may go.
--
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS shard;
RESET client_min_messages;
CREATE SCHEMA borrowed_test;
SET search_path = borrowed_test, public;
CREATE TABLE templates (name text, doc jsonb);
ALTER TABLE templates ALTER doc SET STORAGE EXTERNAL;
INSERT INTO templates SELECT 'long', jsonb_build_object('text', string_agg(md5(i::text), '')) FROM generate_series(1, 200) i;
-- '"new"' starts it from the template
CREATE FUNCTION letter(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    d jsonb;
BEGIN
    IF message = '"new"' THEN
        SELECT doc INTO d FROM templates WHERE name = 'long';
        RETURN d;
    END IF;
    RETURN state || jsonb_build_object('signed', message);
END
$$;
SELECT shard_start('letter', 'letter');
SELECT shard_tell('letter', 'a', '"new"');
SELECT shard_tell('letter', 'b', '"new"');
SELECT shard_drain();

DELETE FROM templates;
VACUUM templates;
-- and for those who would still see the row
DROP TABLE templates;
SELECT shard_ask('letter', 'a', '"me"')->>'signed' AS signed;
SELECT shard_tell('letter', 'b', '"you"');
SELECT shard_drain();
SELECT entity_id, length(state->>'text'), state->>'signed' AS signed FROM shard_entity.letter ORDER BY 1;

SELECT shard_drop_type('letter', force => true);
SET client_min_messages = warning;
DROP SCHEMA borrowed_test CASCADE;
