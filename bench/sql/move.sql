-- What the scenarios of moving shards share; run at each node.

-- A handler whose states have 200 bytes. A message that says when it was sent is noted: how long did it wait?
CREATE TABLE bench.seen (type_name text, sent timestamptz, handled timestamptz);
CREATE FUNCTION bench.resident(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
  IF message ? 'sent' THEN
    INSERT INTO bench.seen VALUES (message->>'type', (message->>'sent')::timestamptz, clock_timestamp());
  END IF;
  RETURN jsonb_build_object('count', coalesce((state->>'count')::int8, 0) + 1, 'pad', repeat('x', 170));
END $$;

-- The same, counted by a sequence: it costs little, and survives shards that leave.
CREATE SEQUENCE bench.handled;
CREATE FUNCTION bench.counted(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
  PERFORM nextval('bench.handled');
  RETURN bench.resident(state, message);
END $$;

-- A row here ends what goes on.
CREATE TABLE bench.stop ();

-- Messages that this node has sent, and asks that were answered.
CREATE TABLE bench.told (type_name text, messages int8);

-- Tells a message to each of the entities from one to before another one, in transactions of 1 000.
CREATE PROCEDURE bench.populate(wanted text, since int, until int) LANGUAGE plpgsql AS $$
BEGIN
  FOR start IN since .. until - 1 BY 1000 LOOP
    PERFORM shard_tell_many(wanted, array_agg('e' || i), array_agg(bench.message()))
    FROM generate_series(start, least(start + 999, until - 1)) i;
    COMMIT;
  END LOOP;
  INSERT INTO bench.told VALUES (wanted, until - since);
END $$;

-- Tells messages to random ones of the entities at a steady pace, in a transaction for each 5 ms, for which it
-- sleeps; who is late, catches up. Every so many of them (0: none) says when it was sent.
CREATE PROCEDURE bench.trickle(wanted text, entities int, per_second int, marked int, seconds float8)
LANGUAGE plpgsql AS $$
DECLARE
  began CONSTANT timestamptz := clock_timestamp();
  ends CONSTANT timestamptz := began + seconds * interval '1 s';
  plain CONSTANT jsonb := bench.message();
  told int8 := 0;
  due int8;
BEGIN
  WHILE clock_timestamp() < ends AND NOT EXISTS (SELECT FROM bench.stop) LOOP
    due := extract(epoch FROM clock_timestamp() - began) * per_second;
    IF due > told THEN
      PERFORM shard_tell_many(wanted, array_agg('e' || floor(random() * entities)::int),
        array_agg(CASE WHEN marked > 0 AND i % marked = 0 THEN 
                  jsonb_build_object('type', wanted, 'sent', clock_timestamp())
                  ELSE plain END))
      FROM generate_series(told + 1, due) i;
      told := due;
    END IF;
    COMMIT;
    PERFORM pg_sleep(0.005);
  END LOOP;
  INSERT INTO bench.told VALUES (wanted, told);
END $$;

-- Tells as fast as the entities that live here handle it, with at most 20 000 messages waiting: who finds so many
-- looks again after 2 ms, in which not even a tenth of them is handled.
CREATE PROCEDURE bench.pump(wanted text, there text, seconds float8) LANGUAGE plpgsql AS $$
DECLARE
  batch CONSTANT int := 1000;
  ends CONSTANT timestamptz := clock_timestamp() + seconds * interval '1 s';
  bodies CONSTANT jsonb[] := array_fill(bench.message(), ARRAY[batch]);
  ids CONSTANT text[] := ARRAY(SELECT id FROM bench.target
                               WHERE (type_name, place) = (wanted, there) ORDER BY k LIMIT batch);
  before CONSTANT int8 := (SELECT last_value FROM bench.handled);
  told int8 := 0;
BEGIN
  IF cardinality(ids) <> batch THEN
    RAISE 'there are % entities of % here', cardinality(ids), wanted;
  END IF;
  WHILE clock_timestamp() < ends AND NOT EXISTS (SELECT FROM bench.stop) LOOP
    IF told - ((SELECT last_value FROM bench.handled) - before) < 20 * batch THEN
      PERFORM shard_tell_many(wanted, ids, bodies);
      told := told + batch;
    ELSE
      PERFORM pg_sleep(0.002);
    END IF;
    COMMIT;
  END LOOP;
  INSERT INTO bench.told VALUES (wanted, told);
END $$;

-- Asks random ones of the entities, one after the other, with 2 ms between them as somebody has who thinks, and notes
-- how long it took; or what went wrong.
CREATE TABLE bench.asked (sent timestamptz, answered timestamptz, error text);
CREATE PROCEDURE bench.question(wanted text, entities int, seconds float8) LANGUAGE plpgsql AS $$
DECLARE
  ends CONSTANT timestamptz := clock_timestamp() + seconds * interval '1 s';
  sent timestamptz;
  failure text;
  answered int8 := 0;
BEGIN
  SET synchronous_commit = off;  -- of its notes
  WHILE clock_timestamp() < ends AND NOT EXISTS (SELECT FROM bench.stop) LOOP
    sent := clock_timestamp();
    failure := NULL;
    BEGIN
      PERFORM shard_ask(wanted, 'e' || floor(random() * entities)::int, bench.message(), '10 s');
      answered := answered + 1;
    EXCEPTION WHEN OTHERS THEN
      failure := SQLSTATE;
    END;
    INSERT INTO bench.asked VALUES (sent, clock_timestamp(), failure);
    COMMIT;
    PERFORM pg_sleep(0.002);
  END LOOP;
  INSERT INTO bench.told VALUES (wanted, answered);
END $$;

-- What has been handled here, and who has how many shards of a type, as this node knows it: a sample
-- each so many seconds.
CREATE TABLE bench.sample (at timestamptz, handled int8);
CREATE TABLE bench.shards (at timestamptz, node int, shards int);
CREATE PROCEDURE bench.watch(wanted text, interval_s float8, seconds float8) LANGUAGE plpgsql AS $$
DECLARE
  ends CONSTANT timestamptz := clock_timestamp() + seconds * interval '1 s';
BEGIN
  SET synchronous_commit = off;
  WHILE clock_timestamp() < ends AND NOT EXISTS (SELECT FROM bench.stop) LOOP
    INSERT INTO bench.sample SELECT clock_timestamp(), last_value FROM bench.handled;
    IF wanted <> '' THEN
      INSERT INTO bench.shards
      SELECT clock_timestamp(), node, count(*) FROM shard_homes WHERE type_name = wanted GROUP BY node;
    END IF;
    COMMIT;
    PERFORM pg_sleep(interval_s);
  END LOOP;
END $$;

-- Moves a shard back and forth between two nodes. The pause after each move is a window in which is measured: what it
-- costs others that the old rows are deleted, and how long messages wait when nothing moves. Ended: when the home is decided, and
-- the call has returned. The message that the target handles first comes later; bench.seen has it.
CREATE TABLE bench.move (no int, target int, asked timestamptz, ended timestamptz);
CREATE PROCEDURE bench.move_back_and_forth(wanted text, wanted_shard int, one int, other int, moves int,
  pause_s float8)
LANGUAGE plpgsql AS $$
DECLARE
  target int;
  home int;
  asked timestamptz;
BEGIN
  FOR i IN 1 .. moves LOOP
    SELECT node INTO STRICT home FROM shard_homes WHERE (type_name, shard) = (wanted, wanted_shard);
    target := CASE home WHEN one THEN other ELSE one END;
    COMMIT;
    asked := clock_timestamp();
    PERFORM shard_move(wanted, wanted_shard, target);
    INSERT INTO bench.move VALUES (i, target, asked, clock_timestamp());
    COMMIT;
    PERFORM pg_sleep(pause_s);
    SELECT node INTO STRICT home FROM shard_homes WHERE (type_name, shard) = (wanted, wanted_shard);
    IF home <> target THEN
      RAISE 'after move % the shard is at node %, not %', i, home, target;
    END IF;
    COMMIT;
  END LOOP;
END $$;

-- What was noted at the other nodes comes to one of them.
CREATE TABLE bench.all_seen (node int, type_name text, sent timestamptz, handled timestamptz);
CREATE TABLE bench.all_samples (node int, at timestamptz, handled int8);
CREATE INDEX ON bench.all_seen (sent);
CREATE INDEX ON bench.all_samples (node, at);

-- A move with its end as messages see it: the first one that the target handles. And, of those that waited
-- while it went on, how long they did.
CREATE VIEW bench.moved AS
SELECT no, target, asked, ended, done, extract(epoch FROM ended - asked) * 1000 AS decided_ms,
       extract(epoch FROM done - asked) * 1000 AS lasted_ms, messages, p50_ms, p99_ms, longest_ms, asks, ask_ms, asks_failed
FROM bench.move
     CROSS JOIN LATERAL (SELECT min(handled) AS done FROM bench.all_seen
                         WHERE type_name = 'moving' AND node = target AND handled > asked) d
     CROSS JOIN LATERAL (
       SELECT count(*) AS messages, max(ms) AS longest_ms,
              percentile_cont(0.5) WITHIN GROUP (ORDER BY ms) AS p50_ms,
              percentile_cont(0.99) WITHIN GROUP (ORDER BY ms) AS p99_ms
       FROM (SELECT extract(epoch FROM handled - sent) * 1000 AS ms FROM bench.all_seen
             WHERE type_name = 'moving' AND sent <= done AND handled >= asked) s) m
     CROSS JOIN LATERAL (
       SELECT count(*) AS asks, max(extract(epoch FROM a.answered - a.sent) * 1000) AS ask_ms, count(error) AS asks_failed
       FROM bench.asked a WHERE a.sent <= done AND a.answered >= asked) a;

-- Messages of a type whose life lies between two moves: ms from being sent to being handled.
CREATE FUNCTION bench.in_peace(wanted text, OUT p50 float8, OUT p99 float8) LANGUAGE sql AS $$
  SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY ms), percentile_cont(0.99) WITHIN GROUP (ORDER BY ms)
  FROM (SELECT extract(epoch FROM handled - sent) * 1000 AS ms FROM bench.all_seen s
        WHERE type_name = wanted AND EXISTS (
          SELECT FROM (SELECT done, lead(asked) OVER (ORDER BY no) AS next FROM bench.moved) p
          WHERE s.sent > done + (next - done) / 2 AND s.handled < next)) s
$$;

-- How many messages a node had handled at a moment, between two samples by the straight line.
CREATE FUNCTION bench.handled_at(there int, moment timestamptz) RETURNS float8 LANGUAGE sql AS $$
  SELECT a.handled + (b.handled - a.handled)
         * coalesce(extract(epoch FROM moment - a.at) / nullif(extract(epoch FROM b.at - a.at), 0), 0)
  FROM (SELECT * FROM bench.all_samples WHERE node = there AND at <= moment ORDER BY at DESC LIMIT 1) a,
       (SELECT * FROM bench.all_samples WHERE node = there AND at >= moment ORDER BY at LIMIT 1) b
$$;

-- Messages a second that these nodes handled in a while.
CREATE FUNCTION bench.rate(since timestamptz, until timestamptz) RETURNS float8 LANGUAGE sql AS $$
  SELECT sum(coalesce(bench.handled_at(node, until), 0) - coalesce(bench.handled_at(node, since), 0))
         / extract(epoch FROM until - since)
  FROM (SELECT DISTINCT node FROM bench.all_samples) n
$$;

-- How long messages sent in a while waited, in ms.
CREATE FUNCTION bench.waits(since timestamptz, until timestamptz, OUT p50 float8, OUT p99 float8, OUT longest float8)
LANGUAGE sql AS $$
  SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY ms), percentile_cont(0.99) WITHIN GROUP (ORDER BY ms), max(ms)
  FROM (SELECT extract(epoch FROM handled - sent) * 1000 AS ms FROM bench.all_seen
        WHERE sent >= since AND sent < until) m
$$;

-- Half a second after the other since then: messages handled a second, how long those sent in it waited, and the
-- shards of each node.
CREATE FUNCTION bench.curve(wanted text, began timestamptz, ended timestamptz)
RETURNS TABLE (at float8, rate float8, p50_ms float8, longest_ms float8, shards_1 int, shards_2 int, shards_3 int)
LANGUAGE sql AS $$
  SELECT extract(epoch FROM since - began), bench.rate(since, until), w.p50, w.longest, s.*
  FROM (SELECT t AS since, t + interval '500 ms' AS until
        FROM generate_series(began, ended - interval '500 ms', interval '500 ms') t) step
       CROSS JOIN LATERAL bench.waits(since, until) w
       CROSS JOIN LATERAL (
         SELECT coalesce(max(shards) FILTER (WHERE node = 1), 0), coalesce(max(shards) FILTER (WHERE node = 2), 0),
                coalesce(max(shards) FILTER (WHERE node = 3), 0)
         FROM bench.shards h WHERE h.at >= since AND h.at < until) s
  ORDER BY since
$$;
