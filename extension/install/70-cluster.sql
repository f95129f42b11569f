/* Commands of operators: only superusers may call them, until one grants EXECUTE. */

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

/*
 * Says where a member is, for all members, instead of what was said before; it has to answer there. node: NULL for this one.
 * At the coordinator only; and at a node that does not find itself, about itself.
 */
CREATE FUNCTION @extschema@.shard_set_address(dsn text, node int4 DEFAULT NULL) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'shard_admin_set_address';
REVOKE ALL ON FUNCTION @extschema@.shard_set_address(text, int4) FROM PUBLIC;
COMMENT ON FUNCTION @extschema@.shard_set_address(text, int4) IS 'says where a member is, at the coordinator';

/*
 * Leaves the cluster for good: its shards move to other members, it is removed, and what it still has of
 * them is deleted. Returns whether all that was done within timeout; it goes on in any case. cancel: it is to stay,
 * with the shards that it still has; an error if the last one is gone.
 */
CREATE FUNCTION @extschema@.shard_leave(timeout interval DEFAULT '60 s', cancel boolean DEFAULT false) RETURNS boolean
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'shard_admin_leave';
REVOKE ALL ON FUNCTION @extschema@.shard_leave(interval, boolean) FROM PUBLIC;
COMMENT ON FUNCTION @extschema@.shard_leave(interval, boolean) IS 'has this node leave its cluster for good, or stay after all; true: the node has left, or stays';

/* Gives up the present start of a node: it is fenced; it may come back, with all its data, as a new one. */
CREATE FUNCTION @extschema@.shard_down(node int4) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'shard_admin_down';
REVOKE ALL ON FUNCTION @extschema@.shard_down(int4) FROM PUBLIC;
COMMENT ON FUNCTION @extschema@.shard_down(int4) IS 'gives up the present incarnation of a node';

/*
 * Gives up a node with its data, for good: its shards begin empty elsewhere. Refused while its region workers answer,
 * unless the operator says that they have ended, or will be ended.
 */
CREATE FUNCTION @extschema@.shard_write_off(node int4, force boolean DEFAULT false) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'shard_admin_write_off';
REVOKE ALL ON FUNCTION @extschema@.shard_write_off(int4, boolean) FROM PUBLIC;
COMMENT ON FUNCTION @extschema@.shard_write_off(int4, boolean) IS 'gives up a node and its data for good';

/*
 * Admits a start of a node that the cluster has refused, as that incarnation: a promoted standby, or one
 * that was moved. The operator knows that the one before is gone.
 */
CREATE FUNCTION @extschema@.shard_admit(node int4, incarnation int4) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'shard_admin_admit';
REVOKE ALL ON FUNCTION @extschema@.shard_admit(int4, int4) FROM PUBLIC;
COMMENT ON FUNCTION @extschema@.shard_admit(int4, int4) IS 'admits an incarnation of a node that the cluster has refused';

/*
 * When all voters are lost: what this node knows goes on, with these voters, itself among them. Refused while one that
 * is left out is found to be there, unless the operator says that it has ended, or will be ended.
 */
CREATE FUNCTION @extschema@.shard_force_voters(nodes int4[], force boolean DEFAULT false) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'shard_admin_force_voters';
REVOKE ALL ON FUNCTION @extschema@.shard_force_voters(int4[], boolean) FROM PUBLIC;
COMMENT ON FUNCTION @extschema@.shard_force_voters(int4[], boolean) IS 'makes these nodes the voters when the old ones are lost';

/*
 * Where shards live. All of these may be called at any member. To cancel one that waits does not cancel what it asked
 * for.
 */

/*
 * Moves a shard to a node with its state; returns when that is decided, raises if it has failed: then it
 * is where it was. If the shard moves already, after that move.
 */
CREATE FUNCTION @extschema@.shard_move(type_name text, shard int4, node int4) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'shard_admin_move';
REVOKE ALL ON FUNCTION @extschema@.shard_move(text, int4, int4) FROM PUBLIC;
COMMENT ON FUNCTION @extschema@.shard_move(text, int4, int4) IS 'moves a shard to a node; returns when the move is decided';

/* The shard goes to that node, and stays while the node can have it, whatever the strategy. */
CREATE FUNCTION @extschema@.shard_pin(type_name text, shard int4, node int4) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'shard_admin_pin';
REVOKE ALL ON FUNCTION @extschema@.shard_pin(text, int4, int4) FROM PUBLIC;
COMMENT ON FUNCTION @extschema@.shard_pin(text, int4, int4) IS 'says at which node a shard should be';

CREATE FUNCTION @extschema@.shard_unpin(type_name text, shard int4) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'shard_admin_unpin';
REVOKE ALL ON FUNCTION @extschema@.shard_unpin(text, int4) FROM PUBLIC;
COMMENT ON FUNCTION @extschema@.shard_unpin(text, int4) IS 'leaves a shard to the strategy of its type again';

/* The shard starts again, without its states, at the home that does not run it since it has not got them. */
CREATE FUNCTION @extschema@.shard_give_up(type_name text, shard int4) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'shard_admin_give_up';
REVOKE ALL ON FUNCTION @extschema@.shard_give_up(text, int4) FROM PUBLIC;
COMMENT ON FUNCTION @extschema@.shard_give_up(text, int4) IS 'has a shard start again, empty, that stands still since its home does not have it';

/*
 * Moves all shards of a node elsewhere, and gives it none until its server is started again, or evacuate
 * is false. Returns whether none is left there; waits for that for as long as timeout.
 */
CREATE FUNCTION @extschema@.shard_evacuate(
    node     int4,
    evacuate boolean DEFAULT true,
    timeout  interval DEFAULT '0 s'
) RETURNS boolean
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'shard_admin_evacuate';
REVOKE ALL ON FUNCTION @extschema@.shard_evacuate(int4, boolean, interval) FROM PUBLIC;
COMMENT ON FUNCTION @extschema@.shard_evacuate(int4, boolean, interval) IS 'empties a node of its shards; true: no shard is left there';

/* One round of rebalancing of a type, NULL: of all types, now; returns how many moves begin. */
CREATE FUNCTION @extschema@.shard_rebalance(type_name text DEFAULT NULL) RETURNS int4
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'shard_admin_rebalance';
REVOKE ALL ON FUNCTION @extschema@.shard_rebalance(text) FROM PUBLIC;
COMMENT ON FUNCTION @extschema@.shard_rebalance(text) IS 'has shards rebalanced now; the number of moves that begin';

/*
 * This database forgets its cluster: with shard.enabled = off. Entities keep their states, messages that
 * wait are handled by the new node; what is for other members is lost, and that needs force. With names:
 * only the homes of these types are forgotten, on a node that was always alone.
 */
CREATE FUNCTION @extschema@.shard_reset_cluster_data(type_names text[] DEFAULT NULL, force boolean DEFAULT false) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'shard_admin_reset';
REVOKE ALL ON FUNCTION @extschema@.shard_reset_cluster_data(text[], boolean) FROM PUBLIC;
COMMENT ON FUNCTION @extschema@.shard_reset_cluster_data(text[], boolean) IS 'makes this database a node of a cluster of its own, with its entities, while no workers run';
