/*
 * Replies that come later.
 */

/*
 * In a handler: the message is not answered when the handler returns, but by shard_reply(token, message), from any
 * handler or session, at any node. Of an ask, the ask stays open until then, or until its time is over. Of a message
 * that an entity told, the token is that entity's address. A client that told waits for nothing: then it answers nobody.
 */
CREATE FUNCTION @extschema@.shard_defer_reply() RETURNS bytea
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'shard_defer_reply';
GRANT EXECUTE ON FUNCTION @extschema@.shard_defer_reply() TO PUBLIC;
COMMENT ON FUNCTION @extschema@.shard_defer_reply() IS 'in a handler: puts the reply off, and returns a token that replies later';

/*
 * Replies with such a token when this transaction commits. A reply that finds nobody who waits, since the time of the
 * ask is over or it was answered, does nothing. Caller: EXECUTE on the handler of the type that was asked, or that told,
 * checked in C.
 */
CREATE FUNCTION @extschema@.shard_reply(token bytea, message jsonb) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'shard_reply_later';
GRANT EXECUTE ON FUNCTION @extschema@.shard_reply(bytea, jsonb) TO PUBLIC;
COMMENT ON FUNCTION @extschema@.shard_reply(bytea, jsonb) IS 'answers the message whose handler has put its reply off, when this transaction commits';

/*
 * In a handler: asks another entity, and returns at once, with the id of the request. The answer comes as a message of the
 * entity that asks, an object with key "response": reply, error, or timeout if there was none so long; exactly one of them.
 * Caller: EXECUTE on the handler of the type that is asked, checked in C.
 */
CREATE FUNCTION @extschema@.shard_request(
    type_name  text,
    entity_id  text,
    message    jsonb,
    timeout    interval DEFAULT '5 s',
    reply_with jsonb DEFAULT NULL
) RETURNS text
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'shard_request';
GRANT EXECUTE ON FUNCTION @extschema@.shard_request(text, text, jsonb, interval, jsonb) TO PUBLIC;
COMMENT ON FUNCTION @extschema@.shard_request(text, text, jsonb, interval, jsonb) IS 'in a handler: asks another entity, whose answer comes as a message; returns the id of the request';

CREATE FUNCTION @extschema@.shard_response() RETURNS text
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'shard_response';
GRANT EXECUTE ON FUNCTION @extschema@.shard_response() TO PUBLIC;
COMMENT ON FUNCTION @extschema@.shard_response() IS 'in a handler: the id of the request that the message answers, or whose time is over; null: of none';
