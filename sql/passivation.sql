--
-- Which entities leave memory: by each strategy, at run time, with a stop message and without; bad settings.
--
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS shard;
CREATE SCHEMA passivation_test;
SET search_path = passivation_test, public;
CREATE TABLE diary (n bigserial, who text, what text, sender text);
CREATE FUNCTION actor(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO passivation_test.diary (who, what, sender)
    SELECT self.entity_id, message->>'what', sender.entity_id FROM shard_self() self, shard_sender() sender;
    CASE message->>'do'
        WHEN 'leave' THEN PERFORM shard_passivate();
        WHEN 'bye' THEN PERFORM shard_passivate(message->'stop');
        WHEN 'twice' THEN PERFORM shard_passivate(message->'stop'), shard_passivate('{"what": "second"}');
        WHEN 'undone' THEN
            BEGIN
                PERFORM shard_passivate(message->'stop');
                RAISE EXCEPTION 'x';
            EXCEPTION WHEN raise_exception THEN NULL;
            END;
        WHEN 'stop' THEN PERFORM shard_stop(), shard_passivate('{"what": "never"}');
        WHEN 'fail' THEN RAISE EXCEPTION 'failed on demand';
        ELSE NULL;
    END CASE;
    RETURN jsonb_build_object('count', coalesce((state->>'count')::int, 0) + 1);
END $$;
CREATE FUNCTION wait_until(condition text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    good boolean;
BEGIN
    FOR i IN 1 .. 3000 LOOP
        EXECUTE 'SELECT ' || condition INTO good;
        IF good THEN RETURN 'as expected'; END IF;
        PERFORM pg_sleep(0.01);
    END LOOP;
    RETURN 'in vain';
END $$;
CREATE FUNCTION tell(type text, who text, what text, more jsonb DEFAULT '{}') RETURNS void LANGUAGE sql
RETURN shard_tell(type, who, jsonb_build_object('what', what) || more);
CREATE VIEW running AS
SELECT type_name, string_agg(entity_id, ' ' ORDER BY entity_id COLLATE "C") AS entities FROM shard_region_state GROUP BY type_name;

-- Each strategy by its name, for one region worker's pool: a shard, three entities at most.
SELECT shard_start(strategy, 'actor', number_of_shards => 1, passivation_strategy => strategy, active_entity_limit => 3)
FROM unnest('{lru,slru,mru,lfu,lfu_aging,composite}'::text[]) strategy;
SELECT settings->'active_entity_limit' AS "limit", settings->'passivation_settings' AS settings, settings->'stop_message' AS stop
FROM shard_types WHERE type_name = 'lru';
-- One message after the other: a turn's entities stay until it has ended.
CREATE PROCEDURE use(type text, VARIADIC ids text[]) LANGUAGE plpgsql AS $$
DECLARE
    id text;
BEGIN
    FOREACH id IN ARRAY ids LOOP
        PERFORM tell(type, id, 'used');
        COMMIT;
        PERFORM shard_drain();
        COMMIT;
    END LOOP;
END $$;
CALL use('lru', 'a', 'b', 'c', 'a', 'd');
CALL use('slru', 'a', 'a', 'b', 'c', 'd');
CALL use('mru', 'a', 'b', 'c', 'd');
CALL use('lfu', 'a', 'a', 'b', 'b', 'c', 'd');
CALL use('lfu_aging', 'a', 'a', 'b', 'b', 'c', 'd');
CALL use('composite', 'a', 'b', 'c', 'd');
SELECT * FROM running ORDER BY type_name;
SELECT type_name, entities, left_idle, left_limit, left_memory FROM shard_region_stats ORDER BY type_name;
-- What left comes back with its state.
CALL use('lru', 'b');
SELECT state FROM shard_entity.lru WHERE entity_id = 'b';

-- At run time: another limit, another strategy, none.
SELECT shard_alter('lru', 'active_entity_limit', '1');
SELECT wait_until($$(SELECT entities = 'b' FROM running WHERE type_name = 'lru')$$);
SELECT shard_alter('lru', 'passivation_strategy', 'mru'), shard_alter('lru', 'active_entity_limit', '2');
CALL use('lru', 'c', 'd');
SELECT * FROM running WHERE type_name = 'lru';
SELECT shard_alter('lru', 'passivation_strategy', 'none');
CALL use('lru', 'e', 'f', 'g');
SELECT * FROM running WHERE type_name = 'lru';
SELECT shard_alter('lru', 'passivation_strategy', 'idle'), shard_alter('lru', 'passivate_idle_after', '10 ms');
SELECT wait_until($$NOT EXISTS (SELECT FROM running WHERE type_name = 'lru')$$);
-- The idle time is in force beside a limit.
SELECT shard_alter('slru', 'passivate_idle_after', '10 ms');
SELECT wait_until($$NOT EXISTS (SELECT FROM running WHERE type_name = 'slru')$$);

-- A stop message. The handler's own goes behind what was sent before; what comes later is for the next life.
SELECT shard_start('stopper', 'actor', number_of_shards => 8, stop_message => '{"what": "stopped"}');
TRUNCATE diary RESTART IDENTITY;
BEGIN;
SELECT tell('stopper', 'a', 'bye', '{"do": "bye", "stop": {"what": "own"}}'), tell('stopper', 'a', 'before');
COMMIT;
SELECT shard_drain();
SELECT tell('stopper', 'a', 'next');
SELECT tell('stopper', 'b', 'bye', '{"do": "bye"}');
SELECT tell('stopper', 'c', 'twice', '{"do": "twice", "stop": {"what": "first"}}');
SELECT tell('stopper', 'd', 'stop', '{"do": "stop"}');
SELECT tell('stopper', 'e', 'undone', '{"do": "undone", "stop": {"what": "in force"}}');
SELECT shard_drain(), shard_drain();
SELECT who, string_agg(what, ' ' ORDER BY n) AS handled, count(sender) AS senders FROM diary GROUP BY who ORDER BY who;
SELECT * FROM running WHERE type_name = 'stopper';
-- From outside: one that is in memory, and one that is not; a second call changes nothing.
SELECT shard_passivate('stopper', 'a'), shard_passivate('stopper', 'a'), shard_passivate('stopper', 'never');
SELECT shard_drain();
SELECT who, string_agg(what, ' ' ORDER BY n) AS handled FROM diary WHERE who IN ('a', 'never') GROUP BY who;
SELECT count(*) FROM running WHERE type_name = 'stopper';
SELECT count(*) FROM shard_entity.stopper WHERE entity_id = 'never';

-- By itself when idle, once; over the limit as well.
SELECT tell('stopper', 'idle', 'used');
SELECT shard_alter('stopper', 'passivate_idle_after', '10 ms');
SELECT wait_until($$EXISTS (SELECT FROM diary WHERE who = 'idle' AND what = 'stopped')$$);
SELECT wait_until($$NOT EXISTS (SELECT FROM running WHERE type_name = 'stopper')$$);
SELECT string_agg(what, ' ' ORDER BY n) AS handled FROM diary WHERE who = 'idle';
SELECT shard_alter('stopper', 'passivate_idle_after', '1 h'), shard_alter('stopper', 'passivation_strategy', 'lru'),
       shard_alter('stopper', 'active_entity_limit', '8');
TRUNCATE diary RESTART IDENTITY;
SELECT count(tell('stopper', i::text, 'used')) FROM generate_series(1, 100) i;
SELECT wait_until($$(SELECT count(*) BETWEEN 1 AND 8 AND bool_and(state = 'running') AND
    count(*) + (SELECT count(*) FROM diary WHERE what = 'stopped') = 100 FROM shard_region_state WHERE type_name = 'stopper')$$);
SELECT count(*) FILTER (WHERE what = 'stopped') = count(DISTINCT who) FILTER (WHERE what = 'stopped') AS once,
       bool_and(n = last OR what = 'used') AS at_last
FROM (SELECT *, max(n) OVER (PARTITION BY who) AS last FROM diary) d;
SELECT sum(left_limit) = (SELECT count(*) FROM diary WHERE what = 'stopped') AS counted FROM shard_region_stats WHERE type_name = 'stopper';

-- One that fails is a dead letter, and its entity leaves; sent again it is delivered.
SELECT shard_alter('stopper', 'active_entity_limit', NULL), shard_alter('stopper', 'stop_message', '{"what": "stopped", "do": "fail"}');
SELECT tell('stopper', 'failing', 'used');
SELECT shard_passivate('stopper', 'failing');
SELECT shard_drain();
SELECT entity_id, message, sqlstate, error FROM shard_dead_letters;
SELECT count(*) FROM shard_region_state WHERE entity_id = 'failing';
SELECT shard_alter('stopper', 'stop_message', '"just a text"');
SELECT settings->'stop_message' AS stop FROM shard_types WHERE type_name = 'stopper';
SELECT shard_alter('stopper', 'stop_message', NULL);
SELECT settings ? 'stop_message' AS stops FROM shard_types WHERE type_name = 'stopper';

-- A batch handler has its messages before its stop message.
CREATE FUNCTION batcher(state jsonb, messages jsonb[]) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO passivation_test.diary (who, what) SELECT (shard_self()).entity_id, string_agg(m->>'what', '+') FROM unnest(messages) m;
    RETURN '{}';
END $$;
SELECT shard_start('batch', 'batcher', number_of_shards => 1, stop_message => '{"what": "stopped"}');
TRUNCATE diary RESTART IDENTITY;
BEGIN;
SELECT tell('batch', 'a', '1'), tell('batch', 'a', '2'), shard_passivate('batch', 'a'), tell('batch', 'a', '3');
COMMIT;
SELECT shard_drain();
SELECT string_agg(what, ' ' ORDER BY n) FROM diary;

-- Refused; nothing is stored.
CREATE FUNCTION refused(command text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    m text; d text; h text;
BEGIN
    EXECUTE command;
    RETURN 'accepted';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS m = MESSAGE_TEXT, d = PG_EXCEPTION_DETAIL, h = PG_EXCEPTION_HINT;
    RETURN concat_ws(E'\n', SQLSTATE || ' ' || m, 'detail: ' || nullif(d, ''), 'hint: ' || nullif(h, ''));
END $$;
\pset format unaligned
\pset tuples_only on
SELECT refused($$SELECT shard_start('odd', 'actor', passivation_strategy => 'random')$$);
SELECT refused($$SELECT shard_start('odd', 'actor', active_entity_limit => 10)$$);
SELECT refused($$SELECT shard_start('odd', 'actor', passivation_strategy => 'lru', active_entity_limit => 0)$$);
SELECT refused($$SELECT shard_start('odd', 'actor', passivation_strategy => 'lru', passivation_settings => '{"levels": 3}')$$);
SELECT refused($$SELECT shard_start('odd', 'actor', passivation_strategy => 'slru', passivation_settings => '{"levels": 11}')$$);
SELECT refused($$SELECT shard_start('odd', 'actor', passivation_strategy => 'slru', passivation_settings => '{"proportions": [0.7, 0.7]}')$$);
SELECT refused($$SELECT shard_start('odd', 'actor', passivation_strategy => 'slru', passivation_settings => '{"rows": 1}')$$);
SELECT refused($$SELECT shard_start('odd', 'actor', passivation_strategy => 'lru', passivation_settings => '{"active_entity_limit": 1}')$$);
SELECT refused($$SELECT shard_start('odd', 'actor', passivation_strategy => 'lru', passivation_settings => '[]')$$);
SELECT refused($$SELECT shard_start('odd', 'actor', passivation_strategy => 'lru', passivation_settings => NULL)$$);
SELECT refused($$SELECT shard_start('odd', 'actor', stop_message => to_jsonb(repeat('x', 3000)))$$);
SELECT refused($$SELECT shard_alter('mru', 'active_entity_limit', 'many')$$);
SELECT refused($$SELECT shard_alter('mru', 'passivation_settings', '{"levels": 3}')$$);
SELECT refused($$SELECT shard_alter('mru', 'passivation_strategy', 'best')$$);
SELECT refused($$SELECT shard_alter('mru', 'stop_message', '{')$$);
SELECT refused($$SELECT shard_passivate()$$);
SELECT refused($$SELECT shard_passivate('{"what": "now"}')$$);
SELECT count(*) FROM shard_types WHERE type_name = 'odd';
SELECT refused($$SELECT shard_alter('slru', 'passivation_settings', '{"levels": 3}')$$);
SELECT refused($$SELECT shard_alter('slru', 'passivation_strategy', 'lru')$$);
\pset tuples_only off
\pset format aligned

SELECT count(shard_drop_type(type_name, force => true)) FROM shard_types WHERE owner = current_user::regrole;
SET client_min_messages = warning;
DROP SCHEMA passivation_test CASCADE;
