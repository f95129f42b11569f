-- The game service's own database: ordinary tables. It is no node of the cluster.

CREATE TABLE player (
  id   int PRIMARY KEY,
  name text NOT NULL,
  rank text NOT NULL
);

CREATE TABLE event (
  game_id    int,
  seq        int,                    -- 1, 2, 3 … within the game
  event_time timestamptz NOT NULL,
  kind       text NOT NULL,          -- game_start join move hit death leave game_end
  player_id  int,                    -- who joined, moved, was hit, died, left
  x          smallint,               -- where
  y          smallint,
  damage     smallint,
  by_player  int                     -- by whom
);

-- The same events as the messages that the service emits, and where they come in.
CREATE TABLE outgoing (
  server     int,                    -- 0, 1, 2
  session    int,                    -- 0 copies, the others tell
  slice      int,                    -- ten seconds of play
  game_id    int,
  seq        int,
  event_time timestamptz,
  message    jsonb
);

-- What the judges of all servers came to, gathered at the end.
CREATE TABLE verdict (
  game_id   int,
  player_id int,
  kind      text,
  times     int,
  first_seq int
);

CREATE TABLE judged (
  server    text,                    -- where its row is ...
  shard     int,
  game_id   int,
  last_seq  int,
  disorder  int,
  started   timestamptz,
  ended     timestamptz,
  players   int,
  offences  int
);

CREATE TABLE home (
  shard     int,
  server    text                     -- ... and where the cluster says that it should be
);

CREATE TABLE remains (
  server       text,
  running      int,                  -- judges still in memory
  waiting      int,                  -- messages not handled yet
  dead_letters int
);
