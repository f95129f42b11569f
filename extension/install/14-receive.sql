/*
 * What other nodes call to hand over messages and to ask. Rights: shard_allow_peer().
 */

/* A connection begins: the caller hears where its streams stand. */
CREATE PROCEDURE shard_peer.hello(call bytea, INOUT answer bytea)
LANGUAGE c AS 'MODULE_PATHNAME', 'shard_receive_hello';
REVOKE ALL ON PROCEDURE shard_peer.hello(bytea, bytea) FROM PUBLIC;
COMMENT ON PROCEDURE shard_peer.hello(bytea, bytea) IS 'tells another node where its streams to this one stand';

/* Messages, decided homes and marks; answers when they are durable. */
CREATE PROCEDURE shard_peer.receive(call bytea, INOUT answer bytea)
LANGUAGE c AS 'MODULE_PATHNAME', 'shard_receive_rows';
REVOKE ALL ON PROCEDURE shard_peer.receive(bytea, bytea) FROM PUBLIC;
COMMENT ON PROCEDURE shard_peer.receive(bytea, bytea) IS 'takes messages, homes and marks from another node';

/* Turn records of shards with replicas whose home is the caller; answers when they are durable. */
CREATE PROCEDURE shard_peer.store(call bytea, INOUT answer bytea)
LANGUAGE c AS 'MODULE_PATHNAME', 'shard_receive_records';
REVOKE ALL ON PROCEDURE shard_peer.store(bytea, bytea) FROM PUBLIC;
COMMENT ON PROCEDURE shard_peer.store(bytea, bytea) IS 'stores turn records of shards that this node keeps a copy of';

/* A message for an entity here, and its reply. */
CREATE PROCEDURE shard_peer.ask(call bytea, INOUT answer bytea)
LANGUAGE c AS 'MODULE_PATHNAME', 'shard_peer_ask';
REVOKE ALL ON PROCEDURE shard_peer.ask(bytea, bytea) FROM PUBLIC;
COMMENT ON PROCEDURE shard_peer.ask(bytea, bytea) IS 'asks an entity for another node';

/* Streams from other nodes, for views: up to where each was received. */
CREATE FUNCTION shard.streams_in(
    OUT origin     int4,
    OUT lane       int4,
    OUT channel    int4,
    OUT inc        int4,
    OUT gen        int4,
    OUT seq        int8,
    OUT quarantine text
) RETURNS SETOF record
LANGUAGE c VOLATILE PARALLEL RESTRICTED AS 'MODULE_PATHNAME', 'shard_stats_streams';
GRANT EXECUTE ON FUNCTION shard.streams_in() TO PUBLIC;
COMMENT ON FUNCTION shard.streams_in() IS 'streams from other nodes, and up to where each was received';

/* An operator ends the quarantine of the link to a node. */
CREATE FUNCTION @extschema@.shard_link_accept(node int4) RETURNS void
LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'shard_link_accept';
REVOKE ALL ON FUNCTION @extschema@.shard_link_accept(int4) FROM PUBLIC;
COMMENT ON FUNCTION @extschema@.shard_link_accept(int4) IS 'ends the quarantine of the link to a node: the stream of messages for it starts again';
