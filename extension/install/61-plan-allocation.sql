/*
 * Planners of allocation: pure functions of their arguments. They look at no
 * table and move nothing.
 */

/*
 * The shards that a strategy would move now, in the order in which it chooses
 * them.
 *
 * allocations: {"1": [1,2,3], "2": []}, node -> its shards in order of
 * allocation. Nodes are in order of registration, which decides between
 * equals: the order of members if they are given, else the order that jsonb
 * keeps, that of the numbers. settings: those of the strategy; role: the
 * member's role that the type needs; pins: {"7": 2}, shard -> node, for
 * external. members: [{"node": 1, "status": "up", "app_version": "1.0.0",
 * "reachable": true, "roles": [], "weight": 1.0}], all but node may be left
 * out; NULL: all nodes are up, reachable and equal. A node that is no member,
 * or has not the role, does not count, with all of its shards. in_progress:
 * shards that move already.
 *
 * Errors: 22023 for an argument that is not as above, names the place; 22004 for a NULL where there must be a value;
 * 54000 for more than 1000 nodes.
 */
CREATE FUNCTION @extschema@.shard_plan_rebalance(
    allocations jsonb,
    strategy    text  DEFAULT 'least_shard',
    settings    jsonb DEFAULT '{}',
    members     jsonb DEFAULT NULL,
    in_progress int[] DEFAULT '{}'
) RETURNS TABLE (shard int, from_node int)
LANGUAGE c IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'shard_plan_rebalance';
GRANT EXECUTE ON FUNCTION @extschema@.shard_plan_rebalance(jsonb, text, jsonb, jsonb, int[]) TO PUBLIC;
COMMENT ON FUNCTION @extschema@.shard_plan_rebalance(jsonb, text, jsonb, jsonb, int[]) IS 'the shards that an allocation strategy would move, in the order chosen; allocations: {"node": [shards, oldest first]}; nodes count as registered in the order of members, or of their numbers if these are not given; error 22023 for what cannot be read';

/*
 * The node that a strategy would give a shard to now; NULL if no node can take
 * it. requester: the node that asked first, NULL for none. The others as for
 * shard_plan_rebalance.
 */
CREATE FUNCTION @extschema@.shard_plan_allocation(
    shard       int,
    requester   int,
    allocations jsonb,
    strategy    text  DEFAULT 'least_shard',
    settings    jsonb DEFAULT '{}',
    members     jsonb DEFAULT NULL
) RETURNS int
LANGUAGE c IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'shard_plan_allocation';
GRANT EXECUTE ON FUNCTION @extschema@.shard_plan_allocation(int, int, jsonb, text, jsonb, jsonb) TO PUBLIC;
COMMENT ON FUNCTION @extschema@.shard_plan_allocation(int, int, jsonb, text, jsonb, jsonb) IS 'the node that an allocation strategy would give a shard to, NULL if none can take it; arguments as of shard_plan_rebalance; error 22023 for what cannot be read';

/*
 * The shard of an entity id, 0 .. number_of_shards - 1, by a hash over its
 * UTF-8 form: murmur2 as Kafka's default partitioner, java as Akka's
 * HashCodeMessageExtractor. Error 22023: unknown hash, number below 1.
 */
CREATE FUNCTION @extschema@.shard_shard_id(
    entity_id        text,
    number_of_shards int,
    hash             text DEFAULT 'murmur2'
) RETURNS int
LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'shard_plan_shard_id';
GRANT EXECUTE ON FUNCTION @extschema@.shard_shard_id(text, int, text) TO PUBLIC;
COMMENT ON FUNCTION @extschema@.shard_shard_id(text, int, text) IS 'the shard that a hash (murmur2, java) gives to an entity id; error 22023 for an unknown hash or a number of shards below 1';
