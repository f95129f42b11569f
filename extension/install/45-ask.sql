/*
 * Asking an entity, and waiting until all is handled.
 */

/*
 * Has an entity handle a message now, and returns its reply, or its new state
 * as jsonb if the handler does not reply. Waits for messages that this session
 * has told before, and until the effect is durable. The handler's error is
 * raised again. SQLSTATE after time-out: 55P03 not executed, 08007 outcome
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
