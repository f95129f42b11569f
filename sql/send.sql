--
-- Sending: every way in, messages of every size, and what is refused.
--
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS shard;
RESET client_min_messages;
\set SHOW_CONTEXT never
CREATE ROLE regress_shard_stranger;
CREATE SCHEMA send_test;
GRANT USAGE ON SCHEMA send_test TO regress_shard_stranger;
SET search_path = send_test, public;

-- One that keeps what it is told, and one that keeps a fingerprint only.
CREATE FUNCTION recorder(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql
RETURN coalesce(state, '[]') || jsonb_build_array(message);
CREATE FUNCTION hasher(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql
RETURN coalesce(state, '[]') || to_jsonb(md5(message #>> '{}'));
CREATE FUNCTION id_of(message jsonb) RETURNS text LANGUAGE sql RETURN message->>'id';
CREATE FUNCTION body_of(message jsonb) RETURNS jsonb LANGUAGE sql RETURN message->'body';
SELECT shard_start('recorder', 'recorder', entity_id_extractor => 'id_of', message_extractor => 'body_of');
SELECT shard_start('hasher', 'hasher');

-- All ways in, each in its own transaction and all of them in one: order is that of the calls.
-- The explicit form takes the message as it is, the extractor's is unwrapped.
SELECT shard_tell('recorder', 'a', '{"id": "x", "body": 1}');
SELECT shard_tell('recorder', '{"id": "a", "body": 2}');
SELECT shard_tell_many('recorder', '{a,b,a}', ARRAY['3', '"b"', 'null']::jsonb[]);
SELECT shard_tell_many('recorder', '{}', '{}');
BEGIN;
SELECT shard_tell('recorder', 'a', '4');
SELECT shard_tell_many('recorder', '{a,a}', '{5,6}');
SELECT shard_tell('recorder', '{"id": "a", "body": 7}');
SELECT count(shard_tell('recorder', 'a', to_jsonb(i))) FROM generate_series(8, 10) i;
COMMIT;
SELECT shard_drain();
SELECT entity_id, state, version > 0 AS has_version FROM shard_entity.recorder ORDER BY entity_id;

-- Set-based: many rows, more than one batch of the log, to many entities; each gets its own in order.
SELECT count(shard_tell('recorder', 'set' || i % 7, to_jsonb(i))) FROM generate_series(0, 2999) i;
SELECT shard_tell_many('recorder', array_agg('many' || i % 7), array_agg(to_jsonb(i)))
FROM generate_series(0, 2999) i;
SELECT shard_drain();
SELECT left(entity_id, 3) AS how, count(*) AS entities, sum(jsonb_array_length(state)) AS messages,
       bool_and(state = (SELECT jsonb_agg(i) FROM generate_series(right(entity_id, 1)::int, 2999, 7) i)) AS in_order
FROM shard_entity.recorder WHERE length(entity_id) > 1 GROUP BY 1 ORDER BY 1;

-- Sizes around the borders of a row of the log (7168 bytes) and of a page, and the largest one;
-- compressible and not; in one transaction with small ones between them, and backwards, one by one.
CREATE TABLE sized AS
SELECT n, bytes, kind, CASE kind WHEN 'packs' THEN repeat('x', bytes) ELSE left(noise, bytes) END AS body
FROM unnest('{0,1,127,128,7000,7155,7156,7157,7158,7159,7160,7161,7162,7163,7164,7165,7168,8000,8192,14336,14337,100000,1000000}'::int[])
         WITH ORDINALITY s (bytes, n),
     (VALUES ('packs'), ('noisy')) k (kind),
     (SELECT string_agg(encode(sha256(i::text::bytea), 'base64'), '' ORDER BY i) AS noise FROM generate_series(1, 25000) i) r;
SELECT count(*), count(*) FILTER (WHERE length(body) = bytes) AS right_size FROM sized;
BEGIN;
SELECT count(shard_tell('hasher', kind, to_jsonb(body))) + count(shard_tell('hasher', kind, '"small"'))
FROM (SELECT * FROM sized ORDER BY n, kind) s;
COMMIT;
DO $$
DECLARE
    s record;
BEGIN
    FOR s IN SELECT * FROM send_test.sized ORDER BY n DESC, kind LOOP
        PERFORM public.shard_tell('hasher', s.kind || ' singly', to_jsonb(s.body));
        COMMIT;
    END LOOP;
END
$$;
SELECT shard_drain();
SELECT entity_id, state = CASE WHEN entity_id ~ 'singly'
        THEN (SELECT jsonb_agg(md5(body) ORDER BY n DESC) FROM sized WHERE kind = split_part(entity_id, ' ', 1))
        ELSE (SELECT jsonb_agg(m ORDER BY n, o) FROM sized, LATERAL (VALUES (1, md5(body)), (2, md5('small'))) v (o, m)
              WHERE kind = entity_id) END AS whole_and_in_order
FROM shard_entity.hasher ORDER BY entity_id;

-- Ids: up to 255 bytes of anything but nothing.
SELECT shard_tell('recorder', repeat('ä', 127) || 'x', '"fits"');
SELECT shard_tell('recorder', ' ', '"a space"'), shard_tell('recorder', E'\n''"\\', '"odd"');
SELECT shard_drain();
SELECT octet_length(entity_id), state FROM shard_entity.recorder
WHERE state->>0 IN ('fits', 'a space', 'odd') ORDER BY 1;
SELECT shard_tell('recorder', repeat('ä', 128), '1');
SELECT shard_tell('recorder', '', '1');
SELECT shard_tell('recorder', NULL, '1');
SELECT shard_tell('recorder', 'a', NULL);
SELECT shard_tell(NULL, 'a', '1');
SELECT shard_tell('recorder', NULL::jsonb);
SELECT shard_tell('recorder', '{"body": 1}');
SELECT shard_tell('recorder', '{"id": "", "body": 1}');
SELECT shard_tell('recorder', '{"id": "a"}');
SELECT shard_tell('hasher', '{"id": "a", "body": 1}');
SELECT shard_tell_many('recorder', '{a,b}', '{1}');
SELECT shard_tell_many('recorder', '{a,NULL}', '{1,2}');
SELECT shard_tell_many('recorder', '{a,b}', '{1,NULL}');
SELECT shard_tell_many('recorder', '{a,""}', '{1,2}');
SELECT shard_tell_many('recorder', NULL, '{1}');

-- Refused: what does not exist, is not allowed, cannot write; and nothing of a failed statement is sent.
SELECT shard_tell('no such type', 'a', '1');
SELECT shard_tell(repeat('x', 100), 'a', '1');
REVOKE EXECUTE ON FUNCTION recorder FROM PUBLIC;
SET ROLE regress_shard_stranger;
SELECT shard_tell('recorder', 'a', '"no right"');
SELECT shard_tell_many('recorder', '{a}', '{1}');
SELECT shard_tell('recorder', '{"id": "a", "body": 1}');
SELECT shard_start_entity('recorder', 'a');
SELECT shard_passivate('recorder', 'a');
RESET ROLE;
GRANT EXECUTE ON FUNCTION recorder TO regress_shard_stranger;
SET ROLE regress_shard_stranger;
SELECT shard_tell('recorder', 'stranger', '"may"');
RESET ROLE;
BEGIN READ ONLY;
SELECT shard_tell('recorder', 'a', '"read only"');
ROLLBACK;
BEGIN;
SELECT shard_tell('recorder', 'a', '"then read only"');
SET TRANSACTION READ ONLY;
COMMIT;
SELECT shard_drain();
SELECT entity_id, state FROM shard_entity.recorder WHERE entity_id IN ('a', 'b', 'stranger') ORDER BY 1;

-- The log takes no other writes, not even from a superuser.
INSERT INTO shard.inbox_0 SELECT * FROM shard.inbox_0 LIMIT 1;
UPDATE shard.inbox_0 SET seq = 0;
DELETE FROM shard.inbox_0;
COPY shard.inbox_1 FROM stdin;
\.

-- Nor does anybody truncate it but the rotation (test rotation), not even a superuser's handler.
TRUNCATE shard.inbox_0;
TRUNCATE shard.inbox_0, shard.inbox_1, shard.inbox_2, shard.inbox_3, shard.inbox_4, shard.inbox_5, shard.inbox_6, shard.inbox_7 CASCADE;
CREATE FUNCTION truncator(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    TRUNCATE shard.inbox_0;
    RETURN state;
END
$$;
SELECT shard_start('truncator', 'truncator');
SELECT shard_try('truncator', 'a', '1');
SELECT shard_drop_type('truncator');

SET client_min_messages = warning;
SELECT shard_drop_type('recorder', force => true), shard_drop_type('hasher', force => true);
DROP SCHEMA send_test CASCADE;
DROP ROLE regress_shard_stranger;
