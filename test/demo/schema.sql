-- The game service's own, ordinary tables.

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

-- The same events as the messages that the service emits.
CREATE TABLE outgoing (
  game_id    int,
  seq        int,
  event_time timestamptz,
  message    jsonb
);
