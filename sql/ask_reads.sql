--
-- An ask that changes nothing writes nothing; one that does is seen by the next.
--
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS shard;
RESET client_min_messages;
CREATE SCHEMA reads_test;
SET search_path = reads_test, public;
CREATE TYPE purse AS (coins int, note text);
CREATE TABLE looks (entity text);
CREATE FUNCTION purse(state purse, message jsonb) RETURNS purse LANGUAGE plpgsql AS $$
BEGIN
    CASE message->>'do'
        WHEN 'add' THEN state.coins := coalesce(state.coins, 0) + 1;
        WHEN 'look' THEN NULL;
        WHEN 'same' THEN RETURN (state.coins, state.note);
        WHEN 'count' THEN PERFORM shard_reply(to_jsonb((SELECT count(*) FROM reads_test.looks)));
        WHEN 'log' THEN INSERT INTO reads_test.looks VALUES ((shard_self()).entity_id);
        WHEN 'tell' THEN PERFORM shard_tell('purse', 'told', '{"do": "add"}');
        WHEN 'forget' THEN RETURN NULL;
    END CASE;
    RETURN state;
END
$$;
SELECT shard_start('purse', 'purse');

-- The state as jsonb, of a composite type as well; of none.
SELECT shard_ask('purse', 'a', '{"do": "look"}') AS none;
SELECT count(*) FROM shard_entity.purse;
SELECT shard_ask('purse', 'a', '{"do": "add"}'), shard_ask('purse', 'a', '{"do": "add"}');
SELECT shard_ask('purse', 'a', '{"do": "look"}'), shard_ask('purse', 'a', '{"do": "count"}');
SELECT coins, version FROM shard_entity.purse;

-- Neither WAL nor a transaction id, by us: other processes of the server may happen to write some,
-- so one quiet try of many will do.
CREATE FUNCTION writes_nothing(message jsonb) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    place pg_lsn;
    xid xid8;
BEGIN
    FOR i IN 1 .. 100 LOOP
        place := pg_current_wal_insert_lsn();
        xid := pg_snapshot_xmax(pg_current_snapshot());
        FOR n IN 1 .. 10 LOOP
            PERFORM shard_ask('purse', 'a', message);
        END LOOP;
        IF pg_current_wal_insert_lsn() = place AND pg_snapshot_xmax(pg_current_snapshot()) = xid THEN
            RETURN true;
        END IF;
    END LOOP;
    RETURN false;
END
$$;
SELECT shard_drain();
SELECT writes_nothing('{"do": "look"}') AS look, writes_nothing('{"do": "same"}') AS same,
       writes_nothing('{"do": "count"}') AS count, writes_nothing('{"do": "add"}') AS add;
SELECT version = coins AS counted FROM shard_entity.purse;
-- the same of an entity that is loaded for it, and of one that does not exist
SELECT shard_ask('purse', 'b', '{"do": "look"}') AS none;
SELECT count(*) FROM shard_entity.purse;

-- What a handler writes beside the state, and whom it tells, commits with the reply.
SELECT shard_ask('purse', 'a', '{"do": "log"}') IS NOT NULL AS logged;
SELECT entity FROM looks;
SELECT shard_ask('purse', 'a', '{"do": "tell"}') IS NOT NULL AS told;
SELECT shard_drain();
SELECT coins FROM shard_entity.purse WHERE entity_id = 'told';

-- Forgotten, the row is gone and a new one begins anew.
SELECT shard_ask('purse', 'a', '{"do": "forget"}') AS none;
SELECT entity_id FROM shard_entity.purse;
SELECT shard_ask('purse', 'a', '{"do": "add"}');

-- In a transaction of the asker's the effect stays when that rolls back: it is not his.
BEGIN;
SELECT shard_ask('purse', 'a', '{"do": "add"}');
ROLLBACK;
SELECT shard_ask('purse', 'a', '{"do": "look"}');
-- An older snapshot does not see it, as with anybody's commit.
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT coins FROM shard_entity.purse WHERE entity_id = 'a';
SELECT shard_ask('purse', 'a', '{"do": "add"}');
SELECT coins FROM shard_entity.purse WHERE entity_id = 'a';
COMMIT;
SELECT coins FROM shard_entity.purse WHERE entity_id = 'a';

SET client_min_messages = warning;
SELECT shard_drop_type('purse', force => true);
DROP SCHEMA reads_test CASCADE;
