-- Timers (T). The state is the worst lateness in microseconds; the message says when it was due.
CREATE FUNCTION bench.late(state int8, message jsonb) RETURNS int8 LANGUAGE sql
  RETURN greatest(coalesce(state, 0), (extract(epoch FROM clock_timestamp()) * 1000000)::int8 - message::int8);
SELECT shard_start('timed', 'bench.late');

-- Timers of as many entities as there are tens of them, due from a time on, so many in a second; 0: all at once.
CREATE PROCEDURE bench.schedule(timers int8, start timestamptz, rate int8) LANGUAGE plpgsql AS $$
DECLARE
  due timestamptz;
BEGIN
  FOR i IN 1 .. timers LOOP
    due := start + CASE WHEN rate > 0 THEN i * interval '1 s' / rate ELSE '0 s' END;
    PERFORM shard_schedule('timed', (i % (timers / 10 + 1))::text, to_jsonb((extract(epoch FROM due) * 1000000)::int8), at => due);
    IF i % 1000 = 0 THEN
      COMMIT;
    END IF;
  END LOOP;
  COMMIT;
END $$;

-- Until the workers have handled so many messages, and no timer is left. The table is not looked at before, since each look
-- would read all rows that have gone.
CREATE PROCEDURE bench.until_fired(handled int8) LANGUAGE plpgsql AS $$
BEGIN
  WHILE (SELECT sum(messages_handled) FROM shard_stat_workers) < handled OR EXISTS (SELECT FROM shard.timer) LOOP
    COMMIT;
    PERFORM pg_sleep(0.01);
  END LOOP;
END $$;
