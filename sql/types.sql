--
-- Entity types: what can be a handler, a state, a setting; stopping, dropping.
--
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS shard;
RESET client_min_messages;
-- What bars a type from running as of now; what workers found out would come in its own time.
\set problem 'SELECT shard.type_problem(type_id) AS problem FROM shard.type WHERE type_name ='
CREATE SCHEMA types_test;
SET search_path = types_test, public;

CREATE FUNCTION counter(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN message;

-- A new type has its defaults, and a state table with a key and room for updates.
SELECT shard_start('counter', 'counter(jsonb, jsonb)');
SELECT handler, owner = current_user::regrole AS mine, mode, number_of_shards, problem,
       jsonb_pretty(settings) AS settings
FROM shard_types WHERE type_name = 'counter' \gx
SELECT type_name FROM shard_type_names WHERE type_name = 'counter';
SELECT attname, format_type(atttypid, atttypmod) AS type, attnotnull
FROM pg_attribute WHERE attrelid = 'shard_entity.counter'::regclass AND attnum > 0 ORDER BY attnum;
SELECT pg_get_constraintdef(oid) FROM pg_constraint
WHERE conrelid = 'shard_entity.counter'::regclass AND contype = 'p';

-- The same again is nothing, also by name alone; anything else is named, what is fixed first.
SELECT shard_start('counter', 'counter', passivate_idle_after => '120 s');
SELECT shard_start('counter', 'counter', max_attempts => 7);
SELECT shard_start('counter', 'counter', max_attempts => 7, number_of_shards => 10);

-- What cannot be a handler, and why.
CREATE FUNCTION strict(jsonb, jsonb) RETURNS jsonb STRICT LANGUAGE sql RETURN $1;
CREATE FUNCTION many(jsonb, jsonb) RETURNS SETOF jsonb LANGUAGE sql RETURN $1;
CREATE FUNCTION nothing(jsonb, jsonb) RETURNS void LANGUAGE sql AS '';
CREATE FUNCTION any_type(anyelement, jsonb) RETURNS anyelement LANGUAGE sql AS 'SELECT $1';
CREATE FUNCTION any_row(record, jsonb) RETURNS record LANGUAGE plpgsql AS 'BEGIN RETURN $1; END';
CREATE FUNCTION alone(jsonb) RETURNS jsonb LANGUAGE sql RETURN $1;
CREATE FUNCTION of_text(jsonb, text) RETURNS jsonb LANGUAGE sql RETURN $1;
CREATE FUNCTION to_text(jsonb, jsonb) RETURNS text LANGUAGE sql RETURN $1::text;
CREATE PROCEDURE proc(jsonb, jsonb) LANGUAGE sql AS '';
CREATE FUNCTION twice(jsonb, jsonb) RETURNS jsonb LANGUAGE sql RETURN $1;
CREATE FUNCTION twice(jsonb, jsonb[]) RETURNS jsonb LANGUAGE sql RETURN $1;
SELECT shard_start('x', 'strict');
SELECT shard_start('x', 'many');
SELECT shard_start('x', 'nothing');
SELECT shard_start('x', 'any_type');
SELECT shard_start('x', 'any_row');
SELECT shard_start('x', 'alone');
SELECT shard_start('x', 'of_text');
SELECT shard_start('x', 'to_text');
SELECT shard_start('x', 'proc');
SELECT shard_start('x', 'twice');
SELECT shard_start('x', 'no_such_function');
SELECT shard_start('x', 'counter(jsonb, text)');
SELECT shard_start('x', NULL);
SELECT shard_start('', 'counter');
SELECT shard_start(repeat('x', 64), 'counter');
SELECT shard_start(E'two\nlines', 'counter');
SELECT shard_start(E'deleted\x7f', 'counter');

-- Attributes of a composite state are columns, dropped ones are not; odd names are quoted.
CREATE TYPE account AS (balance numeric(10,2), gone int, "Last note" text COLLATE "C");
ALTER TYPE account DROP ATTRIBUTE gone;
CREATE FUNCTION book(account, jsonb[]) RETURNS account LANGUAGE sql RETURN $1;
SELECT shard_start('My "accounts"', 'book');
SELECT attname, format_type(atttypid, atttypmod) AS type, c.collname
FROM pg_attribute a LEFT JOIN pg_collation c ON c.oid = a.attcollation
WHERE attrelid = 'shard_entity."My ""accounts"""'::regclass AND attnum > 0 ORDER BY attnum;
SELECT handler FROM shard_types WHERE type_name = 'My "accounts"';

-- A domain is a plain state; what clashes with our columns or is no table's row is refused.
CREATE DOMAIN small AS int CHECK (VALUE < 100);
CREATE FUNCTION of_small(small, jsonb) RETURNS small LANGUAGE sql RETURN $1;
SELECT shard_start('small', 'of_small');
SELECT format_type(atttypid, atttypmod) FROM pg_attribute
WHERE attrelid = 'shard_entity.small'::regclass AND attname = 'state';
CREATE TYPE clash AS (version int);
CREATE FUNCTION of_clash(clash, jsonb) RETURNS clash LANGUAGE sql RETURN $1;
SELECT shard_start('x', 'of_clash');
CREATE VIEW looks AS SELECT 1 AS a;
CREATE FUNCTION of_view(looks, jsonb) RETURNS looks LANGUAGE sql RETURN $1;
SELECT shard_start('x', 'of_view');

-- Settings: bounds, names, nulls, contradictions.
SELECT shard_start('x', 'counter', number_of_shards => 0);
SELECT shard_start('x', 'counter', handler_timeout => '9 ms');
SELECT shard_start('x', 'counter', max_message_size => 1 << 30);
SELECT shard_start('x', 'counter', hash => 'md5');
SELECT shard_start('x', 'counter', max_attempts => NULL);
SELECT shard_start('x', 'counter', retry_backoff => '1 min');
SELECT shard_start('x', 'counter', passivation_strategy => 'random');
SELECT shard_start_proxy('x');

-- Altering: by text; null is the default; what decides about places is for ever.
SELECT shard_alter('counter', 'handler_timeout', '90 sec');
SELECT shard_alter('counter', 'passivation_strategy', 'none');
SELECT settings->>'handler_timeout' AS timeout, settings->>'passivation_strategy' AS strategy
FROM shard_types WHERE type_name = 'counter';
SELECT shard_alter('counter', 'handler_timeout', NULL);
SELECT shard_alter('counter', 'passivation_strategy', 'idle');
SELECT shard_alter('counter', 'number_of_shards', '10');
SELECT shard_alter('counter', 'max_attempts', 'many');
SELECT shard_alter('counter', 'max_attempts', '99999999999999999999');
SELECT shard_alter('counter', 'handler_timeout', 'soon');
SELECT shard_alter('counter', 'ordered_from', 'abc');
SELECT shard_alter('counter', 'allocation_settings', 'abc');
SELECT shard_alter('counter', 'colour', 'red');
SELECT shard_alter('counter', 'handler', 'of_small');
SELECT shard_alter('counter', 'handler', 'twice(jsonb, jsonb[])');
SELECT handler FROM shard_types WHERE type_name = 'counter';
SELECT shard_alter('counter', 'handler', 'counter');
SELECT shard_alter('nobody', 'max_attempts', '1');

-- Stopped, and resumed by the same call that started it.
SELECT shard_stop_type('counter');
SELECT mode FROM shard_types WHERE type_name = 'counter';
SELECT shard_start('counter', 'counter');
SELECT mode FROM shard_types WHERE type_name = 'counter';

-- All of it is transactional, and seen in its own transaction.
BEGIN;
SELECT shard_start('fleeting', 'counter');
SELECT shard_shard_id('fleeting', 'a');
ROLLBACK;
SELECT shard_shard_id('fleeting', 'a');
SELECT to_regclass('shard_entity.fleeting');
BEGIN READ ONLY;
SELECT shard_stop_type('counter');
ROLLBACK;

-- The shard of an id: by hash, or by a function of the type, which has to keep to the range.
CREATE FUNCTION by_length(text) RETURNS int IMMUTABLE LANGUAGE sql RETURN nullif(length($1), 3);
CREATE FUNCTION by_mood(text) RETURNS int LANGUAGE sql RETURN 1;
SELECT shard_start('java', 'counter', 10, 'java');
SELECT shard_shard_id('counter', 'abc'), shard_shard_id('java', 'abc');
SELECT shard_start('x', 'counter', shard_id_extractor => 'by_mood');
SELECT shard_start('x', 'counter', message_extractor => 'by_length');
SELECT shard_start('lengths', 'counter', 10, shard_id_extractor => 'by_length');
SELECT shard_shard_id('lengths', 'abcdef');
SELECT shard_shard_id('lengths', 'abc');
SELECT shard_shard_id('lengths', 'abcdefghij');
-- Without it a message would go astray.
DROP FUNCTION by_length;
SELECT shard_shard_id('lengths', 'abcdef');
:problem 'lengths';

-- Dropping: not while there is state, a message waits or was given up, unless forced.
INSERT INTO shard_entity.small VALUES (shard_shard_id('small', 'a'), 'a', 1);
SELECT shard_drop_type('small');
DELETE FROM shard_entity.small;
INSERT INTO shard.held (place, type_id, shard, entity, seq, kind, mid_node, mid_seq, payload, next_at)
SELECT 'stash', type_id, 1, 'a', 1, 1, 1, 1, '', 'infinity' FROM shard.type WHERE type_name = 'small';
SELECT shard_drop_type('small');
DELETE FROM shard.held;
INSERT INTO shard.dead_letter (type_id, shard, entity, kind, mid_node, mid_seq, payload, sqlstate, error, attempts)
SELECT type_id, 1, 'a', 1, 1, 1, '', 'P0001', '', 1 FROM shard.type WHERE type_name IN ('small', 'counter');
SELECT shard_drop_type('small');
INSERT INTO shard.held (place, type_id, shard, entity, seq, kind, mid_node, mid_seq, payload, next_at)
SELECT 'stash', type_id, 1, 'a', i, 1, 1, 1, '', 'infinity' FROM shard.type, generate_series(1, 2) i WHERE type_name = 'small';
SELECT shard_drop_type('small', force => true);
SELECT type_name, count(*) FROM shard_dead_letters GROUP BY 1;
DELETE FROM shard.dead_letter;
SELECT shard_drop_type('small');
SELECT to_regclass('shard_entity.small');
DROP TABLE shard_entity.java;
:problem 'java';
SELECT count(shard_drop_type(type_name)) FROM shard_types
WHERE type_name IN ('counter', 'My "accounts"', 'java', 'lengths');

SET client_min_messages = warning;
DROP SCHEMA types_test CASCADE;
