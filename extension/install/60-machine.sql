/*
 * The state machines of the control plane.
 */

/*
 * The legal steps of a state machine of this build: in which state, what happens, the state that
 * follows, what is done or why there is nothing to do. A pair of state and event that has no row is
 * illegal. Names: entity. 22023: unknown name, the hint lists those there are. 22004: NULL.
 */
CREATE FUNCTION @extschema@.shard_state_machine(name text)
RETURNS TABLE (state text, event text, next_state text, note text)
LANGUAGE c IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'shard_state_machine';
GRANT EXECUTE ON FUNCTION @extschema@.shard_state_machine(text) TO PUBLIC;
COMMENT ON FUNCTION @extschema@.shard_state_machine(text) IS 'the legal steps of a state machine: state, event, the state that follows, what is done; a pair without a row is illegal; error 22023 for an unknown name, with the names that there are as hint';
