--
-- Limits act in the sending call, which raises: nothing is dropped in silence,
-- and what was accepted always finds room.
--
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS shard;
RESET client_min_messages;
CREATE SCHEMA limits_test;
SET search_path = limits_test, public;
CREATE FUNCTION counter(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql
RETURN to_jsonb(coalesce(state::int, 0) + 1);
SELECT shard_start('counter', 'counter', max_message_size => 1000, buffer_size => 10);

-- max_message_size counts the bytes of the jsonb as stored.
SELECT shard_tell('counter', 'a', to_jsonb(repeat('x', 992)));
SELECT shard_tell('counter', 'a', to_jsonb(repeat('x', 993)));
\echo :LAST_ERROR_SQLSTATE
SELECT shard_tell_many('counter', '{a,a}', ARRAY['1', to_jsonb(repeat('x', 993))]);
SELECT shard_alter('counter', 'max_message_size', '10000');
SELECT shard_tell('counter', 'a', to_jsonb(repeat('x', 9000)));
SELECT shard_drain();
SELECT state FROM shard_entity.counter;

-- buffer_size counts what cannot be handled now, here since the type is stopped. What is sent
-- but not looked at yet does not count, so one transaction can overshoot; it is kept all the same.
SELECT shard_stop_type('counter');
SELECT shard_tell('counter', 'a', '1');
SELECT shard_drain();
SELECT count(shard_tell('counter', 'b', '1')) FROM generate_series(1, 8);
SELECT shard_drain();
SELECT shard_tell('counter', 'c', '1');
SELECT shard_drain();
SELECT shard_tell('counter', 'a', '1');
\echo :LAST_ERROR_SQLSTATE
SELECT shard_tell_many('counter', '{a,b}', '{1,1}');
SELECT shard_tell('counter', 'new', '1');
-- it is a limit of the type, not of others
SELECT shard_start('other', 'counter');
SELECT shard_tell('other', 'a', '1');
-- a larger one lets in more
SELECT shard_alter('counter', 'buffer_size', '15');
SELECT count(shard_tell('counter', 'd', '1')) FROM generate_series(1, 20);
SELECT shard_drain();
SELECT shard_tell('counter', 'd', '1');
SELECT entity_id, count(*), min(place) AS place FROM shard_inbox WHERE type_name = 'counter' GROUP BY 1 ORDER BY 1;
-- and when they are handled there is room again
SELECT shard_start('counter', 'counter', max_message_size => 10000, buffer_size => 15);
SELECT shard_drain();
SELECT shard_tell('counter', 'd', '1');
SELECT shard_drain();
SELECT entity_id, state FROM shard_entity.counter ORDER BY 1;
SELECT state FROM shard_entity.other;

-- shard.inbox_max_size bounds the log; workers and asks are not limited by it.
ALTER SYSTEM SET shard.inbox_max_size = '1MB';
SELECT pg_reload_conf();
-- (until this session has noticed)
\set ECHO none
\o /dev/null
SELECT 'SELECT pg_sleep(0.02) WHERE current_setting(''shard.inbox_max_size'') <> ''1MB''' FROM generate_series(1, 1000) \gexec
\o
\set ECHO all
\set VERBOSITY terse
SELECT count(shard_tell('other', 'big', to_jsonb((SELECT string_agg(md5((i * 100 + n)::text), '') FROM generate_series(1, 100) n))))
FROM generate_series(1, 2000) i;
\echo :LAST_ERROR_SQLSTATE
-- Asks go on; and what is handled, or was rolled back, makes room in due time.
SELECT shard_ask('other', 'a', '1');
CREATE FUNCTION has_room() RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    FOR i IN 1 .. 1000 LOOP
        BEGIN
            PERFORM shard_tell('other', 'a', '1');
            RETURN true;
        EXCEPTION WHEN configuration_limit_exceeded THEN
            PERFORM pg_sleep(0.03);
        END;
    END LOOP;
    RETURN false;
END
$$;
SELECT has_room();
SELECT shard_drain();
SELECT entity_id, state FROM shard_entity.other;
-- What a savepoint keeps back for its end counts, too.
BEGIN;
SELECT shard_tell('other', 'a', '1');
SAVEPOINT s;
SELECT count(shard_tell('other', 'big', to_jsonb((SELECT string_agg(md5((i * 100 + n)::text), '') FROM generate_series(1, 100) n))))
FROM generate_series(1, 2000) i;
ROLLBACK;
ALTER SYSTEM RESET shard.inbox_max_size;
SELECT pg_reload_conf();
\set ECHO none
\o /dev/null
SELECT 'SELECT pg_sleep(0.02) WHERE current_setting(''shard.inbox_max_size'') = ''1MB''' FROM generate_series(1, 1000) \gexec
\o
\set ECHO all

SET client_min_messages = warning;
SELECT shard_drop_type('counter', force => true), shard_drop_type('other', force => true);
DROP SCHEMA limits_test CASCADE;
