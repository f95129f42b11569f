/*
 * What other nodes call, and which roles may be nodes. All procedures of schema shard_peer take bytes and answer bytes,
 * by core/base/wire.h; the arguments come from anywhere. Rights: shard_allow_peer().
 */

/* A list of messages of the control plane; the answers come back over the same link. */
CREATE PROCEDURE shard_peer.control(call bytea, INOUT answer bytea)
LANGUAGE c AS 'MODULE_PATHNAME', 'shard_internal_control';
REVOKE ALL ON PROCEDURE shard_peer.control(bytea, bytea) FROM PUBLIC;
COMMENT ON PROCEDURE shard_peer.control(bytea, bytea) IS 'takes messages of another node''s control plane';

/* Which node, in which incarnation, is here; NULL: it is not known yet, or this is a copy. */
CREATE PROCEDURE shard_peer.who(call bytea, INOUT answer bytea)
LANGUAGE c AS 'MODULE_PATHNAME', 'shard_internal_who';
REVOKE ALL ON PROCEDURE shard_peer.who(bytea, bytea) FROM PUBLIC;
COMMENT ON PROCEDURE shard_peer.who(bytea, bytea) IS 'tells which node is here';

/* For a node that wants to join: connects to its address, and tells which node is there. */
CREATE PROCEDURE shard_peer.call_back(call bytea, INOUT answer bytea)
LANGUAGE c AS 'MODULE_PATHNAME', 'shard_internal_call_back';
REVOKE ALL ON PROCEDURE shard_peer.call_back(bytea, bytea) FROM PUBLIC;
COMMENT ON PROCEDURE shard_peer.call_back(bytea, bytea) IS 'tells which node is found at the address of a node that wants to join';

/* What runs on this node, for shard_cluster_stats() and shard_location() of another one. */
CREATE PROCEDURE shard_peer.stats(call bytea, INOUT answer bytea)
LANGUAGE c AS 'MODULE_PATHNAME', 'shard_internal_stats';
REVOKE ALL ON PROCEDURE shard_peer.stats(bytea, bytea) FROM PUBLIC;
COMMENT ON PROCEDURE shard_peer.stats(bytea, bytea) IS 'tells what runs on this node';

/* A type's own allocation functions, for the control worker of this very node. */
CREATE PROCEDURE shard_peer.strategy(call bytea, INOUT answer bytea)
LANGUAGE c AS 'MODULE_PATHNAME', 'shard_strategy_call';
REVOKE ALL ON PROCEDURE shard_peer.strategy(bytea, bytea) FROM PUBLIC;
COMMENT ON PROCEDURE shard_peer.strategy(bytea, bytea) IS 'asks an entity type''s own allocation functions, for this node itself';

/*
 * Lets a role be another node: USAGE on schema shard_peer and EXECUTE on what is in it, and nothing else. node: the
 * only one that the role speaks for; 0: any. To be called again after an update of the extension.
 */
CREATE FUNCTION @extschema@.shard_allow_peer(role regrole, node int4 DEFAULT 0) RETURNS void
LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'shard_internal_allow_peer';
REVOKE ALL ON FUNCTION @extschema@.shard_allow_peer(regrole, int4) FROM PUBLIC;
COMMENT ON FUNCTION @extschema@.shard_allow_peer(regrole, int4) IS 'lets other nodes, or one of them, connect as the role: grants it the peer functions and nothing else';
