-- The judge: one entity per game, which is told every event of its game, in
-- order, and remembers just enough of it to say who played negatively.
--
--   stood_still  took 5 hits in a row on one spot, each within 10 s of the last
--   fed          died 4 times in a row to one opponent, killing nobody between
--   left_early   left for more than 30 s, or left and was still away 30 s later,
--                when the game ended
--
-- verify.sql says the same in plain SQL over the whole event table.

-- An offence, with the number of the event that completed it.
CREATE TYPE offence AS (player_id int, kind text, seq int);

-- What the judge remembers of one player.
CREATE TYPE track AS (
  x       int,           -- where the player was last seen
  y       int,
  hits    int,           -- hits taken in a row on that spot
  hit_at  timestamptz,   -- the last of them
  deaths  int,           -- deaths in a row ...
  killer  int,           -- ... to this opponent
  left_at timestamptz,   -- when the player left, if away now ...
  left_in int            -- ... and in which event
);

-- The state of the entity. Its attributes are the columns of shard_entity.judge.
CREATE TYPE game AS (
  last_seq int,          -- number of the last event seen
  disorder int,          -- events that were not the next one: must stay 0
  started  timestamptz,
  ended    timestamptz,
  players  int[],        -- who plays; tracks[i] is about players[i]
  tracks   track[],
  offences offence[]
);

-- Where the verdicts go: an ordinary table. They commit together with the state
-- of the game that they end.
CREATE TABLE verdict (
  game_id   int,
  player_id int,
  kind      text,
  times     int NOT NULL,
  first_seq int NOT NULL,
  PRIMARY KEY (game_id, player_id, kind)
);

CREATE FUNCTION judge(state game, message jsonb) RETURNS game
LANGUAGE plpgsql AS $$
DECLARE
  kind   text := message->>'kind';
  seq    int := (message->'seq')::int;
  clock  timestamptz := message->>'time';
  player int := (message->'player')::int;
  x      int := (message->'x')::int;
  y      int := (message->'y')::int;
  slot   int;
  it     track;
BEGIN
  -- A question, not an event: shard_ask gets the state back, unchanged.
  IF kind = 'look' THEN
    RETURN state;
  END IF;

  -- A state that does not exist yet is NULL: this is the game's first event.
  IF state IS NULL THEN
    state := (0, 0, clock, NULL, '{}', '{}', '{}');
  END IF;
  IF seq IS DISTINCT FROM state.last_seq + 1 THEN
    state.disorder := state.disorder + 1;
  END IF;
  state.last_seq := seq;

  IF player IS NOT NULL THEN
    slot := array_position(state.players, player);
    IF slot IS NULL THEN
      state.players := state.players || player;
      slot := cardinality(state.players);
    ELSE
      it := state.tracks[slot];
    END IF;
    IF it.x IS DISTINCT FROM x OR it.y IS DISTINCT FROM y THEN
      it.x := x;
      it.y := y;
      it.hits := 0;
    END IF;
  END IF;

  CASE kind
  WHEN 'hit' THEN
    IF it.hit_at < clock - interval '10 s' THEN
      it.hits := 0;
    END IF;
    it.hits := it.hits + 1;
    it.hit_at := clock;
    IF it.hits = 5 THEN
      state.offences := state.offences || (player, 'stood_still', seq)::offence;
    END IF;

  WHEN 'death' THEN
    it.hits := 0;
    IF it.killer = (message->'by')::int THEN
      it.deaths := it.deaths + 1;
    ELSE
      it.deaths := 1;
      it.killer := message->'by';
    END IF;
    IF it.deaths = 4 THEN
      state.offences := state.offences || (player, 'fed', seq)::offence;
    END IF;
    -- The killer has killed somebody: the row of their own deaths is broken.
    DECLARE
      killer int := array_position(state.players, it.killer);
      its    track := state.tracks[killer];
    BEGIN
      IF its.killer IS NOT NULL THEN
        its.killer := NULL;
        state.tracks[killer] := its;
      END IF;
    END;

  WHEN 'leave' THEN
    it.hits := 0;
    it.left_at := clock;
    it.left_in := seq;

  WHEN 'join' THEN
    it.hits := 0;
    IF it.left_at < clock - interval '30 s' THEN
      state.offences := state.offences || (player, 'left_early', it.left_in)::offence;
    END IF;
    it.left_at := NULL;

  WHEN 'game_end' THEN
    state.ended := clock;
    FOR slot IN 1 .. cardinality(state.players) LOOP
      it := state.tracks[slot];
      IF it.left_at < clock - interval '30 s' THEN
        state.offences := state.offences
          || (state.players[slot], 'left_early', it.left_in)::offence;
      END IF;
    END LOOP;

    INSERT INTO verdict
    SELECT (shard_self()).entity_id::int, o.player_id, o.kind, count(*), min(o.seq)
    FROM unnest(state.offences) o
    GROUP BY o.player_id, o.kind;

    -- The game needs its judge no more. The row stays, to be looked at.
    PERFORM shard_stop();
    RETURN state;

  ELSE  -- move, game_start: nothing beyond the above
  END CASE;

  IF player IS NOT NULL THEN
    state.tracks[slot] := it;
  END IF;
  RETURN state;
END
$$;

-- Events of a game come in at one server and later at another one, and nobody knows which are here first: its
-- judge gets them by their numbers, beginning with 1.
CREATE FUNCTION seq_of(message jsonb) RETURNS int8 LANGUAGE sql RETURN (message->>'seq')::int8;

-- Who may execute the handler may send events; functions are everybody's unless one says so.
REVOKE EXECUTE ON FUNCTION judge(game, jsonb) FROM PUBLIC;

-- An idle judge leaves memory by itself; its game goes on with the next event.
SELECT shard_start('judge', 'judge(game,jsonb)',
                   ordered_by => 'seq_of(jsonb)', ordered_from => 1,
                   ordered_timeout => '2 min',          -- then an event that never came is given up
                   allocation_strategy => 'locality',   -- a judge lives where its first event came in
                   buffer_size => 1000000);  -- what may wait here for a server that is away
