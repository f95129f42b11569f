--
-- Looking at a node: what is in memory, what waits and why, what was given up.
-- Who is not a member of a type's owner sees that a message waits, not what it says.
--
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS shard;
RESET client_min_messages;
CREATE ROLE regress_shard_owner;
CREATE ROLE regress_shard_reader;
GRANT CREATE ON DATABASE :"DBNAME" TO regress_shard_owner;
CREATE SCHEMA views_test;
GRANT USAGE, CREATE ON SCHEMA views_test TO regress_shard_owner;
GRANT USAGE ON SCHEMA views_test TO regress_shard_reader;
SET search_path = views_test, public;
SET ROLE regress_shard_owner;
CREATE FUNCTION account(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql
RETURN to_jsonb(coalesce(state::int4, 0) + (message->>'add')::int4);
SELECT shard_start('account', 'account', number_of_shards => 10);

-- INSERT and COPY into the inbox send, each row by itself.
INSERT INTO shard_inbox (type_name, entity_id, message)
SELECT 'account', 'a' || i % 3, '{"add": 1}' FROM generate_series(1, 9) i;
COPY shard_inbox (type_name, entity_id, message) FROM stdin;
account	a0	{"add": 10}
account	a1	{"add": 20}
\.
SELECT shard_drain();
SELECT entity_id, state FROM shard_entity.account ORDER BY entity_id;

-- All three columns are needed, no other is taken; rights and names as with shard_tell.
INSERT INTO shard_inbox (type_name, entity_id) VALUES ('account', 'a');
INSERT INTO shard_inbox (type_name, message) VALUES ('account', '{}');
INSERT INTO shard_inbox (type_name, entity_id, message, seq) VALUES ('account', 'a', '{}', 1);
INSERT INTO shard_inbox (type_name, entity_id, message) VALUES ('no such type', 'a', '{}');
UPDATE shard_inbox SET message = '{}';
RESET ROLE;
-- Where triggers do not fire nothing is lost in silence, and functions send.
SET session_replication_role = replica;
INSERT INTO shard_inbox (type_name, entity_id, message) VALUES ('account', 'replica', '{"add": 1}');
COPY shard_inbox (type_name, entity_id, message) FROM PROGRAM 'echo account,replica,{}' (FORMAT csv);
-- Nor if other columns are given, or it is written to through another view.
INSERT INTO shard_inbox (type_name, entity_id, message, number) VALUES ('account', 'replica', '{"add": 1}', NULL);
INSERT INTO shard_inbox VALUES ('account', 'replica', '{"add": 1}', 1, 'inbox', 0, NULL, NULL, NULL, NULL, 1);
COPY shard_inbox (type_name, entity_id, message, number) FROM PROGRAM 'echo account,replica,{},' (FORMAT csv);
CREATE VIEW through AS SELECT * FROM shard_inbox;
INSERT INTO through (type_name, entity_id, message, number) VALUES ('account', 'replica', '{"add": 1}', NULL);
DROP VIEW through;
PREPARE sends AS INSERT INTO shard_inbox (type_name, entity_id, message, number) VALUES ('account', 'replica', '{"add": 1}', NULL);
EXECUTE sends;
DEALLOCATE sends;
SELECT shard_tell('account', 'replica', '{"add": 3}');
RESET session_replication_role;
SELECT shard_drain();
DELETE FROM shard_entity.account WHERE entity_id = 'replica' RETURNING state;
REVOKE EXECUTE ON FUNCTION account FROM PUBLIC;
-- Entities in memory, and what their shards did: for their owner.
SELECT type_name, entity_id IS NOT NULL AS named, state, last_message_at IS NOT NULL AS had_message, waiting
FROM shard_region_state WHERE type_name = 'account' ORDER BY entity_id;
SELECT sum(entities) AS entities, sum(messages_handled) AS messages, sum(errors) AS errors,
       sum(parked) AS parked
FROM shard_region_stats WHERE type_name = 'account';
SET ROLE regress_shard_reader;
INSERT INTO shard_inbox (type_name, entity_id, message) VALUES ('account', 'a', '{}');

-- Not for others; nor what their shards did.
SELECT type_name, entity_id, state, last_message_at IS NOT NULL AS had_message, waiting
FROM shard_region_state WHERE type_name = 'account' ORDER BY entity_id;
SELECT count(*) FROM shard_region_stats;
SELECT pid > 0 AS runs, lanes ~ '^(\d+-\d+ ?)+$' AS lanes, owners, messages_handled > 0 AS messages, turns > 0 AS turns,
       batch_avg > 0 AS batch, inbox_lag_messages, inbox_lag, cache_entities >= 3 AS entities,
       cache_bytes > 0 AS bytes
FROM shard_stat_workers WHERE owners = 'regress_shard_owner' \gx
SELECT count(*) AS segments, count(*) FILTER (WHERE current) AS current,
       bool_and(bytes > 0 AND rows > 0 AND oldest > 0 AND blocked_by IS NULL)
           FILTER (WHERE current) AS current_has_rows
FROM shard_stat_inbox;

-- Messages that are sent but not handled: here, not even committed. The long ones are cut into
-- rows of the log, and compressed if that helps; all of them come back whole.
SET ROLE regress_shard_owner;
CREATE TABLE sent AS
SELECT 'm' || i AS entity_id,
       jsonb_build_object('add', i, 'text', repeat('x', i * 3000), 'noise',
           (SELECT string_agg(md5((i * 10000 + n)::text), '') FROM generate_series(1, i * 40) n))
           AS message
FROM generate_series(0, 30) i;
GRANT SELECT ON sent TO regress_shard_reader;
BEGIN;
INSERT INTO shard_inbox (type_name, entity_id, message) SELECT 'account', * FROM sent;
-- the one that follows has them written
INSERT INTO shard_inbox (type_name, entity_id, message) VALUES ('account', 'last', '{"add": 1}');
SELECT count(*), count(*) FILTER (WHERE s.message = i.message) AS equal, min(i.place) AS place,
       max(i.attempts) AS attempts, count(i.next_at) AS next, count(i.blocked_by) AS blocked
FROM shard_inbox i JOIN sent s USING (entity_id);
SELECT array_agg(entity_id ORDER BY seq) = (SELECT array_agg(entity_id) FROM sent) AS in_order
FROM shard_inbox;
SET ROLE regress_shard_reader;
SELECT count(*), count(message) FROM shard_inbox;
ROLLBACK;
SELECT count(*) FROM shard_inbox;

-- Messages of a type that is stopped are in the stash.
SET ROLE regress_shard_owner;
SELECT shard_stop_type('account');
INSERT INTO shard_inbox (type_name, entity_id, message) SELECT 'account', * FROM sent;
SELECT shard_drain();
SELECT count(*), count(*) FILTER (WHERE s.message = i.message) AS equal, min(i.place) AS place
FROM shard_inbox i JOIN sent s USING (entity_id);
SET ROLE regress_shard_reader;
SELECT count(*), count(message) FROM shard_inbox WHERE type_name = 'account';
SET ROLE regress_shard_owner;
SELECT sum(parked) AS parked FROM shard_region_stats WHERE type_name = 'account';
SELECT shard_start('account', 'account', number_of_shards => 10);
SELECT shard_drain();
SELECT count(*) AS handled FROM shard_entity.account e JOIN sent USING (entity_id)
WHERE e.state = message->'add';
SELECT count(*) FROM shard_inbox;

-- A message whose entity is locked waits, and the view says for whom. Drain gives up in time.
BEGIN;
SELECT state FROM shard_entity.account WHERE entity_id = 'a2' FOR UPDATE;
\setenv PGDATABASE :DBNAME
\! psql -X -q -c "SELECT public.shard_tell('account', 'a2', '{\"add\": 100}')" -o /dev/null
SELECT shard_drain('300 ms');
SELECT entity_id, message, place, attempts, blocked_by = pg_backend_pid() AS blocked_by_me
FROM shard_inbox;
ROLLBACK;
SELECT shard_drain();
SELECT state FROM shard_entity.account WHERE entity_id = 'a2';
-- So does one whose entity has to start, and only waits for the lock.
SELECT shard_alter('account', 'start_message', '{"add": 0}'), shard_passivate('account', 'a2');
SELECT shard_drain();
BEGIN;
SELECT state FROM shard_entity.account WHERE entity_id = 'a2' FOR UPDATE;
\! psql -X -q -c "SELECT public.shard_start_entity('account', 'a2'), public.shard_tell('account', 'a2', '{\"add\": 100}')" -o /dev/null
SELECT shard_drain('300 ms');
SELECT entity_id, message, place, attempts, sqlstate, waits_for, blocked_by = pg_backend_pid() AS blocked_by_me
FROM shard_inbox;
ROLLBACK;
SELECT shard_drain();
SELECT state FROM shard_entity.account WHERE entity_id = 'a2';

-- Inside nothing is open.
SET ROLE regress_shard_reader;
SELECT * FROM shard.inbox_rows();
SELECT shard.payload_json(1, '');
SELECT * FROM shard.held;

RESET ROLE;
SET client_min_messages = warning;
SELECT shard_drop_type('account', force => true);
DROP SCHEMA views_test CASCADE;
DROP OWNED BY regress_shard_owner, regress_shard_reader;
DROP ROLE regress_shard_owner, regress_shard_reader;
