-- What the scenarios of one node share: baselines, handlers in several languages, entity types, senders.
CREATE EXTENSION shard;
\ir common.sql

-- Baselines.
CREATE TABLE bench.bare (type_name text, entity_id text, message jsonb);
CREATE TABLE bench.keyed (entity_id text PRIMARY KEY, count int8);
-- Half-filled pages keep its updates HOT, as on a state table.
CREATE TABLE bench.plain (entity_id text PRIMARY KEY, count int8) WITH (fillfactor = 50);
INSERT INTO bench.plain SELECT 'e' || i, 0 FROM generate_series(0, 999) i;

-- Handlers: a counter each.
CREATE TYPE bench.tally AS (count int8, last_delta int8);
CREATE FUNCTION bench.composite(state bench.tally, message jsonb) RETURNS bench.tally
LANGUAGE plpgsql AS $$
BEGIN
  state.last_delta := (message->>'delta')::int8;
  state.count := coalesce(state.count, 0) + state.last_delta;
  RETURN state;
END $$;

CREATE FUNCTION bench.batch(state jsonb, messages jsonb[]) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
  RETURN jsonb_build_object('count', coalesce((state->>'count')::int8, 0)
                            + (SELECT sum((m->>'delta')::int8) FROM unnest(messages) m));
END $$;

CREATE FUNCTION bench.counter_c(state int8, message jsonb) RETURNS int8
LANGUAGE c AS :'handler', 'bench_counter';
CREATE FUNCTION bench.counter_plpgsql(state int8, message jsonb) RETURNS int8 LANGUAGE plpgsql AS $$
BEGIN
  RETURN coalesce(state, 0) + (message->>'delta')::int8;
END $$;
CREATE FUNCTION bench.counter_sql(state int8, message jsonb) RETURNS int8 LANGUAGE sql
RETURN coalesce(state, 0) + (message->>'delta')::int8;

-- Entity types, each with the expression that sums its states.
CREATE TABLE bench.types (type_name text PRIMARY KEY, handler text, total text);
INSERT INTO bench.types VALUES
  ('counter', 'bench.counter(jsonb,jsonb)', $$sum((state->>'count')::int8)$$),
  ('composite', 'bench.composite(bench.tally,jsonb)', 'sum(count)'),
  ('batch', 'bench.batch(jsonb,jsonb[])', $$sum((state->>'count')::int8)$$),
  ('single', 'bench.counter(jsonb,jsonb)', $$sum((state->>'count')::int8)$$),
  ('account', 'bench.account(jsonb,jsonb)', $$sum((state->>'count')::int8)$$),
  ('ping', 'bench.counter(jsonb,jsonb)', $$sum((state->>'count')::int8)$$),
  ('counter_c', 'bench.counter_c(bigint,jsonb)', 'sum(state)'),
  ('counter_plpgsql', 'bench.counter_plpgsql(bigint,jsonb)', 'sum(state)'),
  ('counter_sql', 'bench.counter_sql(bigint,jsonb)', 'sum(state)'),
  ('fresh', 'bench.counter(jsonb,jsonb)', $$sum((state->>'count')::int8)$$);
SELECT shard_start(type_name, handler) FROM bench.types;

-- The sum of all states of a type: the number of messages handled.
CREATE FUNCTION bench.total(type_name text) RETURNS int8 LANGUAGE plpgsql AS $$
DECLARE
  result int8;
BEGIN
  EXECUTE format('SELECT coalesce(%s, 0) FROM shard_entity.%I',
           (SELECT t.total FROM bench.types t WHERE t.type_name = $1), type_name)
  INTO result;
  RETURN result;
END $$;

-- Fails unless every message of a batched run had its effect, exactly once.
CREATE FUNCTION bench.verify(how text, type_name text, before int8, messages int) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  found int8 := CASE how
    WHEN 'bare' THEN (SELECT count(*) FROM bench.bare)
    WHEN 'keyed' THEN (SELECT sum(count) FROM bench.keyed)
    ELSE bench.total(type_name) - before END;
BEGIN
  IF found <> messages OR EXISTS (SELECT FROM shard_dead_letters) THEN
    RAISE '% to %: % messages sent, % handled', how, type_name, messages, found;
  END IF;
END $$;

CREATE FUNCTION bench.inbox_size() RETURNS int8 LANGUAGE sql AS $$
  SELECT sum(pg_relation_size(oid))::int8 FROM pg_class
  WHERE relnamespace = 'shard'::regnamespace AND relname ~ '^inbox_[0-9]+$' AND relkind = 'r'
$$;

-- Sends the messages in transactions of 1 000, round robin over the entities; the client only waits.
-- inbox_peak: the largest size of the inbox seen; it can grow only while this runs.
CREATE PROCEDURE bench.send(how text, type_name text, messages int, entities int, prefix text,
  INOUT inbox_peak int8 = 0)
LANGUAGE plpgsql AS $$
DECLARE
  batch CONSTANT int := 1000;
  message CONSTANT jsonb := bench.message();
  bodies jsonb[] := array_fill(message, ARRAY[batch]);
  numbered CONSTANT boolean := how IN ('numbered', 'swapped');
  -- Numbers go on where they were; 'swapped': the second before the first, the fourth before the third.
  base int8;
  ids text[];
  first int;
BEGIN
  -- Not looked at by others: compare.sh runs this with commits that have no such view.
  IF numbered THEN
    base := coalesce((SELECT max(o.expected) FROM shard_ordered o
                      WHERE o.type_name = $2 AND o.entity_id ^@ prefix), 1);
  END IF;
  FOR i IN 0 .. messages / batch - 1 LOOP
    first := i * batch;
    IF i = 0 OR entities > batch THEN
      ids := ARRAY(SELECT prefix || (k % entities)
                   FROM generate_series(first, first + batch - 1) k);
    END IF;
    IF numbered THEN
      bodies := ARRAY(SELECT message || jsonb_build_object('n',
                               base + CASE how WHEN 'swapped' THEN k / entities # 1 ELSE k / entities END)
                      FROM generate_series(first, first + batch - 1) k);
    END IF;
    CASE how
      WHEN 'tell_many', 'numbered', 'swapped' THEN
        PERFORM shard_tell_many(type_name, ids, bodies);
      WHEN 'tell' THEN
        PERFORM shard_tell(type_name, prefix || (k % entities), message)
        FROM generate_series(first, first + batch - 1) k;
      WHEN 'copy' THEN
        EXECUTE format('COPY shard_inbox (type_name, entity_id, message) FROM %L',
                       bench.copy_file());
      WHEN 'bare' THEN
        INSERT INTO bench.bare
        SELECT type_name, id, body FROM unnest(ids, bodies) u(id, body);
      WHEN 'keyed' THEN
        INSERT INTO bench.keyed
        SELECT id, (body->>'delta')::int8 FROM unnest(ids, bodies) u(id, body);
    END CASE;
    IF i % 20 = 0 THEN
      inbox_peak := greatest(inbox_peak, bench.inbox_size());
    END IF;
    COMMIT;
  END LOOP;
END $$;

-- What COPY reads, for the type "counter"; the server may write only to its own folder.
CREATE FUNCTION bench.copy_file() RETURNS text LANGUAGE sql
RETURN current_setting('data_directory') || '/bench_messages';
DO $$
BEGIN
  EXECUTE format($copy$
    COPY (SELECT 'counter', 'e' || i, bench.message() FROM generate_series(0, 999) i) TO %L
    $copy$, bench.copy_file());
END $$;

-- Tells to an idle system, one at a time, and looks for the effect; three times in ms per round.
CREATE TABLE bench.latency (committed float8, visible float8, whole float8);
CREATE PROCEDURE bench.measure_latency(rounds int) LANGUAGE plpgsql AS $$
DECLARE
  message CONSTANT jsonb := bench.message();
  expected int8 := bench.total('ping');
  told timestamptz;
  committed timestamptz;
  visible timestamptz;
BEGIN
  FOR i IN 1 .. rounds LOOP
    -- Time to fall asleep: the next message shall find everybody idle.
    PERFORM pg_sleep(0.01);
    COMMIT;
    told := clock_timestamp();
    PERFORM shard_tell('ping', 'e0', message);
    COMMIT;
    committed := clock_timestamp();
    expected := expected + 1;
    -- Every look takes a new snapshot.
    WHILE NOT EXISTS (SELECT FROM shard_entity.ping WHERE (state->>'count')::int8 = expected) LOOP
    END LOOP;
    visible := clock_timestamp();
    INSERT INTO bench.latency VALUES (extract(epoch FROM committed - told) * 1000,
                                      extract(epoch FROM visible - committed) * 1000,
                                      extract(epoch FROM visible - told) * 1000);
    COMMIT;
  END LOOP;
END $$;

-- Every entity exists before anything is measured, except those of "fresh".
SELECT shard_tell_many(type_name, array_agg('e' || i), array_agg(bench.message()))
FROM bench.types, generate_series(0, 999) i
WHERE type_name NOT IN ('fresh', 'ping')
GROUP BY type_name;
SELECT shard_tell('ping', 'e0', bench.message());
SELECT bench.drain();
