-- What the scenarios of a cluster share; run at each node.
\ir common.sql

-- The entities that a scenario sends to; place as node 1 sees it.
CREATE TABLE bench.target (type_name text, place text, k int, id text);

SELECT shard_start(type_name, handler, buffer_size => 100000000)
FROM (VALUES ('counter', 'bench.counter(jsonb,jsonb)'), ('account', 'bench.account(jsonb,jsonb)'))
       t (type_name, handler);

-- The sum of the states that are here.
CREATE FUNCTION bench.total(type_name text) RETURNS int8 LANGUAGE plpgsql AS $$
DECLARE
  result int8;
BEGIN
  EXECUTE format($q$SELECT coalesce(sum((state->>'count')::int8), 0) FROM shard_entity.%I$q$, type_name)
  INTO result;
  RETURN result;
END $$;

-- WAL written and CPU time of the region workers so far.
CREATE FUNCTION bench.mark(OUT wal int8, OUT cpu float8) LANGUAGE sql
RETURN ((pg_current_wal_insert_lsn() - '0/0')::int8, bench.worker_cpu());

-- One message to each of so many entities.
CREATE FUNCTION bench.touch(type_name text, entities int) RETURNS int8 LANGUAGE sql AS $$
  SELECT shard_tell_many(type_name, array_agg('e' || i), array_agg(bench.message()))
  FROM generate_series(0, entities - 1) i
$$;

-- At most 1 000 entities for each place.
CREATE FUNCTION bench.choose(wanted text) RETURNS void LANGUAGE sql AS $$
  INSERT INTO bench.target
  SELECT wanted, place, k - 1, id
  FROM (SELECT place, id, row_number() OVER (PARTITION BY place ORDER BY i) AS k
        FROM (SELECT i, 'e' || i AS id, shard_shard_id(wanted, 'e' || i) AS shard
              FROM generate_series(0, 19999) i) e
             JOIN (SELECT shard, node FROM shard_homes WHERE type_name = wanted) h USING (shard)
             CROSS JOIN LATERAL (
               SELECT 'any' AS place
               UNION ALL SELECT 'local' WHERE node = 1
               UNION ALL SELECT 'remote' WHERE node = 2) p) t
  WHERE k <= 1000
$$;

-- Sends in transactions of 1 000, round robin over the entities; the client only waits.
CREATE PROCEDURE bench.send(wanted text, there text, messages int) LANGUAGE plpgsql AS $$
DECLARE
  batch CONSTANT int := 1000;
  bodies CONSTANT jsonb[] := array_fill(bench.message(), ARRAY[batch]);
  known CONSTANT text[] := ARRAY(SELECT id FROM bench.target
                                 WHERE (type_name, place) = (wanted, there) ORDER BY k);
  ids CONSTANT text[] := ARRAY(SELECT known[1 + k % cardinality(known)]
                               FROM generate_series(0, batch - 1) k);
BEGIN
  FOR i IN 1 .. messages / batch LOOP
    PERFORM shard_tell_many(wanted, ids, bodies);
    COMMIT;
  END LOOP;
END $$;

-- Waits until a condition holds, as this node sees it, for so many seconds at most. Nobody is told when a view
-- changes, so it looks again and again; each time in a transaction of its own.
CREATE PROCEDURE bench.await(condition text, at_most_s float8) LANGUAGE plpgsql AS $$
DECLARE
  ends CONSTANT timestamptz := clock_timestamp() + at_most_s * interval '1 s';
  holds boolean;
BEGIN
  LOOP
    EXECUTE 'SELECT ' || condition INTO holds;
    COMMIT;
    EXIT WHEN holds;
    IF clock_timestamp() > ends THEN
      RAISE 'not within % s: %', at_most_s, condition;
    END IF;
    PERFORM pg_sleep(0.02);
  END LOOP;
END $$;

-- Waits until another node than that is the coordinator, and the shard's home is known here; returns the
-- milliseconds since then of both. It looks each 5 ms: that is how exact the times are.
CREATE PROCEDURE bench.await_home(wanted text, missing int, dead int, since timestamptz,
  INOUT office float8 = NULL, INOUT home float8 = NULL)
LANGUAGE plpgsql AS $$
BEGIN
  WHILE office IS NULL OR home IS NULL LOOP
    COMMIT;
    PERFORM pg_sleep(0.005);
    IF office IS NULL AND EXISTS (SELECT FROM shard_members WHERE coordinator AND node <> dead) THEN
      office := extract(epoch FROM clock_timestamp() - since) * 1000;
    END IF;
    IF home IS NULL AND EXISTS (SELECT FROM shard_homes WHERE (type_name, shard) = (wanted, missing)) THEN
      home := extract(epoch FROM clock_timestamp() - since) * 1000;
    END IF;
  END LOOP;
END $$;
