/*
 * Timers of entities. The right to schedule is the right to send.
 */

/*
 * The timer's message comes to the entity at the time, and again after each period. Returns the timer's name.
 */
CREATE FUNCTION @extschema@.shard_schedule(
    type_name text,
    entity_id text,
    message   jsonb,
    at        timestamptz DEFAULT NULL,
    after     interval DEFAULT NULL,
    every     interval DEFAULT NULL,
    name      text DEFAULT NULL,
    missed    text DEFAULT 'once'
) RETURNS text
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'shard_schedule';
GRANT EXECUTE ON FUNCTION @extschema@.shard_schedule(text, text, jsonb, timestamptz, interval, interval, text, text) TO PUBLIC;
COMMENT ON FUNCTION @extschema@.shard_schedule(text, text, jsonb, timestamptz, interval, interval, text, text) IS 'makes a durable timer of an entity when this transaction commits, in the entity''s own handler at once; returns its name';

CREATE FUNCTION @extschema@.shard_cancel(type_name text, entity_id text, name text) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'shard_cancel';
GRANT EXECUTE ON FUNCTION @extschema@.shard_cancel(text, text, text) TO PUBLIC;
COMMENT ON FUNCTION @extschema@.shard_cancel(text, text, text) IS 'ends a timer of an entity when this transaction commits, in the entity''s own handler at once';

/*
 * In a handler only.
 */
CREATE FUNCTION @extschema@.shard_set_receive_timeout(after interval, message jsonb DEFAULT NULL) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'shard_set_receive_timeout';
GRANT EXECUTE ON FUNCTION @extschema@.shard_set_receive_timeout(interval, jsonb) TO PUBLIC;
COMMENT ON FUNCTION @extschema@.shard_set_receive_timeout(interval, jsonb) IS 'in a handler: the message comes whenever the entity had none for so long; NULL ends it';

CREATE FUNCTION @extschema@.shard_timer(OUT name text, OUT due timestamptz, OUT fired int8)
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'shard_timer';
GRANT EXECUTE ON FUNCTION @extschema@.shard_timer() TO PUBLIC;
COMMENT ON FUNCTION @extschema@.shard_timer() IS 'in a handler: the timer whose message it is, when that was due, how often it has fired; nulls if the message is no timer''s';
