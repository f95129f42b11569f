-- Makes :events events of :games games, the same ones for the same :seed.
--   psql -v events=1000000 -v games=5000 -v seed=1 -f generate.sql

-- Plays one game of the given number of events. The game's number and the seed
-- decide everything in it, so any single game can be made again.
CREATE FUNCTION play_game(game int, length int, start timestamptz, players int, seed int)
RETURNS SETOF event
LANGUAGE plpgsql AS $$
DECLARE
  e        event;                   -- the event being made
  seats    int;
  id       int[];                   -- by seat, as all the arrays
  px       int[];
  py       int[];
  health   int[];
  away     boolean[];
  nature   text[];                  -- NULL for most
  prey     int;                     -- a feeder, whom the others seek
  first    int;
  stride   int;
  victim   int;                     -- the fight that goes on: victim, attacker,
  attacker int;                     -- and how many events it will still have
  fight    int := 0;
  moves    float8;                  -- how likely the victim gets out of the way
  s        int;
BEGIN
  PERFORM setseed(hashint8extended(game, seed) / 2 ^ 63);
  seats := 4 + floor(random() * 7);
  first := floor(random() * players);
  stride := 1 + floor(random() * (players / 10));

  e := (game, 1, start, 'game_start', NULL, NULL, NULL, NULL, NULL);
  RETURN NEXT e;

  FOR s IN 1 .. seats LOOP
    id[s] := 1 + (first + s * stride) % players;
    px[s] := floor(random() * 1000);
    py[s] := floor(random() * 1000);
    health[s] := 100;
    away[s] := false;
    -- Some people are like that, though not in every game.
    nature[s] := CASE WHEN random() < 0.6 THEN
      CASE abs(hashint8extended(id[s], seed) % 40)
        WHEN 0 THEN 'camper' WHEN 1 THEN 'feeder' WHEN 2 THEN 'quitter' END
    END;
    IF nature[s] = 'feeder' THEN
      prey := s;
    END IF;
    e := (game, s + 1, start, 'join', id[s], px[s], py[s], NULL, NULL);
    RETURN NEXT e;
  END LOOP;

  FOR seq IN seats + 2 .. length - 1 LOOP
    e.seq := seq;
    e.event_time := e.event_time + trunc(random() * 3000) * interval '1 ms';
    e.damage := NULL;
    e.by_player := NULL;

    -- People come and go.
    IF random() < 0.03 THEN
      s := 1 + floor(random() * seats);
      IF away[s] OR nature[s] = 'quitter' OR random() < 0.1 THEN
        e.kind := CASE WHEN away[s] THEN 'join' ELSE 'leave' END;
        e.player_id := id[s];
        e.x := px[s];
        e.y := py[s];
        away[s] := NOT away[s];
        fight := 0;
        RETURN NEXT e;
        CONTINUE;
      END IF;
    END IF;

    -- The next fight. A feeder always meets the same opponent.
    IF fight = 0 THEN
      fight := 1 + floor(random() * 12);
      victim := CASE
        WHEN prey IS NOT NULL AND random() < 0.4 THEN prey
        ELSE 1 + floor(random() * seats) END;
      attacker := CASE nature[victim]
        WHEN 'feeder' THEN 1 + victim % seats
        ELSE 1 + (victim + floor(random() * (seats - 1))::int) % seats END;
    END IF;
    fight := fight - 1;
    -- Whoever is away just cannot take part: the others walk about.
    IF away[victim] OR away[attacker] THEN
      fight := 0;
      IF away[victim] THEN
        SELECT min(i) INTO victim FROM generate_series(1, seats) i WHERE NOT away[i];
        IF victim IS NULL THEN  -- all have left: the first one comes back
          victim := 1;
          away[1] := false;
          e.kind := 'join';
          e.player_id := id[1];
          e.x := px[1];
          e.y := py[1];
          RETURN NEXT e;
          CONTINUE;
        END IF;
      END IF;
      attacker := NULL;
    END IF;

    e.player_id := id[victim];
    moves := CASE nature[victim] WHEN 'camper' THEN 0.05 WHEN 'feeder' THEN 0.3 ELSE 0.6 END;
    IF attacker IS NULL OR random() < moves THEN
      e.kind := 'move';
      -- One move in ten leads nowhere.
      IF random() < 0.9 THEN
        px[victim] := floor(random() * 1000);
        py[victim] := floor(random() * 1000);
      END IF;
    ELSE
      e.kind := 'hit';
      e.damage := 5 + floor(random() * 26);
      e.by_player := id[attacker];
      health[victim] := health[victim] - e.damage;
      IF health[victim] <= 0 THEN
        e.kind := 'death';
        health[victim] := 100;
        fight := 0;
      END IF;
    END IF;
    e.x := px[victim];
    e.y := py[victim];
    RETURN NEXT e;
  END LOOP;

  e := (game, length, e.event_time, 'game_end', NULL, NULL, NULL, NULL, NULL);
  RETURN NEXT e;
END
$$;

-- Cuts the events into games of different length, about half to one and a half
-- times the mean, that start over five minutes: most of them run at the same time.
CREATE FUNCTION generate(events int, games int, seed int) RETURNS int8
LANGUAGE plpgsql AS $$
DECLARE
  players int := greatest(40, games * 2 / 5);
  made    int8;
BEGIN
  IF games < 1 OR events / games < 40 THEN
    RAISE 'a game needs 40 events or more' USING ERRCODE = 'invalid_parameter_value';
  END IF;

  INSERT INTO player
  SELECT i,
           (ARRAY['Ash','Bel','Cor','Dra','Eri','Fen','Gor','Hel'])[1 + h % 8]
           || (ARRAY['an','bor','dil','en','gar','ion','mir','wyn'])[1 + (h >> 3) % 8] || i,
           (ARRAY['bronze','bronze','silver','silver','gold','platinum'])[1 + (h >> 6) % 6]
  FROM generate_series(1, players) i,
         LATERAL (SELECT (hashint8extended(i, seed + 1) & x'fffff'::int)::int AS h) r;

  INSERT INTO event
  WITH cut AS (  -- after which event of all does game g end?
    SELECT g, (events::int8 * g / games
                   + CASE WHEN g IN (0, games) THEN 0
                          ELSE hashint8extended(g, seed + 2) % (events / games / 4) END)::int AS at
    FROM generate_series(0, games) g
  ), plan AS (
    SELECT g, at - lag(at) OVER (ORDER BY g) AS length,
               timestamptz '2026-01-01 20:00+00'
               + (abs(hashint8extended(g, seed + 3)) % 300000) * interval '1 ms' AS start
    FROM cut
  )
  SELECT e.* FROM plan, play_game(g, length, start, players, seed) e
  WHERE g > 0
  ORDER BY e.event_time, e.game_id, e.seq;  -- as the service's log would have them

  GET DIAGNOSTICS made = ROW_COUNT;
  RETURN made;
END
$$;

SELECT generate(:events, :games, :seed) AS events_made;

-- Every event as the message that the service emits. A game comes in at one server, by
-- one session there: half of the games by the one that copies, half by two that tell.
INSERT INTO outgoing
SELECT game_id % 3, (ARRAY[0, 1, 0, 2])[1 + game_id / 3 % 4],
       floor(extract(epoch FROM event_time - min(event_time) OVER ()) / 10), game_id, seq, event_time,
       jsonb_strip_nulls(jsonb_build_object(
           'kind', kind, 'seq', seq, 'time', event_time, 'player', player_id,
           'x', x, 'y', y, 'damage', damage, 'by', by_player))
FROM event;

ALTER TABLE event ADD PRIMARY KEY (game_id, seq);
ANALYZE player, event, outgoing;
