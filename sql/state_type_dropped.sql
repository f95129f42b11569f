--
-- The type of a state is dropped while messages wait: that ends the handling
-- of this entity type only, also in a worker that has just started.
--
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS shard;
RESET client_min_messages;
CREATE SCHEMA dropped_test;
SET search_path = dropped_test, public;
CREATE FUNCTION bystander(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN message;
SELECT shard_start('bystander', 'bystander');
CREATE TYPE pair AS (a int, b text);
CREATE TYPE mood AS ENUM ('sad', 'happy');
CREATE FUNCTION pairs(state pair, message jsonb) RETURNS pair LANGUAGE sql RETURN (1, 'x')::pair;
CREATE FUNCTION moods(state mood, message jsonb) RETURNS mood LANGUAGE sql RETURN 'sad'::mood;
CREATE FUNCTION waiting() RETURNS TABLE (type_name text, entities text) LANGUAGE sql
AS $$ SELECT type_name, string_agg(entity_id, ' ' ORDER BY entity_id) FROM public.shard_inbox GROUP BY 1 ORDER BY 1 $$;
SELECT shard_start('pairs', 'pairs'), shard_start('moods', 'moods');
SELECT count(shard_tell(t, 'a', '1')) FROM unnest('{pairs,moods}'::text[]) t;
SELECT shard_drain();

-- Two that the worker knows, one of which is stopped, and one that it has never seen; with messages
-- from before and after.
CREATE TYPE unseen AS (a int);
CREATE FUNCTION unseen(state unseen, message jsonb) RETURNS unseen LANGUAGE sql RETURN ROW(1)::unseen;
SELECT shard_start('unseen', 'unseen');
SELECT shard_stop_type('moods');
SELECT shard_tell('moods', 'a', '1');
SELECT shard_drain();
SET client_min_messages = warning;
DROP TYPE pair, mood, unseen CASCADE;
RESET client_min_messages;
SELECT count(shard_tell(t, 'b', '2')) FROM unnest('{pairs,moods,unseen}'::text[]) t;
SELECT shard_tell('bystander', 'a', '"told"');
SELECT shard_ask('bystander', 'b', '"asked"');
SELECT state FROM shard_entity.bystander ORDER BY entity_id;
SELECT * FROM waiting();
SELECT type_name, problem IS NOT NULL AS has_problem FROM shard_types WHERE type_name IN ('pairs', 'moods', 'unseen') ORDER BY 1;
SELECT shard_ask('pairs', 'a', '3');

-- A new worker.
CREATE PROCEDURE new_workers() LANGUAGE plpgsql AS $$
DECLARE
    old int[] := (SELECT array_agg(pid) FROM public.shard_stat_workers WHERE pid IS NOT NULL);
BEGIN
    PERFORM pg_terminate_backend(pid) FROM unnest(old) pid;
    FOR i IN 1 .. 1500 LOOP
        EXIT WHEN NOT EXISTS (SELECT FROM public.shard_stat_workers WHERE pid IS NULL OR pid = ANY (old));
        PERFORM pg_sleep(0.02);
    END LOOP;
END
$$;
CALL new_workers();
SELECT shard_tell('pairs', 'c', '4');
SELECT shard_tell('bystander', 'a', '"told again"');
SELECT shard_ask('bystander', 'b', '"asked again"', '30 s');
SELECT state FROM shard_entity.bystander ORDER BY entity_id;
SELECT * FROM waiting();

-- Nothing is left of them when they are dropped.
SET client_min_messages = warning;
SELECT count(shard_drop_type(t, force => true)) FROM unnest('{pairs,moods,unseen}'::text[]) t;
SELECT shard_drain();
SELECT * FROM waiting();
SELECT shard_ask('bystander', 'b', '"runs"');

SELECT shard_drop_type('bystander', force => true);
-- What came to the worker after the drop only, was given up.
DELETE FROM shard.dead_letter;
DROP SCHEMA dropped_test CASCADE;
