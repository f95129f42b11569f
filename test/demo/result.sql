-- What came out, for people. In the service's database, where everything was gathered.
\pset footer off

\pset title 'Who judged'
SELECT server, count(DISTINCT shard) AS shards, count(*) AS games,
       (SELECT count(*) FROM verdict v
        WHERE EXISTS (SELECT FROM judged g WHERE g.game_id = v.game_id AND g.server = j.server)) AS verdicts
FROM judged j
GROUP BY server
ORDER BY server;

\pset title 'Verdicts'
SELECT kind, count(*) AS verdicts, count(DISTINCT player_id) AS players,
       count(DISTINCT game_id) AS games, sum(times) AS offences
FROM verdict
GROUP BY kind
ORDER BY verdicts DESC;

\pset title 'Worst players, from verdict and the ordinary table player'
SELECT name, rank,
       (SELECT count(*) FROM event e WHERE e.player_id = p.id AND kind = 'join') AS joined,
       count(*) AS verdicts,
       count(*) FILTER (WHERE kind = 'stood_still') AS stood_still,
       count(*) FILTER (WHERE kind = 'fed') AS fed,
       count(*) FILTER (WHERE kind = 'left_early') AS left_early
FROM verdict v JOIN player p ON p.id = v.player_id
GROUP BY p.id
ORDER BY verdicts DESC, name
LIMIT 8;

\pset title 'One of them: four deaths in a row to the same opponent'
SELECT e.game_id, e.seq, e.event_time::time(0) AS "time", v.name AS victim, e.kind,
       a.name AS "by", e.damage
FROM (SELECT * FROM verdict WHERE kind = 'fed' ORDER BY game_id, player_id LIMIT 1) f
JOIN event e ON e.game_id = f.game_id AND e.seq <= f.first_seq AND e.kind = 'death'
      AND f.player_id IN (e.player_id, e.by_player)
JOIN player v ON v.id = e.player_id
JOIN player a ON a.id = e.by_player
ORDER BY e.seq;

\pset title 'Its judge'
SELECT server, shard, game_id, last_seq, disorder, started::time(0), ended::time(0), players, offences
FROM judged
WHERE game_id = (SELECT min(game_id) FROM verdict WHERE kind = 'fed');
