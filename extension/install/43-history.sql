/*
 * Failures of entities: what they were, and what was decided.
 */

/* The type of a name, for members of its owner; error 42704, 42501. */
CREATE FUNCTION shard.history_type(type_name text) RETURNS int4
LANGUAGE c STABLE PARALLEL RESTRICTED AS 'MODULE_PATHNAME', 'shard_history_type';
GRANT EXECUTE ON FUNCTION shard.history_type(text) TO PUBLIC;
COMMENT ON FUNCTION shard.history_type(text) IS 'an entity type whose failures the current user may read';

/* What is left where a shard lived before, or was copied to, does not count (M12). */
CREATE VIEW shard.history_here WITH (security_barrier) AS
SELECT h.*
FROM shard.history h
JOIN shard.own o ON o.type_id = h.type_id AND o.shard = h.shard AND o.state IN ('active', 'stopping')
WHERE shard.payload_readable(h.type_id);
GRANT SELECT ON shard.history_here TO PUBLIC;
COMMENT ON VIEW shard.history_here IS 'failures of entities of shards that live here, for members of the owners of their types';

/*
 * The last failures of an entity that lives here, the newest first: at least 20, and one more than max_restarts.
 * pause: until the next attempt, if the message waits for one.
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
LANGUAGE sql STABLE PARALLEL RESTRICTED
BEGIN ATOMIC
    SELECT h.seq, h.at, h.sqlstate, h.error, h.attempts, h.decision, h.outcome, h.pause * interval '1 microsecond'
    FROM shard.history_here h
    WHERE h.type_id = (SELECT shard.history_type(shard_history.type_name)) AND h.entity = shard_history.entity_id
    ORDER BY h.seq DESC;
END;
GRANT EXECUTE ON FUNCTION @extschema@.shard_history(text, text) TO PUBLIC;
COMMENT ON FUNCTION @extschema@.shard_history(text, text) IS 'the last failures of an entity, and what was decided';
