/*
 * The cluster as this node knows it. Addresses are shown to members of pg_read_all_stats.
 */

/* As decided and learned; what is observed is NULL while the control worker does not run. */
CREATE FUNCTION shard.members(
    OUT node        int4,
    OUT dsn         text,
    OUT status      text,
    OUT roles       text[],
    OUT age         int8,
    OUT incarnation int4,
    OUT voter       boolean,
    OUT coordinator boolean,
    OUT reachable   boolean,
    OUT last_seen   timestamptz,
    OUT last_error  text,
    OUT self        boolean,
    OUT app_version text,
    OUT gate        text,
    OUT inc_uuid    uuid,
    OUT evacuated   boolean,
    OUT weight      numeric,
    OUT claimed     boolean
) RETURNS SETOF record
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'shard_cluster_view_members';
GRANT EXECUTE ON FUNCTION shard.members() TO PUBLIC;
COMMENT ON FUNCTION shard.members() IS 'members of the cluster, as this node knows them';

/*
 * age: the smaller the older; NULL: never up. last_error: of the link between the control planes.
 * evacuated: it is to have no shards until its server starts again (shard_evacuate).
 * weight: its share of shards of weighted types, compared with others.
 * claimed: another start or a copy of it wants its place, and is refused until shard_admit(); NULL: not known.
 */
CREATE VIEW @extschema@.shard_members AS
SELECT m.node, m.dsn, m.status, m.roles, m.age, m.incarnation, m.voter, m.coordinator, m.reachable,
       m.last_seen, m.self, m.last_error, m.app_version, m.gate, m.evacuated, m.weight, m.claimed
FROM shard.members() m;
GRANT SELECT ON @extschema@.shard_members TO PUBLIC;
COMMENT ON VIEW @extschema@.shard_members IS 'members of the cluster, as this node knows them';

CREATE FUNCTION shard.homes(
    OUT type_name text,
    OUT shard     int4,
    OUT node      int4,
    OUT epoch     int4,
    OUT phase     text,
    OUT to_node   int4,
    OUT type_id   int4,
    OUT reason    text,
    OUT pinned_to int4
) RETURNS SETOF record
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'shard_cluster_view_homes';
GRANT EXECUTE ON FUNCTION shard.homes() TO PUBLIC;
COMMENT ON FUNCTION shard.homes() IS 'homes of shards, as far as this node has learned them';

/*
 * Shards to which no message was ever sent have no home yet. to_node: where it moves. here: what the shard is on this
 * node: active, it is handled; stopping, sealed, its home before or during a move; staged, copied here, but not decided
 * yet; NULL: nothing of it. reason: of the last change. pinned_to: by shard_pin().
 */
CREATE VIEW @extschema@.shard_homes WITH (security_barrier) AS
SELECT h.type_name, h.shard, h.node, h.epoch, h.phase, h.to_node, o.state AS here, h.reason,
       h.pinned_to
FROM shard.homes() h LEFT JOIN shard.own o ON o.type_id = h.type_id AND o.shard = h.shard
WHERE shard.shards_readable(h.type_id);
GRANT SELECT ON @extschema@.shard_homes TO PUBLIC;
COMMENT ON VIEW @extschema@.shard_homes IS 'homes of shards, as far as this node has learned them';

/*
 * Turn records of a shard with replicas that this node has, as home or backup, item by item: each record begins with a row
 * of section record. seq: of its row in the log; 0: it is in shard.turn_kept.
 */
CREATE FUNCTION shard.turn_records(
    type_id     int4,
    shard       int4,
    OUT seq     int8,
    OUT epoch   int4,
    OUT turn    int8,
    OUT sum     int8,
    OUT section text,
    OUT entity  text,
    OUT what    text
) RETURNS SETOF record
LANGUAGE c STRICT VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'shard_turn_records';
REVOKE ALL ON FUNCTION shard.turn_records(int4, int4) FROM PUBLIC;
COMMENT ON FUNCTION shard.turn_records(int4, int4) IS 'turn records of a shard with replicas that this node has, item by item';

/* Nodes of the sets of shards, as far as this node has learned them. */
CREATE FUNCTION shard.copies(
    OUT type_id int4,
    OUT shard   int4,
    OUT node    int4,
    OUT role    text,
    OUT copies  int4,
    OUT wanted  int4,
    OUT unapplied int8
) RETURNS SETOF record
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'shard_cluster_copies';
GRANT EXECUTE ON FUNCTION shard.copies() TO PUBLIC;
COMMENT ON FUNCTION shard.copies() IS 'copies of shards of types with replicas, as far as this node has learned them';

/*
 * Copies of shards of types with replicas: role home or backup. redundancy: the copies that the shard's set has, of those
 * that are wished for. unapplied: of backups at this node, turns that are stored and not in the tables yet.
 */
CREATE VIEW @extschema@.shard_replicas WITH (security_barrier) AS
SELECT h.type_name, c.shard, c.node, c.role, c.copies || ' of ' || c.wanted AS redundancy, c.unapplied
FROM shard.copies() c JOIN shard.homes() h ON h.type_id = c.type_id AND h.shard = c.shard
WHERE shard.shards_readable(c.type_id);
GRANT SELECT ON @extschema@.shard_replicas TO PUBLIC;
COMMENT ON VIEW @extschema@.shard_replicas IS 'copies of shards of types with replicas, as far as this node has learned them';

/* Links of the region workers, each for its own lanes. */
CREATE FUNCTION shard.peers(
    OUT node            int4,
    OUT worker          int4,
    OUT state           text,
    OUT connected_since timestamptz,
    OUT outbox_messages int8,
    OUT outbox_bytes    int8,
    OUT oldest          timestamptz,
    OUT last_error      text
) RETURNS SETOF record
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'shard_cluster_view_peers';
GRANT EXECUTE ON FUNCTION shard.peers() TO PUBLIC;
COMMENT ON FUNCTION shard.peers() IS 'links of the region workers to other nodes';

/*
 * The links to a node as one; state is the worst of its workers', or quarantined if the node has said so
 * of its streams to this one; idle: nothing was to be sent yet. oldest: since when the oldest message waits
 * that the node has not received, or not yet told to be done.
 */
CREATE VIEW @extschema@.shard_peers AS
SELECT node,
       CASE
           WHEN pg_catalog.bool_or(p.state = 'quarantined') OR count(q.why) > 0 THEN 'quarantined'
           WHEN pg_catalog.bool_or(p.state = 'closed') THEN 'closed'
           WHEN pg_catalog.bool_or(p.state = 'connecting') THEN 'connecting'
           WHEN pg_catalog.bool_or(p.state = 'open') THEN 'open'
           ELSE 'idle'
       END AS state,
       CASE WHEN pg_catalog.bool_and(p.state = 'open') THEN max(p.connected_since) END AS connected_since,
       coalesce(sum(p.outbox_messages), 0)::int8 AS outbox_messages,
       coalesce(sum(p.outbox_bytes), 0)::int8    AS outbox_bytes,
       min(p.oldest)                             AS oldest,
       coalesce(max(p.last_error), min(q.why))   AS last_error
FROM (SELECT m.node FROM shard.members() m
      WHERE NOT m.self AND m.status NOT IN ('removed', 'written_off')) m
     FULL JOIN shard.peers() p USING (node)
     LEFT JOIN (
         SELECT s.origin AS node, 'messages from there are quarantined: ' || min(s.quarantine) AS why
         FROM shard.position s WHERE s.quarantine IS NOT NULL GROUP BY s.origin
     ) q USING (node)
/* a node that is gone is here only while something waits for it */
WHERE m.node IS NOT NULL OR p.outbox_messages > 0 OR q.why IS NOT NULL
GROUP BY node;
GRANT SELECT ON @extschema@.shard_peers TO PUBLIC;
COMMENT ON VIEW @extschema@.shard_peers IS 'links to other nodes, and what waits for them';

/* Asks all members; connects to them, so it is not granted to PUBLIC. */
CREATE FUNCTION shard.current_regions(
    OUT node      int4,
    OUT type_name text,
    OUT mode      text,
    OUT error     text
) RETURNS SETOF record
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'shard_cluster_stats_regions';
REVOKE ALL ON FUNCTION shard.current_regions() FROM PUBLIC;
COMMENT ON FUNCTION shard.current_regions() IS 'entity types that each member hosts or routes';

CREATE VIEW @extschema@.shard_current_regions AS
SELECT r.node, r.type_name, r.mode, r.error FROM shard.current_regions() r;
REVOKE ALL ON @extschema@.shard_current_regions FROM PUBLIC;
COMMENT ON VIEW @extschema@.shard_current_regions IS 'entity types that each member hosts or routes; error: a member that did not answer';

/* Entities in memory per shard, of all members. error: why a member has not told. */
CREATE FUNCTION @extschema@.shard_cluster_stats(timeout interval DEFAULT '3 s')
RETURNS TABLE (node int4, type_name text, shard int4, entities int8, error text)
LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'shard_cluster_stats_shards';
REVOKE ALL ON FUNCTION @extschema@.shard_cluster_stats(interval) FROM PUBLIC;
COMMENT ON FUNCTION @extschema@.shard_cluster_stats(interval) IS 'entities in memory per shard of all members';

/*
 * Where an entity lives, and whether it is in memory there (NULL: that node does not say). Starts nothing and allocates
 * no home: node is NULL if the shard has none. Caller: any role that may send to the type.
 */
CREATE FUNCTION @extschema@.shard_location(
    type_name   text,
    entity_id   text,
    OUT shard   int4,
    OUT node    int4,
    OUT dsn     text,
    OUT running boolean
) RETURNS record
LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'shard_cluster_stats_location';
GRANT EXECUTE ON FUNCTION @extschema@.shard_location(text, text) TO PUBLIC;
COMMENT ON FUNCTION @extschema@.shard_location(text, text) IS 'where an entity lives';

/* Copies of shards to this node, under way or of the last; in memory only. */
CREATE FUNCTION shard.imports(
    OUT type_id      int4,
    OUT shard        int4,
    OUT epoch        int4,
    OUT move_id      int8,
    OUT from_node    int4,
    OUT phase        text,
    OUT rows_copied  int8,
    OUT rows_total   int8,
    OUT bytes_copied int8,
    OUT started      timestamptz,
    OUT changed      timestamptz,
    OUT error        text
) RETURNS SETOF record
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'shard_cluster_moves_imports';
REVOKE ALL ON FUNCTION shard.imports() FROM PUBLIC;
COMMENT ON FUNCTION shard.imports() IS 'copies of shards to this node';

/*
 * What is known about moves of shards: copies (import), and of each shard the newest decision, and the newest that was a
 * failure. node: who says so, 0: this node; others are asked for members of pg_read_all_stats. note: the reason, if there
 * is one; NULL for other readers.
 */
CREATE FUNCTION shard.move_notes(
    OUT what        text,
    OUT import      boolean,
    OUT type_id     int4,
    OUT shard       int4,
    OUT epoch       int4,
    OUT from_node   int4,
    OUT to_node     int4,
    OUT rows_copied int8,
    OUT rows_total  int8,
    OUT started     timestamptz,
    OUT changed     timestamptz,
    OUT note        text,
    OUT node        int4,
    OUT eta         interval
) RETURNS SETOF record
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'shard_cluster_moves_notes';
GRANT EXECUTE ON FUNCTION shard.move_notes() TO PUBLIC;
COMMENT ON FUNCTION shard.move_notes() IS 'what nodes say of moves of shards';

/*
 * Moves of shards: those that are decided, with what their targets say; then copies that are prepared or have failed, and
 * decisions that a move has failed, unless the other of the two is newer. How far a copy is only its target knows; and what
 * another node says is not shown as if it was known here.
 */
CREATE VIEW shard.rebalances AS
WITH note AS (
    SELECT n.*, 'the attempt before failed: ' || s.why AS before, nullif(s.why, '') AS why
    FROM shard.move_notes() WITH ORDINALITY n
         CROSS JOIN LATERAL (
             SELECT CASE WHEN n.node > 0 AND n.note <> '' THEN 'node ' || n.node || ' says: ' || n.note ELSE n.note END AS why
         ) s
    WHERE NOT n.import OR n.node = 0 OR n.to_node = n.node
), copy AS (
    SELECT DISTINCT ON (type_id, shard) * FROM note WHERE import
    ORDER BY type_id, shard, changed DESC NULLS LAST, ordinality
), decision AS (
    SELECT DISTINCT ON (type_id, shard) * FROM note WHERE NOT import
    ORDER BY type_id, shard, changed DESC NULLS LAST, ordinality
), failure AS (
    SELECT DISTINCT ON (type_id, shard) * FROM note WHERE NOT import AND what IN ('move aborted', 'move refused')
    ORDER BY type_id, shard, changed DESC NULLS LAST, ordinality
), home AS (
    /* of what may be millions those few that are looked at below */
    SELECT h.type_name, h.type_id, h.shard, h.node, h.epoch, h.phase, h.to_node, h.reason
    FROM shard.homes() h
    WHERE h.phase = 'moving' OR (h.type_id, h.shard) IN (SELECT n.type_id, n.shard FROM note n)
)
SELECT h.type_name, h.shard, h.node AS from_node, h.to_node, coalesce(nullif(c.what, 'preparing'), 'stopping') AS phase,
       c.rows_copied, c.rows_total,
       CASE WHEN d.what = 'move begun' THEN d.changed WHEN c.what <> 'preparing' THEN c.started END AS started,
       CASE WHEN d.what = 'move begun' AND d.why IS NOT NULL THEN d.why ELSE h.reason END AS reason,
       c.eta, CASE WHEN c.what <> 'preparing' AND c.why IS NOT NULL THEN c.why ELSE f.before END AS error, h.type_id
FROM home h
     /* a copy of an earlier move says nothing of this one */
     LEFT JOIN copy c ON c.type_id = h.type_id AND c.shard = h.shard AND c.to_node = h.to_node AND c.epoch = h.epoch + 1
     LEFT JOIN decision d ON d.type_id = h.type_id AND d.shard = h.shard
     LEFT JOIN failure f ON f.type_id = h.type_id AND f.shard = h.shard
WHERE h.phase = 'moving'
UNION ALL
SELECT h.type_name, c.shard, nullif(c.from_node, 0), nullif(c.to_node, 0), c.what, c.rows_copied, c.rows_total, c.started,
       NULL, c.eta, coalesce(c.why, f.before), c.type_id
FROM copy c
     LEFT JOIN decision d ON d.type_id = c.type_id AND d.shard = c.shard
     LEFT JOIN failure f ON f.type_id = c.type_id AND f.shard = c.shard
     LEFT JOIN home h ON h.type_id = c.type_id AND h.shard = c.shard
WHERE c.what IN ('failed', 'preparing') AND (d.changed >= c.changed) IS NOT TRUE AND h.phase IS DISTINCT FROM 'moving'
  /* who asked for it may not be there any more, and never say that it is over */
  AND (c.what = 'preparing' AND (h.epoch >= c.epoch OR h.node <> c.from_node)) IS NOT TRUE
UNION ALL
SELECT h.type_name, d.shard, nullif(d.from_node, 0), nullif(d.to_node, 0), 'failed', NULL, NULL, d.changed, NULL, NULL,
       d.why, d.type_id
FROM decision d
     LEFT JOIN copy c ON c.type_id = d.type_id AND c.shard = d.shard
     LEFT JOIN home h ON h.type_id = d.type_id AND h.shard = d.shard
WHERE d.what IN ('move aborted', 'move refused') AND h.phase IS DISTINCT FROM 'moving'
  AND (c.what IN ('failed', 'preparing') AND c.changed > d.changed) IS NOT TRUE;
REVOKE ALL ON shard.rebalances FROM PUBLIC;
COMMENT ON VIEW shard.rebalances IS 'moves of shards, under way or failed';

/*
 * Moves of types that the reader may see, under way, on every node the same; for members of pg_read_all_stats with what
 * the other nodes say: how far the copy is, and moves that are being prepared or have failed in the last hour. phase:
 * preparing, stopping, copying, staging, staged, failed. parked: messages that wait for the shard on this node.
 */
CREATE VIEW @extschema@.shard_rebalances WITH (security_barrier) AS
SELECT r.type_name, r.shard, r.from_node, r.to_node, r.phase, r.rows_copied, r.rows_total,
       (SELECT count(*) FROM shard.parked p
        WHERE p.type_id = r.type_id AND p.shard = r.shard AND p.turn IS NULL) AS parked,
       r.started, r.reason, r.eta, r.error
FROM shard.rebalances r
WHERE shard.shards_readable(r.type_id);
GRANT SELECT ON @extschema@.shard_rebalances TO PUBLIC;
COMMENT ON VIEW @extschema@.shard_rebalances IS 'moves of shards, under way or failed';

/* Asks all members; connects to them, so it is not granted to PUBLIC. */
CREATE FUNCTION shard.decisions(
    OUT what      text,
    OUT at        timestamptz,
    OUT type_id   int4,
    OUT shard     int4,
    OUT from_node int4,
    OUT to_node   int4,
    OUT epoch     int4,
    OUT why       text,
    OUT node      int4
) RETURNS SETOF record
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'shard_cluster_moves_decisions';
REVOKE ALL ON FUNCTION shard.decisions() FROM PUBLIC;
COMMENT ON FUNCTION shard.decisions() IS 'what the coordinators of the cluster decided, and why';

/*
 * Newest first. node: the coordinator that decided it. A member that did not answer has one row, what is
 * "no answer". type_name is NULL of types that are no more.
 */
CREATE VIEW @extschema@.shard_decisions AS
SELECT d.at, d.what, t.type_name, d.shard, d.from_node, d.to_node, d.why, d.node
FROM shard.decisions() d
     LEFT JOIN (SELECT DISTINCT h.type_id, h.type_name FROM shard.homes() h
                UNION SELECT y.type_id, y.type_name FROM shard.type y) t USING (type_id)
ORDER BY d.at DESC NULLS LAST, d.node;
REVOKE ALL ON @extschema@.shard_decisions FROM PUBLIC;
COMMENT ON VIEW @extschema@.shard_decisions IS 'what the coordinators of the cluster decided, and why';

/*
 * The moves that would begin now, of one type or of all, by themselves or by shard_rebalance(). The coordinator is asked;
 * nothing is moved. Strategies that are functions of the user's are not asked.
 */
CREATE FUNCTION @extschema@.shard_rebalance_plan(type_name text DEFAULT NULL)
RETURNS TABLE (type_name text, shard int4, from_node int4, to_node int4, reason text)
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'shard_cluster_plan';
REVOKE ALL ON FUNCTION @extschema@.shard_rebalance_plan(text) FROM PUBLIC;
COMMENT ON FUNCTION @extschema@.shard_rebalance_plan(text) IS 'the moves of shards that the coordinator would make now';
