-- For a run that failed: what this server says, and which games wait for which event.

SELECT ok, unnest(CASE WHEN problems = '{}' THEN '{none}' ELSE problems END) AS "shard_health()"
FROM shard_health();

SELECT EXISTS (SELECT FROM shard_ordered WHERE waiting > 0 OR skipped > 0 OR late > 0) AS gaps,
       EXISTS (SELECT FROM shard_entity.judge WHERE ended IS NULL) AS games,
       EXISTS (SELECT FROM shard_inbox) AS messages,
       EXISTS (SELECT FROM shard_dead_letters) AS dead,
       EXISTS (SELECT FROM shard_region_state) AS judges,
       EXISTS (SELECT FROM shard_rebalances) AS moves \gset

\if :gaps
\pset title 'Games whose next event has not come, or was given up'
SELECT entity_id AS game, shard, expected AS "waits for event", waiting AS "later ones here",
       first_waiting AS "the first of them", waiting_since::time(0), skipped, late
FROM shard_ordered
WHERE waiting > 0 OR skipped > 0 OR late > 0
ORDER BY waiting_since
LIMIT 10;
\endif
\if :games
\pset title 'Games that have not ended'
SELECT count(*) AS games, sum(last_seq) AS "events seen", min(entity_id) AS "one of them"
FROM shard_entity.judge
WHERE ended IS NULL;
\endif
\if :judges
\pset title 'Judges in memory'
SELECT *
FROM shard_region_state
LIMIT 10;
\endif
\if :messages
\pset title 'Messages that wait'
SELECT place, count(*) AS messages, count(DISTINCT entity_id) AS games, min(next_at) AS next_at,
       min(error) AS error
FROM shard_inbox
GROUP BY place;
\endif
\if :dead
\pset title 'Dead letters'
SELECT sqlstate, error, count(*), min(entity_id) AS "one game"
FROM shard_dead_letters
GROUP BY 1, 2
LIMIT 10;
\endif
\if :moves
\pset title 'Shards that move'
TABLE shard_rebalances LIMIT 10;
\endif
