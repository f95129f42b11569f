-- One session of the game service, telling its games' events as time goes by: one
-- set-based statement, so one transaction, per ten seconds of play, from where it had come.
--   psql -v part=0 -v session=1 -v began=… -v step=0 -f tell.sql

SELECT format('SELECT pace(%s, %L, %s)', slice, :'began', :step),
       format($$
  UPDATE sent SET slice = %1$s
  WHERE part = %3$s AND session = %2$s AND 0 <= (
    SELECT count(shard_tell('judge', game_id::text, message))
    FROM (SELECT game_id, message FROM outgoing
            WHERE part = %3$s AND session = %2$s AND slice = %1$s
          ORDER BY event_time, game_id, seq) events)$$, slice, :session, :part)
FROM (SELECT DISTINCT slice FROM outgoing WHERE part = :part AND session = :session) s
WHERE slice > (SELECT slice FROM sent WHERE part = :part AND session = :session)
ORDER BY slice
\gexec
