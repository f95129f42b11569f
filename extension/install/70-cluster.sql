/*
 * Commands of operators: nobody but a superuser may call them until he grants it.
 */

/*
 * Makes this node, which must be empty, a member of the cluster of the node at seed_dsn; returns its
 * number there. own_dsn: where members reach this node; NULL: the address by which it reached the
 * seed, with its own port and database, and the user and security options of seed_dsn. Both are seen by
 * all members: no passwords. Again after it was interrupted, it goes on.
 */
CREATE FUNCTION @extschema@.shard_join(seed_dsn text, own_dsn text DEFAULT NULL) RETURNS int4
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'shard_admin_join';
REVOKE ALL ON FUNCTION @extschema@.shard_join(text, text) FROM PUBLIC;
COMMENT ON FUNCTION @extschema@.shard_join(text, text) IS 'makes this node a member of a cluster';

/* Leaves the cluster for good, when all of this node's shards live elsewhere. */
CREATE FUNCTION @extschema@.shard_leave(timeout interval DEFAULT '60 s') RETURNS boolean
LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'shard_admin_leave';
REVOKE ALL ON FUNCTION @extschema@.shard_leave(interval) FROM PUBLIC;
COMMENT ON FUNCTION @extschema@.shard_leave(interval) IS 'has this node leave its cluster for good';

/* Gives up the present start of a node: it is fenced; it may come back, with all its data, as a new one. */
CREATE FUNCTION @extschema@.shard_down(node int4) RETURNS void
LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'shard_admin_down';
REVOKE ALL ON FUNCTION @extschema@.shard_down(int4) FROM PUBLIC;
COMMENT ON FUNCTION @extschema@.shard_down(int4) IS 'gives up the present incarnation of a node';

/* Gives up a node with its data, for good: its shards begin empty elsewhere. */
CREATE FUNCTION @extschema@.shard_write_off(node int4) RETURNS void
LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'shard_admin_write_off';
REVOKE ALL ON FUNCTION @extschema@.shard_write_off(int4) FROM PUBLIC;
COMMENT ON FUNCTION @extschema@.shard_write_off(int4) IS 'gives up a node and its data for good';

/*
 * Admits a start of a node that the cluster has refused, as that incarnation: a promoted standby, or one
 * that was moved. The operator knows that the one before is gone.
 */
CREATE FUNCTION @extschema@.shard_admit(node int4, incarnation int4) RETURNS void
LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'shard_admin_admit';
REVOKE ALL ON FUNCTION @extschema@.shard_admit(int4, int4) FROM PUBLIC;
COMMENT ON FUNCTION @extschema@.shard_admit(int4, int4) IS 'admits an incarnation of a node that the cluster has refused';

/* When all voters are lost: what this node knows goes on, with these voters, itself among them. */
CREATE FUNCTION @extschema@.shard_force_voters(nodes int4[]) RETURNS void
LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'shard_admin_force_voters';
REVOKE ALL ON FUNCTION @extschema@.shard_force_voters(int4[]) FROM PUBLIC;
COMMENT ON FUNCTION @extschema@.shard_force_voters(int4[]) IS 'makes these nodes the voters when the old ones are lost';
