-- Allocation of a type's shards as shard_start takes it: strategy, its settings, functions, time for a move.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS shard;
\set SHOW_CONTEXT never
CREATE FUNCTION alloc(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN message;

-- Strategies are known by name.
SELECT shard_start('alloc', 'alloc', allocation_strategy => 'nearest');
SELECT shard_start('alloc', 'alloc', allocation_strategy => NULL);

-- Settings are those of the strategy, within their bounds.
SELECT shard_start('alloc', 'alloc', allocation_settings => '{"rebalance_limit": 3}');
SELECT shard_start('alloc', 'alloc', allocation_strategy => 'locality', allocation_settings => '{"rebalance_limit": 3}');
SELECT shard_start('alloc', 'alloc', allocation_strategy => 'consistent_hashing', allocation_settings => '{"virtual_nodes": 0}');
SELECT shard_start('alloc', 'alloc', allocation_strategy => 'consistent_hashing', allocation_settings => '{"weighted": 2}');
SELECT shard_start('alloc', 'alloc', allocation_strategy => 'least_shard_threshold', allocation_settings => '{"rebalance_threshold": 0}');
SELECT shard_start('alloc', 'alloc', allocation_strategy => 'external', allocation_settings => '{"pins": {}}');
SELECT shard_start('alloc', 'alloc', allocation_settings => '{"rebalance_absolute_limit": -1}');
SELECT shard_start('alloc', 'alloc', allocation_settings => '{"rebalance_absolute_limit": "many"}');
SELECT shard_start('alloc', 'alloc', allocation_settings => '{"rebalance_relative_limit": 1.5}');
SELECT shard_start('alloc', 'alloc', allocation_settings => '[]');
SELECT shard_start('alloc', 'alloc', allocation_settings => NULL);
SELECT shard_start('alloc', 'alloc', handoff_timeout => '0');
SELECT shard_start('alloc', 'alloc', handoff_timeout => '1 day 1 us');

-- Kept is what differs from the defaults, so that equal settings are equal.
SELECT shard_start('alloc', 'alloc', handoff_timeout => '1500 us',
    allocation_settings => '{"rebalance_relative_limit": 0.250, "rebalance_absolute_limit": 20.0}');
SELECT settings->>'allocation_strategy' AS strategy, settings->'allocation_settings' AS settings,
       settings->>'handoff_timeout' AS handoff_timeout
FROM shard_types WHERE type_name = 'alloc';
SELECT shard_start('alloc', 'alloc', handoff_timeout => '2 ms', allocation_settings => '{"rebalance_relative_limit": 0.25}');
SELECT shard_start('alloc', 'alloc', handoff_timeout => '3 ms', allocation_settings => '{"rebalance_relative_limit": 0.25}');
SELECT shard_start('alloc', 'alloc', handoff_timeout => '2 ms');
SELECT shard_alter('alloc', 'handoff_timeout', '3 ms');
SELECT shard_alter('alloc', 'allocation_strategy', 'locality');
SELECT shard_alter('alloc', 'allocation_settings', '{}');

-- Functions are found when the type is started, and have the planners' arguments.
CREATE FUNCTION alloc_where(int, int, jsonb, text, jsonb, jsonb) RETURNS int LANGUAGE sql RETURN 1;
CREATE FUNCTION alloc_which(jsonb, text, jsonb, jsonb, int[]) RETURNS TABLE (shard int, from_node int)
    LANGUAGE sql AS 'SELECT 1, 1';
CREATE FUNCTION alloc_wrong(jsonb, text, jsonb, jsonb, int[]) RETURNS TABLE (shard text)
    LANGUAGE sql AS 'SELECT 1::text';
SELECT shard_start('alloc_f', 'alloc', allocation_strategy => 'function');
SELECT shard_start('alloc_f', 'alloc', allocation_strategy => 'function', allocation_settings => '{"rebalance": "alloc_which"}');
SELECT shard_start('alloc_f', 'alloc', allocation_strategy => 'function', allocation_settings => '{"allocate": 7}');
SELECT shard_start('alloc_f', 'alloc', allocation_strategy => 'function', allocation_settings => '{"allocate": "nobody"}');
SELECT shard_start('alloc_f', 'alloc', allocation_strategy => 'function', allocation_settings => '{"allocate": "alloc_which"}');
SELECT shard_start('alloc_f', 'alloc', allocation_strategy => 'function',
    allocation_settings => '{"allocate": "alloc_where", "rebalance": "alloc_wrong"}');

-- They run as the type's owner: he may execute them, and nobody below him can change them.
CREATE ROLE regress_alloc_owner;
DO $$ BEGIN EXECUTE format('GRANT CREATE ON DATABASE %I TO regress_alloc_owner', current_database()); END $$;
REVOKE EXECUTE ON FUNCTION alloc_where FROM PUBLIC;
SET ROLE regress_alloc_owner;
SELECT shard_start('alloc_f', 'alloc', allocation_strategy => 'function', allocation_settings => '{"allocate": "alloc_where"}');
RESET ROLE;
GRANT EXECUTE ON FUNCTION alloc_where TO PUBLIC;
CREATE ROLE regress_alloc_stranger;
ALTER FUNCTION alloc_where OWNER TO regress_alloc_stranger;
SET ROLE regress_alloc_owner;
SELECT shard_start('alloc_f', 'alloc', allocation_strategy => 'function', allocation_settings => '{"allocate": "alloc_where"}');
RESET ROLE;
ALTER FUNCTION alloc_where OWNER TO CURRENT_USER;
SELECT shard_start('alloc_f', 'alloc', allocation_strategy => 'function',
    allocation_settings => '{"allocate": "alloc_where", "rebalance": "alloc_which(jsonb,text,jsonb,jsonb,int[])"}');
SELECT settings->'allocation_settings' AS settings FROM shard_types WHERE type_name = 'alloc_f';

SELECT shard_drop_type('alloc'), shard_drop_type('alloc_f');
DO $$ BEGIN EXECUTE format('REVOKE CREATE ON DATABASE %I FROM regress_alloc_owner', current_database()); END $$;
DROP FUNCTION alloc, alloc_where, alloc_which, alloc_wrong;
DROP ROLE regress_alloc_owner, regress_alloc_stranger;
