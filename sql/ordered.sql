--
-- Types with ordered_by: messages are handled in the order of their numbers,
-- whoever sent them and in whatever order they came.
--
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS shard;
RESET client_min_messages;
CREATE SCHEMA ordered_test;
SET search_path = ordered_test, public;

CREATE FUNCTION note(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    CASE message->>'do'
    WHEN 'fail' THEN RAISE EXCEPTION 'no';
    WHEN 'later' THEN
        IF NOT EXISTS (SELECT FROM ordered_test.now_is_later) THEN
            RAISE EXCEPTION 'later' USING ERRCODE = '40001';
        END IF;
    WHEN 'forget' THEN RETURN NULL;
    WHEN 'sleep' THEN PERFORM pg_sleep(0.01);
    WHEN 'end' THEN PERFORM shard_stop(); RETURN NULL;
    ELSE NULL;
    END CASE;
    RETURN coalesce(state, '[]') || coalesce(message->'n', message);
END
$$;
CREATE TABLE now_is_later (yes boolean);
CREATE FUNCTION number(message jsonb) RETURNS int8 LANGUAGE sql RETURN (message->>'n')::int8;
CREATE FUNCTION n(VARIADIC n int[]) RETURNS void LANGUAGE sql AS $$
    SELECT count(shard_tell('note', 'e', jsonb_build_object('n', m))) FROM unnest(n) m;
$$;
CREATE FUNCTION until(condition text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    met boolean;
BEGIN
    FOR i IN 1 .. 3000 LOOP
        EXECUTE 'SELECT ' || condition INTO met;
        IF met THEN
            RETURN;
        END IF;
        PERFORM pg_sleep(0.01);
    END LOOP;
    RAISE 'never: %', condition;
END
$$;
CREATE VIEW dead AS
SELECT message, sqlstate, error FROM shard_dead_letters WHERE type_name = 'note' ORDER BY id;

-- What cannot be one.
CREATE FUNCTION wrong(message jsonb) RETURNS int LANGUAGE sql RETURN 1;
SELECT shard_start('note', 'note', ordered_by => 'wrong');
SELECT shard_start('note', 'note', ordered_by => 'none');
SELECT shard_start('note', 'note', ordered_by => 'number', ordered_window => 0);
SELECT shard_start('note', 'note', ordered_by => 'number', ordered_timeout => '1 h');
SELECT settings->>'ordered_by' AS ordered_by, settings->'ordered_window' AS ordered_window,
       settings->>'ordered_timeout' AS ordered_timeout
FROM shard_types WHERE type_name = 'note';
CREATE VIEW e AS
SELECT (SELECT state FROM shard_entity.note WHERE entity_id = 'e') AS handled,
       began, expected, skipped, late, waiting, first_waiting
FROM shard_ordered WHERE (type_name, entity_id) = ('note', 'e');

-- It begins with the first that is seen. Whatever the order is in which they come:
SELECT n(1, 4, 3, 2);
SELECT shard_drain();
SELECT * FROM e;

-- Later ones wait, and are seen to wait; they do not hold up asks or messages without a number.
SELECT n(6, 8, 7);
SELECT until('(SELECT waiting = 3 FROM e)');
SELECT * FROM e;
SELECT entity_id, message, place, number FROM shard_inbox WHERE type_name = 'note' ORDER BY number;
SELECT sum(parked) FROM shard_region_stats WHERE type_name = 'note';
SELECT shard_ask('note', 'e', '"asked"');
SELECT shard_tell('note', 'e', '"told"');
SELECT shard_ask('note', 'e', '"asked"');
SELECT n(5);
SELECT shard_drain();
SELECT * FROM e;

-- One that was there before is a dead letter; also one that is there twice and waits.
SELECT n(3, 10, 10, 9);
SELECT shard_drain();
SELECT * FROM e;
SELECT * FROM dead;

-- A message that fails for good is passed, one that may succeed later holds up the others.
SELECT shard_tell('note', 'e', '{"n": 12, "do": "later"}'), n(13), shard_tell('note', 'e', '{"n": 11, "do": "fail"}');
SELECT until('(SELECT count(*) = 1 FROM shard_inbox WHERE type_name = ''note'' AND attempts > 0)');
SELECT expected, waiting FROM e;
INSERT INTO now_is_later VALUES (true);
SELECT n(15, 14);
SELECT shard_drain();
SELECT * FROM e;

-- A function that fails makes a dead letter of the message, whose number nobody knows.
SELECT shard_tell('note', 'e', '{"n": "sixteen"}'), n(16);
SELECT shard_drain();
SELECT * FROM e;
SELECT shard_tell('note', 'e', '{"n": 9223372036854775807}');
SELECT shard_drain();
SELECT * FROM dead OFFSET 2;

-- So is a number that leaves out more than any gap can be: it is no reason to skip all that comes.
SELECT expected, skipped, late, waiting FROM e;
SELECT shard_tell('note', 'e', '{"n": 9223372036854775806}'), shard_tell('note', 'e', '{"n": 1795331354000}');
SELECT shard_drain();
SELECT expected, skipped, late, waiting FROM e;
SELECT * FROM dead OFFSET 5;

-- It goes on where it was when the entity has left memory.
SELECT n(18);
SELECT shard_passivate('note', 'e');
SELECT until('(SELECT waiting = 1 FROM e)');
SELECT shard_ask('note', 'e', '"asked"') IS NOT NULL;
SELECT n(17);
SELECT shard_drain();
SELECT shard_passivate('note', 'e');
SELECT shard_drain();
SELECT count(*) FROM shard_region_state WHERE type_name = 'note';
SELECT n(20);
SELECT until('(SELECT waiting = 1 FROM e)');
SELECT n(19);
SELECT shard_drain();
SELECT expected, skipped, late, waiting FROM e;

-- A message that has waited for its number ends its entity: nothing of it stays in memory.
SELECT shard_tell('note', 'last', '{"n": 1}'), shard_tell('note', 'last', '{"n": 3, "do": "end"}');
SELECT until('(SELECT waiting = 1 FROM shard_ordered WHERE entity_id = ''last'')');
SELECT shard_tell('note', 'last', '{"n": 2}');
SELECT shard_drain();
SELECT count(*) FROM shard_region_state WHERE entity_id = 'last';

-- A gap is given up after ordered_timeout; who comes after all comes too late.
SELECT shard_alter('note', 'ordered_timeout', '100 ms');
SELECT n(23, 26);
SELECT shard_drain();
SELECT n(22, 27, 0);
SELECT shard_drain();
SELECT * FROM e;
SELECT * FROM dead OFFSET 7;

-- A missing one that is in the inbox already is not given up, however long it takes to come to it.
SELECT shard_tell('note', 'slow', '{"n": 1}');
SELECT shard_drain();
SELECT count(shard_tell('note', 'slow', m))
FROM (SELECT '{"n": 3}'::jsonb UNION ALL
      SELECT '{"do": "sleep"}' FROM generate_series(1, 48) UNION ALL SELECT '{"n": 2}') s (m);
SELECT shard_drain();
SELECT expected, skipped, late FROM shard_ordered WHERE entity_id = 'slow';

-- So it is when more than ordered_window wait.
SELECT shard_alter('note', 'ordered_timeout', '1 h');
SELECT shard_alter('note', 'ordered_window', '3');
SELECT n(30, 32, 34);
SELECT until('(SELECT waiting = 3 FROM e)');
SELECT expected, skipped, waiting FROM e;
SELECT n(35);
SELECT until('(SELECT expected = 31 FROM e)');
SELECT expected, skipped, waiting, first_waiting FROM e;
SELECT n(31, 33);
SELECT shard_drain();
SELECT expected, skipped, waiting FROM e;

-- In a turn that runs messages one by one, too.
SELECT shard_alter('note', 'ordered_window', '1000');
SELECT count(shard_tell('note', 'many', jsonb_build_object('n', CASE WHEN i < 100 THEN i ELSE 349 - i END)
                        || CASE WHEN i % 50 = 7 THEN '{"do": "fail"}' ELSE '{}' END::jsonb))
FROM generate_series(0, 249) i;
SELECT shard_drain();
SELECT state = (SELECT jsonb_agg(i) FROM generate_series(0, 249) i
                WHERE NOT CASE WHEN i < 100 THEN i ELSE 349 - i END % 50 = 7) AS in_order
FROM shard_entity.note WHERE entity_id = 'many';
SELECT expected, skipped, late, waiting FROM shard_ordered WHERE entity_id = 'many';

-- The function is missing: all wait, in the stash, until it is back.
DROP FUNCTION number(jsonb);
SELECT problem FROM shard_types WHERE type_name = 'note';
SELECT n(38, 37);
SELECT shard_drain();
SELECT place, number FROM shard_inbox WHERE type_name = 'note';
CREATE FUNCTION number(message jsonb) RETURNS int8 LANGUAGE plpgsql AS $$
BEGIN
    IF message->>'n' = '40' AND NOT EXISTS (SELECT FROM ordered_test.now_is_later) THEN
        RAISE EXCEPTION 'later' USING ERRCODE = '40001';
    END IF;
    RETURN (message->>'n')::int8;
END
$$;
SELECT n(36);
SELECT shard_drain();
SELECT expected, waiting FROM e;

-- An error of the function that may pass is tried again.
DELETE FROM now_is_later;
SELECT n(40, 39);
SELECT until('(SELECT count(*) = 2 AND max(attempts) > 0 FROM shard_inbox WHERE type_name = ''note'' AND place = ''stash'')');
SELECT expected, waiting FROM e;
SELECT place, attempts > 0 AS tried FROM shard_inbox WHERE type_name = 'note' ORDER BY seq;
INSERT INTO now_is_later VALUES (true);
SELECT shard_drain();
SELECT expected, waiting FROM e;

-- Without ordered_by what waits is handled at once.
SELECT n(43, 42);
SELECT until('(SELECT waiting = 2 FROM e)');
SELECT shard_alter('note', 'ordered_by', NULL);
SELECT shard_drain();
SELECT handled->-1 AS last, expected, waiting FROM e;
SELECT n(1);
SELECT shard_drain();
SELECT handled->-1 AS last, expected, late FROM e;
SELECT shard_alter('note', 'ordered_by', 'number');

-- Who is forgotten keeps its place, unless it says that it has ended.
SELECT shard_tell('note', 'e', '{"n": 44, "do": "forget"}'), n(46);
SELECT until('(SELECT waiting = 1 FROM e)');
SELECT * FROM e;
SELECT shard_tell('note', 'e', '{"n": 45, "do": "forget"}'), shard_tell('note', 'e', '{"n": 47, "do": "end"}');
SELECT shard_drain();
SELECT * FROM e;
SELECT n(3);
SELECT shard_drain();
SELECT * FROM e;

-- It ends whatever the number of the message that says so: none, or an ask. What is sent after it begins anew,
-- in the same turn, too.
BEGIN;
SELECT count(shard_tell('note', 'u', m::jsonb))
FROM unnest(ARRAY['{"n": 5}', '{"n": 6}', '{"do": "end"}', '{"n": 3}', '{"n": 4}']) m;
COMMIT;
SELECT shard_drain();
SELECT state, began, expected, late FROM shard_entity.note JOIN shard_ordered USING (entity_id) WHERE entity_id = 'u';
SELECT shard_ask('note', 'u', '{"do": "end"}');
SELECT count(*) FROM shard_ordered WHERE entity_id = 'u';
SELECT shard_tell('note', 'u', '{"n": 8}');
SELECT shard_drain();
SELECT state, began, expected, late FROM shard_entity.note JOIN shard_ordered USING (entity_id) WHERE entity_id = 'u';

-- But what waits belongs to the old order, which goes on.
SELECT shard_tell('note', 'u', '{"n": 10}');
SELECT until('(SELECT waiting = 1 FROM shard_ordered WHERE entity_id = ''u'')');
SELECT shard_ask('note', 'u', '{"do": "end"}');
SELECT shard_tell('note', 'u', '{"n": 9}');
SELECT shard_drain();
SELECT state, began, expected, late FROM shard_entity.note JOIN shard_ordered USING (entity_id) WHERE entity_id = 'u';

-- One whose state cannot be removed has not ended.
CREATE FUNCTION stays() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE check_violation USING MESSAGE = 'it stays';
END
$$;
CREATE TRIGGER stays BEFORE DELETE ON shard_entity.note FOR EACH ROW EXECUTE FUNCTION stays();
SELECT shard_tell('note', 'u', '{"n": 11, "do": "end"}');
SELECT shard_drain();
SELECT shard_tell('note', 'u', '{"n": 12}');
SELECT shard_drain();
SELECT shard_ask('note', 'u', '{"do": "end"}');
SELECT state, began, expected, late FROM shard_entity.note JOIN shard_ordered USING (entity_id) WHERE entity_id = 'u';
DROP TRIGGER stays ON shard_entity.note;

-- What a worker has counted of tables is compared with them now and then: here they are changed by hand.
SELECT sum(recounts) FROM shard_stat_workers;
SELECT shard_tell('note', 'u', '{"n": 15}'), shard_tell('note', 'u', '{"n": 16}');
SELECT until('(SELECT waiting = 2 FROM shard_ordered WHERE entity_id = ''u'')');
ALTER SYSTEM SET shard.recount_interval = '1 ms';
SELECT pg_reload_conf();
UPDATE shard.held SET number = number - 2 WHERE entity = 'u';
SELECT until('(SELECT expected = 15 FROM shard_ordered WHERE entity_id = ''u'')');
SELECT sum(recounts) FROM shard_stat_workers;
SELECT shard_tell('note', 'u', '{"n": 17}');
SELECT until('(SELECT waiting = 1 FROM shard_ordered WHERE entity_id = ''u'')');
WITH gone AS (DELETE FROM shard.held WHERE entity = 'u' RETURNING *)
INSERT INTO shard.parked (type_id, shard, rseq, arrival, kind, sent, entity, mid_node, mid_seq, payload)
SELECT type_id, shard, 9223372036854775807, seq, kind, false, entity, mid_node, mid_seq,
       substring(payload FROM 1) FROM gone;
SELECT until('(SELECT waiting = 1 AND NOT EXISTS (SELECT FROM shard.parked) FROM shard_ordered WHERE entity_id = ''u'')');
SELECT sum(recounts) > 1 AS more FROM shard_stat_workers;
ALTER SYSTEM RESET shard.recount_interval;
SELECT pg_reload_conf();
SELECT shard_tell('note', 'u', '{"n": 15}'), shard_tell('note', 'u', '{"n": 16}');
SELECT shard_drain();
SELECT state, began, expected, late FROM shard_entity.note JOIN shard_ordered USING (entity_id) WHERE entity_id = 'u';

-- An entity may begin with a number that is known, so that not even its first ones need to come first.
SELECT shard_alter('note', 'ordered_from', '1');
SELECT count(shard_tell('note', 'first', jsonb_build_object('n', i))) FROM unnest(ARRAY[3, 0, 2, 1]) i;
SELECT shard_drain();
SELECT state FROM shard_entity.note WHERE entity_id = 'first';
SELECT began, expected, skipped, late FROM shard_ordered WHERE entity_id = 'first';
SELECT settings->'ordered_from' AS ordered_from FROM shard_types WHERE type_name = 'note';

-- A batch handler.
CREATE FUNCTION batch(state jsonb, messages jsonb[]) RETURNS jsonb LANGUAGE sql
RETURN coalesce(state, '[]') || (SELECT jsonb_agg((m->>'n')::int ORDER BY o) FROM unnest(messages) WITH ORDINALITY u (m, o));
SELECT shard_start('batch', 'batch', ordered_by => 'number');
SELECT count(shard_tell('batch', 'b' || i % 3, jsonb_build_object('n', i / 3 + CASE i / 3 % 10 WHEN 3 THEN 4 WHEN 7 THEN -4 ELSE 0 END)))
FROM generate_series(0, 2999) i;
SELECT shard_drain();
SELECT entity_id, state = (SELECT jsonb_agg(i) FROM generate_series(0, 999) i) AS in_order
FROM shard_entity.batch ORDER BY 1;

-- It ends an order, too, and what is sent after it begins anew, in the same turn, be its number lower or higher.
CREATE FUNCTION ends(state jsonb, messages jsonb[]) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    IF messages[cardinality(messages)]->>'do' = 'end' THEN
        PERFORM shard_stop();
        RETURN NULL;
    END IF;
    RETURN coalesce(state, '[]') || (SELECT jsonb_agg((m->>'n')::int ORDER BY o) FROM unnest(messages) WITH ORDINALITY u (m, o));
END
$$;
SELECT shard_start('ends', 'ends', ordered_by => 'number');
BEGIN;
SELECT count(shard_tell('ends', e, m::jsonb))
FROM unnest('{lower,higher}'::text[]) e, unnest(ARRAY['{"n": 5}', '{"n": 6, "do": "end"}']) m;
SELECT count(shard_tell('ends', e, jsonb_build_object('n', n + i)))
FROM (VALUES ('lower', 3), ('higher', 9)) v (e, n), generate_series(0, 1) i;
COMMIT;
SELECT shard_drain();
SELECT entity_id, state, began, expected, late, waiting FROM shard_entity.ends JOIN shard_ordered USING (entity_id) ORDER BY 1;

-- The function is no handler: a timer that it makes is a message to the entity, which comes after what the handler does.
CREATE FUNCTION numbers(message jsonb) RETURNS int8 LANGUAGE plpgsql AS $$
BEGIN
    CASE message->>'do'
    WHEN 'schedule' THEN PERFORM shard_schedule('numbers', 'x', '{"fired": true}', after => '1 h', name => 'alarm');
    WHEN 'self' THEN PERFORM shard_self();
    WHEN 'idle' THEN PERFORM shard_set_receive_timeout('1 h', '{}');
    WHEN 'stop' THEN PERFORM shard_stop();
    WHEN 'id' THEN PERFORM shard_message_id();
    WHEN 'request' THEN PERFORM shard_request('numbers', 'y', '{}', timeout => '1 h');
    END CASE;
    RETURN NULL;
END
$$;
CREATE FUNCTION cancels(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    PERFORM shard_cancel('numbers', 'x', 'alarm');
    RETURN message;
END
$$;
REVOKE EXECUTE ON FUNCTION cancels FROM PUBLIC;
SELECT shard_start('numbers', 'cancels', ordered_by => 'numbers', max_attempts => 1);
SELECT shard_tell('numbers', 'x', '{"do": "schedule"}');
SELECT shard_drain();
SELECT entity_id, name, message FROM shard_timers WHERE type_name = 'numbers';
SELECT count(shard_tell('numbers', 'x', jsonb_build_object('do', what))) FROM unnest('{self,idle,stop,id,request}'::text[]) what;
SELECT shard_drain();
SELECT message, sqlstate, error FROM shard_dead_letters WHERE type_name = 'numbers' AND sqlstate = '55000' ORDER BY id;

SET client_min_messages = warning;
DROP VIEW e;
SELECT shard_drop_type('note', force => true), shard_drop_type('batch', force => true), shard_drop_type('ends', force => true),
    shard_drop_type('numbers', force => true);
SELECT count(*) FROM shard_ordered;
DROP SCHEMA ordered_test CASCADE;
