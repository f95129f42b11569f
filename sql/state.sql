--
-- The state table is an ordinary table of the owner's: typed columns, indexes,
-- constraints, triggers, generated columns hold, whoever writes.
--
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS shard;
RESET client_min_messages;
CREATE ROLE regress_shard_reader;
CREATE SCHEMA state_test;
SET search_path = state_test, public;
CREATE TYPE account AS (balance numeric, note text);
CREATE FUNCTION account(state account, message jsonb) RETURNS account LANGUAGE plpgsql AS $$
BEGIN
    IF message ? 'sql' THEN
        EXECUTE message->>'sql';
    END IF;
    IF message ? 'forget' THEN
        RETURN NULL;
    END IF;
    state.balance := coalesce(state.balance, 0) + coalesce((message->>'add')::numeric, 0);
    state.note := coalesce(message->>'note', state.note);
    RETURN state;
END
$$;
SELECT shard_start('account', 'account');
CREATE FUNCTION tell(to_whom text, what jsonb) RETURNS void LANGUAGE sql
AS $$ SELECT public.shard_tell('account', to_whom, what) $$;
CREATE FUNCTION letters(OUT entity text, OUT sqlstate text, OUT error text) RETURNS SETOF record LANGUAGE sql
AS $$ SELECT entity_id, sqlstate, error FROM public.shard_dead_letters WHERE type_name = 'account' ORDER BY id $$;

-- Typed columns, to be queried and indexed; the index is used and kept up.
SELECT count(tell('e' || i, jsonb_build_object('add', i, 'note', 'n' || i % 10))) FROM generate_series(1, 500) i;
SELECT shard_drain();
CREATE INDEX account_note ON shard_entity.account (left(note, 5), balance);
SELECT count(tell('e' || i, jsonb_build_object('note', 'later'))) FROM generate_series(1, 100) i;
SELECT shard_drain();
SET enable_seqscan = off;
SET enable_bitmapscan = off;
EXPLAIN (COSTS OFF) SELECT count(*), sum(balance) FROM shard_entity.account WHERE left(note, 5) = 'later';
SELECT count(*), sum(balance) FROM shard_entity.account WHERE left(note, 5) = 'later';
RESET enable_seqscan;
RESET enable_bitmapscan;
SELECT count(*), sum(balance) FROM shard_entity.account WHERE left(note, 5) = 'later';
-- null fields, long fields that go out of line, a row of nulls
SELECT tell('long', jsonb_build_object('add', 1, 'note', (SELECT string_agg(md5(i::text), '') FROM generate_series(1, 1000) i)));
SELECT tell('long', '{"add": 1}');
SELECT shard_drain();
SELECT balance, length(note), md5(note) = (SELECT md5(string_agg(md5(i::text), '')) FROM generate_series(1, 1000) i) AS same
FROM shard_entity.account WHERE entity_id = 'long';

-- Constraints: what violates one is given up, the others are handled.
ALTER TABLE shard_entity.account ADD CONSTRAINT solvent CHECK (balance >= 0);
CREATE UNIQUE INDEX account_unique ON shard_entity.account ((note)) WHERE note LIKE 'unique%';
SELECT tell('check', '{"add": 5}'), tell('check', '{"add": -6}'), tell('check', '{"add": -4}');
-- (of two shards, whose homes are known by then: so the first one is handled first)
SELECT shard_start_entity('account', 'u1'), shard_start_entity('account', 'u2');
SELECT shard_drain();
SELECT tell('u1', '{"note": "unique"}'), tell('u2', '{"note": "unique"}');
SELECT shard_drain();
SELECT entity_id, balance FROM shard_entity.account WHERE entity_id IN ('check', 'u1', 'u2') ORDER BY 1;
SELECT * FROM letters();
\set VERBOSITY terse
SELECT shard_ask('account', 'check', '{"add": -2}');
\set VERBOSITY default

-- Generated columns and columns of the users' own are kept.
ALTER TABLE shard_entity.account ADD twice numeric GENERATED ALWAYS AS (balance * 2) STORED,
    ADD city text DEFAULT 'Berlin', ADD gone int;
UPDATE shard_entity.account SET city = 'Paris' WHERE entity_id = 'e1';
ALTER TABLE shard_entity.account DROP gone;
SELECT tell('e1', '{"add": 10}'), tell('new', '{"add": 3}');
SELECT shard_drain();
SELECT entity_id, balance, twice, city FROM shard_entity.account WHERE entity_id IN ('e1', 'new') ORDER BY 1;

-- A BEFORE trigger may change the row, which is the state then, also for the next message of the
-- same batch; an AFTER trigger sees it; both run as the owner, restricted.
CREATE TABLE audit (entity text, op text, balance numeric, who name);
CREATE FUNCTION round_down() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF new.note = 'suppress' THEN
        RETURN NULL;
    END IF;
    new.balance := floor(new.balance / 10) * 10;
    RETURN new;
END
$$;
CREATE FUNCTION write_audit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO state_test.audit VALUES (coalesce(new.entity_id, old.entity_id), tg_op, new.balance, current_user);
    RETURN NULL;
END
$$;
CREATE TRIGGER round BEFORE INSERT OR UPDATE ON shard_entity.account FOR EACH ROW WHEN (new.entity_id LIKE 'trigger%') EXECUTE FUNCTION round_down();
CREATE TRIGGER audit AFTER INSERT OR UPDATE OR DELETE ON shard_entity.account FOR EACH ROW EXECUTE FUNCTION write_audit();
SELECT tell('trigger', '{"add": 19}');
SELECT shard_drain();
SELECT tell('trigger', '{"add": 9}');
SELECT shard_drain();
SELECT shard_ask('account', 'trigger', '{"add": 11}') IS NOT NULL AS asked;
SELECT shard_ask('account', 'trigger', '{}');
SELECT balance FROM shard_entity.account WHERE entity_id = 'trigger';
SELECT tell('trigger', '{"forget": true}');
SELECT shard_drain();
SELECT entity, op, balance, who = current_user AS owner FROM audit;
SELECT balance FROM shard_entity.account WHERE entity_id = 'trigger';
-- one that suppresses the write
SELECT tell('trigger2', '{"note": "suppress"}'), tell('trigger2', '{"add": 10}'), tell('trigger2', '{"note": "suppress"}');
SELECT shard_drain();
SELECT balance, note FROM shard_entity.account WHERE entity_id = 'trigger2';
SELECT * FROM letters() OFFSET 2;
DROP TRIGGER round ON shard_entity.account;
DROP TRIGGER audit ON shard_entity.account;

-- A handler that writes its own row by SQL is told to return it instead; others' rows it may write.
SELECT tell('self', '{"add": 1}'),
       tell('self', '{"add": 1, "sql": "UPDATE shard_entity.account SET balance = 100 WHERE entity_id = ''self''"}'),
       tell('self', '{"add": 1, "sql": "UPDATE shard_entity.account SET city = ''Rome'' WHERE entity_id = ''e2''"}');
SELECT shard_drain();
SELECT tell('self', '{"add": 1, "sql": "DELETE FROM shard_entity.account WHERE entity_id = ''self''"}'), tell('self', '{"add": 1}');
SELECT shard_drain();
SELECT entity_id, balance, city FROM shard_entity.account WHERE entity_id IN ('self', 'e2') ORDER BY 1;
SELECT * FROM letters() OFFSET 4;

-- GRANT and row level security are as on any table.
SELECT 1 FROM pg_class WHERE oid = 'shard_entity.account'::regclass AND relowner = current_user::regrole;
SET ROLE regress_shard_reader;
SELECT count(*) FROM shard_entity.account;
RESET ROLE;
GRANT SELECT ON shard_entity.account TO regress_shard_reader;
ALTER TABLE shard_entity.account ENABLE ROW LEVEL SECURITY;
CREATE POLICY two ON shard_entity.account FOR SELECT TO regress_shard_reader USING (entity_id IN ('e1', 'e2'));
SELECT tell('e1', '{"add": 1}'), tell('e3', '{"add": 1}');
SELECT shard_drain();
SET ROLE regress_shard_reader;
SELECT entity_id, balance FROM shard_entity.account ORDER BY 1;
RESET ROLE;
SELECT entity_id, balance FROM shard_entity.account WHERE entity_id = 'e3';

-- A table that does not fit suspends its type, and nothing else: a column of ours that is missing
-- or of another type, an attribute without a column, another primary key. Messages wait.
CREATE FUNCTION bystander(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN message;
SELECT shard_start('bystander', 'bystander');
CREATE FUNCTION probe() RETURNS TABLE (problem text, bystander jsonb, messages int8) LANGUAGE plpgsql AS $$
BEGIN
    PERFORM shard_drain('30 s');
    RETURN QUERY SELECT t.problem, shard_ask('bystander', 'a', '"runs"'), (SELECT count(*) FROM shard_inbox)
                 FROM shard_types t WHERE t.type_name = 'account';
END
$$;
ALTER TABLE shard_entity.account DROP twice, DROP CONSTRAINT solvent;
ALTER TYPE account ADD ATTRIBUTE level int;
SELECT tell('e1', '{"add": 1}');
SELECT * FROM probe();
SELECT shard_ask('account', 'e1', '{}');
ALTER TABLE shard_entity.account ADD level text;
SELECT * FROM probe();
ALTER TABLE shard_entity.account ALTER level TYPE int USING 1;
SELECT * FROM probe();
SELECT shard_ask('account', 'e1', '{"add": 1}');
ALTER TABLE shard_entity.account RENAME version TO edition;
SELECT tell('e1', '{"add": 1}');
SELECT * FROM probe();
ALTER TABLE shard_entity.account DROP CONSTRAINT account_pkey;
ALTER TABLE shard_entity.account RENAME edition TO version;
SELECT * FROM probe();
ALTER TABLE shard_entity.account ADD PRIMARY KEY (entity_id, shard);
SELECT * FROM probe();
ALTER TABLE shard_entity.account DROP CONSTRAINT account_pkey, ADD PRIMARY KEY (shard, entity_id) DEFERRABLE;
SELECT * FROM probe();
ALTER TABLE shard_entity.account DROP CONSTRAINT account_pkey, ADD PRIMARY KEY (shard, entity_id);
SELECT * FROM probe();
-- an attribute of another type: what is in memory is read anew
ALTER TABLE shard_entity.account ALTER level TYPE text USING 'level ' || level;
ALTER TYPE account ALTER ATTRIBUTE level TYPE text;
SELECT * FROM probe();
SELECT shard_ask('account', 'e1', '{"add": 1}');
DROP TABLE shard_entity.account;
SELECT * FROM probe();

SET client_min_messages = warning;
SELECT shard_drop_type('account', force => true), shard_drop_type('bystander', force => true);
DELETE FROM shard.dead_letter;
DROP SCHEMA state_test CASCADE;
DROP OWNED BY regress_shard_reader;
DROP ROLE regress_shard_reader;
