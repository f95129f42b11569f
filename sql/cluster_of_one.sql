-- What a node that never joined anything shows of its cluster, and what operators' functions refuse there.
-- Addresses are left out: the node has none.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS shard;
\set SHOW_CONTEXT never

-- It is its own cluster, without set-up: member, voter and coordinator.
CREATE FUNCTION pg_temp.wait_until(condition text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    met boolean;
BEGIN
    FOR i IN 1 .. 1000 LOOP
        EXECUTE 'SELECT ' || condition INTO met;
        IF met THEN
            RETURN;
        END IF;
        PERFORM pg_sleep(0.02);
    END LOOP;
    RAISE 'in vain: %', condition;
END $$;
SELECT pg_temp.wait_until('EXISTS (SELECT FROM shard_members WHERE status = ''up'' AND reachable)');
SELECT node, dsn, status, roles, age, incarnation > 0 AS incarnation, voter, coordinator, reachable,
       last_seen BETWEEN now() AND clock_timestamp() AS seen_now, self, last_error, gate
FROM shard_members;

-- There are no links, and nobody else to be asked.
SELECT * FROM shard_peers;
CREATE FUNCTION one_count(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql
    RETURN to_jsonb(coalesce(state::int, 0) + 1);
SELECT shard_start('one_count', 'one_count(jsonb,jsonb)', 1);
SELECT node, type_name, mode, error FROM shard_current_regions WHERE type_name = 'one_count';
-- A worker may just be replaced by those for other owners; what it had in memory is read again.
CREATE PROCEDURE pg_temp.send_until_in_memory() LANGUAGE plpgsql AS $$
BEGIN
    FOR i IN 1 .. 100 LOOP
        PERFORM shard_tell('one_count', e, '{}') FROM unnest('{a,b,c,a}'::text[]) e;
        COMMIT;
        PERFORM shard_drain();
        COMMIT;
        EXIT WHEN (SELECT sum(entities) = 3 FROM shard_cluster_stats() WHERE type_name = 'one_count');
    END LOOP;
END $$;
CALL pg_temp.send_until_in_memory();
SELECT node, type_name, sum(entities), count(error) FROM shard_cluster_stats()
WHERE type_name = 'one_count' GROUP BY node, type_name;

-- Where an entity is: its shard, its home, and whether it runs, which looking does not change.
SELECT shard = shard_shard_id('one_count', 'a') AS shard, node, dsn, running FROM shard_location('one_count', 'a');
SELECT running FROM shard_location('one_count', 'nobody');
SELECT running FROM shard_location('one_count', 'nobody');
SELECT * FROM shard_location('no_type', 'a');

-- Addresses are connection strings without secrets, and without what changes the session.
SELECT shard_join('host=localhost password=secret');
SELECT shard_join('postgresql://user:secret@localhost/app');
SELECT shard_join('host=localhost', 'options=-cwork_mem=1');
SELECT shard_join('host=localhost application_name=x');
SELECT shard_join('localhost');
SELECT shard_join(NULL);

-- Commands about nodes that are not there, or that nobody is left to carry out.
SELECT shard_down(7);
SELECT shard_write_off(7);
SELECT shard_admit(7, 1);
SELECT shard_admit(1, 99);
SELECT shard_leave();
SELECT shard_leave('-1 s');
SELECT shard_force_voters('{}');
SELECT shard_force_voters('{1,2}');
SELECT shard_force_voters('{NULL}');
SELECT shard_cluster_stats('0 s');

-- They wait for the control worker, which must not wait for them.
BEGIN;
CREATE TABLE written ();
SELECT shard_down(1);
ROLLBACK;

-- Nor from within a handler.
CREATE FUNCTION one_operator(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE message->>'do';
    RETURN message;
END $$;
SELECT shard_start('one_operator', 'one_operator(jsonb,jsonb)', 1);
SELECT shard_ask('one_operator', 'a', '{"do": "SELECT shard_leave()"}');
SELECT shard_ask('one_operator', 'a', '{"do": "SELECT shard_cluster_stats()"}');
SELECT shard_ask('one_operator', 'a', '{"do": "SELECT count(*) FROM shard_peers"}');

-- All of it is for those to whom it was granted; views but for addresses are for everybody.
CREATE ROLE regress_shard_nobody;
SET ROLE regress_shard_nobody;
SELECT shard_join('host=localhost');
SELECT shard, node, dsn FROM shard_location('one_count', 'a');
SELECT count(*) FROM shard_cluster_stats();
SELECT count(*) FROM shard_current_regions;
SELECT count(*) > 0 FROM shard_members;
SELECT count(*) >= 0 FROM shard_homes;
SELECT count(*) FROM shard_peers;
CALL shard_peer.who('', NULL);
RESET ROLE;
DROP ROLE regress_shard_nobody;

-- A role that may connect as another node.
CREATE ROLE regress_shard_link;
SELECT shard_allow_peer('regress_shard_link');
SET ROLE regress_shard_link;
CALL shard_peer.who('', NULL) \gset
SELECT length(:'answer') > 20 AS answered;
CALL shard_peer.stats('', NULL);
CALL shard_peer.call_back('\x01', NULL);
SELECT count(*) FROM shard.control;
RESET ROLE;
DROP OWNED BY regress_shard_link;
DROP ROLE regress_shard_link;

SELECT shard_drop_type('one_count', true), shard_drop_type('one_operator', true);
DROP FUNCTION one_count, one_operator;

-- A session may have to look at these, and waits for no lock: VACUUM, which would lock them to cut them, does not.
SELECT c.relname, c.reloptions, t.reloptions AS of_long_values FROM pg_class c LEFT JOIN pg_class t ON t.oid = c.reltoastrelid
WHERE c.relnamespace = 'shard'::regnamespace AND c.relname IN ('node', 'control', 'type') ORDER BY c.relname;
