--
-- shard_plan_rebalance: which shards a strategy moves, case by case. Ids as L02 are those of the
-- cases that the strategies are known by.
--
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS shard;
RESET client_min_messages;
CREATE SCHEMA plan_rebalance_test;
SET search_path = plan_rebalance_test, public;

-- {2,0,1}: that many shards on nodes 1, 2, 3, numbered from 1 on.
CREATE FUNCTION spread(counts int[]) RETURNS jsonb LANGUAGE sql AS $$
    SELECT coalesce(jsonb_object_agg(node, (SELECT coalesce(jsonb_agg(s ORDER BY s), '[]')
                                            FROM generate_series(last - count + 1, last) s)), '{}')
    FROM (SELECT node, count, sum(count) OVER (ORDER BY node)::int AS last
          FROM unnest(counts) WITH ORDINALITY c(count, node)) n
$$;

-- What moves, as shard@node in the order chosen.
CREATE FUNCTION moves(allocations jsonb, strategy text, settings jsonb, members jsonb, in_progress int[])
RETURNS text LANGUAGE sql AS $$
    SELECT coalesce(string_agg(shard || '@' || from_node, ' ' ORDER BY n), 'none')
    FROM shard_plan_rebalance(allocations, strategy, settings, members, in_progress)
         WITH ORDINALITY r(shard, from_node, n)
$$;

CREATE TABLE plan_case (
    n int GENERATED ALWAYS AS IDENTITY,
    id text, spread int[], allocations jsonb, strategy text, settings jsonb, members jsonb,
    in_progress int[], wanted text
);

-- The least-shard strategy: limits, order, gates, weights.
INSERT INTO plan_case (id, spread, allocations, strategy, settings, members, in_progress, wanted) VALUES
('L02', '{1,2,0}', NULL, 'least_shard', '{"rebalance_absolute_limit": 1000, "rebalance_relative_limit": 1.0}', NULL, '{}', '2@2'),
('L03', '{2,0,0}', NULL, 'least_shard', '{"rebalance_absolute_limit": 1000, "rebalance_relative_limit": 1.0}', NULL, '{}', '1@1'),
('L04', '{1,1,0}', NULL, 'least_shard', '{"rebalance_absolute_limit": 1000, "rebalance_relative_limit": 1.0}', NULL, '{}', 'none'),
('L05', '{3,0,0}', NULL, 'least_shard', '{"rebalance_absolute_limit": 1000, "rebalance_relative_limit": 1.0}', NULL, '{}', '1@1 2@1'),
('one too many on two', '{4,4,0}', NULL, 'least_shard', '{"rebalance_absolute_limit": 1000, "rebalance_relative_limit": 1.0}', NULL, '{}', '1@1 5@2'),
('second phase, one below', '{4,4,2}', NULL, 'least_shard', '{"rebalance_absolute_limit": 1000, "rebalance_relative_limit": 1.0}', NULL, '{}', '1@1'),
('both phases needed', '{5,5,0}', NULL, 'least_shard', '{"rebalance_absolute_limit": 1000, "rebalance_relative_limit": 1.0}', NULL, '{}', '1@1 6@2'),
('much too many', '{8,0,0}', NULL, 'least_shard', '{"rebalance_absolute_limit": 1000, "rebalance_relative_limit": 1.0}', NULL, '{}', '1@1 2@1 3@1 4@1 5@1'),
('first phase alone', '{6,2,1}', NULL, 'least_shard', '{"rebalance_absolute_limit": 1000, "rebalance_relative_limit": 1.0}', NULL, '{}', '1@1 2@1 3@1'),
('level but for one', '{2,1,1}', NULL, 'least_shard', '{"rebalance_absolute_limit": 1000, "rebalance_relative_limit": 1.0}', NULL, '{}', 'none'),
('level', '{3,3,3}', NULL, 'least_shard', '{"rebalance_absolute_limit": 1000, "rebalance_relative_limit": 1.0}', NULL, '{}', 'none'),
('one shard in all', '{0,0,1}', NULL, 'least_shard', '{"rebalance_absolute_limit": 1000, "rebalance_relative_limit": 1.0}', NULL, '{}', 'none'),
('no shard', '{0,0,0}', NULL, 'least_shard', '{"rebalance_absolute_limit": 1000, "rebalance_relative_limit": 1.0}', NULL, '{}', 'none'),
('one region', '{7}', NULL, 'least_shard', '{"rebalance_absolute_limit": 1000, "rebalance_relative_limit": 1.0}', NULL, '{}', 'none'),
('no region', NULL, '{}', 'least_shard', '{"rebalance_absolute_limit": 1000, "rebalance_relative_limit": 1.0}', NULL, '{}', 'none'),
('L15 in progress 0', '{5,5,0}', NULL, 'least_shard', '{"rebalance_absolute_limit": 1000, "rebalance_relative_limit": 1.0}', '[{"node": 1, "app_version": "1.0.0"}, {"node": 2, "app_version": "1.0.1"}, {"node": 3, "app_version": "1.0.0"}]', '{}', 'none'),
('L15 in progress 2', '{5,5,0}', NULL, 'least_shard', '{"rebalance_absolute_limit": 1000, "rebalance_relative_limit": 1.0}', '[{"node": 1, "app_version": "1.0.0"}, {"node": 2, "app_version": "1.0.1"}, {"node": 3, "app_version": "1.0.0"}]', '{1,2}', 'none'),
('L15 in progress 4', '{5,5,0}', NULL, 'least_shard', '{"rebalance_absolute_limit": 1000, "rebalance_relative_limit": 1.0}', '[{"node": 1, "app_version": "1.0.0"}, {"node": 2, "app_version": "1.0.1"}, {"node": 3, "app_version": "1.0.0"}]', '{1,2,51,52}', 'none'),
('L16 in progress 0', '{5,5,0}', NULL, 'least_shard', '{"rebalance_absolute_limit": 1000, "rebalance_relative_limit": 1.0}', '[{"node": 1}, {"node": 2, "reachable": false}, {"node": 3}]', '{}', 'none'),
('L16 in progress 2', '{5,5,0}', NULL, 'least_shard', '{"rebalance_absolute_limit": 1000, "rebalance_relative_limit": 1.0}', '[{"node": 1}, {"node": 2, "reachable": false}, {"node": 3}]', '{1,2}', 'none'),
('L16 in progress 4', '{5,5,0}', NULL, 'least_shard', '{"rebalance_absolute_limit": 1000, "rebalance_relative_limit": 1.0}', '[{"node": 1}, {"node": 2, "reachable": false}, {"node": 3}]', '{1,2,51,52}', 'none'),
('L20', '{10,0}', NULL, 'least_shard', '{"rebalance_absolute_limit": 1000, "rebalance_relative_limit": 1.0}', NULL, '{}', '1@1 2@1 3@1 4@1 5@1'),
('L21', '{7,0,0}', NULL, 'least_shard', '{"rebalance_absolute_limit": 1000, "rebalance_relative_limit": 1.0}', NULL, '{}', '1@1 2@1 3@1 4@1'),
('L22', '{9,0,0}', NULL, 'least_shard', '{"rebalance_absolute_limit": 1000, "rebalance_relative_limit": 1.0}', NULL, '{}', '1@1 2@1 3@1 4@1 5@1 6@1'),
('L23', '{6,6,6,0}', NULL, 'least_shard', '{"rebalance_absolute_limit": 1000, "rebalance_relative_limit": 1.0}', NULL, '{}', '1@1 7@2 13@3'),
('L24', '{12,0,0,0}', NULL, 'least_shard', '{"rebalance_absolute_limit": 1000, "rebalance_relative_limit": 1.0}', NULL, '{}', '1@1 2@1 3@1 4@1 5@1 6@1 7@1 8@1 9@1'),
('L25', '{100,0}', NULL, 'least_shard', '{"rebalance_absolute_limit": 20, "rebalance_relative_limit": 0.1}', NULL, '{}', '1@1 2@1 3@1 4@1 5@1 6@1 7@1 8@1 9@1 10@1'),
('L26', '{100,0}', NULL, 'least_shard', '{"rebalance_absolute_limit": 5, "rebalance_relative_limit": 0.1}', NULL, '{}', '1@1 2@1 3@1 4@1 5@1'),
('default limits', '{100,0}', NULL, 'least_shard', '{}', NULL, '{}', '1@1 2@1 3@1 4@1 5@1 6@1 7@1 8@1 9@1 10@1'),
('a move under way', '{9,0,0}', NULL, 'least_shard', '{"rebalance_absolute_limit": 1000, "rebalance_relative_limit": 1.0}', NULL, '{1}', 'none'),
('a move of an unknown shard', '{9,0,0}', NULL, 'least_shard', '{"rebalance_absolute_limit": 1000, "rebalance_relative_limit": 1.0}', NULL, '{77}', 'none'),
('relative limit, floor of 1.9', '{19,0}', NULL, 'least_shard', '{"rebalance_absolute_limit": 1000, "rebalance_relative_limit": 0.1}', NULL, '{}', '1@1'),
('relative limit, floor of 2.0', '{20,0}', NULL, 'least_shard', '{"rebalance_absolute_limit": 1000, "rebalance_relative_limit": 0.1}', NULL, '{}', '1@1 2@1'),
('relative limit below one', '{5,0}', NULL, 'least_shard', '{"rebalance_absolute_limit": 1000, "rebalance_relative_limit": 0.1}', NULL, '{}', '1@1'),
('relative limit 0', '{9,0}', NULL, 'least_shard', '{"rebalance_absolute_limit": 1000, "rebalance_relative_limit": 0}', NULL, '{}', '1@1'),
('absolute limit 0', '{9,0}', NULL, 'least_shard', '{"rebalance_absolute_limit": 0, "rebalance_relative_limit": 1.0}', NULL, '{}', '1@1'),
('absolute limit 1', '{9,0}', NULL, 'least_shard', '{"rebalance_absolute_limit": 1, "rebalance_relative_limit": 1.0}', NULL, '{}', '1@1'),
('absolute limit is lower', '{40,0}', NULL, 'least_shard', '{"rebalance_absolute_limit": 3, "rebalance_relative_limit": 0.1}', NULL, '{}', '1@1 2@1 3@1'),
('relative limit is lower', '{40,0}', NULL, 'least_shard', '{"rebalance_absolute_limit": 1000, "rebalance_relative_limit": 0.05}', NULL, '{}', '1@1 2@1'),
('limit in second phase', '{4,4,4,1,1}', NULL, 'least_shard', '{"rebalance_absolute_limit": 1, "rebalance_relative_limit": 1.0}', NULL, '{}', '1@1'),
('limit, most loaded waits', '{5,9,0}', NULL, 'least_shard', '{"rebalance_absolute_limit": 1, "rebalance_relative_limit": 1.0}', NULL, '{}', '6@2'),
('limit over two regions', '{8,8,0}', NULL, 'least_shard', '{"rebalance_absolute_limit": 4, "rebalance_relative_limit": 1.0}', NULL, '{}', '1@1 2@1 9@2 10@2'),
('oldest first', NULL, '{"1": [9, 4, 7, 1, 8, 2], "2": []}', 'least_shard', '{"rebalance_absolute_limit": 1000, "rebalance_relative_limit": 1.0}', NULL, '{}', '9@1 4@1 7@1'),
('oldest first, second phase', NULL, '{"1": [30, 10, 20], "2": [7, 6, 5], "3": [2]}', 'least_shard', '{"rebalance_absolute_limit": 1000, "rebalance_relative_limit": 1.0}', NULL, '{}', '30@1'),
('ties in order of members', NULL, '{"1": [1, 2, 3, 4], "2": [5, 6, 7, 8], "3": []}', 'least_shard', '{"rebalance_absolute_limit": 1, "rebalance_relative_limit": 1.0}', '[{"node": 2}, {"node": 1}, {"node": 3}]', '{}', '5@2'),
('ties in order of numbers', NULL, '{"10": [1, 2, 3, 4], "9": [5, 6, 7, 8], "2": []}', 'least_shard', '{"rebalance_absolute_limit": 1, "rebalance_relative_limit": 1.0}', NULL, '{}', '5@9'),
('a member is joining', '{5,5,0}', NULL, 'least_shard', '{"rebalance_absolute_limit": 1000, "rebalance_relative_limit": 1.0}', '[{"node": 1}, {"node": 2}, {"node": 3, "status": "joining"}]', '{}', 'none'),
('joining without region', NULL, '{"1": [1, 2, 3], "2": []}', 'least_shard', '{"rebalance_absolute_limit": 1000, "rebalance_relative_limit": 1.0}', '[{"node": 1}, {"node": 2}, {"node": 3, "status": "joining"}]', '{}', 'none'),
('a member is weakly_up', '{5,5,0}', NULL, 'least_shard', '{"rebalance_absolute_limit": 1000, "rebalance_relative_limit": 1.0}', '[{"node": 1}, {"node": 2}, {"node": 3, "status": "weakly_up"}]', '{}', 'none'),
('weakly_up without region', NULL, '{"1": [1, 2, 3], "2": []}', 'least_shard', '{"rebalance_absolute_limit": 1000, "rebalance_relative_limit": 1.0}', '[{"node": 1}, {"node": 2}, {"node": 3, "status": "weakly_up"}]', '{}', 'none'),
('unreachable without region', NULL, '{"1": [1, 2, 3], "2": []}', 'least_shard', '{"rebalance_absolute_limit": 1000, "rebalance_relative_limit": 1.0}', '[{"node": 1}, {"node": 2}, {"node": 3, "reachable": false}]', '{}', 'none'),
('other version without region', NULL, '{"1": [1, 2, 3], "2": []}', 'least_shard', '{"rebalance_absolute_limit": 1000, "rebalance_relative_limit": 1.0}', '[{"node": 1}, {"node": 2}, {"node": 3, "app_version": "2"}]', '{}', '1@1'),
('equal versions, written differently', NULL, '{"1": [1, 2, 3], "2": []}', 'least_shard', '{"rebalance_absolute_limit": 1000, "rebalance_relative_limit": 1.0}', '[{"node": 1, "app_version": "1.0"}, {"node": 2, "app_version": "1.0.0"}]', '{}', '1@1'),
('a pre-release is another version', NULL, '{"1": [1, 2, 3], "2": []}', 'least_shard', '{"rebalance_absolute_limit": 1000, "rebalance_relative_limit": 1.0}', '[{"node": 1, "app_version": "1.0.0-M1"}, {"node": 2, "app_version": "1.0.0"}]', '{}', 'none'),
('leaving comes last', '{3,9,1}', NULL, 'least_shard', '{"rebalance_absolute_limit": 1000, "rebalance_relative_limit": 1.0}', '[{"node": 1}, {"node": 2}, {"node": 3, "status": "leaving"}]', '{}', '4@2 5@2 6@2 7@2'),
('exiting comes last', '{3,9,1}', NULL, 'least_shard', '{"rebalance_absolute_limit": 1000, "rebalance_relative_limit": 1.0}', '[{"node": 1}, {"node": 2}, {"node": 3, "status": "exiting"}]', '{}', '4@2 5@2 6@2 7@2'),
('down comes last', '{3,9,1}', NULL, 'least_shard', '{"rebalance_absolute_limit": 1000, "rebalance_relative_limit": 1.0}', '[{"node": 1}, {"node": 2}, {"node": 3, "status": "down"}]', '{}', '4@2 5@2 6@2 7@2'),
('leaving and full', '{9,0,0}', NULL, 'least_shard', '{"rebalance_absolute_limit": 1000, "rebalance_relative_limit": 1.0}', '[{"node": 1, "status": "leaving"}, {"node": 2}, {"node": 3}]', '{}', '1@1 2@1 3@1 4@1 5@1 6@1'),
('removed does not count', '{9,0,0}', NULL, 'least_shard', '{"rebalance_absolute_limit": 1000, "rebalance_relative_limit": 1.0}', '[{"node": 1}, {"node": 2}, {"node": 3, "status": "removed"}]', '{}', '1@1 2@1 3@1 4@1'),
('no member, no region', '{9,0,0}', NULL, 'least_shard', '{"rebalance_absolute_limit": 1000, "rebalance_relative_limit": 1.0}', '[{"node": 1}, {"node": 2}]', '{}', '1@1 2@1 3@1 4@1'),
('all leave', '{4,0}', NULL, 'least_shard', '{"rebalance_absolute_limit": 1000, "rebalance_relative_limit": 1.0}', '[{"node": 1, "status": "leaving"}, {"node": 2, "status": "exiting"}]', '{}', '1@1 2@1'),
('removed and unreachable', '{4,0,0}', NULL, 'least_shard', '{"rebalance_absolute_limit": 1000, "rebalance_relative_limit": 1.0}', '[{"node": 1}, {"node": 2}, {"node": 3, "status": "removed", "reachable": false}]', '{}', '1@1 2@1'),
('without the role', '{9,0,0}', NULL, 'least_shard', '{"rebalance_absolute_limit": 1000, "rebalance_relative_limit": 1.0, "role": "a"}', '[{"node": 1, "roles": ["a"]}, {"node": 2, "roles": ["a", "b"]}, {"node": 3, "roles": ["b"]}]', '{}', '1@1 2@1 3@1 4@1'),
('nobody has the role', '{9,0}', NULL, 'least_shard', '{"rebalance_absolute_limit": 1000, "rebalance_relative_limit": 1.0, "role": "a"}', '[{"node": 1}, {"node": 2}]', '{}', 'none'),
('weights are not looked at', '{6,6}', NULL, 'least_shard', '{"rebalance_absolute_limit": 1000, "rebalance_relative_limit": 1.0}', '[{"node": 1, "weight": 2}, {"node": 2}]', '{}', 'none'),
('weight 2 : 1', '{6,6}', NULL, 'least_shard', '{"rebalance_absolute_limit": 1000, "rebalance_relative_limit": 1.0, "weighted": true}', '[{"node": 1, "weight": 2}, {"node": 2}]', '{}', '7@2 8@2'),
('weights 1 : 1', '{9,3}', NULL, 'least_shard', '{"rebalance_absolute_limit": 1000, "rebalance_relative_limit": 1.0, "weighted": true}', '[{"node": 1}, {"node": 2}]', '{}', '1@1 2@1 3@1'),
('weights 5 : 5', '{9,3}', NULL, 'least_shard', '{"rebalance_absolute_limit": 1000, "rebalance_relative_limit": 1.0, "weighted": true}', '[{"node": 1, "weight": 5}, {"node": 2, "weight": 5}]', '{}', '1@1 2@1 3@1'),
('weights met', '{8,4}', NULL, 'least_shard', '{"rebalance_absolute_limit": 1000, "rebalance_relative_limit": 1.0, "weighted": true}', '[{"node": 1, "weight": 2}, {"node": 2}]', '{}', 'none'),
('a new small node', '{6,6,0}', NULL, 'least_shard', '{"rebalance_absolute_limit": 1000, "rebalance_relative_limit": 1.0, "weighted": true}', '[{"node": 1}, {"node": 2}, {"node": 3, "weight": 0.5}]', '{}', '1@1 7@2'),
('weights, second phase', '{4,3,2}', NULL, 'least_shard', '{"rebalance_absolute_limit": 1000, "rebalance_relative_limit": 1.0, "weighted": true}', '[{"node": 1, "weight": 1.5}, {"node": 2}, {"node": 3, "weight": 1.5}]', '{}', '1@1'),
('small weights', '{3,0}', NULL, 'least_shard', '{"rebalance_absolute_limit": 1000, "rebalance_relative_limit": 1.0, "weighted": true}', '[{"node": 1, "weight": 0.001}, {"node": 2, "weight": 0.002}]', '{}', '1@1 2@1');

-- Its predecessor, by threshold.
INSERT INTO plan_case (id, spread, allocations, strategy, settings, members, in_progress, wanted) VALUES
('D02', '{2,0,0}', NULL, 'least_shard_threshold', '{"rebalance_threshold": 1, "max_simultaneous_rebalance": 10}', NULL, '{}', '1@1'),
('D03', '{2,0,0}', NULL, 'least_shard_threshold', '{"rebalance_threshold": 1, "max_simultaneous_rebalance": 10}', NULL, '{1}', 'none'),
('D04', '{1,1,0}', NULL, 'least_shard_threshold', '{"rebalance_threshold": 1, "max_simultaneous_rebalance": 10}', NULL, '{}', 'none'),
('D05', '{1,2,0}', NULL, 'least_shard_threshold', '{"rebalance_threshold": 1, "max_simultaneous_rebalance": 10}', NULL, '{}', '2@2'),
('D06', '{1,2,0}', NULL, 'least_shard_threshold', '{"rebalance_threshold": 1, "max_simultaneous_rebalance": 10}', NULL, '{2}', 'none'),
('D07', '{3,0,0}', NULL, 'least_shard_threshold', '{"rebalance_threshold": 1, "max_simultaneous_rebalance": 10}', NULL, '{}', '1@1'),
('D08', '{3,0,0}', NULL, 'least_shard_threshold', '{"rebalance_threshold": 1, "max_simultaneous_rebalance": 10}', NULL, '{1}', '2@1'),
('D09', '{4,4,0}', NULL, 'least_shard_threshold', '{"rebalance_threshold": 1, "max_simultaneous_rebalance": 10}', NULL, '{}', '1@1'),
('D10', '{4,4,0}', NULL, 'least_shard_threshold', '{"rebalance_threshold": 1, "max_simultaneous_rebalance": 10}', NULL, '{1}', '5@2'),
('D11', '{4,4,2}', NULL, 'least_shard_threshold', '{"rebalance_threshold": 1, "max_simultaneous_rebalance": 10}', NULL, '{}', '1@1'),
('D12', '{4,4,2}', NULL, 'least_shard_threshold', '{"rebalance_threshold": 1, "max_simultaneous_rebalance": 10}', NULL, '{1}', '5@2'),
('threshold 3 not passed', '{3,0,0}', NULL, 'least_shard_threshold', '{"rebalance_threshold": 3, "max_simultaneous_rebalance": 10}', NULL, '{}', 'none'),
('threshold 3 passed by one', '{4,0,0}', NULL, 'least_shard_threshold', '{"rebalance_threshold": 3, "max_simultaneous_rebalance": 10}', NULL, '{}', '1@1'),
('threshold 3 at a time', '{20,0,0}', NULL, 'least_shard_threshold', '{"rebalance_threshold": 3, "max_simultaneous_rebalance": 10}', NULL, '{}', '1@1 2@1 3@1'),
('free slots', '{20,0,0}', NULL, 'least_shard_threshold', '{"rebalance_threshold": 5, "max_simultaneous_rebalance": 4}', NULL, '{1,2}', '3@1 4@1'),
('no free slot', '{20,0,0}', NULL, 'least_shard_threshold', '{"rebalance_threshold": 5, "max_simultaneous_rebalance": 2}', NULL, '{1,2}', 'none'),
('a shard twice in progress', '{20,0,0}', NULL, 'least_shard_threshold', '{"rebalance_threshold": 5, "max_simultaneous_rebalance": 3}', NULL, '{1,1}', '2@1 3@1'),
('no slot at all', '{20,0,0}', NULL, 'least_shard_threshold', '{"rebalance_threshold": 1, "max_simultaneous_rebalance": 0}', NULL, '{}', 'none'),
('lowest first', NULL, '{"1": [9, 4, 7], "2": []}', 'least_shard_threshold', '{"rebalance_threshold": 1, "max_simultaneous_rebalance": 10}', NULL, '{}', '4@1'),
('its defaults', '{9,0,0}', NULL, 'least_shard_threshold', '{}', NULL, '{}', '1@1'),
('threshold, three moves under way', '{9,0,0}', NULL, 'least_shard_threshold', '{}', NULL, '{1,2,3}', 'none'),
('threshold, mixed versions', '{9,0}', NULL, 'least_shard_threshold', '{"rebalance_threshold": 1, "max_simultaneous_rebalance": 10}', '[{"node": 1}, {"node": 2, "app_version": "2"}]', '{}', 'none'),
('threshold, unreachable', '{9,0}', NULL, 'least_shard_threshold', '{"rebalance_threshold": 1, "max_simultaneous_rebalance": 10}', '[{"node": 1}, {"node": 2, "reachable": false}]', '{}', 'none'),
('threshold, joining', '{9,0}', NULL, 'least_shard_threshold', '{"rebalance_threshold": 1, "max_simultaneous_rebalance": 10}', '[{"node": 1}, {"node": 2, "status": "joining"}]', '{}', 'none'),
('threshold, leaving node is not the least', '{3,5,0}', NULL, 'least_shard_threshold', '{"rebalance_threshold": 1, "max_simultaneous_rebalance": 10}', '[{"node": 1}, {"node": 2}, {"node": 3, "status": "leaving"}]', '{}', '4@2'),
('threshold, no region', NULL, '{}', 'least_shard_threshold', '{"rebalance_threshold": 1, "max_simultaneous_rebalance": 10}', NULL, '{}', 'none'),
('threshold, one region', '{5}', NULL, 'least_shard_threshold', '{"rebalance_threshold": 1, "max_simultaneous_rebalance": 10}', NULL, '{}', 'none');

-- Consistent hashing: what is not at its owner; nodes 1, 2, 3, 4 for the references A, B, C, D.
INSERT INTO plan_case (id, spread, allocations, strategy, settings, members, in_progress, wanted) VALUES
('H07', NULL, '{"1": [4], "2": [0], "3": [1, 2]}', 'consistent_hashing', '{}', NULL, '{}', 'none'),
('H08', NULL, '{"1": [4, 5], "2": [0], "3": [1, 2], "4": []}', 'consistent_hashing', '{}', NULL, '{}', '0@2'),
('H09', NULL, '{"1": [5, 4], "2": [0], "3": [2, 1], "4": []}', 'consistent_hashing', '{}', '[{"node": 3}, {"node": 4}, {"node": 2}, {"node": 1}]', '{}', '0@2'),
('H10', NULL, '{"1": [0, 1, 2, 3, 4, 5], "2": [], "3": [], "4": []}', 'consistent_hashing', '{"rebalance_limit": 2}', NULL, '{}', '0@1 1@1'),
('ring without limit', NULL, '{"1": [3, 2, 1, 0, 4, 5], "2": [], "3": [], "4": []}', 'consistent_hashing', '{}', NULL, '{}', '0@1 1@1 2@1 3@1'),
('ring, in progress', NULL, '{"1": [0, 1, 2, 3, 4, 5], "2": [], "3": [], "4": []}', 'consistent_hashing', '{"rebalance_limit": 2}', NULL, '{0}', '1@1 2@1'),
('ring, unreachable', NULL, '{"1": [0], "2": []}', 'consistent_hashing', '{}', '[{"node": 1}, {"node": 2, "reachable": false}]', '{}', 'none'),
('ring, mixed versions', NULL, '{"1": [0], "2": []}', 'consistent_hashing', '{}', '[{"node": 1}, {"node": 2, "app_version": "2"}]', '{}', 'none'),
('ring, joining', NULL, '{"1": [0], "2": []}', 'consistent_hashing', '{}', '[{"node": 1}, {"node": 2}, {"node": 3, "status": "joining"}]', '{}', 'none'),
('ring without who leaves', NULL, '{"1": [4, 5], "2": [0], "3": [1, 2]}', 'consistent_hashing', '{}', '[{"node": 1}, {"node": 2}, {"node": 3, "status": "leaving"}]', '{}', '1@3 2@3'),
('ring of one', '{5}', NULL, 'consistent_hashing', '{}', NULL, '{}', 'none');

-- Pins, and locality.
INSERT INTO plan_case (id, spread, allocations, strategy, settings, members, in_progress, wanted) VALUES
('X01', NULL, '{}', 'external', '{}', NULL, '{}', 'none'),
('X04', '{3,0}', NULL, 'external', '{}', NULL, '{}', 'none'),
('pinned elsewhere', '{3,0}', NULL, 'external', '{"pins": {"2": 2}}', NULL, '{}', '2@1'),
('pinned where it is', '{3,0}', NULL, 'external', '{"pins": {"2": 1}}', NULL, '{}', 'none'),
('pinned to a node that is not there', '{3,0}', NULL, 'external', '{"pins": {"2": 7}}', NULL, '{}', 'none'),
('pinned to an unreachable node', '{3,0}', NULL, 'external', '{"pins": {"2": 2}}', '[{"node": 1}, {"node": 2, "reachable": false}]', '{}', 'none'),
('pinned to a leaving node', '{3,0}', NULL, 'external', '{"pins": {"2": 2}}', '[{"node": 1}, {"node": 2, "status": "leaving"}]', '{}', 'none'),
('pinned, moves already', '{3,0}', NULL, 'external', '{"pins": {"2": 2, "3": 2}}', NULL, '{2}', '3@1'),
('pins of a mixed cluster', '{3,0}', NULL, 'external', '{"pins": {"2": 2}}', '[{"node": 1}, {"node": 2, "app_version": "2"}]', '{}', '2@1'),
('pins with a limit', '{5,0}', NULL, 'external', '{"pins": {"10": 1, "2": 2, "4": 2, "5": 2}, "rebalance_limit": 2}', NULL, '{}', '2@1 4@1'),
('locality never moves', '{9,0}', NULL, 'locality', '{}', NULL, '{}', 'none');

SELECT id, got, got = wanted AS ok
FROM plan_case, moves(coalesce(allocations, spread(spread)), strategy, settings, members, in_progress) got
ORDER BY n;
SELECT count(*) AS cases, bool_and(got = wanted) AS ok
FROM plan_case, moves(coalesce(allocations, spread(spread)), strategy, settings, members, in_progress) got;

-- Rounds until nothing moves: what was chosen is taken away, then allocated by number. L23 to L26.
CREATE FUNCTION rounds(counts int[], settings jsonb, strategy text DEFAULT 'least_shard', members jsonb DEFAULT NULL)
RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    allocations jsonb := spread(counts);
    chosen int[];
    moved int;
    home text;
BEGIN
    LOOP
        chosen := ARRAY(SELECT r.shard FROM shard_plan_rebalance(allocations, strategy, settings, members) r
                        ORDER BY 1);
        EXIT WHEN chosen = '{}';
        SELECT jsonb_object_agg(key, (SELECT coalesce(jsonb_agg(s ORDER BY o), '[]')
                                      FROM jsonb_array_elements(value) WITH ORDINALITY e(s, o)
                                      WHERE s::int <> ALL (chosen)))
        INTO allocations FROM jsonb_each(allocations);
        FOREACH moved IN ARRAY chosen LOOP
            home := shard_plan_allocation(moved, NULL, allocations, strategy, settings, members);
            allocations := jsonb_set(allocations, ARRAY[home], allocations->home || to_jsonb(moved));
        END LOOP;
        RETURN NEXT (SELECT string_agg(jsonb_array_length(value)::text, ' ' ORDER BY key::int)
                     FROM jsonb_each(allocations));
    END LOOP;
END $$;
\set unlimited '{"rebalance_absolute_limit": 1000, "rebalance_relative_limit": 1.0}'
SELECT id, got, got = wanted AS ok FROM (VALUES
    ('L02', (SELECT string_agg(r, ', ') FROM rounds('{1,2,0}', :'unlimited') r), '1 1 1'),
    ('L03', (SELECT string_agg(r, ', ') FROM rounds('{2,0,0}', :'unlimited') r), '1 1 0'),
    ('L05', (SELECT string_agg(r, ', ') FROM rounds('{3,0,0}', :'unlimited') r), '1 1 1'),
    ('L20', (SELECT string_agg(r, ', ') FROM rounds('{10,0}', :'unlimited') r), '5 5'),
    ('L21', (SELECT string_agg(r, ', ') FROM rounds('{7,0,0}', :'unlimited') r), '3 2 2'),
    ('L22', (SELECT string_agg(r, ', ') FROM rounds('{9,0,0}', :'unlimited') r), '3 3 3'),
    ('L23', (SELECT string_agg(r, ', ') FROM rounds('{6,6,6,0}', :'unlimited') r), '5 5 5 3, 4 5 5 4'),
    ('L24', (SELECT string_agg(r, ', ') FROM rounds('{12,0,0,0}', :'unlimited') r), '3 3 3 3'),
    ('L25', (SELECT string_agg(r, ', ') FROM rounds('{100,0}', '{"rebalance_absolute_limit": 20, "rebalance_relative_limit": 0.1}') r), '90 10, 80 20, 70 30, 60 40, 50 50'),
    ('L26', (SELECT string_agg(r, ', ') FROM rounds('{100,0}', '{"rebalance_absolute_limit": 5, "rebalance_relative_limit": 0.1}') r), '95 5, 90 10, 85 15, 80 20, 75 25, 70 30, 65 35, 60 40, 55 45, 50 50'),
    ('two rounds', (SELECT string_agg(r, ', ') FROM rounds('{5,5,0}', :'unlimited') r), '4 4 2, 3 4 3'),
    ('a node joins 9', (SELECT string_agg(r, ', ') FROM rounds('{7,7,7,7,7,7,7,7,7,0}', :'unlimited') r), '6 6 6 6 6 6 7 7 7 6'),
    ('one by one', (SELECT string_agg(r, ', ') FROM rounds('{6,1,1}', '{"rebalance_threshold": 1, "max_simultaneous_rebalance": 10}', 'least_shard_threshold') r), '5 2 1, 4 2 2, 3 3 2'),
    ('weights 2 : 1 : 1', (SELECT string_agg(r, ', ') FROM rounds('{0,12,12}', '{"rebalance_absolute_limit": 1000, "rebalance_relative_limit": 1.0, "weighted": true}', 'least_shard', '[{"node": 1, "weight": 2}, {"node": 2}, {"node": 3}]') r), '12 6 6')
) t (id, got, wanted);

-- D34: whatever is chosen, without any message to a shard, can have a new home at once.
SELECT shard, from_node, shard_plan_allocation(shard, NULL, '{"1": [6, 7, 8, 9, 10], "2": []}') AS to_node
FROM shard_plan_rebalance(spread('{10, 0}'), settings => :'unlimited') ORDER BY shard;

-- Defaults of the arguments; NULLs that have a meaning.
SELECT * FROM shard_plan_rebalance('{"1": [1, 2, 3], "2": []}');
SELECT * FROM shard_plan_rebalance('{"1": [1, 2, 3], "2": []}', 'least_shard', NULL, NULL, NULL);
-- Members may have what only shard_plan_downing looks at; numbers may be written with a fraction of 0.
SELECT * FROM shard_plan_rebalance('{"1": [1.0, 2.00, 3], "2": []}', members => '[{"node": 1, "age": 1, "seen": true}, {"node": 2.0}]');

-- Refused: arguments that are not as they should be.
SELECT * FROM shard_plan_rebalance('[]');
SELECT * FROM shard_plan_rebalance('3');
SELECT * FROM shard_plan_rebalance('null');
SELECT * FROM shard_plan_rebalance(NULL);
SELECT * FROM shard_plan_rebalance('{"a": []}');
SELECT * FROM shard_plan_rebalance('{"0": []}');
SELECT * FROM shard_plan_rebalance('{"-1": []}');
SELECT * FROM shard_plan_rebalance('{"01": []}');
SELECT * FROM shard_plan_rebalance('{"2147483648": []}');
SELECT * FROM shard_plan_rebalance('{"99999999999999999999": []}');
SELECT * FROM shard_plan_rebalance('{"1": {}}');
SELECT * FROM shard_plan_rebalance('{"1": 5}');
SELECT * FROM shard_plan_rebalance('{"1": [1, "2"]}');
SELECT * FROM shard_plan_rebalance('{"1": [1.5]}');
SELECT * FROM shard_plan_rebalance('{"1": [-1]}');
SELECT * FROM shard_plan_rebalance('{"1": [2147483648]}');
SELECT * FROM shard_plan_rebalance('{"1": [1e300]}');
SELECT * FROM shard_plan_rebalance('{"1": [null]}');
SELECT * FROM shard_plan_rebalance('{"1": [[1]]}');
SELECT * FROM shard_plan_rebalance('{"1": [3, 3]}');
SELECT * FROM shard_plan_rebalance('{"1": [1, 2], "2": [2]}');
SELECT * FROM shard_plan_rebalance('{}', 'none');
SELECT * FROM shard_plan_rebalance('{}', NULL);
SELECT * FROM shard_plan_rebalance('{}', 'function');
SELECT * FROM shard_plan_rebalance('{}', settings => '[]');
SELECT * FROM shard_plan_rebalance('{}', settings => '{"rebalance_limits": 1}');
SELECT * FROM shard_plan_rebalance('{}', settings => '{"rebalance_absolute_limit": -1}');
SELECT * FROM shard_plan_rebalance('{}', settings => '{"rebalance_absolute_limit": "20"}');
SELECT * FROM shard_plan_rebalance('{}', settings => '{"rebalance_relative_limit": 1.1}');
SELECT * FROM shard_plan_rebalance('{}', settings => '{"rebalance_relative_limit": null}');
SELECT * FROM shard_plan_rebalance('{}', settings => '{"rebalance_threshold": 0}');
SELECT * FROM shard_plan_rebalance('{}', settings => '{"virtual_nodes": 0}');
SELECT * FROM shard_plan_rebalance('{}', settings => '{"weighted": 1}');
SELECT * FROM shard_plan_rebalance('{}', settings => '{"role": 1}');
SELECT * FROM shard_plan_rebalance('{}', settings => '{"pins": []}');
SELECT * FROM shard_plan_rebalance('{}', settings => '{"pins": {"x": 1}}');
SELECT * FROM shard_plan_rebalance('{}', settings => '{"pins": {"1": 0}}');
SELECT * FROM shard_plan_rebalance('{}', members => '{}');
SELECT * FROM shard_plan_rebalance('{}', members => '[1]');
SELECT * FROM shard_plan_rebalance('{}', members => '[{}]');
SELECT * FROM shard_plan_rebalance('{}', members => '[{"node": 0}]');
SELECT * FROM shard_plan_rebalance('{}', members => '[{"node": 1}, {"node": 1}]');
SELECT * FROM shard_plan_rebalance('{}', members => '[{"node": 1, "status": "upp"}]');
SELECT * FROM shard_plan_rebalance('{}', members => '[{"node": 1, "state": "up"}]');
SELECT * FROM shard_plan_rebalance('{}', members => '[{"node": 1, "reachable": "yes"}]');
SELECT * FROM shard_plan_rebalance('{}', members => '[{"node": 1, "app_version": 1.0}]');
SELECT * FROM shard_plan_rebalance('{}', members => '[{"node": 1, "roles": "a"}]');
SELECT * FROM shard_plan_rebalance('{}', members => '[{"node": 1, "roles": ["a", 2]}]');
SELECT * FROM shard_plan_rebalance('{}', members => '[{"node": 1, "weight": 0}]');
SELECT * FROM shard_plan_rebalance('{}', members => '[{"node": 1}, {"node": 2, "weight": 1001}]');
SELECT * FROM shard_plan_rebalance('{}', in_progress => '{-1}');
SELECT * FROM shard_plan_rebalance('{}', in_progress => '{1, NULL}');

SET client_min_messages = warning;
DROP SCHEMA plan_rebalance_test CASCADE;
