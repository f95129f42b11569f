/*
 * Sending. Rights are checked in C: EXECUTE on a type's handler is the right to
 * send to its entities.
 */

/*
 * Queues a message for an entity, durably, when this transaction commits.
 */
CREATE FUNCTION @extschema@.shard_tell(type_name text, entity_id text, message jsonb) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'shard_tell';
GRANT EXECUTE ON FUNCTION @extschema@.shard_tell(text, text, jsonb) TO PUBLIC;
COMMENT ON FUNCTION @extschema@.shard_tell(text, text, jsonb) IS 'queues a message for an entity; the message is handled after this transaction has committed';

/*
 * The same; the type's extractors find the entity in the message.
 */
CREATE FUNCTION @extschema@.shard_tell(type_name text, message jsonb) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'shard_tell_extracted';
GRANT EXECUTE ON FUNCTION @extschema@.shard_tell(text, jsonb) TO PUBLIC;
COMMENT ON FUNCTION @extschema@.shard_tell(text, jsonb) IS 'queues a message for the entity that the type''s extractors find in it';

/*
 * The same for many: message i goes to entity i. Returns how many.
 */
CREATE FUNCTION @extschema@.shard_tell_many(type_name text, entity_ids text[], messages jsonb[]) RETURNS int8
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'shard_tell_many';
GRANT EXECUTE ON FUNCTION @extschema@.shard_tell_many(text, text[], jsonb[]) TO PUBLIC;
COMMENT ON FUNCTION @extschema@.shard_tell_many(text, text[], jsonb[]) IS 'queues messages for entities, pair by pair, and returns how many';

/*
 * Brings an entity into memory; and out of it.
 */
CREATE FUNCTION @extschema@.shard_start_entity(type_name text, entity_id text) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'shard_start_entity';
GRANT EXECUTE ON FUNCTION @extschema@.shard_start_entity(text, text) TO PUBLIC;
COMMENT ON FUNCTION @extschema@.shard_start_entity(text, text) IS 'starts an entity without a message';

CREATE FUNCTION @extschema@.shard_passivate(type_name text, entity_id text) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'shard_passivate_entity';
GRANT EXECUTE ON FUNCTION @extschema@.shard_passivate(text, text) TO PUBLIC;
COMMENT ON FUNCTION @extschema@.shard_passivate(text, text) IS 'takes an entity out of memory; its state stays';

/*
 * In a handler only.
 */
CREATE FUNCTION @extschema@.shard_self(OUT type_name text, OUT entity_id text)
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'shard_self';
GRANT EXECUTE ON FUNCTION @extschema@.shard_self() TO PUBLIC;
COMMENT ON FUNCTION @extschema@.shard_self() IS 'in a handler: the entity itself';

CREATE FUNCTION @extschema@.shard_sender(OUT type_name text, OUT entity_id text)
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'shard_sender';
GRANT EXECUTE ON FUNCTION @extschema@.shard_sender() TO PUBLIC;
COMMENT ON FUNCTION @extschema@.shard_sender() IS 'in a handler: the entity that sent the message; nulls if a client did';

CREATE FUNCTION @extschema@.shard_reply(message jsonb) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'shard_reply';
GRANT EXECUTE ON FUNCTION @extschema@.shard_reply(jsonb) TO PUBLIC;
COMMENT ON FUNCTION @extschema@.shard_reply(jsonb) IS 'in a handler: answers the asker, or tells the entity that sent; does nothing if a client told';

CREATE FUNCTION @extschema@.shard_passivate(stop_message jsonb DEFAULT NULL) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'shard_passivate_self';
GRANT EXECUTE ON FUNCTION @extschema@.shard_passivate(jsonb) TO PUBLIC;
COMMENT ON FUNCTION @extschema@.shard_passivate(jsonb) IS 'in a handler: out of memory after this message, or after the stop message, which is sent to the entity by this';

CREATE FUNCTION @extschema@.shard_stop() RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'shard_stop';
GRANT EXECUTE ON FUNCTION @extschema@.shard_stop() TO PUBLIC;
COMMENT ON FUNCTION @extschema@.shard_stop() IS 'in a handler: out of memory after this message and no longer remembered; the row stays';

CREATE FUNCTION @extschema@.shard_message_id() RETURNS text
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'shard_message_id';
GRANT EXECUTE ON FUNCTION @extschema@.shard_message_id() TO PUBLIC;
COMMENT ON FUNCTION @extschema@.shard_message_id() IS 'in a handler: id of the message, the same at each attempt: the key for effects outside the database';
