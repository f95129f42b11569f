--
-- shard_shard_id by hash: where an entity id belongs, in a type of so many shards. Numbers are
-- known answers of Java and of Kafka, taken as positive in 64 bits.
--
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS shard;
RESET client_min_messages;
CREATE SCHEMA shard_id_test;
SET search_path = shard_id_test, public;

SELECT id, entity_id, n, hash, shard_shard_id(entity_id, n, hash) AS got,
       shard_shard_id(entity_id, n, hash) = wanted AS ok
FROM (VALUES
    ('N01', '1', 10, 'java', 9),
    ('N01', '1', 100, 'java', 49),
    ('N01', '1', 1000, 'java', 49),
    ('N01', '1', 10, 'murmur2', 9),
    ('N02', '42', 10, 'java', 2),
    ('N02', '42', 100, 'java', 62),
    ('N02', '42', 1000, 'java', 662),
    ('N02', '42', 10, 'murmur2', 2),
    ('N03', 'entity-1', 10, 'java', 3),
    ('N03', 'entity-1', 100, 'java', 93),
    ('N03', 'entity-1', 1000, 'java', 793),
    ('N03', 'entity-1', 10, 'murmur2', 8),
    ('published', '12', 2147483647, 'murmur2', 126087238),
    ('published', '123', 2147483647, 'murmur2', 1879781165),
    ('published', '1234', 2147483647, 'murmur2', 533297940),
    ('published', '12345', 2147483647, 'murmur2', 959118044),
    ('hash -2^31', 'polygenelubricants', 1, 'java', 0),
    ('hash -2^31', 'polygenelubricants', 10, 'java', 8),
    ('hash -2^31', 'polygenelubricants', 1000, 'java', 648),
    ('hash -2^31', 'polygenelubricants', 1024, 'java', 0),
    ('hash -2^31', 'polygenelubricants', 2147483647, 'java', 1),
    ('negative hash', 'session-4711', 1000, 'java', 822),
    ('empty', '', 1000, 'murmur2', 681),
    ('empty', '', 1000, 'java', 0),
    ('not ASCII', 'naïve', 1000, 'murmur2', 81),
    ('not ASCII', 'naïve', 1000, 'java', 475),
    ('not ASCII', '日本語', 1000, 'murmur2', 170),
    ('not ASCII', '日本語', 1000, 'java', 943),
    ('not ASCII', '😀', 1000, 'murmur2', 617),
    ('not ASCII', '😀', 1000, 'java', 899)
) t (id, entity_id, n, hash, wanted);

-- murmur2 is the default; NULL for NULL.
SELECT shard_shard_id('42', 1000) = shard_shard_id('42', 1000, 'murmur2') AS same;
SELECT shard_shard_id(NULL, 1000) AS null_id, shard_shard_id('42', NULL::int) AS null_number;

-- N09, N10: it is the shard that a message to an entity of such a type goes to.
CREATE FUNCTION counter(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN message;
SELECT shard_start('shard_id_murmur2', 'counter(jsonb, jsonb)', number_of_shards => 77);
SELECT shard_start('shard_id_java', 'counter(jsonb, jsonb)', number_of_shards => 77, hash => 'java');
SELECT count(*) AS ids,
       bool_and(shard_shard_id('shard_id_murmur2', i) = shard_shard_id(i, 77)) AS murmur2,
       bool_and(shard_shard_id('shard_id_java', i) = shard_shard_id(i, 77, 'java')) AS java,
       bool_and(shard_shard_id(i, 77, 'java') BETWEEN 0 AND 76) AS in_range
FROM (SELECT 'entity-' || n FROM generate_series(1, 1000) n UNION ALL SELECT 'polygenelubricants') t (i);
SELECT shard_drop_type('shard_id_murmur2'), shard_drop_type('shard_id_java');

-- Refused.
SELECT shard_shard_id('42', 0);
SELECT shard_shard_id('42', -5);
SELECT shard_shard_id('42', 10, 'md5');

DROP FUNCTION counter;
DROP SCHEMA shard_id_test;

-- It runs a function of the type's owner, which need not be one for parallel workers.
SELECT proparallel FROM pg_proc WHERE oid = 'shard_shard_id(text, text)'::regprocedure;
