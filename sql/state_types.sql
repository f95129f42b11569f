--
-- Any type can be a state: by value or not, short or long, of fixed or of
-- variable length; and what is kept out of line stays whole.
--
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS shard;
RESET client_min_messages;
CREATE SCHEMA types_of_state;
SET search_path = types_of_state, public;

-- One handler for each, which makes of a text what the type reads of it; 'null' forgets.
CREATE TYPE mood AS ENUM ('sad', 'happy');
CREATE DOMAIN small AS int CHECK (VALUE < 100);
CREATE TYPE inner_pair AS (a int, b text);
CREATE TYPE outer_pair AS (gone int, p inner_pair, list inner_pair[], d small);
ALTER TYPE outer_pair DROP ATTRIBUTE gone;
CREATE TABLE cases (n int, t text, first text, second text);
INSERT INTO cases VALUES (1, 'int4', '7', '8'), (2, 'int8', '-1', '9223372036854775807'), (3, 'float8', '0.5', 'NaN'),
    (4, 'bool', 'true', 'false'), (5, 'text', '', 'ä'), (6, 'name', 'some', 'other'), (7, 'uuid', '00000000-0000-0000-0000-000000000001', '00000000-0000-0000-0000-000000000002'),
    (8, '"char"', 'a', 'b'), (9, 'numeric', '1.10', '1.1'), (10, 'interval', '1 day', '24:00:00'), (11, 'int4[]', '{}', '{1,NULL,3}'),
    (12, 'mood', 'sad', 'happy'), (13, 'small', '1', '99'), (14, 'outer_pair', '("(1,x)","{}",5)', '(,"{""(2,\\""y z\\"")"",NULL}",)'),
    (15, 'jsonb', 'null', '[null]'), (16, 'bytea', '\x00ff', '\x'), (17, 'int4range', '[1,3)', 'empty'), (18, 'tsvector', 'a b', 'c'),
    (19, 'timestamptz', 'infinity', '-infinity'), (20, 'bit(3)', '101', '000');
CREATE PROCEDURE start_types() LANGUAGE plpgsql AS $$
DECLARE
    c types_of_state.cases;
BEGIN
    FOR c IN SELECT * FROM types_of_state.cases ORDER BY n LOOP
        EXECUTE format('CREATE FUNCTION handle_%s(state %s, message jsonb) RETURNS %2$s LANGUAGE plpgsql AS '
                       '''BEGIN IF message = ''''"same"'''' THEN RETURN state; END IF; RETURN (message->>''''new'''')::%2$s; END''', c.n, c.t);
        PERFORM shard_start('state ' || c.n, 'handle_' || c.n);
    END LOOP;
END
$$;
CALL start_types();

-- Each as the handler returned it, twice, then left alone, then forgotten; first told, then asked.
SELECT count(shard_tell('state ' || n, 'e', jsonb_build_object('new', first))) FROM cases;
SELECT shard_drain();
CREATE FUNCTION is_state(n int, t text, value text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    result boolean;
BEGIN
    IF t = 'outer_pair' THEN
        EXECUTE format('SELECT (p, list, d)::outer_pair::text = %1$L::outer_pair::text FROM shard_entity.%2$I', value, 'state ' || n) INTO result;
    ELSE
        EXECUTE format('SELECT state::%1$s::text = %2$L::%1$s::text FROM shard_entity.%3$I', t, value, 'state ' || n) INTO result;
    END IF;
    RETURN result;
END
$$;
SELECT n, t FROM cases WHERE is_state(n, t, first) IS DISTINCT FROM true;
SELECT t, shard_ask('state ' || n, 'e', jsonb_build_object('new', second)) FROM cases ORDER BY n;
SELECT n, t FROM cases WHERE is_state(n, t, second) IS DISTINCT FROM true;
SELECT count(shard_tell('state ' || n, 'e', '"same"')) FROM cases;
SELECT shard_drain();
SELECT n, t FROM cases WHERE is_state(n, t, second) IS DISTINCT FROM true;
SELECT count(shard_ask('state ' || n, 'e', '{"new": null}')) AS forgotten FROM cases;
SELECT n, t FROM cases WHERE is_state(n, t, second) IS NOT NULL;

-- A domain's check is the handler's error.
SELECT shard_ask('state 13', 'e', '{"new": "100"}');
SELECT shard_ask('state 14', 'e', '{"new": "(,,100)"}');

-- Long states, and long columns of the users', which no message touches; through changes, vacuum
-- and loads.
CREATE FUNCTION noise(n int, bytes int) RETURNS text LANGUAGE sql
AS $$ SELECT left(string_agg(encode(sha256((n * 100000 + i)::text::bytea), 'hex'), ''), bytes) FROM generate_series(1, bytes / 64 + 1) i $$;
CREATE TYPE book AS (title text, body text, length int);
CREATE FUNCTION book(state book, message jsonb) RETURNS book LANGUAGE plpgsql AS $$
BEGIN
    state.title := coalesce(message->>'title', state.title);
    state.body := CASE WHEN message ? 'more' THEN coalesce(state.body, '') || (message->>'more') ELSE state.body END;
    state.length := length(state.body);
    RETURN state;
END
$$;
SELECT shard_start('book', 'book');
CREATE FUNCTION book_as_json(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql
RETURN CASE WHEN message ? 'more' THEN jsonb_build_object('body', coalesce(state->>'body', '') || (message->>'more')) ELSE state END;
SELECT shard_start('json', 'book_as_json');
ALTER TABLE shard_entity.book ADD cover text;
SELECT count(shard_tell(t, 'b' || e, jsonb_build_object('more', noise(i, 20000))))
FROM (SELECT * FROM generate_series(1, 10) i, generate_series(1, 3) e, (VALUES ('book'), ('json')) v (t) ORDER BY i) m;
SELECT shard_drain();
UPDATE shard_entity.book SET cover = noise(99, 50000);
SELECT count(shard_tell('book', 'b' || e, jsonb_build_object('title', 'title ' || i)))
FROM (SELECT * FROM generate_series(1, 5) i, generate_series(1, 3) e ORDER BY i) m;
SELECT shard_passivate('book', 'b2'), shard_passivate('json', 'b2');
SELECT shard_drain();
VACUUM shard_entity.book, shard_entity.json;
SELECT count(shard_tell(t, 'b' || e, jsonb_build_object('more', noise(11, 20000)))) FROM generate_series(1, 3) e, (VALUES ('book'), ('json')) v (t);
SELECT shard_drain();
VACUUM shard_entity.book, shard_entity.json;
SELECT entity_id, title, length, body = (SELECT string_agg(noise(i, 20000), '' ORDER BY i) FROM generate_series(1, 11) i) AS body,
       cover = noise(99, 50000) AS cover
FROM shard_entity.book ORDER BY 1;
SELECT entity_id, state->>'body' = (SELECT string_agg(noise(i, 20000), '' ORDER BY i) FROM generate_series(1, 11) i) AS body
FROM shard_entity.json ORDER BY 1;
SELECT length(shard_ask('book', 'b1', '{}')->>'body');

SET client_min_messages = warning;
SELECT count(shard_drop_type('state ' || n, force => true)) FROM cases;
SELECT shard_drop_type('book', force => true), shard_drop_type('json', force => true);
DROP SCHEMA types_of_state CASCADE;
