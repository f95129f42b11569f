--
-- A type that is stopped and started again in the middle of a turn goes on:
-- what was put aside meanwhile is handled, in order.
--
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS shard;
RESET client_min_messages;
CREATE SCHEMA resume_test;
SET search_path = resume_test, public;
CREATE FUNCTION recorder(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql
RETURN coalesce(state, '[]') || message;
-- takes its time, and has its worker learn of what has changed: it locks a table that is new to the
-- turn, and sends
CREATE TABLE news (message jsonb) PARTITION BY LIST ((message->>'n'));
SELECT format('CREATE TABLE news_%s PARTITION OF news FOR VALUES IN (%1$L)', n) FROM generate_series(1, 5) n \gexec
CREATE FUNCTION slow(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_sleep(0.02);
    EXECUTE format('INSERT INTO news_%s VALUES ($1)', message->>'n') USING message;
    PERFORM shard_tell('recorder', 'own', message->'round');
    RETURN to_jsonb(coalesce(state::int4, 0) + 1);
END
$$;
SELECT shard_start('recorder', 'recorder'), shard_start('slow', 'slow');

-- until a worker is in the midst of that
CREATE FUNCTION wait_for_sleep() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    FOR i IN 1 .. 1000 LOOP
        EXIT WHEN EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'shard region' AND wait_event = 'PgSleep');
        PERFORM pg_sleep(0.002), pg_stat_clear_snapshot();
    END LOOP;
END
$$;

-- In each round messages are put aside while the type is stopped, and it is started in a turn of
-- 100 ms that has messages of both.
CREATE PROCEDURE stop_and_start(rounds int) LANGUAGE plpgsql AS $$
BEGIN
    FOR round IN 1 .. rounds LOOP
        PERFORM public.shard_stop_type('recorder');
        COMMIT;
        PERFORM public.shard_tell('recorder', 'e' || n, to_jsonb(round)) FROM generate_series(1, 5) n;
        COMMIT;
        PERFORM public.shard_drain('10 s');
        COMMIT;
        FOR n IN 1 .. 5 LOOP
            PERFORM public.shard_tell('slow', 'a', jsonb_build_object('n', n, 'round', round));
            PERFORM public.shard_tell('recorder', 'e' || n, to_jsonb(round));
        END LOOP;
        COMMIT;
        PERFORM resume_test.wait_for_sleep();
        PERFORM public.shard_start('recorder', 'resume_test.recorder');
        COMMIT;
        EXIT WHEN NOT public.shard_drain('10 s');
        COMMIT;
    END LOOP;
END
$$;
CALL stop_and_start(10);
SELECT shard_drain('10 s');
SELECT count(*), bool_and(state = (SELECT jsonb_agg(i ORDER BY i) FROM generate_series(1, 10) i, generate_series(1, 2))) AS all_in_order
FROM shard_entity.recorder WHERE entity_id <> 'own';
SELECT jsonb_array_length(state) FROM shard_entity.recorder WHERE entity_id = 'own';
SELECT state FROM shard_entity.slow;
SELECT count(*) FROM shard_inbox WHERE type_name IN ('recorder', 'slow');
SELECT shard_ask('recorder', 'e1', '"still here"')->>-1 AS last;

SET client_min_messages = warning;
SELECT shard_drop_type('recorder', force => true), shard_drop_type('slow', force => true);
DROP SCHEMA resume_test CASCADE;
