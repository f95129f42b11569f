--
-- Many messages of one entity wait: each is found by itself when its time has come, without a look at
-- all the others.
--
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS shard;
RESET client_min_messages;
CREATE SCHEMA long_test;
SET search_path = long_test, public;
CREATE FUNCTION patient(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    RETURN coalesce(state, '[]') || message;
END
$$;
SELECT shard_start('patient', 'patient');
SELECT shard_tell('patient', repeat('x', 200), '0');
SELECT shard_drain();

-- Without a handler they wait.
DROP FUNCTION patient;
SELECT count(shard_tell('patient', repeat('x', 200), to_jsonb(i))) FROM generate_series(1, 3000) i;
SELECT shard_drain();
SELECT place, count(*) FROM shard_inbox WHERE type_name = 'patient' GROUP BY place;

-- Blocks of the stash's index that anybody read, and rows that left the stash.
CREATE VIEW work AS
SELECT idx_blks_hit + idx_blks_read AS blocks, n_tup_del AS gone
FROM pg_statio_all_indexes i JOIN pg_stat_all_tables t USING (relid)
WHERE i.schemaname = 'shard' AND i.indexrelname = 'held_pkey';
SELECT * FROM work \gset
CREATE FUNCTION patient(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    RETURN state || message;
END
$$;
SELECT shard_drain('60 s');
CREATE FUNCTION is_told(messages int8) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    -- Workers tell the statistics when they rest.
    FOR i IN 1 .. 1500 LOOP
        PERFORM pg_stat_clear_snapshot();
        IF (SELECT gone FROM long_test.work) >= messages THEN
            RETURN true;
        END IF;
        PERFORM pg_sleep(0.02);
    END LOOP;
    RETURN false;
END
$$;
SELECT is_told(:gone + 3000);
SELECT CASE WHEN blocks - :blocks < 3000 * 20 THEN 'few' ELSE format('%s for 3000 messages', blocks - :blocks) END AS blocks FROM work;
SELECT jsonb_array_length(state) AS messages,
       (SELECT bool_and(m = to_jsonb(i - 1)) FROM jsonb_array_elements(state) WITH ORDINALITY e (m, i)) AS in_order
FROM shard_entity.patient;

SET client_min_messages = warning;
SELECT shard_drop_type('patient', force => true);
DROP SCHEMA long_test CASCADE;
