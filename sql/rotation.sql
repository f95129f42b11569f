--
-- Sizes follow what is unhandled and what exists, not the traffic: the log's
-- segments are emptied and used again, state rows are pruned as they are updated.
--
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS shard;
RESET client_min_messages;
CREATE SCHEMA rotation_test;
SET search_path = rotation_test, public;
CREATE TYPE digest AS (messages int, last int, in_order boolean);
CREATE FUNCTION digest(state digest, message jsonb) RETURNS digest LANGUAGE sql
RETURN (coalesce(state.messages, 0) + 1, (message->>'n')::int,
        coalesce(state.in_order, true) AND (message->>'n')::int > coalesce(state.last, 0))::digest;
SELECT shard_start('digest', 'digest');

-- State rows: turns, each of which updates each row, take no more room. Rows are reached by their places, which alone would
-- never prune a page. Where autovacuum has a snapshot, which is of another table, some turns take room all the same: so six
-- times fifty turns, and what the table grows in those fifty that it grows least.
CREATE PROCEDURE rounds(first int, last int) LANGUAGE plpgsql AS $$
BEGIN
    FOR round IN first .. last LOOP
        PERFORM public.shard_tell('digest', 'e' || e, jsonb_build_object('n', round)) FROM generate_series(1, 300) e;
        COMMIT;
        PERFORM public.shard_drain();
        COMMIT;
    END LOOP;
END
$$;
CALL rounds(1, 2);
SELECT pg_relation_size('shard_entity.digest') AS first_size \gset
CREATE TABLE sizes (round int, size int8);
CREATE PROCEDURE many_rounds() LANGUAGE plpgsql AS $$
BEGIN
    FOR fifty IN 0 .. 5 LOOP
        CALL rounds(3 + fifty * 50, 52 + fifty * 50);
        INSERT INTO sizes VALUES (52 + fifty * 50, pg_relation_size('shard_entity.digest'));
        COMMIT;
    END LOOP;
END
$$;
CALL many_rounds();
SELECT count(*), min(version) > 200 AS many_versions, bool_and(messages = 302 AND in_order) AS right_state FROM shard_entity.digest;
SELECT min(growth) <= :first_size AS small
FROM (SELECT size - lag(size, 1, :first_size::int8) OVER (ORDER BY round) AS growth FROM sizes) s;

-- Positions are rows of the log, one for each turn that passed messages, and nothing of it is ever
-- updated or deleted: an old snapshot makes no bloat of them.
CREATE VIEW log AS
SELECT tableoid, xmax, * FROM shard.inbox_0 UNION ALL SELECT tableoid, xmax, * FROM shard.inbox_1
UNION ALL SELECT tableoid, xmax, * FROM shard.inbox_2 UNION ALL SELECT tableoid, xmax, * FROM shard.inbox_3
UNION ALL SELECT tableoid, xmax, * FROM shard.inbox_4 UNION ALL SELECT tableoid, xmax, * FROM shard.inbox_5
UNION ALL SELECT tableoid, xmax, * FROM shard.inbox_6 UNION ALL SELECT tableoid, xmax, * FROM shard.inbox_7;
SELECT count(*) >= 300 AS positions, count(*) FILTER (WHERE xmax <> '0') AS changed FROM log WHERE type_id = 0;
SELECT count(*) AS tables FROM pg_class WHERE relnamespace = 'shard'::regnamespace AND relname ~ 'cursor';
-- (the first message of a shard asks for its home, which is written down)
CREATE FUNCTION silent(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN state;
SELECT shard_start('silent', 'silent');
SELECT count(shard_ask('silent', 'a' || i, '{}')) AS replies FROM generate_series(1, 50) i;
SELECT max(seq) AS seq FROM log \gset
SELECT count(*) AS asks, count(reply) AS replies FROM (SELECT shard_ask('silent', 'a' || i, '{}') AS reply FROM generate_series(1, 50) i) a;
SELECT count(*) FROM log WHERE seq > :seq;

-- Segments: far more than the log may hold goes through it, whole and in order.
ALTER SYSTEM SET shard.inbox_max_size = '1MB';
SELECT pg_reload_conf();
-- (until this session has noticed)
\set ECHO none
\o /dev/null
SELECT 'SELECT pg_sleep(0.02) WHERE current_setting(''shard.inbox_max_size'') <> ''1MB''' FROM generate_series(1, 1000) \gexec
\o
\set ECHO all
CREATE TABLE files AS SELECT oid, pg_relation_filenode(oid) AS file FROM pg_class
WHERE relnamespace = 'shard'::regnamespace AND relname ~ '^inbox_' AND relkind = 'r';
CREATE TABLE seen (bytes int8);
CREATE PROCEDURE pump(first int, last int) LANGUAGE plpgsql AS $$
DECLARE
    noise text := (SELECT string_agg(md5(i::text), '') FROM generate_series(1, 200) i);
BEGIN
    FOR n IN first .. last LOOP
        FOR try IN 1 .. 2000 LOOP
            BEGIN
                PERFORM public.shard_tell('digest', 'pumped', jsonb_build_object('n', n, 'noise', noise || n));
                EXIT;
            EXCEPTION WHEN configuration_limit_exceeded THEN
                PERFORM pg_sleep(0.01);
            END;
        END LOOP;
        COMMIT;
        IF n % 100 = 0 THEN
            INSERT INTO rotation_test.seen SELECT sum(bytes) FROM public.shard_stat_inbox;
        END IF;
    END LOOP;
END
$$;
CALL pump(1, 1500);
SELECT shard_drain();
SELECT messages, last, in_order FROM shard_entity.digest WHERE entity_id = 'pumped';
SELECT max(bytes) < 4 * 1024 * 1024 AS small FROM seen;
SELECT count(*) > 1 AS several_emptied FROM files WHERE pg_relation_filenode(oid) <> file;
-- all that can go, goes; the rest is where the workers are, in a segment that is left when the
-- inbox is half full
CREATE FUNCTION is_empty() RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    FOR i IN 1 .. 1500 LOOP
        IF (SELECT count(*) = 1 AND bool_and(current) AND sum(bytes) <= 512 * 1024 FROM shard_stat_inbox WHERE bytes > 0) THEN
            RETURN true;
        END IF;
        PERFORM pg_sleep(0.02);
    END LOOP;
    RETURN false;
END
$$;
SELECT is_empty();
SELECT current, blocked_by FROM shard_stat_inbox WHERE bytes > 0;

-- What was rolled back is emptied as well.
\set VERBOSITY terse
SELECT count(shard_tell('digest', 'never', jsonb_build_object('n', i, 'noise', repeat(md5(i::text), 200)))) FROM generate_series(1, 100000) i;
SELECT is_empty();
-- Whoever sent and is still open keeps what came after, handled or not; then it goes, too.
CALL pump(1501, 1501);
BEGIN;
SELECT count(shard_tell('digest', 'late', jsonb_build_object('n', i))) FROM generate_series(1, 200) i;
\setenv PGDATABASE :DBNAME
\! psql -X -q -c "CALL rotation_test.pump(1502, 1550)"
COMMIT;
CALL pump(1551, 1650);
SELECT shard_drain();
SELECT entity_id, messages, last, in_order FROM shard_entity.digest WHERE entity_id IN ('late', 'never', 'pumped') ORDER BY 1;
SELECT is_empty();

ALTER SYSTEM RESET shard.inbox_max_size;
SELECT pg_reload_conf();
\set ECHO none
\o /dev/null
SELECT 'SELECT pg_sleep(0.02) WHERE current_setting(''shard.inbox_max_size'') = ''1MB''' FROM generate_series(1, 1000) \gexec
\o
\set ECHO all
SET client_min_messages = warning;
SELECT shard_drop_type('digest', force => true), shard_drop_type('silent', force => true);
DROP SCHEMA rotation_test CASCADE;
