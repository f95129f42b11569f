--
-- A type is dropped whose messages wait to be tried again: its entities and
-- their counts go with it, and the worker rests.
--
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS shard;
RESET client_min_messages;
CREATE SCHEMA stashed_test;
SET search_path = stashed_test, public;
CREATE FUNCTION fails(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    RAISE serialization_failure;
END
$$;
CREATE FUNCTION recorder(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql
RETURN coalesce(state, '[]') || message;
-- they are due again half a second later
SELECT shard_start('waiting', 'fails', buffer_size => 10, retry_backoff => '500 ms', max_attempts => 100);
SELECT count(shard_tell('waiting', 'e' || i % 3, to_jsonb(i))) FROM generate_series(1, 10) i;
CREATE FUNCTION is_stashed(messages int) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    FOR i IN 1 .. 1500 LOOP
        IF (SELECT count(*) FROM public.shard_inbox WHERE type_name = 'waiting' AND place = 'stash') = messages THEN
            RETURN true;
        END IF;
        PERFORM pg_sleep(0.02);
    END LOOP;
    RETURN false;
END
$$;
SELECT is_stashed(10);
SELECT max(next_at) AS due FROM shard.held \gset
SELECT count(*), sum(waiting) AS waiting FROM shard_region_state WHERE type_name = 'waiting';
SET client_min_messages = warning;
SELECT shard_drop_type('waiting', force => true);
-- Each worker takes notice with its next turn.
CREATE FUNCTION is_forgotten() RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    FOR i IN 1 .. 1500 LOOP
        IF (SELECT sum(cache_entities) FROM public.shard_stat_workers) = 0 THEN
            RETURN true;
        END IF;
        PERFORM pg_sleep(0.02);
    END LOOP;
    RETURN false;
END
$$;
SELECT is_forgotten();
SELECT count(*) FROM shard_region_state;
SELECT count(*) FROM shard_region_stats WHERE type_name = 'waiting';
SELECT count(*) FROM shard.held;

-- Their time comes, each worker has looked since, and nothing happens.
SELECT sum(turns) AS turns, sum(errors) AS errors FROM shard_stat_workers \gset
SELECT pg_sleep_until(:'due');
SELECT shard_drain();
SELECT sum(turns) - :turns < 5 AS quiet, sum(errors) - :errors AS errors FROM shard_stat_workers;

-- A new type of that name has all the room that it asks for.
SELECT shard_start('waiting', 'recorder', buffer_size => 1);
SELECT shard_tell('waiting', 'e0', '1');
SELECT shard_drain();
SELECT shard_tell('waiting', 'e0', '2');
SELECT shard_drain();
SELECT state FROM shard_entity.waiting;

SELECT shard_drop_type('waiting', force => true);
DELETE FROM shard.dead_letter;
DROP SCHEMA stashed_test CASCADE;
