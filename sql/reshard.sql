--
-- Another number of shards, or another extractor, for a type that is stopped: its
-- entities move to their shards, with all that is kept of them, once.
--
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS shard;
RESET client_min_messages;
CREATE SCHEMA reshard_test;
SET search_path = reshard_test, public;

CREATE FUNCTION note(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    IF message ? 'fail' THEN RAISE EXCEPTION 'no'; END IF;
    RETURN jsonb_build_object('count', coalesce((state->>'count')::int, 0) + 1, 'last', message->'n', 'self', (shard_self()).entity_id);
END $$;
REVOKE EXECUTE ON FUNCTION note FROM PUBLIC;
CREATE FUNCTION f1(id text) RETURNS int IMMUTABLE LANGUAGE sql RETURN id::int % 5;
CREATE FUNCTION f2(id text) RETURNS int IMMUTABLE LANGUAGE sql RETURN (id::int + 1) % 5;
CREATE FUNCTION broken(id text) RETURNS int IMMUTABLE LANGUAGE sql RETURN CASE WHEN id::int < 7 THEN 0 ELSE 99 END;
CREATE FUNCTION number_of(message jsonb) RETURNS int8 LANGUAGE sql RETURN (message->>'n')::int8;
CREATE FUNCTION wait_for(condition text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE met boolean := false;
BEGIN
    FOR i IN 1 .. 600 LOOP
        EXECUTE 'SELECT ' || condition INTO met;
        EXIT WHEN met;
        PERFORM pg_sleep(0.1);
    END LOOP;
    RETURN met;
END $$;

SELECT shard_start('note', 'note', number_of_shards => 5, shard_id_extractor => 'f1', remember_entities => true,
    ordered_by => 'number_of', ordered_from => 1, ordered_timeout => '1 h', max_attempts => 1);
SELECT count(shard_tell('note', e::text, jsonb_build_object('n', n))) FROM generate_series(1, 10) e, generate_series(1, 2) n;
-- one fails, one waits for the number before it, one has timers
SELECT shard_tell('note', '3', '{"n": 3, "fail": true}'), shard_tell('note', '4', '{"n": 4}'),
    shard_schedule('note', '6', '{"n": 0}', after => '1 h', name => 'alarm');
SELECT wait_for('(SELECT count(*) = 1 FROM shard_inbox)');
SELECT shard, string_agg(entity_id, ' ' ORDER BY entity_id::int) AS entities FROM shard_entity.note GROUP BY shard ORDER BY shard;

-- Bad input changes nothing.
CALL shard_reshard('nobody', 7);
CALL shard_reshard(NULL, 7);
CALL shard_reshard('note', 7);
SELECT shard_alter('note', 'number_of_shards', '7');
SELECT shard_start('note', 'note', number_of_shards => 7, shard_id_extractor => 'f1', remember_entities => true,
    ordered_by => 'number_of', ordered_from => 1, ordered_timeout => '1 h', max_attempts => 1);
SELECT shard_stop_type('note');
CALL shard_reshard('note', 0);
CALL shard_reshard('note', 1000001);
CALL shard_reshard('note', 10001);
CALL shard_reshard('note', hash => 'none');
CALL shard_reshard('note', shard_id_extractor => 'nothing');
BEGIN;
CALL shard_reshard('note', 7);
ROLLBACK;
CREATE ROLE reshard_stranger;
GRANT USAGE ON SCHEMA reshard_test TO reshard_stranger;
SET ROLE reshard_stranger;
\set VERBOSITY terse
CALL shard_reshard('note', 7);
\set VERBOSITY default
RESET ROLE;
SELECT count(*) FROM shard_reshardings;
-- what is so already
CALL shard_reshard('note', 5);
CALL shard_reshard('note');

-- An extractor that has no shard for an entity: the others have moved, and the type waits for the next call.
CALL shard_reshard('note', shard_id_extractor => 'broken');
SELECT type_name, from_shards, to_shards, shard_id_extractor, state, shards FROM shard_reshardings;
SET ROLE reshard_stranger;
SELECT count(*) FROM shard_reshardings;
RESET ROLE;
SELECT mode, problem FROM shard_types WHERE type_name = 'note';
SELECT ok FROM shard_health();
SELECT shard_ask('note', '5', '{"n": 3}');
SELECT shard_start('note', 'note', number_of_shards => 5, shard_id_extractor => 'f1', remember_entities => true,
    ordered_by => 'number_of', ordered_from => 1, ordered_timeout => '1 h', max_attempts => 1);
-- a message that comes meanwhile waits
SELECT shard_tell('note', '5', '{"n": 3}');

-- M09: each entity is in its new shard, and everything that was kept of it.
CALL shard_reshard('note', shard_id_extractor => 'f2');
SELECT shard, string_agg(entity_id, ' ' ORDER BY entity_id::int) AS entities FROM shard_entity.note GROUP BY shard ORDER BY shard;
SELECT count(*) FROM shard_reshardings;
SELECT type_name, entity_id, message, place FROM shard_inbox ORDER BY entity_id;
SELECT type_name, entity_id, message FROM shard_dead_letters;
SELECT shard_start('note', 'note', number_of_shards => 5, shard_id_extractor => 'f2', remember_entities => true,
    ordered_by => 'number_of', ordered_from => 1, ordered_timeout => '1 h', max_attempts => 1);
-- M21: all run again, in their shards
SELECT wait_for($$(SELECT count(*) = 10 FROM shard_region_state WHERE type_name = 'note' AND state = 'running')$$);
SELECT count(*) FROM shard_region_state r WHERE type_name = 'note' AND shard <> f2(entity_id);
SELECT wait_for($$(SELECT count(*) = 1 FROM shard_inbox)$$);
SELECT entity_id, name, message FROM shard_timers;
SELECT entity_id, expected, waiting, shard FROM shard_ordered ORDER BY entity_id::int;
SELECT decision, outcome FROM shard_history('note', '3');
-- numbers go on where they were
SELECT shard_tell('note', '4', '{"n": 3}');
SELECT shard_drain();
SELECT entity_id, state FROM shard_entity.note WHERE entity_id IN ('4', '5') ORDER BY entity_id;
SELECT shard_redrive(ARRAY(SELECT id FROM shard_dead_letters));
SELECT shard_drain();
SELECT entity_id, shard FROM shard_dead_letters d, shard_shard_id(d.type_name, d.entity_id) shard;
-- once more with the same settings: nothing moves any more
CALL shard_reshard('note', shard_id_extractor => 'f2');

-- Other numbers of shards, more and fewer, and the hash.
SELECT shard_stop_type('note');
CALL shard_reshard('note', 40, 'java', '');
SELECT count(*), bool_and(shard = shard_shard_id('note', entity_id)), max(shard) > 4 FROM shard_entity.note;
CALL shard_reshard('note', 1);
SELECT count(*), bool_and(shard = 0) FROM shard_entity.note;
SELECT number_of_shards, settings->'hash' AS hash, settings->'shard_id_extractor' AS extractor FROM shard_types WHERE type_name = 'note';
SELECT shard_start('note', 'note', hash => 'java', number_of_shards => 1, remember_entities => true,
    ordered_by => 'number_of', ordered_from => 1, ordered_timeout => '1 h', max_attempts => 1);
SELECT shard_tell('note', e::text, jsonb_build_object('n', 5)) FROM generate_series(4, 4) e;
SELECT shard_drain();
SELECT state FROM shard_entity.note WHERE entity_id = '4';

-- Triggers that fire may write other rows of the table: those are looked at again.
CREATE FUNCTION plain(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN message;
REVOKE EXECUTE ON FUNCTION plain FROM PUBLIC;
CREATE FUNCTION touch() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF pg_trigger_depth() > 1 THEN RETURN NEW; END IF;
    CASE TG_ARGV[0]
    WHEN 'others' THEN UPDATE shard_entity.fired SET state = '"others"' WHERE entity_id <> OLD.entity_id;
    WHEN 'next' THEN UPDATE shard_entity.fired SET state = '"next"' WHERE entity_id::int = OLD.entity_id::int + 1;
    WHEN 'move' THEN UPDATE shard_entity.fired SET shard = 100 WHERE entity_id::int = OLD.entity_id::int + 1 AND shard = 0;
    WHEN 'delete' THEN DELETE FROM shard_entity.fired WHERE entity_id = '5' AND OLD.entity_id = '3';
    WHEN 'insert' THEN
        INSERT INTO shard_entity.fired (shard, entity_id, version, state) SELECT OLD.shard, '9' || OLD.entity_id, 1, '"new"' WHERE length(OLD.entity_id) = 1;
    WHEN 'own' THEN UPDATE shard_entity.fired SET state = '"own"' WHERE entity_id = OLD.entity_id;
    WHEN 'gone' THEN DELETE FROM shard_entity.fired WHERE entity_id = OLD.entity_id;
    END CASE;
    RETURN NEW;
END $$;
SELECT shard_start('fired', 'plain', number_of_shards => 1);
SELECT count(shard_tell('fired', e::text, '"old"')) FROM generate_series(1, 9) e;
SELECT shard_drain();
SELECT shard_stop_type('fired');
CREATE PROCEDURE reshard_with(number int, timing text, what text, enabled text DEFAULT 'ALWAYS') LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('CREATE TRIGGER touch %s UPDATE ON shard_entity.fired FOR EACH ROW EXECUTE FUNCTION reshard_test.touch(%L)', timing, what);
    EXECUTE format('ALTER TABLE shard_entity.fired ENABLE %s TRIGGER touch', enabled);
    COMMIT;
    CALL shard_reshard('fired', number);
END $$;
CREATE VIEW fired AS SELECT count(*), bool_and(shard = shard_shard_id('fired', entity_id)) AS in_place, string_agg(DISTINCT state::text, ' ') AS states FROM shard_entity.fired;
\set SHOW_CONTEXT never
CALL reshard_with(40, 'AFTER', 'others');
SELECT * FROM fired; DROP TRIGGER touch ON shard_entity.fired;
CALL reshard_with(1, 'BEFORE', 'next', 'REPLICA');
SELECT * FROM fired; DROP TRIGGER touch ON shard_entity.fired;
CALL reshard_with(40, 'BEFORE', 'move');
SELECT * FROM fired; DROP TRIGGER touch ON shard_entity.fired;
CALL reshard_with(1, 'AFTER', 'own');
SELECT * FROM fired; DROP TRIGGER touch ON shard_entity.fired;
CALL reshard_with(40, 'BEFORE', 'delete');
SELECT * FROM fired; DROP TRIGGER touch ON shard_entity.fired;
CALL reshard_with(1, 'BEFORE', 'own');
SELECT * FROM fired; DROP TRIGGER touch ON shard_entity.fired;
CALL reshard_with(1, 'BEFORE', 'gone');
SELECT count(*) FROM shard_entity.fired; DROP TRIGGER touch ON shard_entity.fired;
CALL reshard_with(1, 'AFTER', 'insert');
SELECT * FROM fired; DROP TRIGGER touch ON shard_entity.fired;

-- A state table that is dropped on the way takes the states along, and nothing else.
CALL reshard_with(40, 'BEFORE', 'own');
SELECT shard_tell('fired', '1', '"waits"'), shard_tell('fired', '12', '"waits"');
SET client_min_messages = warning;
DROP TABLE shard_entity.fired CASCADE;
RESET client_min_messages;
SELECT shard_start('fired', 'plain', number_of_shards => 40);
CALL shard_reshard('fired', 40);
SELECT shard_start('fired', 'plain', number_of_shards => 40);
SELECT shard_drain();
SELECT entity_id, state, shard = shard_shard_id('fired', entity_id) AS in_place FROM shard_entity.fired ORDER BY entity_id;
SELECT shard_stop_type('fired');
CREATE VIEW fired AS SELECT count(*) FROM shard_entity.fired;
\set SHOW_CONTEXT errors
SET client_min_messages = error;
DROP VIEW fired;
SELECT shard_drop_type('fired', true);
RESET client_min_messages;

-- A type that is dropped on the way leaves nothing.
SELECT shard_stop_type('note');
CALL shard_reshard('note', shard_id_extractor => 'broken', number_of_shards => 2);
SET client_min_messages = error;
SELECT shard_drop_type('note', true);
SELECT count(*) FROM shard_reshardings;
-- the numbers that these types have had are given to no other one
SELECT shard_start('next', 'note');
SELECT shard_tell('next', 'a', '{}');
SELECT shard_drain();
SELECT entity_id FROM shard_entity.next;
SELECT shard_drop_type('next', true);
DROP SCHEMA reshard_test CASCADE;
DROP ROLE reshard_stranger;
