--
-- A handler runs as the type's owner and cannot get out of it; nothing that it
-- leaves behind outlives its batch, or reaches another owner's handler.
--
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS shard;
RESET client_min_messages;
CREATE ROLE regress_shard_owner;
CREATE ROLE regress_shard_other;
GRANT CREATE ON DATABASE :"DBNAME" TO regress_shard_owner;
CREATE SCHEMA confined_test AUTHORIZATION regress_shard_owner;
CREATE SCHEMA confined_test_path AUTHORIZATION regress_shard_owner;
GRANT USAGE ON SCHEMA confined_test TO PUBLIC;
SET SESSION AUTHORIZATION regress_shard_owner;
SET search_path = confined_test, confined_test_path, public;
CREATE TABLE notes (note text);
-- runs an SQL command, and answers with what a query says then
CREATE FUNCTION runner(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    answer jsonb;
BEGIN
    IF message ? 'do' THEN
        EXECUTE message->>'do';
    END IF;
    IF message ? 'ask' THEN
        EXECUTE 'SELECT to_jsonb(q) FROM (' || (message->>'ask') || ') q' INTO answer;
        PERFORM shard_reply(answer);
    END IF;
    RETURN to_jsonb(coalesce(state::int, 0) + 1);
END
$$;
SELECT shard_start('runner', 'runner');
CREATE FUNCTION run(command text) RETURNS jsonb LANGUAGE sql
AS $$ SELECT public.shard_ask('runner', 'a', jsonb_build_object('do', command)) $$;
CREATE FUNCTION look(query text) RETURNS jsonb LANGUAGE sql
AS $$ SELECT public.shard_ask('runner', 'a', jsonb_build_object('ask', query)) $$;

-- Who it is, and where: the owner, whoever sends; the path of shard_start; not the sender's settings.
RESET SESSION AUTHORIZATION;
SET search_path = confined_test, public;
SET datestyle = 'German';
SELECT look('SELECT current_user, current_setting(''search_path'') AS path, current_setting(''datestyle'') ~ ''German'' AS german');
SELECT look('SELECT rolsuper FROM pg_roles WHERE rolname = current_user');
CREATE FUNCTION confined_test_path.who() RETURNS name LANGUAGE sql SECURITY DEFINER RETURN current_user;
SELECT look('SELECT who()') ->> 'who' = current_user AS definer;

-- Refused in it.
\set VERBOSITY terse
SELECT run('CREATE TEMP TABLE t (a int)');
SELECT run('SELECT 1 INTO TEMP t');
SELECT run('LISTEN regress_shard');
SELECT run('PREPARE p AS SELECT 1');
SELECT run('SET ROLE regress_shard_other');
SELECT run('SET SESSION AUTHORIZATION regress_shard_other');
SELECT run('RESET SESSION AUTHORIZATION');
SELECT run('SELECT set_config(''role'', ''none'', false)');
SELECT run('COMMIT');
SELECT run('DO ''BEGIN COMMIT; END''');
SELECT run('DECLARE c CURSOR WITH HOLD FOR SELECT 1');
SELECT run('DISCARD ALL');
SELECT run('SELECT * FROM shard.held');
SELECT run('SELECT * FROM shard.inbox_0');
SELECT run('SELECT pg_reload_conf()');
\set VERBOSITY sqlstate
SELECT run('COPY notes FROM PROGRAM ''true''');
SELECT run('ALTER ROLE regress_shard_owner SUPERUSER');
\set VERBOSITY terse
SELECT run('SELECT shard_ask(''runner'', ''b'', ''{}'')');
SELECT run('SELECT shard_drain()');
SELECT run('SELECT shard_drop_type(''runner'', true)');
SELECT run('DROP TABLE shard_entity.runner');
-- and it still runs, as the owner
SELECT look('SELECT current_user');

-- Constraints are immediate: no trigger of the owner's is left for the commit, where it would run
-- with the worker's rights.
CREATE FUNCTION confined_test.grab() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO confined_test.notes VALUES ('fired as ' || current_user);
    RETURN NULL;
END
$$;
ALTER FUNCTION confined_test.grab() OWNER TO regress_shard_owner;
CREATE TABLE confined_test.deferring (a int);
ALTER TABLE confined_test.deferring OWNER TO regress_shard_owner;
CREATE CONSTRAINT TRIGGER late AFTER INSERT ON confined_test.deferring DEFERRABLE INITIALLY DEFERRED
FOR EACH ROW EXECUTE FUNCTION confined_test.grab();
SELECT look('SELECT 1 AS one') IS NOT NULL AS before;
SELECT run('INSERT INTO deferring VALUES (1)');
SELECT note FROM notes;
SELECT run('SET CONSTRAINTS ALL DEFERRED');
SELECT run('SET CONSTRAINTS late DEFERRED; INSERT INTO deferring VALUES (2)');
SELECT shard_try('runner', 'a', '{"do": "SET CONSTRAINTS ALL DEFERRED"}');
SELECT note FROM notes;
-- the same from a trigger on the state table
ALTER TABLE shard_entity.runner OWNER TO regress_shard_owner;
SET ROLE regress_shard_owner;
CREATE CONSTRAINT TRIGGER late AFTER INSERT OR UPDATE ON shard_entity.runner DEFERRABLE INITIALLY DEFERRED
FOR EACH ROW EXECUTE FUNCTION confined_test.grab();
RESET ROLE;
DELETE FROM notes;
SELECT shard_ask('runner', 'c', '{}');
SELECT shard_tell('runner', 'c', '{}');
SELECT shard_drain();
SELECT note FROM notes;
DROP TRIGGER late ON shard_entity.runner;

-- Settings end with the batch, at the latest; also those that would hurt others.
SELECT run('SET work_mem = ''1MB''; SET statement_timeout = 1; SET lock_timeout = 1');
SELECT run('SET search_path = pg_catalog');
SELECT run('SET TRANSACTION READ ONLY');
SELECT look('SELECT current_setting(''work_mem'') <> ''1MB'' AS work_mem, current_setting(''statement_timeout'') AS statement_timeout,
    current_setting(''search_path'') AS path, current_setting(''transaction_read_only'') AS read_only');
-- another owner's handler in the same batch
CREATE FUNCTION confined_test.other(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    RETURN jsonb_build_array(current_user, current_setting('search_path'), current_setting('work_mem') = '1MB',
                             coalesce(current_setting('regress.secret', true), '') = 'known');
END
$$;
GRANT CREATE ON DATABASE :"DBNAME" TO regress_shard_other;
SET ROLE regress_shard_other;
SET search_path = public;
SELECT shard_start('other', 'confined_test.other');
RESET ROLE;
SELECT set_config('search_path', 'confined_test, public', false);
BEGIN;
SELECT shard_tell('runner', 'a', '{"do": "SET work_mem = ''1MB''; SET regress.secret = ''known''"}');
SELECT shard_tell('other', 'a', '1');
SELECT shard_tell('runner', 'a', '{"do": "INSERT INTO notes VALUES (current_user)"}');
COMMIT;
SELECT shard_drain();
SELECT state FROM shard_entity.other;
SELECT note FROM notes;

-- Advisory locks that it forgets are released, those of transactions as ever.
SELECT run('SELECT pg_advisory_lock(4711), pg_advisory_lock_shared(4712), pg_advisory_xact_lock(4713)');
CREATE FUNCTION is_free(key int8) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    FOR i IN 1 .. 1000 LOOP
        IF pg_try_advisory_xact_lock(key) THEN
            RETURN true;
        END IF;
        PERFORM pg_sleep(0.03);
    END LOOP;
    RETURN false;
END
$$;
SELECT key, is_free(key) FROM generate_series(4711, 4713) key;
-- To release all is no harm: none is the worker's.
SELECT shard_tell('runner', 'd', '{}'), shard_tell('runner', 'd', '{"do": "SELECT pg_advisory_unlock_all()"}'), shard_tell('runner', 'd', '{}');
SELECT shard_drain();
SELECT count(shard_tell('runner', 'd', '{}')) FROM generate_series(1, 10);
SELECT shard_drain();
SELECT state FROM shard_entity.runner WHERE entity_id = 'd';
SELECT count(*) FROM shard_dead_letters WHERE type_name IN ('runner', 'other');

SET client_min_messages = warning;
SELECT shard_drop_type('runner', force => true), shard_drop_type('other', force => true);
DROP SCHEMA confined_test, confined_test_path CASCADE;
DROP OWNED BY regress_shard_owner, regress_shard_other;
DROP ROLE regress_shard_owner, regress_shard_other;
