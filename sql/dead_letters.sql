--
-- Messages that were given up: seen by their owners, sent again by them; and
-- what else is wrong on a node.
--
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS shard;
RESET client_min_messages;
CREATE ROLE regress_shard_owner;
CREATE ROLE regress_shard_other;
GRANT CREATE ON DATABASE :"DBNAME" TO regress_shard_owner, regress_shard_other;
CREATE SCHEMA letters_test;
GRANT USAGE, CREATE ON SCHEMA letters_test TO regress_shard_owner, regress_shard_other;
GRANT EXECUTE ON FUNCTION shard_redrive, shard_health TO regress_shard_owner, regress_shard_other;
SET search_path = letters_test, public;
SELECT shard_drain();
SELECT * FROM shard_health();

CREATE FUNCTION letters_test.error_of(statement text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE statement;
    RETURN 'none';
EXCEPTION WHEN OTHERS THEN
    RETURN SQLSTATE || ' ' || SQLERRM;
END
$$;

-- Two types of two owners; both choke on what is not a number.
SET ROLE regress_shard_owner;
CREATE FUNCTION number(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql
RETURN to_jsonb(coalesce(state::int4, 0) + (message #>> '{}')::int4);
SELECT shard_start('number', 'number');
SET ROLE regress_shard_other;
CREATE FUNCTION ids(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    RETURN coalesce(state, '[]') || to_jsonb(shard_message_id()) || to_jsonb((message #>> '{}')::int4);
END
$$;
SELECT shard_start('ids', 'ids');
SET ROLE regress_shard_owner;
SELECT shard_tell('number', 'a', to_jsonb(m)) FROM unnest('{1,two,3,four,5}'::text[]) m;
SELECT shard_tell('ids', 'a', to_jsonb(m)) FROM unnest('{1,six}'::text[]) m;
SELECT shard_drain();
SELECT state FROM shard_entity.number;

-- Everybody sees that there are some; what they say is for members of the owner.
SELECT type_name, entity_id, message, sqlstate, error, context IS NULL AS no_context, attempts
FROM shard_dead_letters ORDER BY type_name DESC, id;
SELECT array_agg(id) AS ids FROM shard_dead_letters \gset
SET ROLE regress_shard_other;
SELECT type_name, entity_id, message, sqlstate, error FROM shard_dead_letters ORDER BY type_name DESC, id;

-- The id is that which the handler sees: of the same node, after the one before. It is for members of the owner, too.
SELECT type_name, d.message_id ~ '^\d+-\d+$' AS is_id,
       split_part(d.message_id, '-', 1) = split_part(state->>0, '-', 1) AS same_node,
       split_part(d.message_id, '-', 2)::int8 > split_part(state->>0, '-', 2)::int8 AS later
FROM shard_dead_letters d, shard_entity.ids ORDER BY type_name DESC, id;
CREATE TEMPORARY TABLE letter AS SELECT message_id FROM shard_dead_letters WHERE type_name = 'ids';

-- Nobody sends another's again; without arguments, each his own.
SELECT shard_redrive(type_name => 'number');
SELECT shard_redrive(:'ids');
SELECT shard_redrive(type_name => 'no such type');
SELECT shard_redrive('{0}');
CREATE FUNCTION letters_test.number_of(message jsonb) RETURNS int4 LANGUAGE sql
RETURN CASE message #>> '{}' WHEN 'six' THEN 6 ELSE (message #>> '{}')::int4 END;
CREATE OR REPLACE FUNCTION ids(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    RETURN coalesce(state, '[]') || to_jsonb(shard_message_id())
        || to_jsonb(letters_test.number_of(message));
END
$$;
SELECT shard_redrive();
SELECT shard_drain();
SELECT count(*) FROM shard_dead_letters WHERE type_name = 'ids';
-- It has kept its id, which is older than its place in the inbox.
SELECT jsonb_array_length(state) AS items, state->1 AS first, state->3 AS second,
       state->>0 < state->>2 AS ids_differ, state->>2 = message_id AS as_the_letter
FROM shard_entity.ids, letter;
DROP TABLE letter;

-- What fails again is given up again. A rolled back redrive has not happened.
SET ROLE regress_shard_owner;
BEGIN;
SELECT shard_redrive(type_name => 'number');
SELECT count(*) FROM shard_dead_letters WHERE type_name = 'number';
ROLLBACK;
SELECT count(*) FROM shard_dead_letters WHERE type_name = 'number';
SELECT shard_redrive((SELECT array_agg(id) FROM shard_dead_letters WHERE message = '"two"'));
SELECT shard_drain();
SELECT message FROM shard_dead_letters WHERE type_name = 'number' ORDER BY id;

-- In order of id, in many batches.
CREATE OR REPLACE FUNCTION number(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'not today';
END
$$;
SELECT count(shard_tell('number', 'b', to_jsonb(i))) FROM generate_series(1, 1000) i;
SELECT shard_drain();
CREATE OR REPLACE FUNCTION number(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql
RETURN coalesce(state, '[]') || message;
SELECT shard_redrive(type_name => 'number');
SELECT shard_drain();
SELECT jsonb_array_length(state) AS items,
       state = (SELECT jsonb_agg(i) FROM generate_series(1, 1000) i) AS in_order
FROM shard_entity.number WHERE entity_id = 'b';

-- For good: what is named, of whom it is, and undone with the transaction.
CREATE OR REPLACE FUNCTION number(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'not today';
END
$$;
SELECT shard_start('digits', 'number', max_attempts => 1);
SELECT shard_tell('digits', 'a', '1'), count(shard_tell('number', 'c', to_jsonb(i))) FROM generate_series(1, 600) i;
SELECT shard_drain();
SELECT shard_discard(type_name => 'number');
RESET ROLE;
GRANT EXECUTE ON FUNCTION shard_discard TO regress_shard_owner, regress_shard_other;
SELECT array_agg(id) AS ids FROM shard_dead_letters \gset
SET ROLE regress_shard_other;
SELECT shard_discard(type_name => 'number');
SELECT shard_discard(:'ids');
SELECT shard_discard(type_name => 'ids'), shard_discard('{}'), shard_discard('{0}');
SET ROLE regress_shard_owner;
SELECT shard_discard();
SELECT regexp_replace(error, 'letter \d+', 'letter ...') FROM (SELECT array_agg(id) FROM shard_dead_letters WHERE type_name = 'digits') d (ids),
    LATERAL letters_test.error_of(format('SELECT shard_discard(%L, ''number'')', ids)) error;
SELECT shard_discard((SELECT array_agg(id) FROM shard_dead_letters WHERE type_name = 'digits'), 'digits');
SELECT shard_drop_type('digits');
BEGIN;
SELECT shard_discard(type_name => 'number');
ROLLBACK;
SELECT shard_discard((SELECT array_agg(id) FROM shard_dead_letters WHERE message::int4 <= 300));
SELECT count(*), min(message::int4) FROM shard_dead_letters;
SELECT shard_discard(type_name => 'number');
SELECT count(*) FROM shard_dead_letters;
SELECT count(*) FROM shard_entity.number WHERE entity_id = 'c';
CREATE OR REPLACE FUNCTION number(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    PERFORM shard_discard(type_name => 'number');
    RETURN message;
END
$$;
SELECT shard_ask('number', 'c', '1');
CREATE OR REPLACE FUNCTION number(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql
RETURN coalesce(state, '[]') || message;

-- A type that cannot run is a problem, and one that waits is not.
BEGIN;
DROP FUNCTION number(jsonb, jsonb);
SELECT * FROM shard_health();
ROLLBACK;
SELECT * FROM shard_health();

RESET ROLE;
SET client_min_messages = warning;
SELECT shard_drop_type('number', force => true), shard_drop_type('ids', force => true);
DROP SCHEMA letters_test CASCADE;
DROP OWNED BY regress_shard_owner, regress_shard_other;
DROP ROLE regress_shard_owner, regress_shard_other;
