--
-- What rolls back was never sent; what remains comes in the order of the calls.
--
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS shard;
RESET client_min_messages;
CREATE SCHEMA transactions_test;
SET search_path = transactions_test, public;
-- one that keeps what it is told, and a short way to tell it
CREATE FUNCTION recorder(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql
RETURN coalesce(state, '[]') || jsonb_build_array(message);
CREATE FUNCTION tell(entity text, what int) RETURNS void LANGUAGE sql
AS $$ SELECT public.shard_tell('recorder', entity, to_jsonb(what)) $$;
-- many rows, so that they are written in between, and a long message
CREATE FUNCTION tell_many(entity text, what int) RETURNS int8 LANGUAGE sql
AS $$ SELECT public.shard_tell_many('recorder', array_agg(entity), array_agg(to_jsonb(what))) FROM generate_series(1, 100) $$;
SELECT shard_start('recorder', 'recorder');

-- Rollback, of a transaction and of a statement.
BEGIN;
SELECT tell('rollback', 1);
SELECT tell_many('rollback', 1);
ROLLBACK;
BEGIN;
SELECT tell('rollback', 2);
SELECT 1 / 0;
COMMIT;
SELECT tell('rollback', 3), 1 / (random() < 0)::int;
SELECT tell('rollback', 4);

-- Savepoints: released, rolled back to, twice, nested; before, inside and after.
BEGIN;
SELECT tell('savepoint', 1);
SAVEPOINT a;
SELECT tell('savepoint', -1);
SAVEPOINT b;
SELECT tell('savepoint', -2);
RELEASE b;
SELECT tell_many('savepoint', -3);
ROLLBACK TO a;
SELECT tell('savepoint', 2);
SAVEPOINT b;
SELECT tell('savepoint', 3);
SAVEPOINT c;
SELECT tell('savepoint', -4);
ROLLBACK TO c;
SELECT tell('savepoint', 4);
RELEASE b;
SELECT tell('savepoint', 5);
SAVEPOINT d;
SELECT tell('savepoint', -5);
ROLLBACK TO d;
SELECT tell('savepoint', 6);
COMMIT;
BEGIN;
SAVEPOINT a;
SELECT tell('savepoint', -6);
SAVEPOINT b;
SELECT tell('savepoint', -7);
RELEASE b;
ROLLBACK TO a;
SELECT tell('savepoint', 7);
COMMIT;

-- The same with so many that parts of them are in the log already when the savepoint ends, and
-- with other levels' behind them that are not.
BEGIN;
SELECT tell('many', 0);
SAVEPOINT a;
SELECT tell_many('many', 1);
SAVEPOINT b;
SELECT tell_many('many', -1);
SELECT tell_many('many', -2);
ROLLBACK TO b;
SELECT tell_many('many', 2);
SAVEPOINT c;
SELECT tell_many('many', 3);
RELEASE a;
SELECT tell_many('many', 4);
SAVEPOINT a;
SELECT tell_many('many', -4);
ROLLBACK TO a;
COMMIT;

-- A savepoint that fails inside.
BEGIN;
SELECT tell('failed savepoint', 1);
SAVEPOINT a;
SELECT tell('failed savepoint', -1);
SELECT shard_tell('recorder', '', '1');
ROLLBACK TO a;
SELECT tell('failed savepoint', 2);
COMMIT;

-- Exception blocks, one in the other, in a loop; with tells before, inside, in the handler, after.
DO $$
BEGIN
    PERFORM transactions_test.tell('block', 1);
    BEGIN
        PERFORM transactions_test.tell('block', -1);
        RAISE EXCEPTION 'x';
    EXCEPTION WHEN raise_exception THEN
        PERFORM transactions_test.tell('block', 2);
    END;
    BEGIN
        PERFORM transactions_test.tell('block', 3);
        BEGIN
            PERFORM transactions_test.tell_many('block', -3);
            PERFORM 1 / 0;
        EXCEPTION WHEN division_by_zero THEN
            PERFORM transactions_test.tell('block', 4);
        END;
        PERFORM transactions_test.tell('block', 5);
    EXCEPTION WHEN raise_exception THEN
        PERFORM transactions_test.tell('block', -4);
    END;
    BEGIN
        PERFORM transactions_test.tell('block', -5);
        BEGIN
            PERFORM transactions_test.tell('block', -6);
        EXCEPTION WHEN raise_exception THEN NULL;
        END;
        RAISE EXCEPTION 'x';
    EXCEPTION WHEN raise_exception THEN NULL;
    END;
    PERFORM transactions_test.tell('block', 6);
END
$$;
DO $$
BEGIN
    FOR i IN 1 .. 200 LOOP
        PERFORM transactions_test.tell('loop', i);
        BEGIN
            PERFORM transactions_test.tell('loop', i * 1000);
            IF i % 3 = 0 THEN
                RAISE EXCEPTION 'x';
            END IF;
        EXCEPTION WHEN raise_exception THEN NULL;
        END;
    END LOOP;
END
$$;

-- Long messages, cut in parts, inside and behind a savepoint that rolls back.
BEGIN;
SELECT shard_tell('recorder', 'long', to_jsonb(repeat(md5('1'), 3000)));
SAVEPOINT a;
SELECT shard_tell('recorder', 'long', to_jsonb((SELECT string_agg(md5(i::text), '') FROM generate_series(1, 3000) i)));
ROLLBACK TO a;
SELECT shard_tell('recorder', 'long', to_jsonb((SELECT string_agg(md5(i::text), '') FROM generate_series(3000, 1, -1) i)));
COMMIT;

-- Procedures that commit and roll back in between.
CREATE PROCEDURE steps() LANGUAGE plpgsql AS $$
BEGIN
    FOR i IN 1 .. 6 LOOP
        PERFORM transactions_test.tell('procedure', i);
        IF i % 2 = 0 THEN
            COMMIT;
        ELSIF i = 3 THEN
            ROLLBACK;
        END IF;
    END LOOP;
END
$$;
CALL steps();

SELECT shard_drain();
SELECT entity_id, state FROM shard_entity.recorder
WHERE entity_id IN ('rollback', 'savepoint', 'failed savepoint', 'block', 'procedure') ORDER BY 1;
SELECT state = '[0]' || (SELECT jsonb_agg(w ORDER BY w) FROM generate_series(1, 4) w, generate_series(1, 100)) AS many
FROM shard_entity.recorder WHERE entity_id = 'many';
SELECT state = (SELECT jsonb_agg(w ORDER BY i, w) FROM generate_series(1, 200) i, LATERAL (VALUES (i), (i * 1000)) v (w)
                WHERE w < 1000 OR i % 3 <> 0) AS loop
FROM shard_entity.recorder WHERE entity_id = 'loop';
SELECT jsonb_array_length(state) AS messages, state->>0 = repeat(md5('1'), 3000) AS first,
       state->>1 = (SELECT string_agg(md5(i::text), '') FROM generate_series(3000, 1, -1) i) AS second
FROM shard_entity.recorder WHERE entity_id = 'long';

-- Prepared: sent at COMMIT PREPARED, from whatever session, and not at all at ROLLBACK PREPARED.
BEGIN;
SELECT tell('prepared', 1);
SAVEPOINT a;
SELECT tell('prepared', -1);
ROLLBACK TO a;
SELECT tell_many('prepared', 2);
PREPARE TRANSACTION 'regress_shard_kept';
BEGIN;
SELECT tell('prepared', -2);
PREPARE TRANSACTION 'regress_shard_dropped';
-- others are not held up, also to the same entity: it is not sent yet
SELECT tell('prepared', 0);
SELECT shard_drain();
SELECT state FROM shard_entity.recorder WHERE entity_id = 'prepared';
ROLLBACK PREPARED 'regress_shard_dropped';
\c -
SET search_path = transactions_test, public;
COMMIT PREPARED 'regress_shard_kept';
SELECT tell('prepared', 3);
SELECT shard_drain();
SELECT jsonb_array_length(state) AS messages, state->0 AS zero, state->1 AS one, state->2 AS two, state->102 AS three
FROM shard_entity.recorder WHERE entity_id = 'prepared';

SET client_min_messages = warning;
SELECT shard_drop_type('recorder', force => true);
DROP SCHEMA transactions_test CASCADE;
