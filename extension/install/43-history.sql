/*
 * The last failures of an entity that lives here, the newest first: at least 20, and one more than max_restarts; of its starts as many.
 * pause: until the next attempt, if the message waits for one. Caller: member of the type's owner.
 */
CREATE FUNCTION @extschema@.shard_history(
    type_name    text,
    entity_id    text,
    OUT number   int8,
    OUT at       timestamptz,
    OUT sqlstate text,
    OUT error    text,
    OUT attempts int4,
    OUT decision text,
    OUT outcome  text,
    OUT pause    interval
) RETURNS SETOF record
LANGUAGE c STABLE PARALLEL RESTRICTED AS 'MODULE_PATHNAME', 'shard_history';
GRANT EXECUTE ON FUNCTION @extschema@.shard_history(text, text) TO PUBLIC;
COMMENT ON FUNCTION @extschema@.shard_history(text, text) IS 'the last failures of an entity, and what was decided';
