#!/bin/bash
# usage: hit_rates.sh [PSQL OPTION ...]
#
# Which part of the accesses of some loads finds its entity in memory, for each strategy of passivation: a table. By
# shard_plan_passivation(), so nothing is timed and the machine does not matter; the same each time. Uses the database that
# psql connects to, which has the extension; leaves nothing there.
#
# Each load has 100 000 accesses to 10 000 entities, the limit is 1 000. Beside the strategies, what nobody can beat
# without knowing the future: the share of the 1 000 most frequent ones, or with loops and scans that of an entity that
# stays where it is.
set -euo pipefail

psql -X -q -v ON_ERROR_STOP=1 -P footer=off "$@" <<'SQL'
SET client_min_messages = warning;
SELECT setseed(0.5) \g /dev/null
-- One draw of Zipf's law with exponent 1 over 10 000: by its cumulative sums.
CREATE TEMP TABLE zipf AS
SELECT k, sum(1.0 / k) OVER (ORDER BY k) / sum(1.0 / k) OVER () AS upto FROM generate_series(1, 10000) k;
CREATE INDEX ON zipf (upto);
CREATE TEMP TABLE draw AS
SELECT i, (SELECT k FROM zipf WHERE upto >= r ORDER BY upto LIMIT 1) AS k
FROM (SELECT i, random() AS r FROM generate_series(1, 100000) i) d;

CREATE TEMP TABLE load (n int, name text, step int, id text);
INSERT INTO load SELECT 1, 'uniform', i, (1 + floor(random() * 10000))::int FROM generate_series(1, 100000) i;
INSERT INTO load SELECT 2, 'Zipf, exponent 1', i, k FROM draw;
-- The favourites change: each tenth of the load has others.
INSERT INTO load SELECT 3, 'Zipf, changing', i, (k + (i - 1) / 10000 * 1000) % 10000 FROM draw;
-- Each fifth thousand of accesses goes once over entities that are never used again.
INSERT INTO load SELECT 4, 'Zipf with scans', i, CASE WHEN (i / 1000) % 5 = 4 THEN 's' || i ELSE k::text END FROM draw;
INSERT INTO load SELECT 5, 'loop of 2 000', i, i % 2000 FROM generate_series(1, 100000) i;

CREATE FUNCTION pg_temp.hits(strategy text, wanted text) RETURNS numeric LANGUAGE sql AS $$
    WITH access AS (SELECT step, id FROM load WHERE name = wanted),
         gone AS (SELECT step, passivated AS id FROM shard_plan_passivation(strategy, '{"active_entity_limit": 1000}',
             (SELECT array_agg(id ORDER BY step) FROM access)))
    -- each miss brings an entity, which has left again or is there at the end
    SELECT round(100 - 100.0 * ((SELECT count(*) FROM gone) +
        (SELECT count(*) FROM (SELECT id, max(step) AS last FROM access GROUP BY id) a
         LEFT JOIN (SELECT id, max(step) AS last FROM gone GROUP BY id) g USING (id)
         WHERE a.last > coalesce(g.last, 0))) / (SELECT count(*) FROM access), 1)
$$;
SELECT l.name AS load, pg_temp.hits('lru', l.name) AS lru, pg_temp.hits('slru', l.name) AS slru,
       pg_temp.hits('mru', l.name) AS mru, pg_temp.hits('lfu', l.name) AS lfu,
       pg_temp.hits('lfu_aging', l.name) AS lfu_aging, pg_temp.hits('composite', l.name) AS composite,
       (SELECT round(100.0 * sum(uses - 1) / 100000, 1) FROM (SELECT count(*) AS uses FROM load u WHERE u.name = l.name
           GROUP BY id ORDER BY 1 DESC LIMIT 1000) u) AS "the same 1 000"
FROM (SELECT DISTINCT n, name FROM load) l ORDER BY n;
SQL
