-- Where events come in at one server of the game service.

-- The events that come in here now, or from some time on: the stream has three parts, by games.
CREATE TABLE outgoing (
  part       int,
  session    int,                    -- 0 copies, the others tell
  slice      int,                    -- ten seconds of play
  game_id    int,
  seq        int,
  event_time timestamptz,
  message    jsonb
);

-- How far each session of a part has come here. It says so in the transaction that sends, so after
-- a crash it knows what was sent, even if it never heard of the COMMIT.
CREATE TABLE sent (
  part    int,
  session int,
  slice   int NOT NULL,
  PRIMARY KEY (part, session)
) WITH (fillfactor = 10);
INSERT INTO sent SELECT part, i, -1 FROM generate_series(0, 2) part, generate_series(0, :sessions) i;

-- Waits until it is time for a slice: the play began then, and a slice takes so many
-- seconds at least. Who is late, does not wait.
CREATE FUNCTION pace(slice int, began timestamptz, step float8) RETURNS void LANGUAGE sql
RETURN pg_sleep(extract(epoch FROM began - clock_timestamp()) + slice * step);
