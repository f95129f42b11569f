--
-- Asking: the reply, its order, and what becomes of an ask that fails.
--
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS shard;
RESET client_min_messages;
CREATE ROLE regress_shard_stranger;
CREATE SCHEMA ask_test;
GRANT USAGE ON SCHEMA ask_test TO regress_shard_stranger;
SET search_path = ask_test, public;
\set SHOW_CONTEXT always
CREATE FUNCTION teller(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    CASE message->>'do'
        WHEN 'add' THEN RETURN to_jsonb(coalesce(state::int4, 0) + 1);
        WHEN 'reply' THEN PERFORM shard_reply(message->'with');
        WHEN 'size' THEN PERFORM shard_reply(to_jsonb(repeat('x', (message->>'bytes')::int4)));
        WHEN 'length' THEN PERFORM shard_reply(to_jsonb(length(message->>'text')));
        WHEN 'fail' THEN
            RAISE EXCEPTION USING ERRCODE = 'SH001', MESSAGE = 'out of coins',
                DETAIL = 'There are none.', HINT = 'Come back tomorrow.';
        WHEN 'refuse' THEN
            RAISE EXCEPTION USING ERRCODE = '23514', MESSAGE = 'refused', DETAIL = 'a detail', HINT = 'a hint',
                SCHEMA = 'a schema', TABLE = 'a table', COLUMN = 'a column', DATATYPE = 'a type', CONSTRAINT = 'a constraint';
        WHEN 'forget' THEN RETURN NULL;
        WHEN 'ask' THEN PERFORM shard_ask('teller', 'b', '{"do": "add"}');
        WHEN 'sleep' THEN PERFORM pg_sleep((message->>'seconds')::float8);
    END CASE;
    RETURN state;
END
$$;
SELECT shard_start('teller', 'teller');

-- Without a reply of its own the handler's new state is the answer, NULL if it forgets.
SELECT shard_ask('teller', 'a', '{"do": "add"}');
SELECT shard_ask('teller', 'a', '{"do": "reply", "with": [1, {"a": null}]}');
SELECT shard_ask('teller', 'a', '{"do": "forget"}') IS NULL AS forgotten;
SELECT count(*) FROM shard_entity.teller;

-- A message and a reply of any size; the first two fit the slot, the others do not.
SELECT bytes, length(shard_ask('teller', 'a', jsonb_build_object('do', 'size', 'bytes', bytes)) #>> '{}') AS reply,
       shard_ask('teller', 'a', jsonb_build_object('do', 'length', 'text', repeat('y', bytes))) AS message
FROM (VALUES (1), (8000), (8200), (1000000)) AS s (bytes);
SELECT shard_ask('teller', 'a', to_jsonb(repeat('y', 1048577)));

-- What this session has told and committed goes first.
SELECT count(shard_tell('teller', 'a', '{"do": "add"}')) FROM generate_series(1, 1000);
SELECT shard_ask('teller', 'a', '{"do": "add"}');
BEGIN;
SELECT shard_tell('teller', 'a', '{"do": "add"}');
SELECT shard_ask('teller', 'a', '{"do": "add"}');
ROLLBACK;
-- But not what is not sent.
BEGIN;
SAVEPOINT s;
SELECT shard_tell('teller', 'a', '{"do": "add"}');
ROLLBACK TO s;
SELECT shard_ask('teller', 'a', '{"do": "reply", "with": "it runs"}');
SAVEPOINT t;
SAVEPOINT u;
SELECT shard_tell('teller', 'a', '{"do": "add"}');
RELEASE u;
SELECT shard_ask('teller', 'a', '{"do": "reply", "with": "it runs"}');
ROLLBACK;

-- An error comes back as it was raised, and is kept nowhere.
SELECT shard_ask('teller', 'a', '{"do": "fail"}');
\echo :LAST_ERROR_SQLSTATE
DO $$
DECLARE
    detail text; hint text; of_schema text; of_table text; of_column text; of_type text; of_constraint text;
BEGIN
    PERFORM shard_ask('teller', 'a', '{"do": "refuse"}');
EXCEPTION WHEN check_violation THEN
    GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT, of_schema = SCHEMA_NAME, of_table = TABLE_NAME,
        of_column = COLUMN_NAME, of_type = PG_DATATYPE_NAME, of_constraint = CONSTRAINT_NAME;
    RAISE NOTICE '%', concat_ws(', ', SQLERRM, detail, hint, of_schema, of_table, of_column, of_type, of_constraint);
END
$$;
SELECT count(*) FROM shard_dead_letters WHERE type_name = 'teller';
SELECT shard_ask('teller', 'a', '{"do": "add"}');

-- Time-out and cancel of an ask that was taken: nobody knows what becomes of it.
SELECT shard_ask('teller', 'a', '{"do": "sleep", "seconds": 3}', '1 s');
\echo :LAST_ERROR_SQLSTATE
SELECT shard_drain();
SET statement_timeout = '1 s';
SELECT shard_ask('teller', 'a', '{"do": "sleep", "seconds": 3}');
RESET statement_timeout;
-- One that no worker has taken was certainly not executed.
\set VERBOSITY terse
SELECT shard_ask('teller', 'a', '{"do": "add"}', '0 s');
\set VERBOSITY default
\echo :LAST_ERROR_SQLSTATE
SELECT shard_ask('teller', 'a', '{"do": "reply", "with": "still here"}');
SELECT shard_ask('teller', 'a', '{"do": "add"}');

-- The handler waits for a lock of ours, we wait for the handler.
\set VERBOSITY terse
CREATE TABLE shop (open boolean);
CREATE FUNCTION keeper(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO ask_test.shop VALUES (true);
    RETURN 'true';
END
$$;
SELECT shard_start('keeper', 'keeper');
-- (its own patience with locks would end first on a slow machine)
ALTER SYSTEM SET shard.handler_lock_timeout = '30 s';
SELECT pg_reload_conf();
SET deadlock_timeout = '100 ms';
BEGIN;
LOCK TABLE shop;
SELECT shard_ask('keeper', 'a', 'null');
\echo :LAST_ERROR_SQLSTATE
ROLLBACK;
-- (it was taken, so it is handled now)
SELECT shard_drain();
SELECT count(*) FROM shop;
RESET deadlock_timeout;
ALTER SYSTEM RESET shard.handler_lock_timeout;
SELECT pg_reload_conf();

-- Refusals.
SELECT shard_ask('no such type', 'a', '{}');
SELECT shard_ask('teller', '', '{}');
SELECT shard_ask('teller', repeat('x', 256), '{}');
SELECT shard_ask('teller', NULL, '{}');
SELECT shard_ask('teller', 'a', NULL);
SELECT shard_ask('teller', 'a', '{}', '-1 s');
SELECT shard_drain('-1 s');
SELECT shard_ask('teller', 'a', '{"do": "ask"}');
BEGIN READ ONLY;
SELECT shard_ask('teller', 'a', '{"do": "add"}');
ROLLBACK;
REVOKE EXECUTE ON FUNCTION teller FROM PUBLIC;
SET ROLE regress_shard_stranger;
SELECT shard_ask('teller', 'a', '{"do": "add"}');
RESET ROLE;
SELECT shard_stop_type('teller');
SELECT shard_ask('teller', 'a', '{"do": "add"}');

SET client_min_messages = warning;
SELECT shard_drop_type('teller', force => true), shard_drop_type('keeper', force => true);
DROP SCHEMA ask_test CASCADE;
DROP ROLE regress_shard_stranger;
