-- Judges all games once more, in plain SQL over the event table, without entities
-- and without looking at the verdicts; then compares. Fails if anything differs.

-- stood_still: a new spot begins where a player's position changes and at a
-- death, join or leave; hits on one spot are one run until a pause over 10 s.
CREATE TEMP VIEW stood_still AS
WITH spotted AS (
  SELECT *,
         count(*) FILTER (WHERE moved) OVER (PARTITION BY game_id, player_id ORDER BY seq) AS spot
  FROM (SELECT game_id, player_id, seq, event_time, kind,
                 kind IN ('death', 'join', 'leave')
                 OR (x, y) IS DISTINCT FROM (lag(x) OVER player, lag(y) OVER player) AS moved
          FROM event
          WHERE player_id IS NOT NULL
          WINDOW player AS (PARTITION BY game_id, player_id ORDER BY seq)) e
), run AS (
  SELECT *,
         count(*) FILTER (WHERE paused) OVER (PARTITION BY game_id, player_id ORDER BY seq) AS pauses
  FROM (SELECT game_id, player_id, seq, spot,
                 event_time - lag(event_time) OVER (PARTITION BY game_id, player_id ORDER BY seq)
                 > interval '10 s' AS paused
          FROM spotted
          WHERE kind = 'hit') h
)
SELECT game_id, player_id, seq
FROM (SELECT game_id, player_id, seq,
             row_number() OVER (PARTITION BY game_id, player_id, spot, pauses ORDER BY seq) AS hits
      FROM run) r
WHERE hits = 5;

-- fed: a player's deaths and kills in one line; a run of deaths ends where the
-- opponent changes or a kill stands between.
CREATE TEMP VIEW fed AS
WITH line AS (
  SELECT game_id, seq, player_id, by_player AS killer FROM event WHERE kind = 'death'
  UNION ALL
  SELECT game_id, seq, by_player, NULL FROM event WHERE kind = 'death'
), run AS (
  SELECT *,
         count(*) FILTER (WHERE changed) OVER (PARTITION BY game_id, player_id ORDER BY seq) AS changes
  FROM (SELECT *, killer IS DISTINCT FROM
          lag(killer) OVER (PARTITION BY game_id, player_id ORDER BY seq) AS changed
          FROM line) l
)
SELECT game_id, player_id, seq
FROM (SELECT *, row_number() OVER (PARTITION BY game_id, player_id, changes ORDER BY seq) AS deaths
      FROM run) r
WHERE killer IS NOT NULL AND deaths = 4;

-- left_early: from each leave to the return, or else to the end of the game.
CREATE TEMP VIEW left_early AS
SELECT game_id, player_id, seq
FROM (SELECT game_id, player_id, seq, kind, event_time,
             lead(event_time) OVER (PARTITION BY game_id, player_id ORDER BY seq) AS back
      FROM event
      WHERE kind IN ('join', 'leave')) l
JOIN (SELECT game_id, event_time AS ended FROM event WHERE kind = 'game_end') g USING (game_id)
WHERE kind = 'leave' AND coalesce(back, ended) - event_time > interval '30 s';

CREATE TEMP TABLE expected AS
SELECT game_id, player_id, kind, count(*)::int AS times, min(seq) AS first_seq
FROM (SELECT *, 'stood_still' AS kind FROM stood_still
      UNION ALL SELECT *, 'fed' FROM fed
      UNION ALL SELECT *, 'left_early' FROM left_early) o
GROUP BY game_id, player_id, kind;

CREATE TEMP TABLE difference AS
(SELECT 'only the judges' AS says, * FROM (TABLE verdict EXCEPT ALL TABLE expected) a)
UNION ALL
(SELECT 'only plain SQL', * FROM (TABLE expected EXCEPT ALL TABLE verdict) b);

CREATE TEMP TABLE checked AS
VALUES (1, 'events that the judges saw', (SELECT sum(last_seq) FROM judged), (SELECT count(*) FROM event)),
       (2, 'events out of order', (SELECT sum(disorder) FROM judged), 0),
       (3, 'games that ended', (SELECT count(ended) FROM judged),
        (SELECT count(DISTINCT game_id) FROM event)),
       (4, 'games with two judges', (SELECT count(*) - count(DISTINCT game_id) FROM judged), 0),
       (5, 'judges away from their shard',
        (SELECT count(*) FROM judged j
         WHERE NOT EXISTS (SELECT FROM home h WHERE (h.shard, h.server) = (j.shard, j.server))), 0),
       (6, 'judges still running', (SELECT sum(running) FROM remains), 0),
       (7, 'messages that wait', (SELECT sum(waiting) FROM remains), 0),
       (8, 'dead letters', (SELECT sum(dead_letters) FROM remains), 0),
       (9, 'verdicts', (SELECT count(*) FROM verdict), (SELECT count(*) FROM expected)),
       (10, 'verdicts that differ', (SELECT count(*) FROM difference), 0);

\pset footer off
\pset title 'The judges, checked against plain SQL'
SELECT column2 AS "check", column3 AS found, column4 AS expected FROM checked ORDER BY column1;

\pset title 'The first differences'
SELECT count(*) > 0 AS differ FROM difference \gset
\if :differ
SELECT * FROM difference ORDER BY game_id, player_id, kind LIMIT 10;
\endif

DO $$
BEGIN
  IF EXISTS (SELECT FROM checked WHERE column3 IS DISTINCT FROM column4) THEN
    RAISE 'the judges and plain SQL do not agree' USING ERRCODE = 'data_exception';
  END IF;
END
$$;
