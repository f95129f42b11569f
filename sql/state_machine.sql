--
-- The tables of the state machines, as rows.
--
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS shard;
RESET client_min_messages;

-- The life of an entity.
SELECT * FROM shard_state_machine('entity');

-- M25: the legal ways of the reference are there, each by one event or more.
SELECT way, count(event) > 0 AS legal
FROM (VALUES ('none', 'remembering_start'), ('remembering_start', 'active'), ('active', 'passivating'),
             ('passivating', 'remembering_stop'), ('remembering_stop', 'none'),
             ('active', 'waiting_for_restart'), ('waiting_for_restart', 'active'),
             ('remembered_not_created', 'active'), ('remembered_not_created', 'remembering_stop'),
             ('none', 'passivating'), ('remembering_stop', 'active'),
             ('waiting_for_restart', 'passivating')) AS way (state, next_state)
LEFT JOIN shard_state_machine('entity') USING (state, next_state)
GROUP BY way ORDER BY legal DESC, way;

-- The status of a member of the cluster.
SELECT * FROM shard_state_machine('member');

-- N1: who is down comes back, who left or was written off never does; a pair stands once.
SELECT state, array_agg(DISTINCT next_state ORDER BY next_state) AS ends
FROM shard_state_machine('member') WHERE state IN ('down', 'removed', 'written_off') GROUP BY state ORDER BY state;
SELECT state, event FROM shard_state_machine('member') GROUP BY state, event HAVING count(*) > 1;

-- Ownership of a shard on one node.
SELECT * FROM shard_state_machine('home');

-- V2, M3: what is sealed becomes active by a decided fact alone; nothing starts without one, at once or
-- (M23) when what was left here is deleted.
SELECT DISTINCT event FROM shard_state_machine('home') WHERE next_state = 'active' ORDER BY event;
SELECT state, event FROM shard_state_machine('home') GROUP BY state, event HAVING count(*) > 1;

-- A move of a shard, as its coordinator drives it.
SELECT * FROM shard_state_machine('move');

-- M5, M9: both ways out of a move are decisions; a pair stands once.
SELECT state, event FROM shard_state_machine('move') WHERE next_state = 'starting' ORDER BY state;
SELECT state, event FROM shard_state_machine('move') GROUP BY state, event HAVING count(*) > 1;

-- The office of the coordinator.
SELECT * FROM shard_state_machine('office');

-- R5: the office is held by way of the term batch alone.
SELECT DISTINCT state, event FROM shard_state_machine('office') WHERE next_state = 'held' AND state <> 'held';

-- A node that a home with replicas waits for, as the home knows it.
SELECT * FROM shard_state_machine('replica');

-- Q11: it is shipped records after an answer of its own alone, and again after a lost call; a pair stands once.
SELECT state, event FROM shard_state_machine('replica') WHERE next_state = 'follows' ORDER BY state, event;
SELECT state, event FROM shard_state_machine('replica') GROUP BY state, event HAVING count(*) > 1;

-- A pair stands once; E09 and E05: what a second passivate and a start in the pause do.
SELECT state, event FROM shard_state_machine('entity') GROUP BY state, event HAVING count(*) > 1;
SELECT state, event, next_state FROM shard_state_machine('entity')
WHERE (state, event) IN (('passivating', 'passivate'), ('waiting_for_restart', 'start'));

-- Refused.
SELECT * FROM shard_state_machine('entities');
SELECT * FROM shard_state_machine(NULL);

-- Anybody may look.
SELECT provolatile, proparallel, has_function_privilege('public', oid, 'EXECUTE') AS public
FROM pg_proc WHERE proname = 'shard_state_machine';
