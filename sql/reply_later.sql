--
-- Replies that come later: tokens, who may reply with them, and what finds nobody.
--
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS shard;
RESET client_min_messages;
CREATE ROLE regress_shard_answerer;
CREATE SCHEMA later_test;
GRANT USAGE ON SCHEMA later_test TO regress_shard_answerer;
SET search_path = later_test, public;
\set SHOW_CONTEXT never

-- A clerk takes a question, and has it answered later: by itself, by another entity, or not at all.
CREATE FUNCTION clerk(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    token bytea;
BEGIN
    CASE message->>'do'
        WHEN 'answer' THEN
            IF message ? 'late' THEN
                PERFORM shard_reply((message->>'late')::bytea, '"late"');
            END IF;
            PERFORM shard_reply((message->>'token')::bytea, message->'with');
            IF message ? 'twice' THEN
                PERFORM shard_reply((message->>'token')::bytea, message->'twice');
            END IF;
            RETURN jsonb_build_object('answered', message->'with');
        WHEN 'ask me later' THEN
            token := shard_defer_reply();
            PERFORM shard_tell((shard_self()).type_name, coalesce(message->>'of', (shard_self()).entity_id),
                message - 'of' || jsonb_build_object('do', 'answer', 'token', token));
        WHEN 'keep' THEN
            token := shard_defer_reply();
            PERFORM set_config('later_test.same', (shard_defer_reply() = token)::text, false);
        WHEN 'keep, then fail' THEN
            token := shard_defer_reply();
            PERFORM shard_tell('clerk', 'b', jsonb_build_object('do', 'answer', 'token', token, 'with', 'to nobody'));
            RAISE EXCEPTION 'out of patience';
        WHEN 'keep, then reply' THEN
            token := shard_defer_reply();
            PERFORM shard_reply('"now"');
        WHEN 'reply, then keep' THEN
            PERFORM shard_reply('"now"');
            token := shard_defer_reply();
        WHEN 'answer at once' THEN
            PERFORM shard_reply(shard_defer_reply(), '"at once"');
        WHEN 'pass on' THEN
            PERFORM shard_tell('clerk', message->>'to', '{"do": "ask me later", "with": "told back"}');
        WHEN 'told back' THEN
            NULL;
        WHEN 'leave' THEN
            PERFORM shard_passivate(message->'stop');
        ELSE
            NULL;
    END CASE;
    RETURN jsonb_build_object('token', token, 'last', message);
END
$$;
SELECT shard_start('clerk', 'clerk');

-- Answered later by the same entity, by another one, with SQL NULL; a second reply with the token finds nobody.
SELECT shard_ask('clerk', 'a', '{"do": "ask me later", "with": 42}');
SELECT shard_ask('clerk', 'a', '{"do": "ask me later", "with": [1, {"a": null}], "of": "b"}');
SELECT shard_ask('clerk', 'a', '{"do": "ask me later"}') IS NULL AS null_reply;
SELECT shard_ask('clerk', 'a', '{"do": "answer at once"}');
SELECT shard_ask('clerk', 'a', '{"do": "ask me later", "with": "first", "twice": "second"}');
SELECT shard_drain();
SELECT sum(void_replies) AS void, sum(open_asks) AS open FROM shard_stat_workers;

-- A large reply.
SELECT length(shard_ask('clerk', 'a', jsonb_build_object('do', 'ask me later', 'with', repeat('x', 500000))) #>> '{}');

-- The time of the ask goes on, and a reply behind it finds nobody.
SELECT shard_ask('clerk', 'c', '{"do": "keep"}', '100 ms');
\echo :LAST_ERROR_SQLSTATE
SELECT sum(open_asks) AS open FROM shard_stat_workers;
SELECT shard_reply((state->>'token')::bytea, '"too late"') FROM shard_entity.clerk WHERE entity_id = 'c';
SELECT shard_drain();
SELECT sum(void_replies) AS void FROM shard_stat_workers;

-- Nor does the next ask of this session get it, whose slot is the same one.
SELECT shard_ask('clerk', 'c', jsonb_build_object('do', 'ask me later', 'with', 'mine', 'late', state->'token'))
FROM shard_entity.clerk WHERE entity_id = 'c';

-- A handler that fails answers with its error, and what it had sent was not sent.
SELECT shard_ask('clerk', 'd', '{"do": "keep, then fail"}');
SELECT shard_ask('clerk', 'd', '{"do": "keep, then reply"}');
SELECT shard_ask('clerk', 'd', '{"do": "reply, then keep"}');
SELECT count(*) FROM shard_entity.clerk WHERE entity_id = 'd';

-- Told by an entity, the token is its address: the reply is a message. Told by a client, it answers nobody.
SELECT shard_tell('clerk', 'e', '{"do": "pass on", "to": "f"}');
SELECT count(shard_drain()) FROM generate_series(1, 2);
SELECT entity_id, state FROM shard_entity.clerk WHERE entity_id = 'f';
SELECT shard_drain();
SELECT entity_id, state FROM shard_entity.clerk WHERE entity_id = 'e';
SELECT shard_tell('clerk', 'g', '{"do": "ask me later", "with": "whom?"}');
SELECT shard_drain();
SELECT entity_id, state FROM shard_entity.clerk WHERE entity_id = 'g';
SELECT count(*) FROM shard_dead_letters WHERE type_name = 'clerk';

-- Nobody waits for what is replied to a stop message, the entity's own or one of its worker's: no message brings it back.
SELECT shard_tell('clerk', 'i', '{"do": "leave", "stop": {"do": "answer at once", "by": "itself"}}');
SELECT shard_drain(), shard_drain();
SELECT state->'last' AS last, (SELECT count(*) FROM shard_region_state WHERE entity_id = 'i') AS running
FROM shard_entity.clerk WHERE entity_id = 'i';
SELECT shard_start('leaver', 'clerk', stop_message => '{"do": "answer at once", "by": "the worker"}', passivate_idle_after => '10 ms');
SELECT shard_tell('leaver', 'i', '{}');
DO $$
BEGIN
    FOR i IN 1 .. 3000 LOOP
        EXIT WHEN EXISTS (SELECT FROM shard_entity.leaver WHERE state->'last' <> '{}');
        PERFORM pg_sleep(0.01);
        COMMIT;
    END LOOP;
END
$$;
SELECT shard_drain(), shard_drain();
SELECT state->'last' AS last FROM shard_entity.leaver;
SELECT count(*) FROM shard_dead_letters;
SELECT shard_drop_type('leaver', force => true);

-- Rolled back, a reply was never sent.
SELECT shard_ask('clerk', 'h', '{"do": "keep"}', '500 ms');
BEGIN;
SELECT shard_reply((state->>'token')::bytea, '"never"') FROM shard_entity.clerk WHERE entity_id = 'h';
ROLLBACK;
SELECT sum(void_replies) AS void FROM shard_stat_workers;

-- On trial nothing is put off: the reply is shown, to whomever it goes.
SELECT reply, told FROM shard_try('clerk', 'a', '{"do": "answer at once"}');
SELECT reply, told->0->>'entity' AS entity FROM shard_try('clerk', 'new', '{"do": "ask me later", "with": 1}');
SELECT reply, told FROM shard_try('clerk', 'new', (SELECT jsonb_build_object('do', 'answer', 'with', 7, 'token', state->'token')
    FROM shard_entity.clerk WHERE entity_id = 'h'));
SELECT reply, told FROM shard_try('clerk', 'new', (SELECT jsonb_build_object('do', 'answer', 'token', state->'token')
    FROM shard_entity.clerk WHERE entity_id = 'h'));

-- Bad input.
SELECT shard_defer_reply();
SELECT shard_reply(NULL, '1');
SELECT shard_reply('', '1');
SELECT shard_reply('\x00', '1');
SELECT shard_reply('\x0123456789abcdef', '1');
\echo :LAST_ERROR_SQLSTATE
-- (cut, longer, or with one bit changed)
CREATE FUNCTION reply_error(token bytea) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    PERFORM shard_reply(token, '1');
    RETURN 'none';
EXCEPTION WHEN OTHERS THEN
    RETURN SQLSTATE || ' ' || SQLERRM;
END
$$;
SELECT reply_error(substring(token FOR length(token) - 1)) AS cut, reply_error(token || '\x00') AS longer,
       reply_error(token) AS unchanged
FROM (SELECT (state->>'token')::bytea AS token FROM shard_entity.clerk WHERE entity_id = 'h') t;
SELECT reply_error(set_bit(token, bit, 1 - get_bit(token, bit))) AS error, count(*) > 100 AS bits
FROM (SELECT (state->>'token')::bytea AS token FROM shard_entity.clerk WHERE entity_id = 'h') t,
     LATERAL generate_series(0, 8 * length(token) - 1) bit
GROUP BY error;
SELECT shard_reply((state->>'token')::bytea, to_jsonb(repeat('x', 1048577))) FROM shard_entity.clerk WHERE entity_id = 'h';

-- Who may not send to the type may not reply for it; the right is looked at when the reply is sent.
REVOKE EXECUTE ON FUNCTION clerk FROM PUBLIC;
SELECT state->>'token' AS token FROM shard_entity.clerk WHERE entity_id = 'h' \gset
SET ROLE regress_shard_answerer;
SELECT shard_reply(:'token', '1');
RESET ROLE;
GRANT EXECUTE ON FUNCTION clerk TO regress_shard_answerer;
SET ROLE regress_shard_answerer;
SELECT shard_reply(:'token', '1');
BEGIN READ ONLY;
SELECT shard_reply(:'token', '1');
ROLLBACK;
RESET ROLE;

-- Batch handlers have no reply to put off.
CREATE FUNCTION crowd(state jsonb, messages jsonb[]) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    PERFORM shard_defer_reply();
    RETURN state;
END
$$;
SELECT shard_start('crowd', 'crowd');
SELECT shard_ask('crowd', 'a', '{}');

-- With its type a token is of no use.
SELECT shard_drop_type('clerk', force => true);
\set VERBOSITY terse
SELECT shard_reply(:'token', '1');   -- the detail has the type's number
\set VERBOSITY default
\echo :LAST_ERROR_SQLSTATE
SELECT shard_drop_type('crowd', force => true);
SET client_min_messages = warning;
DROP SCHEMA later_test CASCADE;
DROP ROLE regress_shard_answerer;
