--
-- shard_plan_allocation: the home that a strategy gives a shard, case by case. NULL: none now.
--
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS shard;
RESET client_min_messages;
CREATE SCHEMA plan_allocation_test;
SET search_path = plan_allocation_test, public;

SELECT id, got, got IS NOT DISTINCT FROM wanted AS ok FROM (VALUES
    ('L01', shard_plan_allocation(3, 1, '{"1": [1], "2": [2], "3": []}', 'least_shard', '{}', NULL), 3),
    ('D01', shard_plan_allocation(3, 1, '{"1": [1], "2": [2], "3": []}', 'least_shard_threshold', '{"rebalance_threshold": 3, "max_simultaneous_rebalance": 10}', NULL), 3),
    ('tie, order of numbers', shard_plan_allocation(9, 1, '{"10": [], "9": [], "2": []}', 'least_shard', '{}', NULL), 2),
    ('tie, order of members', shard_plan_allocation(9, 1, '{"1": [], "2": [], "3": []}', 'least_shard', '{}', '[{"node": 3}, {"node": 1}, {"node": 2}]'), 3),
    ('fewest', shard_plan_allocation(9, 1, '{"1": [1, 2, 3], "2": [4, 5], "3": [6, 7, 8, 9]}', 'least_shard', '{}', NULL), 2),
    ('requester does not matter', shard_plan_allocation(9, 3, '{"1": [1, 2, 3], "2": [4, 5], "3": [6, 7, 8, 9]}', 'least_shard', '{}', NULL), 2),
    ('one region', shard_plan_allocation(9, 1, '{"1": [1, 2, 3, 4, 5]}', 'least_shard', '{}', NULL), 1),
    ('no region', shard_plan_allocation(9, 1, '{}', 'least_shard', '{}', NULL), NULL),
    ('no region is a member', shard_plan_allocation(9, 1, '{"1": [1], "2": [2]}', 'least_shard', '{}', '[{"node": 3}]'), NULL),
    ('no members', shard_plan_allocation(9, 1, '{"1": [1], "2": [2]}', 'least_shard', '{}', '[]'), NULL),
    ('not to who is leaving', shard_plan_allocation(9, 1, '{"1": [], "2": [1, 2, 3, 4, 5]}', 'least_shard', '{}', '[{"node": 1, "status": "leaving"}, {"node": 2}]'), 2),
    ('not to who is exiting', shard_plan_allocation(9, 1, '{"1": [], "2": [1, 2, 3, 4, 5]}', 'least_shard', '{}', '[{"node": 1, "status": "exiting"}, {"node": 2}]'), 2),
    ('not to who is down', shard_plan_allocation(9, 1, '{"1": [], "2": [1, 2, 3, 4, 5]}', 'least_shard', '{}', '[{"node": 1, "status": "down"}, {"node": 2}]'), 2),
    ('to who leaves if all do', shard_plan_allocation(9, 1, '{"1": [1, 2, 3], "2": [4, 5]}', 'least_shard', '{}', '[{"node": 1, "status": "leaving"}, {"node": 2, "status": "down"}]'), 2),
    ('not to who is removed', shard_plan_allocation(9, 1, '{"1": [], "2": [1, 2, 3, 4, 5]}', 'least_shard', '{}', '[{"node": 1, "status": "removed"}, {"node": 2}]'), 2),
    ('not to who is written off', shard_plan_allocation(9, 1, '{"1": [], "2": [1, 2, 3, 4, 5]}', 'least_shard', '{}', '[{"node": 1, "status": "written_off"}, {"node": 2}]'), 2),
    ('to who is joining', shard_plan_allocation(9, 1, '{"1": [1, 2, 3, 4, 5], "2": []}', 'least_shard', '{}', '[{"node": 1}, {"node": 2, "status": "joining"}]'), 2),
    ('to who is weakly_up', shard_plan_allocation(9, 1, '{"1": [1, 2, 3, 4, 5], "2": []}', 'least_shard', '{}', '[{"node": 1}, {"node": 2, "status": "weakly_up"}]'), 2),
    ('newer version first', shard_plan_allocation(9, 1, '{"1": [], "2": [1, 2, 3, 4, 5]}', 'least_shard', '{}', '[{"node": 1, "app_version": "1.0.0"}, {"node": 2, "app_version": "1.0.1"}]'), 2),
    ('newer, by number', shard_plan_allocation(9, 1, '{"1": [], "2": [1, 2, 3, 4, 5]}', 'least_shard', '{}', '[{"node": 1, "app_version": "1.9.0"}, {"node": 2, "app_version": "1.10.0"}]'), 2),
    ('a release is newer than its milestone', shard_plan_allocation(9, 1, '{"1": [], "2": [1, 2, 3, 4, 5]}', 'least_shard', '{}', '[{"node": 1, "app_version": "1.0.0-M1"}, {"node": 2, "app_version": "1.0.0"}]'), 2),
    ('a build is newer than its release', shard_plan_allocation(9, 1, '{"1": [], "2": [1, 2, 3, 4, 5]}', 'least_shard', '{}', '[{"node": 1, "app_version": "1.0.0"}, {"node": 2, "app_version": "1.0.0-3-abcdef"}]'), 2),
    ('a version is newer than none', shard_plan_allocation(9, 1, '{"1": [], "2": [1, 2, 3, 4, 5]}', 'least_shard', '{}', '[{"node": 1}, {"node": 2, "app_version": "0.1"}]'), 2),
    ('newer, but leaving', shard_plan_allocation(9, 1, '{"1": [1, 2, 3, 4, 5], "2": []}', 'least_shard', '{}', '[{"node": 1}, {"node": 2, "app_version": "2", "status": "leaving"}]'), 1),
    ('fewest of the newest', shard_plan_allocation(9, 1, '{"1": [], "2": [1, 2, 3, 4, 5], "3": [6, 7, 8, 9]}', 'least_shard', '{}', '[{"node": 1}, {"node": 2, "app_version": "2"}, {"node": 3, "app_version": "2"}]'), 3),
    ('G09 first', shard_plan_allocation(1, 1, '{"1": [], "2": []}', 'least_shard', '{}', '[{"node": 1, "app_version": "1.0.0"}, {"node": 2, "app_version": "1.0.0"}]'), 1),
    ('G09 second', shard_plan_allocation(2, 1, '{"1": [1], "2": []}', 'least_shard', '{}', '[{"node": 1, "app_version": "1.0.0"}, {"node": 2, "app_version": "1.0.0"}]'), 2),
    ('G11 node 1 leaves', shard_plan_allocation(1, 1, '{"1": [1], "2": [2], "3": [], "4": []}', 'least_shard', '{}', '[{"node": 1, "app_version": "1.0.0", "status": "leaving"}, {"node": 2, "app_version": "1.0.0"}, {"node": 3, "app_version": "1.0.1"}, {"node": 4, "app_version": "1.0.1"}]'), 3),
    ('G11 node 2 leaves', shard_plan_allocation(2, 2, '{"2": [2], "3": [1], "4": []}', 'least_shard', '{}', '[{"node": 1, "app_version": "1.0.0", "status": "removed"}, {"node": 2, "app_version": "1.0.0", "status": "leaving"}, {"node": 3, "app_version": "1.0.1"}, {"node": 4, "app_version": "1.0.1"}]'), 4),
    ('unreachable is not looked at', shard_plan_allocation(9, 1, '{"1": [1, 2, 3, 4, 5], "2": []}', 'least_shard', '{}', '[{"node": 1}, {"node": 2, "reachable": false}]'), 2),
    ('not without the role', shard_plan_allocation(9, 1, '{"1": [], "2": [1, 2, 3, 4, 5]}', 'least_shard', '{"role": "a"}', '[{"node": 1}, {"node": 2, "roles": ["a"]}]'), 2),
    ('nobody has the role', shard_plan_allocation(9, 1, '{"1": [], "2": [1, 2, 3, 4, 5]}', 'least_shard', '{"role": "a"}', '[{"node": 1}, {"node": 2}]'), NULL),
    ('weights not looked at', shard_plan_allocation(9, 1, '{"1": [1, 2], "2": [3]}', 'least_shard', '{}', '[{"node": 1, "weight": 3}, {"node": 2}]'), 2),
    ('weight 3 : 1', shard_plan_allocation(9, 1, '{"1": [1, 2], "2": [3]}', 'least_shard', '{"weighted": true}', '[{"node": 1, "weight": 3}, {"node": 2}]'), 1),
    ('weight 3 : 1, met', shard_plan_allocation(9, 1, '{"1": [1, 2, 3], "2": []}', 'least_shard', '{"weighted": true}', '[{"node": 1, "weight": 3}, {"node": 2}]'), 2),
    ('weight, empty', shard_plan_allocation(9, 1, '{"1": [], "2": []}', 'least_shard', '{"weighted": true}', '[{"node": 1}, {"node": 2, "weight": 1.1}]'), 2),
    ('no more than the share', shard_plan_allocation(9, 1, '{"1": [1, 2, 3, 4, 5], "2": [], "3": [], "4": [], "5": [], "6": []}', 'least_shard', '{"weighted": true}', '[{"node": 1, "weight": 5}, {"node": 2}, {"node": 3}, {"node": 4}, {"node": 5}, {"node": 6}]'), 2),
    ('threshold knows no weights', shard_plan_allocation(9, 1, '{"1": [1, 2], "2": [3]}', 'least_shard_threshold', '{"weighted": true}', '[{"node": 1, "weight": 3}, {"node": 2}]'), 2),
    ('ring of three, shard 0', shard_plan_allocation(0, 1, '{"1": [], "2": [], "3": []}', 'consistent_hashing', '{}', NULL), 2),
    ('ring of three, shard 1', shard_plan_allocation(1, 1, '{"1": [], "2": [], "3": []}', 'consistent_hashing', '{}', NULL), 3),
    ('ring of three, shard 2', shard_plan_allocation(2, 1, '{"1": [], "2": [], "3": []}', 'consistent_hashing', '{}', NULL), 3),
    ('ring of three, shard 3', shard_plan_allocation(3, 1, '{"1": [], "2": [], "3": []}', 'consistent_hashing', '{}', NULL), 3),
    ('ring of three, shard 10', shard_plan_allocation(10, 1, '{"1": [], "2": [], "3": []}', 'consistent_hashing', '{}', NULL), 1),
    ('ring of three, shard 14', shard_plan_allocation(14, 1, '{"1": [], "2": [], "3": []}', 'consistent_hashing', '{}', NULL), 3),
    ('ring of two, shard 0', shard_plan_allocation(0, 1, '{"1": [], "2": []}', 'consistent_hashing', '{}', NULL), 2),
    ('ring of two, shard 1', shard_plan_allocation(1, 1, '{"1": [], "2": []}', 'consistent_hashing', '{}', NULL), 1),
    ('ring of two, shard 2', shard_plan_allocation(2, 1, '{"1": [], "2": []}', 'consistent_hashing', '{}', NULL), 2),
    ('ring of two, shard 3', shard_plan_allocation(3, 1, '{"1": [], "2": []}', 'consistent_hashing', '{}', NULL), 1),
    ('ring of two, shard 10', shard_plan_allocation(10, 1, '{"1": [], "2": []}', 'consistent_hashing', '{}', NULL), 1),
    ('ring of two, shard 14', shard_plan_allocation(14, 1, '{"1": [], "2": []}', 'consistent_hashing', '{}', NULL), 2),
    ('ring, whatever is there', shard_plan_allocation(0, 1, '{"1": [1, 2, 3, 4, 5, 6, 7, 8, 9], "2": [], "3": []}', 'consistent_hashing', '{}', NULL), 2),
    ('ring, whoever asks', shard_plan_allocation(0, 3, '{"1": [], "2": [], "3": []}', 'consistent_hashing', '{}', NULL), 2),
    ('ring, any order', shard_plan_allocation(0, 3, '{"1": [], "2": [], "3": []}', 'consistent_hashing', '{}', '[{"node": 3}, {"node": 2}, {"node": 1}]'), 2),
    ('ring, not to who leaves', shard_plan_allocation(0, 1, '{"1": [], "2": [], "3": []}', 'consistent_hashing', '{}', '[{"node": 1}, {"node": 2, "status": "leaving"}, {"node": 3}]'), 3),
    ('ring, all leave', shard_plan_allocation(0, 1, '{"1": []}', 'consistent_hashing', '{}', '[{"node": 1, "status": "leaving"}]'), 1),
    ('ring, no region', shard_plan_allocation(0, 1, '{}', 'consistent_hashing', '{}', NULL), NULL),
    ('ring, greatest numbers', shard_plan_allocation(2147483647, 1, '{"1": [], "2147483647": []}', 'consistent_hashing', '{}', NULL), 1),
    ('X01', shard_plan_allocation(1, 1, '{}', 'external', '{}', NULL), NULL),
    ('X02', shard_plan_allocation(1, 2, '{"1": [], "2": [], "3": []}', 'external', '{}', NULL), 2),
    ('X03', shard_plan_allocation(1, 3, '{"1": [], "2": [], "3": []}', 'external', '{"pins": {"2": 1}}', NULL), 3),
    ('X05 node 1', shard_plan_allocation(1, 1, '{"1": [], "2": [], "3": [], "4": []}', 'external', '{"pins": {"1": 1, "2": 2, "3": 3}}', NULL), 1),
    ('X05 node 2', shard_plan_allocation(2, 2, '{"1": [], "2": [], "3": [], "4": []}', 'external', '{"pins": {"1": 1, "2": 2, "3": 3}}', NULL), 2),
    ('X05 node 3', shard_plan_allocation(3, 3, '{"1": [], "2": [], "3": [], "4": []}', 'external', '{"pins": {"1": 1, "2": 2, "3": 3}}', NULL), 3),
    ('pinned', shard_plan_allocation(7, 1, '{"1": [], "2": [], "3": []}', 'external', '{"pins": {"7": 3, "10": 2}}', NULL), 3),
    ('pinned, two digits', shard_plan_allocation(10, 1, '{"1": [], "2": [], "3": []}', 'external', '{"pins": {"7": 3, "10": 2}}', NULL), 2),
    ('pinned to who is not there', shard_plan_allocation(7, 2, '{"1": [], "2": []}', 'external', '{"pins": {"7": 9}}', NULL), 2),
    ('pinned to who leaves', shard_plan_allocation(7, 1, '{"1": [], "2": []}', 'external', '{"pins": {"7": 2}}', '[{"node": 1}, {"node": 2, "status": "leaving"}]'), 1),
    ('nobody asks', shard_plan_allocation(7, NULL, '{"1": [1], "2": []}', 'external', '{}', NULL), 2),
    ('asked by a proxy', shard_plan_allocation(7, 5, '{"1": [1], "2": []}', 'external', '{}', NULL), 2),
    ('to who asks', shard_plan_allocation(7, 1, '{"1": [1, 2, 3, 4, 5, 6, 7, 8, 9], "2": []}', 'locality', '{}', NULL), 1),
    ('who asks leaves', shard_plan_allocation(7, 1, '{"1": [1, 2, 3, 4, 5, 6, 7, 8, 9], "2": []}', 'locality', '{}', '[{"node": 1, "status": "leaving"}, {"node": 2}]'), 2),
    ('asked by a proxy', shard_plan_allocation(7, 5, '{"1": [1, 2, 3, 4, 5, 6, 7, 8, 9], "2": []}', 'locality', '{}', NULL), 2),
    ('nobody asks', shard_plan_allocation(7, NULL, '{"1": [1, 2, 3, 4, 5, 6, 7, 8, 9], "2": []}', 'locality', '{}', NULL), 2),
    ('who asks has not the role', shard_plan_allocation(7, 1, '{"1": [], "2": [1, 2, 3, 4, 5, 6, 7, 8, 9]}', 'locality', '{"role": "a"}', '[{"node": 1}, {"node": 2, "roles": ["a"]}]'), 2)
) t (id, got, wanted);

-- The same shard of different types is at home on the same node, however many shards they have.
SELECT count(*) AS shards, bool_and(a = b) AS same
FROM generate_series(0, 199) s,
     LATERAL (SELECT shard_plan_allocation(s, 1, '{"1": [], "2": [], "3": []}', 'consistent_hashing')) x (a),
     LATERAL (SELECT shard_plan_allocation(s, 3, '{"3": [900, 901], "2": [], "1": [5]}', 'consistent_hashing')) y (b);

-- Refused.
SELECT shard_plan_allocation(NULL, 1, '{}');
SELECT shard_plan_allocation(-1, 1, '{}');
SELECT shard_plan_allocation(1, 1, NULL);
SELECT shard_plan_allocation(1, 1, '{}', 'closest');
SELECT shard_plan_allocation(1, 1, '{"1": [1, 1]}');
SELECT shard_plan_allocation(1, 1, jsonb_object_agg(n, '[]'::jsonb)) FROM generate_series(1, 1001) n;
SELECT shard_plan_allocation(1, 1, '{}', members => jsonb_agg(jsonb_build_object('node', n))) FROM generate_series(1, 1001) n;

-- A large type on many nodes: all shards are there, and it takes no time.
SELECT shard_plan_allocation(10000, 1, jsonb_object_agg(node, shards)) AS home
FROM (SELECT 1 + s % 9 AS node, jsonb_agg(s ORDER BY s) AS shards
      FROM generate_series(0, 9998) s GROUP BY 1) t;
SELECT count(*) AS moves, count(DISTINCT shard) AS shards, count(DISTINCT from_node) AS nodes
FROM (SELECT jsonb_object_agg(node, shards) || '{"10": []}' AS allocations
      FROM (SELECT 1 + s % 9 AS node, jsonb_agg(s ORDER BY s) AS shards
            FROM generate_series(0, 9999) s GROUP BY 1) t) a,
     shard_plan_rebalance(allocations, settings => '{"rebalance_absolute_limit": 10000, "rebalance_relative_limit": 1.0}');

-- Anybody may plan; nothing is looked at but the arguments.
CREATE ROLE plan_nobody;
GRANT USAGE ON SCHEMA plan_allocation_test TO plan_nobody;
SET ROLE plan_nobody;
SELECT shard_plan_allocation(1, 1, '{"1": [1], "2": []}'), shard_shard_id('a', 10);
RESET ROLE;

SET client_min_messages = warning;
DROP SCHEMA plan_allocation_test CASCADE;
DROP ROLE plan_nobody;
