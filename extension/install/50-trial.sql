/*
 * Trying a handler.
 */

/*
 * Runs a type's handler on a message in this transaction, as the type's owner, on the entity's present state, and keeps
 * nothing of it. Returns the new state as text (NULL: forgotten), the reply, and what was told: [{"type": ...,
 * "entity": ..., "message": ...}, ...]. The handler's error is raised. Caller: EXECUTE on the type's handler, checked
 * in C; a caller that is no member of the type's owner is shown at most what shard_ask() would show.
 */
CREATE FUNCTION @extschema@.shard_try(
    type_name text,
    entity_id text,
    message   jsonb,
    OUT state text,
    OUT reply jsonb,
    OUT told  jsonb
)
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'shard_try';
GRANT EXECUTE ON FUNCTION @extschema@.shard_try(text, text, jsonb) TO PUBLIC;
COMMENT ON FUNCTION @extschema@.shard_try(text, text, jsonb) IS 'runs a handler in this transaction and keeps nothing: for tests';
