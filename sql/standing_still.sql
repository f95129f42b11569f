--
-- shard_health names a shard that stands still because the cluster says that it is here in an epoch to which
-- this database never came, whatever of it is here instead.
--
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS shard;
RESET client_min_messages;
CREATE SCHEMA standing_test;
SET search_path = standing_test, public;
CREATE FUNCTION counter(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql
RETURN to_jsonb(coalesce(state::int, 0) + 1);
SELECT shard_start('standing', 'counter', 1);
SELECT shard_tell('standing', 'a', '1');
SELECT shard_drain();
SELECT type_id FROM shard.type WHERE type_name = 'standing' \gset
CREATE FUNCTION standing() RETURNS SETOF text LANGUAGE sql
AS 'SELECT p FROM public.shard_health() h, unnest(h.problems) p WHERE p LIKE ''%stands still%''';
SELECT standing();
-- What a database says that was put back from a copy. Nobody else gets to see it.
BEGIN;
UPDATE shard.route SET epoch = epoch + 2 WHERE type_id = :type_id;
SELECT standing();
UPDATE shard.own SET state = 'staged' WHERE type_id = :type_id;
SELECT standing();
DELETE FROM shard.own WHERE type_id = :type_id;
SELECT standing();
ROLLBACK;
SELECT standing();
SET client_min_messages = warning;
SELECT shard_drop_type('standing', force => true);
DROP SCHEMA standing_test CASCADE;
