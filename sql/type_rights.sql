--
-- Rights on entity types: who may start, change and send to them; as whom their
-- code runs; what becomes of a type when its functions or its owner change.
--
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS shard;
RESET client_min_messages;
-- What bars a type from running as of now; what workers found out would come in its own time.
\set problem 'SELECT shard.type_problem(type_id) AS problem FROM shard.type WHERE type_name ='
CREATE ROLE regress_shard_owner;
CREATE ROLE regress_shard_other;
GRANT CREATE ON DATABASE :"DBNAME" TO regress_shard_owner;
CREATE SCHEMA rights_test;
GRANT USAGE, CREATE ON SCHEMA rights_test TO regress_shard_owner, regress_shard_other;
SET search_path = rights_test, public;

-- Starting needs CREATE on the database and EXECUTE on the handler.
SET ROLE regress_shard_owner;
CREATE FUNCTION owned(jsonb, jsonb) RETURNS jsonb LANGUAGE sql RETURN $2;
SET ROLE regress_shard_other;
SELECT shard_start('owned', 'owned');
SET ROLE regress_shard_owner;
REVOKE EXECUTE ON FUNCTION owned FROM PUBLIC, regress_shard_owner;
SELECT shard_start('owned', 'owned');
GRANT EXECUTE ON FUNCTION owned TO PUBLIC, regress_shard_owner;
SELECT shard_start('owned', 'owned');
SELECT tableowner FROM pg_tables WHERE schemaname = 'shard_entity' AND tablename = 'owned';

-- All else is for members of the owner; looking is for everybody, but not inside.
SET ROLE regress_shard_other;
SELECT shard_start('owned', 'owned');
SELECT shard_alter('owned', 'max_attempts', '1');
SELECT shard_stop_type('owned');
SELECT shard_drop_type('owned', force => true);
SELECT type_name, owner, mode FROM shard_types WHERE type_name = 'owned';
SELECT 1 FROM shard.type;
CREATE TABLE shard_entity.mine ();

-- EXECUTE on the handler is the right to send, and is noticed at once.
SELECT shard_shard_id('owned', 'a');
RESET ROLE;
REVOKE EXECUTE ON FUNCTION owned FROM PUBLIC;
SET ROLE regress_shard_other;
SELECT shard_shard_id('owned', 'a');
RESET ROLE;
GRANT regress_shard_owner TO regress_shard_other;
SET ROLE regress_shard_other;
SELECT shard_shard_id('owned', 'a');
RESET ROLE;
REVOKE regress_shard_owner FROM regress_shard_other;
SET ROLE regress_shard_other;
SELECT shard_shard_id('owned', 'a');
RESET ROLE;

-- What the cluster says of its owner, in words; roles may have the same name again, or be gone. A GRANT has the registry read again.
\set read_again 'GRANT SELECT ON shard.type TO regress_shard_owner'
BEGIN;
UPDATE shard.type SET cluster_owner = 'regress_shard_elsewhere' WHERE type_name = 'owned';
:read_again;
:problem 'owned';
ROLLBACK;
BEGIN;
UPDATE shard.type SET cluster_owner = 'regress_shard_owner' WHERE type_name = 'owned';
:read_again;
:problem 'owned';
SELECT shard_tell('owned', 'a', '1');
ROLLBACK;
BEGIN;
UPDATE shard.type SET cluster_owner = 'regress_shard_owner', owner = 9, state_table = 0 WHERE type_name = 'owned';
:read_again;
:problem 'owned';
SELECT shard_tell('owned', 'a', '1');
ROLLBACK;

-- A type that was dropped has no handler, not even one that is missed.
BEGIN;
UPDATE shard.type SET handler = '', handler_oid = 0 WHERE type_name = 'owned';
:read_again;
SELECT shard_try('owned', 'a', '1');
ROLLBACK;

-- A renamed handler is missed, and found again. One created anew is taken from the owner, not
-- from a stranger, as whose it would not run.
ALTER FUNCTION owned RENAME TO disowned;
:problem 'owned';
ALTER FUNCTION disowned RENAME TO owned;
:problem 'owned';
DROP FUNCTION owned;
SET ROLE regress_shard_other;
SELECT shard_shard_id('owned', 'a');
CREATE FUNCTION owned(jsonb, jsonb) RETURNS jsonb LANGUAGE sql RETURN '"planted"'::jsonb;
RESET ROLE;
:problem 'owned';
DROP FUNCTION owned;
SET ROLE regress_shard_owner;
CREATE FUNCTION owned(jsonb, jsonb) RETURNS jsonb LANGUAGE sql RETURN $2;
RESET ROLE;
:problem 'owned';
SELECT shard_shard_id('owned', 'a') IS NOT NULL AS can_send;

-- An extractor runs as the owner, restricted, with the search_path of shard_start, whoever sends.
SET ROLE regress_shard_owner;
CREATE FUNCTION who(text) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$
BEGIN
    IF $1 = 'escape' THEN
        PERFORM set_config('role', 'regress_shard_other', false);
    END IF;
    RAISE NOTICE 'as % with %', current_user, current_setting('search_path');
    PERFORM set_config('search_path', 'public', false);
    RETURN 1;
END $$;
SELECT shard_start('placed', 'owned', shard_id_extractor => 'who');
SET ROLE regress_shard_other;
SELECT shard_shard_id('placed', 'a');
SELECT shard_shard_id('placed', 'escape');
SELECT current_user, current_setting('search_path');
RESET ROLE;

-- The handler may not be one that the owner may not execute.
REVOKE EXECUTE ON FUNCTION owned FROM PUBLIC, regress_shard_owner;
SELECT shard_alter('placed', 'handler', 'owned');
GRANT EXECUTE ON FUNCTION owned TO PUBLIC;

-- A superuser who starts a type with somebody else's function lends him all rights.
CREATE ROLE regress_shard_lender SUPERUSER;
SET ROLE regress_shard_lender;
SELECT shard_start('lent', 'owned');
SELECT shard_alter('lent', 'owner', 'regress_shard_owner');

-- His name is a literal in the hint.
CREATE ROLE "regress_shard_o'hara";
CREATE FUNCTION lent(jsonb, jsonb) RETURNS jsonb LANGUAGE sql RETURN $2;
ALTER FUNCTION lent OWNER TO "regress_shard_o'hara";
SELECT shard_start('quoted', 'lent');
SELECT shard_drop_type('quoted');
DROP FUNCTION lent;
DROP ROLE "regress_shard_o'hara";
-- The name of an index is taken, too.
CREATE FUNCTION left_behind(jsonb, jsonb) RETURNS jsonb LANGUAGE sql RETURN $2;
SELECT shard_start('lent_pkey', 'left_behind');
SELECT shard_drop_type('lent');
RESET ROLE;

-- Nobody owns a type whose owner was dropped.
CREATE ROLE regress_shard_gone;
SELECT shard_start('left_behind', 'left_behind');
SELECT shard_alter('left_behind', 'owner', 'regress_shard_gone');
DROP OWNED BY regress_shard_gone;
DROP ROLE regress_shard_gone;
\set VERBOSITY terse
SELECT shard_start('left_behind', 'left_behind');
\set VERBOSITY default
SELECT shard_alter('left_behind', 'owner', 'regress_shard_owner');
SELECT owner FROM shard_types WHERE type_name = 'left_behind';

-- The type belongs to whom the state table belongs.
REASSIGN OWNED BY regress_shard_owner TO regress_shard_other;
SELECT owner FROM shard_types WHERE type_name = 'owned';

SET client_min_messages = warning;
SELECT count(shard_drop_type(type_name)) FROM shard_types WHERE type_name IN ('owned', 'placed', 'left_behind');
DROP SCHEMA rights_test CASCADE;
DROP OWNED BY regress_shard_owner, regress_shard_other;
DROP OWNED BY regress_shard_lender;
DROP ROLE regress_shard_owner, regress_shard_other, regress_shard_lender;
