-- What all scenarios share, of one node or of a cluster.
CREATE SCHEMA bench;

-- The same 100 bytes every time.
CREATE FUNCTION bench.message() RETURNS jsonb IMMUTABLE LANGUAGE sql
RETURN format('{"pad": "%s", "delta": 1}', repeat('x', 77))::jsonb;

-- Handlers: a counter, and one that can be asked without changing it.
CREATE FUNCTION bench.counter(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
  RETURN jsonb_build_object('count',
                            coalesce((state->>'count')::int8, 0) + (message->>'delta')::int8);
END $$;

CREATE FUNCTION bench.account(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
  IF message ? 'get' THEN
    RETURN state;
  END IF;
  RETURN jsonb_build_object('count',
                            coalesce((state->>'count')::int8, 0) + (message->>'delta')::int8);
END $$;

-- Waits until everything is handled and durable; returns the milliseconds it took.
CREATE FUNCTION bench.drain() RETURNS float8 LANGUAGE plpgsql AS $$
DECLARE
  started timestamptz := clock_timestamp();
BEGIN
  IF NOT shard_drain('10 min') THEN
    RAISE 'not all messages were handled';
  END IF;
  RETURN extract(epoch FROM clock_timestamp() - started) * 1000;
END $$;

-- CPU time of the region workers so far, in µs.
CREATE FUNCTION bench.worker_cpu() RETURNS float8 LANGUAGE sql AS $$
  SELECT sum(split_part(pg_read_file('/proc/' || pid || '/schedstat'), ' ', 1)::float8) / 1000
  FROM (SELECT DISTINCT pid FROM shard_stat_workers) worker
$$;
