/*
 * Copying shards between nodes. Rights: shard_allow_peer().
 */

/* At the old home, for the new one: a shard's rows, as many as fit into an answer. */
CREATE PROCEDURE shard_peer.export(call bytea, INOUT answer bytea)
LANGUAGE c AS 'MODULE_PATHNAME', 'shard_export_rows';
REVOKE ALL ON PROCEDURE shard_peer.export(bytea, bytea) FROM PUBLIC;
COMMENT ON PROCEDURE shard_peer.export(bytea, bytea) IS 'gives a shard that was sealed to its new home, a part with each call';

/* At the new home, for its own control worker: copies a shard from the old home. */
CREATE PROCEDURE shard_peer.import(call bytea, INOUT answer bytea)
LANGUAGE c AS 'MODULE_PATHNAME', 'shard_import_shard';
REVOKE ALL ON PROCEDURE shard_peer.import(bytea, bytea) FROM PUBLIC;
COMMENT ON PROCEDURE shard_peer.import(bytea, bytea) IS 'copies a shard to this node, for the node''s own control worker';
