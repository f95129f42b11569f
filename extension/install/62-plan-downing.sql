/*
 * What downing would do.
 */

/*
 * The nodes that the asking side of a partition must down, in rising order; it yields if they are its
 * own. view: {"self": 1, "members": [{"node": 1, "age": 1, "status": "up", "reachable": true,
 * "roles": [], "seen": true}, ...], "unreachable_by": [[observer, subject], ...]};
 * strategy: manual, auto, static_quorum, keep_majority, keep_oldest, down_all;
 * settings: quorum_size, role, down_if_alone. Reads and changes nothing. 22023: an argument is not as
 * described, the message names the place. 22004: NULL.
 */
CREATE FUNCTION @extschema@.shard_plan_downing(
    view     jsonb,
    strategy text,
    settings jsonb DEFAULT '{}'
) RETURNS int[]
LANGUAGE c IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'shard_plan_downing';
GRANT EXECUTE ON FUNCTION @extschema@.shard_plan_downing(jsonb, text, jsonb) TO PUBLIC;
COMMENT ON FUNCTION @extschema@.shard_plan_downing(jsonb, text, jsonb) IS 'the nodes that the asking side must down, in rising order: a view of the membership, a downing strategy and its settings in; error 22023 where an argument is not as it must be';
