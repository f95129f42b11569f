--
-- Requests: an entity asks another one, and the answer, or that there was none in time, comes to it as a message.
--
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS shard;
RESET client_min_messages;
CREATE ROLE regress_shard_requester;
CREATE ROLE regress_shard_stranger;
CREATE SCHEMA request_test;
GRANT CREATE ON DATABASE :"DBNAME" TO regress_shard_requester, regress_shard_stranger;
GRANT USAGE, CREATE ON SCHEMA request_test TO regress_shard_requester, regress_shard_stranger;
SET search_path = request_test, public;
\set SHOW_CONTEXT never

-- Who is asked: replies at once, later, with nothing, with its state, or fails.
CREATE FUNCTION oracle(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    IF NOT message ? 'do' THEN
        RETURN state;
    END IF;
    CASE message->>'do'
        WHEN 'reply' THEN PERFORM shard_reply(message->'with');
        WHEN 'reply null' THEN PERFORM shard_reply(NULL);
        WHEN 'reply twice' THEN PERFORM shard_reply('1'); PERFORM shard_reply('2');
        WHEN 'keep' THEN RETURN jsonb_build_object('token', shard_defer_reply());
        WHEN 'answer' THEN
            PERFORM shard_reply((state->>'token')::bytea, message->'with');
            IF message ? 'again' THEN
                PERFORM shard_reply((state->>'token')::bytea, message->'again');
            END IF;
        WHEN 'fail' THEN RAISE EXCEPTION 'out of patience' USING ERRCODE = 'P0042';
        WHEN 'who' THEN PERFORM shard_reply(to_jsonb(shard_sender()));
        WHEN 'forget' THEN RETURN NULL;
        ELSE NULL;
    END CASE;
    RETURN coalesce(state, '{}') || jsonb_build_object('asked', coalesce((state->>'asked')::int, 0) + 1);
END
$$;

-- Who asks, and keeps all that comes.
CREATE TABLE heard (n serial, entity text, response text, message jsonb, request text, known boolean, timer text, sender text);
CREATE FUNCTION seeker(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    me text := (shard_self()).entity_id;
    id text;
BEGIN
    CASE message->>'response'
        WHEN 'reply', 'error', 'timeout' THEN
            INSERT INTO request_test.heard (entity, response, message, request, known, timer, sender)
            VALUES (me, message->>'response', message - 'request', shard_response(), shard_response() = message->>'request'
                AND state->'open' ? shard_response(), (shard_timer()).name, (shard_sender()).entity_id);
            IF message->'with' ? 'then fail' THEN
                RAISE EXCEPTION 'did not want to know';
            END IF;
            IF message->'with' ? 'then thank' THEN
                PERFORM shard_reply('{"do": "thanked"}');
            END IF;
        ELSE
            IF NOT message ? 'of' AND message->>'do' IS DISTINCT FROM 'look' THEN
                RETURN state;
            ELSIF message->>'do' = 'look' THEN
                PERFORM shard_reply(to_jsonb(shard_response()));
                RETURN state;
            END IF;
            BEGIN
                IF message ? 'undo' THEN
                    PERFORM shard_request('oracle', 'undone', '{}', '10 ms');
                    RAISE EXCEPTION 'undone';
                END IF;
            EXCEPTION WHEN raise_exception THEN
                NULL;
            END;
            id := shard_request(coalesce(message->>'type', 'oracle'), message->>'of', message->'ask',
                coalesce((message->>'timeout')::interval, '1 min'), message->'with');
            IF message ? 'raise' THEN
                RAISE EXCEPTION 'changed its mind';
            END IF;
            IF message ? 'stop' THEN
                PERFORM shard_stop();
                RETURN NULL;
            END IF;
    END CASE;
    RETURN jsonb_build_object('open', coalesce(state->'open', '[]') || coalesce(to_jsonb(id), '[]'));
END
$$;
SELECT shard_start('oracle', 'oracle');
SELECT shard_start('seeker', 'seeker', max_attempts => 1);

CREATE VIEW told AS SELECT entity, response, message - 'response' AS message, known, timer, sender, length(request) AS length FROM heard ORDER BY entity, n;
CREATE FUNCTION seek(of text, ask jsonb, more jsonb DEFAULT '{}') RETURNS void LANGUAGE sql AS $$
    SELECT shard_tell('seeker', 's', jsonb_build_object('of', of, 'ask', ask) || more)
$$;
CREATE FUNCTION settle() RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    FOR i IN 1 .. 4 LOOP
        PERFORM shard_drain();
    END LOOP;
    RETURN true;
END
$$;

CREATE FUNCTION is_told() RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    FOR i IN 1 .. 1500 LOOP
        IF EXISTS (SELECT FROM request_test.heard) THEN
            RETURN true;
        END IF;
        PERFORM pg_sleep(0.02);
    END LOOP;
    RETURN false;
END
$$;
SELECT sum(void_replies) AS before FROM shard_stat_workers \gset

-- The answer is the reply, or else the new state, as of an ask; and says for what it is.
SELECT seek('a', '{"do": "reply", "with": {"price": 12}}', '{"with": {"step": "hotel"}}');
SELECT seek('a', '{"do": "count"}', '{"with": [1]}');
SELECT seek('a', '{"do": "reply null"}', '{"with": "text"}');
SELECT seek('a', '{"do": "forget"}', '{"with": null}');
SELECT seek('a', '{"do": "who"}');
SELECT settle();
SELECT * FROM told;
SELECT count(DISTINCT request) FROM heard;
TRUNCATE heard;

-- An open request is a timer of who has made it; its answer ends it.
SELECT seek('b', '{"do": "keep"}', '{"with": {"step": 1}}');
SELECT settle();
SELECT entity_id, name ~ '^request:[0-9a-f]{32}$' AS named, due > now() + interval '50 s' AS later, every, message - 'request' AS message, fired, missed
FROM shard_timers WHERE type_name = 'seeker';
SELECT 'request:' || (state->'open'->>-1) = (SELECT name FROM shard_timers WHERE type_name = 'seeker') AS id_is_the_name
FROM shard_entity.seeker WHERE entity_id = 's';
SELECT shard_cancel('seeker', 's', name) FROM shard_timers WHERE type_name = 'seeker';
SELECT shard_schedule('seeker', 's', '{}', after => '1 s', name => 'request:');
SELECT count(*) FROM heard;
SELECT shard_tell('oracle', 'b', '{"do": "answer", "with": "later", "again": "too often"}');
SELECT settle();
SELECT * FROM told;
SELECT count(*) FROM shard_timers WHERE type_name = 'seeker';
SELECT sum(void_replies) - :before AS void FROM shard_stat_workers;
TRUNCATE heard;

-- Answered by a session, which is nobody.
SELECT seek('c', '{"do": "keep"}');
SELECT settle();
SELECT shard_reply((state->>'token')::bytea, '"by hand"') FROM shard_entity.oracle WHERE entity_id = 'c';
SELECT settle();
SELECT * FROM told;
TRUNCATE heard;

-- No answer in time: that is the message, and what comes later finds nobody.
SELECT seek('d', '{"do": "keep"}', '{"timeout": "10 ms", "with": {"step": "flight"}}');
SELECT settle();
SELECT is_told();
SELECT shard_tell('oracle', 'd', '{"do": "answer", "with": "too late"}');
SELECT settle();
SELECT * FROM told;
SELECT sum(void_replies) - :before AS void FROM shard_stat_workers;
TRUNCATE heard;

-- Who is asked fails: its error is the answer, when it has given up. The message is a dead letter, sent again as a tell.
SELECT seek('e', '{"do": "fail"}', '{"with": {"step": "pay"}}');
SELECT seek('e', '{"do": "reply twice"}');
SELECT settle();
SELECT * FROM told;
SELECT type_name, entity_id, message, sqlstate, error FROM shard_dead_letters ORDER BY id;
SELECT shard_redrive(type_name => 'oracle');
SELECT settle();
SELECT type_name, entity_id, message, sqlstate, error FROM shard_dead_letters ORDER BY id;
DELETE FROM shard.dead_letter;
TRUNCATE heard;

-- Who asks fails with the answer: that is over, as of any message that fails.
SELECT seek('f', '{"do": "reply", "with": 1}', '{"with": {"then fail": true}}');
SELECT settle();
SELECT * FROM told;
SELECT type_name, entity_id, message - 'request' AS message, sqlstate, error FROM shard_dead_letters ORDER BY id;
SELECT count(*) FROM shard_timers WHERE type_name = 'seeker';
DELETE FROM shard.dead_letter;

-- A handler that fails, or a part of it that is undone, has asked nobody.
SELECT seek('g', '{"do": "count"}', '{"raise": true}');
SELECT seek('h', '{"do": "count"}', '{"undo": true}');
SELECT settle();
SELECT * FROM told;
SELECT entity_id FROM shard_entity.oracle WHERE entity_id IN ('g', 'h', 'undone') ORDER BY 1;
SELECT count(*) FROM shard_timers WHERE type_name = 'seeker';
DELETE FROM shard.dead_letter;
TRUNCATE heard;

-- An entity that has ended hears the answer in its next life; one may ask itself, and thank.
SELECT shard_tell('seeker', 't', '{"of": "i", "ask": {"do": "keep"}, "stop": true}');
SELECT settle();
SELECT count(*) FROM shard_entity.seeker WHERE entity_id = 't';
SELECT shard_tell('oracle', 'i', '{"do": "answer", "with": "hello again"}');
SELECT shard_tell('seeker', 'u', '{"type": "seeker", "of": "u", "ask": {"do": "look"}, "with": {"then thank": 1}}');
SELECT settle();
SELECT * FROM told;
TRUNCATE heard;

-- What looks like an answer and is none.
SELECT shard_tell('seeker', 's', '{"response": "reply", "request": "0", "reply": "forged"}');
SELECT settle();
SELECT entity, response, message, request, timer FROM heard;
SELECT shard_ask('seeker', 's', '{"do": "look"}');
TRUNCATE heard;

-- Asked to ask, by a session.
SELECT shard_ask('seeker', 'v', '{"of": "v", "ask": {"do": "reply", "with": "by way of an ask"}}') IS NOT NULL AS asked;
SELECT settle();
SELECT * FROM told;
TRUNCATE heard;

-- Batch handlers ask, and are asked; requests have no number.
CREATE FUNCTION crowd(state jsonb, messages jsonb[]) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    m jsonb;
BEGIN
    FOREACH m IN ARRAY messages LOOP
        IF m ? 'ask' THEN
            PERFORM shard_request('crowd', m->>'ask', '{"one": 1}', reply_with => '"crowd"');
        ELSIF m ? 'call' THEN
            PERFORM shard_response();
        END IF;
    END LOOP;
    RETURN coalesce(state, '[]') || to_jsonb(array(SELECT x - 'request' FROM unnest(messages) x));
END
$$;
SELECT shard_start('crowd', 'crowd', max_attempts => 1);
SELECT shard_tell_many('crowd', '{a,b,a}', ARRAY['{"ask": "b"}', '{"told": 1}', '{"ask": "b"}']::jsonb[]);
SELECT settle();
SELECT entity_id, jsonb_pretty(state) FROM shard_entity.crowd ORDER BY 1;
SELECT shard_tell('crowd', 'c', '{"call": 1}');
SELECT shard_drain();
SELECT sqlstate, error, detail FROM shard_dead_letters;
DELETE FROM shard.dead_letter;
CREATE FUNCTION numbered(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN coalesce(state, '[]') || message;
CREATE FUNCTION number_of(message jsonb) RETURNS int8 LANGUAGE sql RETURN (message->>'n')::int8;
SELECT shard_start('numbered', 'numbered', ordered_by => 'number_of', ordered_from => 1);
SELECT seek('x', '{"n": 7}', '{"type": "numbered"}');
SELECT settle();
SELECT * FROM told;
TRUNCATE heard;

-- On trial nothing is asked.
SELECT told FROM shard_try('seeker', 's', '{"of": "w", "ask": {"do": "count"}}');
SELECT reply, told FROM shard_try('seeker', 's', '{"do": "look"}');
SELECT count(*) FROM shard_timers WHERE type_name = 'seeker';

-- Bad input.
SELECT shard_request('oracle', 'a', '{}');
SELECT shard_response();
CREATE FUNCTION tries(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    said text := 'nothing';
    about text;
    advice text;
BEGIN
    EXECUTE message->>'sql';
    RETURN to_jsonb(said);
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS said = MESSAGE_TEXT, about = PG_EXCEPTION_DETAIL, advice = PG_EXCEPTION_HINT;
    RETURN jsonb_build_array(SQLSTATE, said, nullif(about, ''), nullif(advice, ''));
END
$$;
SELECT shard_start('tries', 'tries', max_message_size => 1000);
SELECT shard_start('small', 'tries', max_message_size => 100);
CREATE FUNCTION try(call text) RETURNS jsonb LANGUAGE sql
RETURN shard_ask('tries', 'a', jsonb_build_object('sql', 'SELECT shard_request(' || call || ')'));
SELECT try($$NULL, 'a', '{}'$$);
SELECT try($$'oracle', NULL, '{}'$$);
SELECT try($$'oracle', '', '{}'$$);
SELECT try($$'oracle', repeat('x', 256), '{}'$$);
SELECT try($$'oracle', 'a', NULL$$);
SELECT try($$'nothing', 'a', '{}'$$);
SELECT try($$'oracle', 'a', '{}', NULL$$);
SELECT try($$'oracle', 'a', '{}', '0'$$);
SELECT try($$'oracle', 'a', '{}', '-1 s'$$);
SELECT try($$'oracle', 'a', '{}', '9.999 ms'$$);
SELECT try($$'oracle', 'a', '{}', '300000 years'$$);
SELECT try($$'oracle', 'a', '{}', '178000000 years'$$);
SELECT try($$'small', 'a', to_jsonb(repeat('x', 101))$$);
SELECT try($$'oracle', 'a', '{}', reply_with => to_jsonb((SELECT string_agg(md5(i::text), '') FROM generate_series(1, 100) i))$$);
SELECT count(*) FROM shard_timers WHERE type_name = 'tries';

-- Rights are those of a tell, for whom is asked. To answer in the handler needs none; with a token, those of a tell.
SET ROLE regress_shard_requester;
CREATE FUNCTION stranger(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    IF message ? 'ask' THEN
        PERFORM shard_request('private', 'x', message->'ask');
        RETURN state;
    END IF;
    RETURN message - 'request';
END
$$;
RESET ROLE;
SET ROLE regress_shard_stranger;
CREATE FUNCTION private(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    IF message ? 'keep' THEN
        RETURN jsonb_build_object('token', shard_defer_reply());
    END IF;
    IF message ? 'answer' THEN
        PERFORM shard_reply((state->>'token')::bytea, '"answered"');
    ELSE
        PERFORM shard_reply(message);
    END IF;
    RETURN state;
END
$$;
RESET ROLE;
REVOKE EXECUTE ON FUNCTION stranger(jsonb, jsonb), private(jsonb, jsonb) FROM PUBLIC;
SET ROLE regress_shard_requester;
SELECT shard_start('stranger', 'stranger', max_attempts => 1);
SET ROLE regress_shard_stranger;
SELECT shard_start('private', 'private', max_attempts => 1);
RESET ROLE;
SELECT shard_tell('stranger', 'r', '{"ask": 1}');
SELECT settle();
SELECT type_name, sqlstate, error FROM shard_dead_letters;
DELETE FROM shard.dead_letter;
GRANT EXECUTE ON FUNCTION private(jsonb, jsonb) TO regress_shard_requester;
SELECT shard_tell('stranger', 'r', '{"ask": 2}');
SELECT settle();
SELECT state FROM shard_entity.stranger;
SELECT shard_tell('stranger', 'r', '{"ask": {"keep": 1}}');
SELECT settle();
SELECT shard_tell('private', 'x', '{"answer": 1}');
SELECT settle();
SELECT type_name, sqlstate, error FROM shard_dead_letters;
DELETE FROM shard.dead_letter;
GRANT EXECUTE ON FUNCTION stranger(jsonb, jsonb) TO regress_shard_stranger;
SELECT shard_tell('private', 'x', '{"answer": 1}');
SELECT settle();
SELECT state FROM shard_entity.stranger;

-- A reply too large for who has asked is refused where it is given.
SELECT shard_start('modest', 'seeker', max_message_size => 300);
SELECT shard_tell('modest', 'm', '{"of": "m", "ask": {"do": "reply", "with": "0123456789012345678901234567890123456789012345678901234567890123456789"}}');
SELECT settle();
SELECT * FROM told;
TRUNCATE heard;
SELECT shard_start('verbose', 'oracle', max_attempts => 1);
CREATE OR REPLACE FUNCTION oracle(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    PERFORM shard_reply(to_jsonb(repeat('x', 301)));
    RETURN state;
END
$$;
SELECT shard_tell('modest', 'm', '{"type": "verbose", "of": "m", "ask": 1}');
SELECT settle();
SELECT * FROM told;
TRUNCATE heard;
DELETE FROM shard.dead_letter;

-- Whom it asks is dropped while its message waits: the error is the answer. Who asks is dropped: nobody hears it.
SELECT shard_start('gone', 'oracle');
SELECT shard_stop_type('gone');
SELECT seek('q', '{"do": "count"}', '{"type": "gone", "with": {"step": "last"}}');
SELECT settle();
SELECT place, message->'message' AS message FROM shard_inbox WHERE type_name = 'gone';
SELECT shard_drop_type('gone', force => true);
SELECT settle();
SELECT entity, response, message, known FROM told;
TRUNCATE heard;
SELECT seek('last', '{"do": "reply"}', '{"type": "verbose"}');

SET client_min_messages = warning;
SELECT shard_drop_type('seeker', force => true);
SELECT shard_drop_type(t, force => true) FROM unnest('{oracle,crowd,numbered,tries,small,stranger,private,modest,verbose}'::text[]) t;
-- what came too late for the one who asks is a dead letter of no type
SELECT shard_drain();
DELETE FROM shard.dead_letter;
DROP SCHEMA request_test CASCADE;
REVOKE CREATE ON DATABASE :"DBNAME" FROM regress_shard_requester, regress_shard_stranger;
DROP ROLE regress_shard_requester;
DROP ROLE regress_shard_stranger;
RESET client_min_messages;
