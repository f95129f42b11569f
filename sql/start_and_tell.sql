--
-- A type is started and told in one transaction, whose message may be seen
-- before the type is known: it is handled all the same.
--
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS shard;
RESET client_min_messages;
CREATE SCHEMA at_once_test;
SET search_path = at_once_test, public;
CREATE PROCEDURE start_and_tell(types int) LANGUAGE plpgsql AS $$
BEGIN
    FOR i IN 1 .. types LOOP
        EXECUTE format('CREATE FUNCTION handle_%s(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN message', i);
        PERFORM public.shard_start('at once ' || i, 'at_once_test.handle_' || i);
        PERFORM public.shard_tell('at once ' || i, 'a', to_jsonb(i));
        COMMIT;
    END LOOP;
END
$$;
CALL start_and_tell(50);
SELECT shard_drain();
SELECT sum(messages_handled) AS handled FROM shard_region_stats WHERE type_name LIKE 'at once %';
SELECT count(*) FROM shard_dead_letters WHERE type_name LIKE 'at once %' OR type_name IS NULL;
SELECT count(*) FROM shard_inbox;

SET client_min_messages = warning;
SELECT count(shard_drop_type('at once ' || i, force => true)) FROM generate_series(1, 50) i;
DROP SCHEMA at_once_test CASCADE;
