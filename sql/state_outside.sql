--
-- What the owner does to state rows by SQL is not overwritten: the next message
-- computes from it, also while the entity is in memory.
--
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS shard;
RESET client_min_messages;
CREATE SCHEMA outside_test;
SET search_path = outside_test, public;
CREATE FUNCTION counter(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql
RETURN to_jsonb(coalesce(state::int, 0) + message::int);
SELECT shard_start('counter', 'counter');
CREATE FUNCTION add(entity text, n int) RETURNS void LANGUAGE sql
AS $$ SELECT public.shard_tell('counter', entity, to_jsonb(n)) $$;
CREATE VIEW counters AS SELECT entity_id, state FROM shard_entity.counter ORDER BY 1;

-- UPDATE, DELETE, INSERT, of entities that are in memory, and of one that is not.
SELECT add(e, 1) FROM unnest('{updated,deleted,deleted2,back,unused}'::text[]) e;
SELECT shard_drain();
SELECT count(*) FROM shard_region_state WHERE type_name = 'counter';
UPDATE shard_entity.counter SET state = '100' WHERE entity_id = 'updated';
DELETE FROM shard_entity.counter WHERE entity_id IN ('deleted', 'deleted2');
INSERT INTO shard_entity.counter (shard, entity_id, state) SELECT shard_shard_id('counter', 'inserted'), 'inserted', '50';
SELECT shard_ask('counter', 'updated', '0'), shard_ask('counter', 'deleted', '7'), shard_ask('counter', 'inserted', '1');
SELECT add('updated', 1), add('deleted', 1), add('inserted', 1), add('deleted2', 5);
SELECT shard_drain();
SELECT * FROM counters;
-- removed, and made anew at another place of the table
BEGIN;
DELETE FROM shard_entity.counter WHERE entity_id = 'back';
INSERT INTO shard_entity.counter (shard, entity_id, state) SELECT shard_shard_id('counter', 'back'), 'back', '1000';
COMMIT;
SELECT add('back', 1);
SELECT shard_drain();
SELECT * FROM counters WHERE entity_id = 'back';

-- A change that is rolled back is none; one in a savepoint that is, neither.
BEGIN;
UPDATE shard_entity.counter SET state = '-1' WHERE entity_id = 'updated';
ROLLBACK;
BEGIN;
SAVEPOINT a;
DELETE FROM shard_entity.counter WHERE entity_id = 'updated';
ROLLBACK TO a;
COMMIT;
SELECT add('updated', 1);
SELECT shard_drain();
SELECT * FROM counters WHERE entity_id = 'updated';

-- A row lock alone changes nothing.
BEGIN;
SELECT state FROM shard_entity.counter WHERE entity_id = 'updated' FOR UPDATE;
COMMIT;
SELECT state FROM shard_entity.counter WHERE entity_id = 'updated' FOR KEY SHARE;
SELECT add('updated', 1);
SELECT shard_drain();
SELECT * FROM counters WHERE entity_id = 'updated';

-- Tables that are rewritten or emptied: rows are at other places, or gone.
SELECT count(add('many' || i, i)) FROM generate_series(1, 500) i;
SELECT shard_drain();
VACUUM FULL shard_entity.counter;
SELECT count(add('many' || i, 1)) FROM generate_series(1, 500) i;
SELECT shard_drain();
CLUSTER shard_entity.counter USING counter_pkey;
DELETE FROM shard_entity.counter WHERE entity_id ~ '^many.*[05]$';
VACUUM shard_entity.counter;
INSERT INTO shard_entity.counter (shard, entity_id, state) SELECT 1, 'stranger' || i, '0' FROM generate_series(1, 200) i;
SELECT count(add('many' || i, 1)) FROM generate_series(1, 500) i;
SELECT shard_drain();
SELECT count(*), sum(state::int) = 100 + (SELECT sum(i + 2) FROM generate_series(1, 500) i WHERE i % 5 <> 0) AS right_sum
FROM counters WHERE entity_id ~ '^many';
SELECT count(*) FILTER (WHERE state <> '0') AS touched FROM counters WHERE entity_id ~ '^stranger';
TRUNCATE shard_entity.counter;
SELECT add('updated', 3), add('many1', 4);
SELECT shard_drain();
SELECT * FROM counters;
ALTER TABLE shard_entity.counter SET (fillfactor = 20), ALTER state SET STORAGE EXTERNAL;
SELECT add('updated', 1);
SELECT shard_drain();
SELECT * FROM counters;

-- Changes between many messages, by as many transactions: none is lost, on either side.
DO $$
BEGIN
    FOR i IN 1 .. 100 LOOP
        PERFORM outside_test.add('race', 1);
        COMMIT;
        UPDATE shard_entity.counter SET state = to_jsonb(state::int + 1000) WHERE entity_id = 'race';
        PERFORM set_config('outside_test.updates', (coalesce(nullif(current_setting('outside_test.updates', true), ''), '0')::int + CASE WHEN FOUND THEN 1 ELSE 0 END)::text, false);
        COMMIT;
    END LOOP;
END
$$;
SELECT shard_drain();
SELECT state::int % 1000 AS messages, state::int / 1000 = current_setting('outside_test.updates')::int AS updates
FROM counters WHERE entity_id = 'race';

-- A trigger of the system or its absence makes no difference: replicas of tables write without.
SET session_replication_role = replica;
UPDATE shard_entity.counter SET state = '9' WHERE entity_id = 'updated';
RESET session_replication_role;
SELECT shard_ask('counter', 'updated', '1');

-- No state is lost in a crash: the table stays logged, and health says so if it is not.
ALTER TABLE shard_entity.counter SET (fillfactor = 60), SET UNLOGGED;
SELECT relpersistence FROM pg_class WHERE oid = 'shard_entity.counter'::regclass;
CREATE TABLE nobodys (n int);
ALTER TABLE nobodys SET UNLOGGED;
DROP TABLE nobodys;
BEGIN;
UPDATE pg_class SET relpersistence = 'u' WHERE oid = 'shard_entity.counter'::regclass;
SELECT problem FROM shard_health(), unnest(problems) problem WHERE problem ~ 'unlogged';
ROLLBACK;

DROP VIEW counters;
SET client_min_messages = warning;
SELECT shard_drop_type('counter', force => true);
DROP SCHEMA outside_test CASCADE;
