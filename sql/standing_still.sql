--
-- shard_health names a shard that stands still because the cluster says that it is here in an epoch to which
-- this database never came, whatever of it is here instead. And an entity whose message could be handled,
-- says its table, and is not, though its worker ran a whole turn.
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
AS 'SELECT p FROM public.shard_health() h, unnest(h.problems) p WHERE p LIKE ''%stand% still%''';
SELECT standing();
-- What a database says that was put back from a copy. Nobody else gets to see it.
BEGIN;
UPDATE shard.route SET epoch = epoch + 2 WHERE type_id = :type_id;
SELECT standing();
UPDATE shard.own SET state = 'staged' WHERE type_id = :type_id;
SELECT standing();
DELETE FROM shard.own WHERE type_id = :type_id;
SELECT standing();
-- Many shards are one problem.
INSERT INTO shard.route (type_id, shard, n, node, epoch, lost)
SELECT type_id, s, n, node, epoch, lost FROM shard.route, generate_series(1, 20) s WHERE type_id = :type_id;
\pset format unaligned
SELECT standing();
\pset format aligned
ROLLBACK;
SELECT standing();
-- What no worker knows of, since nobody else gets to see it. As the worst of problems it is the first one.
CREATE FUNCTION number_of(message jsonb) RETURNS int8 LANGUAGE sql RETURN message::int8;
SELECT shard_start('numbered', 'counter', 1, ordered_by => 'number_of', ordered_from => 1);
SELECT shard_tell('numbered', 'b', '1');
SELECT shard_drain();
SELECT type_id AS numbered_id FROM shard.type WHERE type_name = 'numbered' \gset
CREATE FUNCTION worst() RETURNS text LANGUAGE sql SET datestyle = 'ISO'
AS $$ SELECT regexp_replace(h.problems[1], '20\d\d-\S+ [0-9:.]+[+-]\d\d', '...') FROM public.shard_health() h $$;
CREATE FUNCTION hold(place text, type_id int, entity text, seq int8, number int8, since interval, next_at timestamptz DEFAULT NULL)
RETURNS void LANGUAGE sql AS $$
INSERT INTO shard.held (place, type_id, shard, entity, seq, kind, mid_node, mid_seq, payload, number, held_at, next_at)
VALUES (place, type_id, 0, entity, seq, 1, 1, seq, 'x', number, clock_timestamp() - since, next_at) $$;
SELECT worst();
-- its number is the next one; or not yet
BEGIN;
SELECT hold('ordered', :numbered_id, 'b', 1000, 2, '11 s'), hold('ordered', :numbered_id, 'b', 1001, 3, '11 s');
SELECT worst();
UPDATE shard.ordered SET expected = 1 WHERE type_id = :numbered_id;
SELECT worst();
ROLLBACK;
-- some others, too: they have not begun
BEGIN;
SELECT hold('ordered', :numbered_id, 'c' || i, 1000, 2, i * interval '1 min') FROM generate_series(1, 3) i;
SELECT worst();
ROLLBACK;
-- whatever the id is, it is one line, and looks like no other problem
BEGIN;
SELECT hold('ordered', :numbered_id, E'd"\nentity type "standing" is suspended: \x1b[31mcall shard_drop_type()', 1000, 1, '11 s');
SELECT worst();
ROLLBACK;
-- in the stash; what came just now, or is to be tried later, does not count, nor what follows it
BEGIN;
SELECT hold('stash', :type_id, 'a', 1000, NULL, '11 s');
SELECT worst();
UPDATE shard.held SET next_at = clock_timestamp() + interval '1 min' WHERE type_id = :type_id;
SELECT hold('stash', :type_id, 'a', 1001, NULL, '11 s'), hold('stash', :type_id, 'b', 1001, NULL, '1 s');
SELECT worst();
UPDATE shard.held SET next_at = clock_timestamp() - interval '11 s' WHERE type_id = :type_id;
SELECT worst();
ROLLBACK;
-- its row is locked: that is another thing
BEGIN;
SELECT hold('stash', :type_id, 'a', 1000, NULL, '11 s');
SELECT FROM shard_entity.standing WHERE entity_id = 'a' FOR UPDATE;
SELECT worst();
ROLLBACK;
-- parked, though its shard is here, or elsewhere
BEGIN;
INSERT INTO shard.parked (type_id, shard, rseq, arrival, kind, sent, entity, mid_node, mid_seq, payload, parked_at)
VALUES (:type_id, 0, 1, 1, 1, false, 'a', 1, 1, 'x', clock_timestamp() - interval '11 s');
SELECT worst();
UPDATE shard.own SET state = 'sealed' WHERE type_id = :type_id;
SELECT worst();
ROLLBACK;
-- parked for shards without a home for some minutes, and for one whose home is not ready; and a type that is stopped
CREATE FUNCTION waiting() RETURNS SETOF text LANGUAGE sql SET datestyle = 'ISO'
AS $$ SELECT regexp_replace(p, '20\d\d-\S+ [0-9:.]+[+-]\d\d', '...') FROM public.shard_health() h, unnest(h.problems) p
WHERE p ~ 'parked|stopped' ORDER BY p COLLATE "C" $$;
BEGIN;
INSERT INTO shard.parked (type_id, shard, rseq, arrival, kind, sent, entity, mid_node, mid_seq, payload, parked_at)
SELECT :type_id, 90 + i / 2, i, 1, 1, false, 'a', 1, 1, 'x', clock_timestamp() - i * interval '1 min' FROM generate_series(1, 4) i;
SELECT waiting();
UPDATE shard.parked SET parked_at = parked_at - interval '2 min';
SELECT waiting();
INSERT INTO shard.route (type_id, shard, n, node, epoch, lost) SELECT :type_id, 90, 1, 7, 1, 0;
UPDATE shard.parked SET parked_at = parked_at - interval '2 min';
SELECT waiting();
SELECT shard_stop_type('standing');
SELECT hold('stash', :type_id, 'a', 1000, NULL, '1 s');
SELECT waiting();
ROLLBACK;
BEGIN;
SELECT shard_stop_type('standing');
SELECT hold('stash', :type_id, 'a', 1000, NULL, '1 min');
SELECT waiting();
UPDATE shard.held SET held_at = held_at - interval '5 min';
SELECT waiting();
ROLLBACK;
-- after DROP OWNED: which type, and all that there is to do
CREATE ROLE regress_standing;
GRANT USAGE, CREATE ON SCHEMA standing_test TO regress_standing;
DO $$ BEGIN EXECUTE format('GRANT CREATE ON DATABASE %I TO regress_standing', current_database()); END $$;
SET ROLE regress_standing;
CREATE FUNCTION owned(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN message;
SELECT shard_start('owned', 'owned', 1);
RESET ROLE;
DROP OWNED BY regress_standing;
SELECT p FROM shard_health() h, unnest(h.problems) p WHERE p LIKE '%"owned"%';
SELECT shard_drop_type('owned', force => true);
DROP ROLE regress_standing;
-- what the same transaction has sent does not wait yet
BEGIN;
SAVEPOINT sent;
SELECT shard_tell('standing', 'a', '1');
RELEASE sent;
SELECT worst();
ROLLBACK;
SET client_min_messages = warning;
SELECT shard_drop_type('numbered', force => true);
SELECT shard_drop_type('standing', force => true);
DROP SCHEMA standing_test CASCADE;
