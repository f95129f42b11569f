--
-- shard_try runs a handler in the caller's transaction and keeps nothing of it.
--
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS shard;
RESET client_min_messages;
CREATE SCHEMA trial_test;
SET search_path = trial_test, public;
CREATE TABLE diary (who text, what text);
CREATE FUNCTION tried(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    step jsonb;
BEGIN
    state := coalesce(state, '[]');
    FOR step IN SELECT * FROM jsonb_array_elements(message) LOOP
        CASE step->>'do'
            WHEN 'note' THEN state := state || (step->'note');
            WHEN 'who' THEN state := state || (SELECT jsonb_build_array(s.type_name, s.entity_id, f.entity_id,
                    current_setting('search_path')) FROM shard_self() s, shard_sender() f);
            WHEN 'id' THEN state := state || to_jsonb(shard_message_id());
            WHEN 'write' THEN INSERT INTO trial_test.diary VALUES ('handler', step->>'what');
            WHEN 'count' THEN state := state || to_jsonb((SELECT count(*) FROM trial_test.diary));
            WHEN 'tell' THEN PERFORM shard_tell(coalesce(step->>'type', 'tried'), step->>'to', step->'message');
            WHEN 'command' THEN PERFORM shard_start_entity('tried', step->>'to'), shard_passivate('tried', step->>'to');
            WHEN 'insert' THEN INSERT INTO shard_inbox (type_name, entity_id, message) VALUES ('tried', step->>'to', step->'message');
            WHEN 'caught' THEN
                BEGIN
                    INSERT INTO trial_test.diary VALUES ('handler', 'undone');
                    PERFORM shard_tell('tried', 'undone', '1');
                    BEGIN
                        PERFORM shard_tell('tried', 'undone, too', '1');
                    EXCEPTION WHEN division_by_zero THEN NULL;
                    END;
                    RAISE EXCEPTION 'x';
                EXCEPTION WHEN raise_exception THEN
                    PERFORM shard_tell('tried', 'from the exception block', '1');
                END;
                BEGIN
                    PERFORM shard_tell('tried', 'from a block', '1');
                EXCEPTION WHEN raise_exception THEN NULL;
                END;
            WHEN 'reply' THEN PERFORM shard_reply(step->'message');
            WHEN 'stop' THEN PERFORM shard_stop(), shard_passivate();
            WHEN 'forget' THEN RETURN NULL;
            WHEN 'fail' THEN RAISE EXCEPTION 'failed on demand' USING ERRCODE = 'P1234', DETAIL = 'a detail', HINT = 'a hint';
            WHEN 'sql' THEN EXECUTE step->>'sql';
        END CASE;
    END LOOP;
    RETURN state;
END
$$;
SELECT shard_start('tried', 'tried');

-- A new entity; one that has a state; one that is forgotten. Nothing is kept.
SELECT * FROM shard_try('tried', 'a', '[{"do": "note", "note": 1}]');
SELECT shard_ask('tried', 'a', '[{"do": "note", "note": "real"}]');
SELECT * FROM shard_try('tried', 'a', '[{"do": "note", "note": 1}]');
SELECT * FROM shard_try('tried', 'a', '[{"do": "forget"}]');
SELECT * FROM shard_try('tried', 'b', '[{"do": "who"}, {"do": "id"}, {"do": "stop"}]');
SELECT shard_drain('30 s');
SELECT entity_id, state FROM shard_entity.tried ORDER BY 1;

-- What it writes and tells, and its reply, in order; in an exception block of its own too.
SELECT * FROM shard_try('tried', 'a', '[{"do": "write", "what": "x"}, {"do": "count"}, {"do": "tell", "to": "b", "message": {"n": [1]}},
    {"do": "insert", "to": "c", "message": "text"}, {"do": "command", "to": "d"}, {"do": "reply", "message": {"ok": true}}]');
SELECT state, told FROM shard_try('tried', 'a', '[{"do": "caught"}, {"do": "count"}]');
SELECT reply IS NULL AS no_reply FROM shard_try('tried', 'a', '[{"do": "reply"}]');
SELECT shard_drain('30 s');
SELECT count(*) FROM diary;
SELECT entity_id, state FROM shard_entity.tried ORDER BY 1;

-- It sees what the caller's transaction has done, the state included.
BEGIN;
INSERT INTO diary VALUES ('caller', 'not committed');
UPDATE shard_entity.tried SET state = '["mine"]' WHERE entity_id = 'a';
SELECT state FROM shard_try('tried', 'a', '[{"do": "count"}]');
SAVEPOINT s;
SELECT state FROM shard_try('tried', 'a', '[{"do": "fail"}]');
ROLLBACK TO s;
SELECT state FROM shard_try('tried', 'a', '[{"do": "count"}]');
ROLLBACK;

-- Its error is the caller's, who may catch it and goes on as himself.
CREATE FUNCTION outcome(message jsonb) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    path text := current_setting('search_path');
BEGIN
    PERFORM public.shard_try('tried', 'a', message);
    RETURN 'no error';
EXCEPTION WHEN OTHERS THEN
    RETURN format('%s: %s, path %s', sqlstate, sqlerrm, CASE WHEN path = current_setting('search_path') THEN 'as before' END);
END
$$;
SELECT outcome('[{"do": "write", "what": "x"}, {"do": "tell", "to": "b", "message": 1}, {"do": "fail"}]'),
       outcome('[{"do": "note", "note": 1}]');
SELECT outcome(m) FROM unnest(ARRAY[
    '[{"do": "sql", "sql": "CREATE TEMP TABLE t ()"}]', '[{"do": "sql", "sql": "SELECT shard_ask(''tried'', ''b'', ''[]'')"}]',
    '[{"do": "sql", "sql": "SELECT shard_drain()"}]', '[{"do": "sql", "sql": "SELECT shard_redrive()"}]',
    '[{"do": "sql", "sql": "SELECT * FROM shard_region_state"}]',
    '[{"do": "sql", "sql": "SELECT shard_try(''tried'', ''b'', ''[]'')"}]', '[{"do": "sql", "sql": "COMMIT"}]',
    '[{"do": "tell", "type": "unknown", "to": "b", "message": 1}]', '[{"do": "reply", "message": 1}, {"do": "reply", "message": 2}]']::jsonb[]) m;
SELECT shard_self();

-- In a worker it is refused.
SELECT shard_ask('tried', 'a', '[{"do": "sql", "sql": "SELECT shard_try(''tried'', ''b'', ''[]'')"}]');

-- Arguments.
SELECT shard_try(NULL, 'a', '1');
SELECT shard_try('tried', NULL, '1');
SELECT shard_try('tried', 'a', NULL);
SELECT shard_try('nothing', 'a', '1');
SELECT shard_try('tried', '', '1');
SELECT shard_alter('tried', 'max_message_size', '100');
SELECT shard_try('tried', 'a', to_jsonb(repeat('x', 200)));
SELECT shard_alter('tried', 'max_message_size', NULL);

-- Other states: composite, scalar, a batch handler, SQL functions inlined or not.
CREATE TYPE account AS (balance numeric, note text);
CREATE FUNCTION account(state account, message jsonb) RETURNS account LANGUAGE sql
RETURN ROW(coalesce((state).balance, 0) + (message->>'amount')::numeric, repeat('x', 3))::account;
SELECT shard_start('trial_account', 'account');
SELECT shard_ask('trial_account', 'a', '{"amount": 5}');
SELECT * FROM shard_try('trial_account', 'a', '{"amount": 2}');
CREATE FUNCTION total(state bigint, messages jsonb[]) RETURNS bigint LANGUAGE sql
RETURN coalesce(state, 0) + (SELECT sum(m::bigint) FROM unnest(messages) m);
SELECT shard_start('trial_total', 'total');
SELECT * FROM shard_try('trial_total', 'a', '7');
CREATE FUNCTION batch(state text[], messages jsonb[]) RETURNS text[] LANGUAGE plpgsql AS $$
BEGIN
    PERFORM public.shard_tell('trial_total', (s).entity_id, to_jsonb(cardinality(messages))) FROM (SELECT public.shard_self() s) s;
    IF messages[1] = '0' THEN
        PERFORM public.shard_reply('1');
    END IF;
    RETURN state || messages[1]::text;
END
$$;
SELECT shard_start('trial_batch', 'batch');
SELECT * FROM shard_try('trial_batch', 'a', '"x"');
SELECT * FROM shard_try('trial_batch', 'a', '0');

-- A stopped type can be tried; one without its handler cannot.
SELECT shard_stop_type('trial_total');
SELECT * FROM shard_try('trial_total', 'a', '7');
DROP FUNCTION total;
SELECT * FROM shard_try('trial_total', 'a', '7');

-- The right to send is needed; the handler runs as the owner. Who is no member of the owner sees
-- what shard_ask would show.
CREATE ROLE regress_shard_owner;
CREATE ROLE regress_shard_other;
GRANT USAGE, CREATE ON SCHEMA trial_test TO regress_shard_owner;
GRANT USAGE ON SCHEMA trial_test TO regress_shard_other;
GRANT CREATE ON DATABASE :"DBNAME" TO regress_shard_owner;
SET ROLE regress_shard_owner;
CREATE TABLE owned (who text);
CREATE FUNCTION owned(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO owned VALUES (current_user);
    PERFORM shard_tell('trial_owned', 'b', '"secret"');
    IF message = '1' THEN
        PERFORM shard_reply('"replied"');
    END IF;
    RETURN to_jsonb((SELECT o.who FROM owned o));
END
$$;
REVOKE EXECUTE ON FUNCTION owned FROM PUBLIC;
SELECT shard_start('trial_owned', 'owned');
SELECT * FROM shard_try('trial_owned', 'a', '1');
SET ROLE regress_shard_other;
SELECT * FROM shard_try('trial_owned', 'a', '1');
RESET ROLE;
GRANT EXECUTE ON FUNCTION owned TO regress_shard_other;
SET ROLE regress_shard_other;
SELECT * FROM shard_try('trial_owned', 'a', '0');
SELECT * FROM shard_try('trial_owned', 'a', '1');
SELECT current_user;
RESET ROLE;

-- Nothing stays in the session.
SELECT count(*) FROM pg_backend_memory_contexts WHERE name = 'shard state types';

SET client_min_messages = warning;
SELECT shard_drain('30 s');
SELECT shard_drop_type(t, true) FROM unnest(ARRAY['tried', 'trial_account', 'trial_total', 'trial_batch', 'trial_owned']) t;
DROP SCHEMA trial_test CASCADE;
DROP OWNED BY regress_shard_owner, regress_shard_other;
DROP ROLE regress_shard_owner, regress_shard_other;
