/*
 * Asking an entity, and waiting until all is handled.
 */

/*
 * Has an entity handle a message now, and returns its reply, or its new state
 * as jsonb if the handler does not reply. Waits for messages that this session
 * has told before, and until the effect is durable. The handler's error is
 * raised again. SQLSTATE after time-out: 55P03 not executed, SH100 outcome
 * unknown. Caller: EXECUTE on the type's handler, checked in C.
 */
CREATE FUNCTION @extschema@.shard_ask(
    type_name text,
    entity_id text,
    message   jsonb,
    timeout   interval DEFAULT '5 s'
) RETURNS jsonb
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'shard_ask';
GRANT EXECUTE ON FUNCTION @extschema@.shard_ask(text, text, jsonb, interval) TO PUBLIC;
COMMENT ON FUNCTION @extschema@.shard_ask(text, text, jsonb, interval) IS 'has an entity handle a message now, and returns its reply or new state';

/*
 * Waits until every message that was committed before the call is handled and
 * durable, given up, or waits for a type that cannot run; false if the time
 * is up. The caller's own uncommitted messages do not count.
 */
CREATE FUNCTION @extschema@.shard_drain(timeout interval DEFAULT '30 s') RETURNS boolean
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'shard_drain';
GRANT EXECUTE ON FUNCTION @extschema@.shard_drain(interval) TO PUBLIC;
COMMENT ON FUNCTION @extschema@.shard_drain(interval) IS 'waits until all messages committed so far are handled';

/*
 * Sends dead letters again, at the end of the inbox, under their old ids:
 * those with the ids, of the type, or all of the caller's types. Returns how
 * many. Moves rows of shard.dead_letter. Caller: member of the types' owner.
 */
CREATE FUNCTION @extschema@.shard_redrive(
    ids       int8[] DEFAULT NULL,
    type_name text DEFAULT NULL
) RETURNS int8
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'shard_redrive';
REVOKE ALL ON FUNCTION @extschema@.shard_redrive(int8[], text) FROM PUBLIC;
COMMENT ON FUNCTION @extschema@.shard_redrive(int8[], text) IS 'sends messages again that were given up';

/*
 * Deletes dead letters for good: those with the ids, of the type, or both. Returns how many. Deletes rows of
 * shard.dead_letter. Caller: member of the types' owner.
 */
CREATE FUNCTION @extschema@.shard_discard(
    ids       int8[] DEFAULT NULL,
    type_name text DEFAULT NULL
) RETURNS int8
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'shard_discard';
REVOKE ALL ON FUNCTION @extschema@.shard_discard(int8[], text) FROM PUBLIC;
COMMENT ON FUNCTION @extschema@.shard_discard(int8[], text) IS 'deletes messages for good that were given up';

/* What is wrong on this node; ok when problems is empty. */
CREATE FUNCTION @extschema@.shard_health(OUT ok boolean, OUT problems text[]) RETURNS record
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'shard_health';
REVOKE ALL ON FUNCTION @extschema@.shard_health() FROM PUBLIC;
COMMENT ON FUNCTION @extschema@.shard_health() IS 'what is wrong on this node';
