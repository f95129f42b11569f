-- One session of the game service, telling its games' events as time goes by: one
-- set-based statement, so one transaction, per ten seconds of play.
--   psql -v session=1 -v sessions=4 -f tell.sql
-- The games with odd numbers are spread over the sessions, each to one: messages of
-- one session to one entity are handled in the order in which they were sent.

SELECT format($$
  SELECT count(shard_tell('judge', game_id::text, message))
  FROM (SELECT game_id, message FROM outgoing
          WHERE event_time >= %L AND event_time < %L
      AND game_id %% 2 = 1 AND game_id / 2 %% %s = %s
          ORDER BY event_time, game_id, seq) slice$$,
  t, t + interval '10 s', :sessions, :session - 1)
FROM (SELECT min(event_time) AS first, max(event_time) AS last FROM outgoing) o,
     generate_series(first, last, interval '10 s') t
ORDER BY t
\gexec
