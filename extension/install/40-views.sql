/*
 * Looking at what is here and what waits. Views read the extension's tables as its owner, and call functions of schema
 * shard as the user who reads them: these are granted to PUBLIC, and cannot be named, as the schema is closed.
 * Messages, and errors that may quote them, are shown to members of the type's owner only.
 */

/* A stored message as jsonb; NULL for a role that may not read it. */
CREATE FUNCTION shard.payload_json(type_id int4, payload bytea) RETURNS jsonb
LANGUAGE c STABLE STRICT PARALLEL RESTRICTED AS 'MODULE_PATHNAME', 'shard_payload_json';
GRANT EXECUTE ON FUNCTION shard.payload_json(int4, bytea) TO PUBLIC;
COMMENT ON FUNCTION shard.payload_json(int4, bytea) IS 'a stored message, for members of the owner of its type';

CREATE FUNCTION shard.payload_readable(type_id int4) RETURNS boolean
LANGUAGE c STABLE STRICT PARALLEL RESTRICTED AS 'MODULE_PATHNAME', 'shard_payload_readable';
GRANT EXECUTE ON FUNCTION shard.payload_readable(int4) TO PUBLIC;
COMMENT ON FUNCTION shard.payload_readable(int4) IS 'whether the current user may read messages of a type';

/* Which shards of a type have messages, or homes, tells of its entities. */
CREATE FUNCTION shard.shards_readable(type_id int4) RETURNS boolean
LANGUAGE c STABLE STRICT PARALLEL RESTRICTED AS 'MODULE_PATHNAME', 'shard_payload_shards_readable';
GRANT EXECUTE ON FUNCTION shard.shards_readable(int4) TO PUBLIC;
COMMENT ON FUNCTION shard.shards_readable(int4) IS 'whether the current user may know which shards of a type are in use';

/* Entities in the memory of the region workers, which are asked for them. */
CREATE FUNCTION shard.region_entities(
    OUT type_id         int4,
    OUT shard           int4,
    OUT entity_id       text,
    OUT state           text,
    OUT last_message_at timestamptz,
    OUT waiting         int8
) RETURNS SETOF record
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'shard_stats_entities';
GRANT EXECUTE ON FUNCTION shard.region_entities() TO PUBLIC;
COMMENT ON FUNCTION shard.region_entities() IS 'entities in the memory of the region workers';

CREATE VIEW @extschema@.shard_region_state AS
SELECT t.type_name, CASE WHEN shard.payload_readable(e.type_id) THEN e.shard END AS shard,
       CASE WHEN shard.payload_readable(e.type_id) THEN e.entity_id END AS entity_id, e.state, e.last_message_at, e.waiting
FROM shard.region_entities() e JOIN shard.type t USING (type_id);
GRANT SELECT ON @extschema@.shard_region_state TO PUBLIC;
COMMENT ON VIEW @extschema@.shard_region_state IS 'entities in memory on this node';

/* Counts per shard since the start of the region workers, which are asked for them. */
CREATE FUNCTION shard.region_shards(
    OUT type_id          int4,
    OUT shard            int4,
    OUT entities         int8,
    OUT messages_handled int8,
    OUT errors           int8,
    OUT left_idle        int8,
    OUT left_limit       int8,
    OUT left_memory      int8,
    OUT remembered       int8,
    OUT recovering       boolean
) RETURNS SETOF record
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'shard_stats_shards';
GRANT EXECUTE ON FUNCTION shard.region_shards() TO PUBLIC;
COMMENT ON FUNCTION shard.region_shards() IS 'what the region workers did, per shard';

/*
 * Held messages of shards that live here as far as this node knows. Copies at a shard's new home that is not decided
 * yet, what was left behind at its former home, and what a backup has, do not count here (M12, Q10).
 */
CREATE VIEW shard.held_rows_here AS
SELECT h.*
FROM shard.held h
WHERE NOT EXISTS (
    SELECT
    FROM shard.own o LEFT JOIN shard.route r ON r.type_id = o.type_id AND r.shard = o.shard
    WHERE o.type_id = h.type_id AND o.shard = h.shard
      AND (o.state = 'staged' OR o.state = 'sealed' AND r.epoch > o.epoch)
)
  AND NOT EXISTS (SELECT FROM shard.backup_here b WHERE b.type_id = h.type_id AND b.shard = h.shard);
REVOKE ALL ON shard.held_rows_here FROM PUBLIC;
COMMENT ON VIEW shard.held_rows_here IS 'what is held of shards that live here';

CREATE VIEW shard.held_here AS
SELECT h.* FROM shard.held_rows_here h WHERE h.place <> 'start';
REVOKE ALL ON shard.held_here FROM PUBLIC;
COMMENT ON VIEW shard.held_here IS 'held messages of shards that live here';

/* Entities that cannot start (E15), which are no messages. */
CREATE VIEW shard.start_failure_here AS
SELECT h.* FROM shard.held_rows_here h WHERE h.place = 'start';
REVOKE ALL ON shard.start_failure_here FROM PUBLIC;
COMMENT ON VIEW shard.start_failure_here IS 'entities that cannot start, of shards that live here';

/*
 * Shards of which something is here that lives here, or is to be deleted. What is left of a state that was given up
 * since, or undone with lost voters (R29), stays, for operators to look at (N1, M23). A shard whose type was dropped
 * here, and that no other member may host (D28), has no node to go to; while it could, the coordinator does not let the
 * node exit.
 */
CREATE VIEW shard.own_remains AS
SELECT o.type_id, o.shard
FROM shard.own o LEFT JOIN shard.route r ON r.type_id = o.type_id AND r.shard = o.shard
WHERE (o.state IN ('sealed', 'staged') AND greatest(r.lost, r.doubt) > o.epoch) IS NOT TRUE
  AND NOT (o.state = 'active' AND EXISTS (SELECT FROM shard.type t WHERE t.type_id = o.type_id AND t.mode = 'dropped'));
REVOKE ALL ON shard.own_remains FROM PUBLIC;
COMMENT ON VIEW shard.own_remains IS 'shards that keep this node from leaving';

/*
 * Messages that are parked, and have a node to go to. Of a type that was dropped here a home stays at a node that exits
 * only if no other member may host the type (M20): then no member takes what is parked for it either.
 */
CREATE VIEW shard.parked_remains AS
SELECT p.type_id, p.shard
FROM shard.parked p JOIN shard.type t USING (type_id)
WHERE p.turn IS NULL
  AND (t.mode <> 'dropped'
       OR NOT EXISTS (SELECT FROM shard.route r JOIN shard.node n ON r.node = n.node_id WHERE r.type_id = p.type_id));
REVOKE ALL ON shard.parked_remains FROM PUBLIC;
COMMENT ON VIEW shard.parked_remains IS 'parked messages that keep this node from leaving';

/*
 * parked: messages of the shard that cannot be handled now, whatever they wait for. remembered: entities that start with
 * the shard, of those that were looked at while it is recovering. paused_until: after an escalation nothing of the shard
 * runs before that.
 */
CREATE VIEW @extschema@.shard_region_stats WITH (security_barrier) AS
SELECT t.type_name, s.shard, s.entities, s.messages_handled, s.errors, s.parked,
       s.left_idle, s.left_limit, s.left_memory, s.remembered, s.recovering,
       (SELECT max(p.next_at) FROM shard.held_here p
        WHERE p.type_id = s.type_id AND p.shard = s.shard AND p.pauses AND p.next_at > clock_timestamp()) AS paused_until
FROM (
    SELECT r.type_id, r.shard,
           sum(r.entities)::int8         AS entities,
           sum(r.messages_handled)::int8 AS messages_handled,
           sum(r.errors)::int8           AS errors,
           sum(r.parked)::int8           AS parked,
           sum(r.left_idle)::int8        AS left_idle,
           sum(r.left_limit)::int8       AS left_limit,
           sum(r.left_memory)::int8      AS left_memory,
           sum(r.remembered)::int8       AS remembered,
           bool_or(r.recovering)         AS recovering
    FROM (
        SELECT type_id, shard, entities, messages_handled, errors, 0::int8 AS parked,
               left_idle, left_limit, left_memory, remembered, recovering
        FROM shard.region_shards()
        UNION ALL
        SELECT type_id, shard, 0, 0, 0, count(*), 0, 0, 0, 0, false FROM shard.held_here GROUP BY type_id, shard
        UNION ALL
        SELECT type_id, shard, 0, 0, 0, count(*), 0, 0, 0, 0, false FROM shard.parked WHERE turn IS NULL GROUP BY type_id, shard
    ) r
    GROUP BY r.type_id, r.shard
) s JOIN shard.type t USING (type_id)
WHERE shard.shards_readable(s.type_id);
GRANT SELECT ON @extschema@.shard_region_stats TO PUBLIC;
COMMENT ON VIEW @extschema@.shard_region_stats IS 'entities, messages and errors per shard of this node';

/* Region workers, from shared memory; what waits for them is counted in the log. */
CREATE FUNCTION shard.worker_stats(
    OUT worker             int4,
    OUT pid                int4,
    OUT lanes              text,
    OUT messages_handled   int8,
    OUT turns              int8,
    OUT batch_avg          numeric,
    OUT errors             int8,
    OUT inbox_lag_messages int8,
    OUT inbox_lag          interval,
    OUT cache_entities     int8,
    OUT cache_bytes        int8,
    OUT recounts           int8,
    OUT owners             text,
    OUT open_asks          int8,
    OUT void_replies       int8
) RETURNS SETOF record
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'shard_stats_workers';
GRANT EXECUTE ON FUNCTION shard.worker_stats() TO PUBLIC;
COMMENT ON FUNCTION shard.worker_stats() IS 'region workers of this database';

CREATE VIEW @extschema@.shard_stat_workers AS
SELECT w.worker, w.pid, w.lanes, w.messages_handled, w.turns, w.batch_avg, w.errors,
       w.inbox_lag_messages, w.inbox_lag, w.cache_entities, w.cache_bytes, w.recounts,
       w.owners, w.open_asks, w.void_replies
FROM shard.worker_stats() w;
GRANT SELECT ON @extschema@.shard_stat_workers TO PUBLIC;
COMMENT ON VIEW @extschema@.shard_stat_workers IS 'region workers, their work since start, and what waits for them';

/* Segments of the log, and what keeps them as far as the workers' positions tell. */
CREATE FUNCTION shard.inbox_segments(
    OUT segment    int4,
    OUT relid      oid,
    OUT bytes      int8,
    OUT rows       int8,
    OUT current    boolean,
    OUT oldest     int8,
    OUT blocked_by text
) RETURNS SETOF record
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'shard_inbox_segments';
GRANT EXECUTE ON FUNCTION shard.inbox_segments() TO PUBLIC;
COMMENT ON FUNCTION shard.inbox_segments() IS 'segments of the inbox';

/* oldest: lowest seq. blocked_by: why a segment that is not current is not emptied. */
CREATE VIEW @extschema@.shard_stat_inbox AS
SELECT s.segment, s.bytes, s.rows, s.current, s.oldest,
       CASE
           WHEN s.current OR s.oldest IS NULL THEN NULL
           ELSE coalesce(s.blocked_by,
                         (SELECT 'lock of process '
                                 || string_agg(DISTINCT coalesce(l.pid::text, '(prepared)'), ', ')
                          FROM pg_locks l
                          WHERE l.locktype = 'relation'
                            AND l.database = (SELECT d.oid FROM pg_database d
                                              WHERE d.datname = current_database())
                            AND l.relation = s.relid
                            AND l.granted))
       END AS blocked_by
FROM shard.inbox_segments() s;
GRANT SELECT ON @extschema@.shard_stat_inbox TO PUBLIC;
COMMENT ON VIEW @extschema@.shard_stat_inbox IS 'segments of the inbox, and what keeps them from being emptied';

/* Messages of the log that are not handled, as the statement's snapshot sees it. */
CREATE FUNCTION shard.inbox_rows(
    OUT type_id   int4,
    OUT shard     int4,
    OUT entity_id text,
    OUT message   jsonb,
    OUT seq       int8
) RETURNS SETOF record
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'shard_inbox_view_rows';
GRANT EXECUTE ON FUNCTION shard.inbox_rows() TO PUBLIC;
COMMENT ON FUNCTION shard.inbox_rows() IS 'messages of the inbox that are not handled yet';

CREATE FUNCTION shard.inbox_blocker(type_id int4, shard int4, entity_id text) RETURNS int4
LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'shard_inbox_view_blocker';
GRANT EXECUTE ON FUNCTION shard.inbox_blocker(int4, int4, text) TO PUBLIC;
COMMENT ON FUNCTION shard.inbox_blocker(int4, int4, text) IS 'process that keeps the state of an entity locked';

/*
 * What waits on this node. place: inbox, not looked at yet; stash, waits for
 * its entity or its type; ordered, waits for lower numbers than its number; parked, waits
 * for its shard's home. waits_for, of one in the stash: of a start that failed and a pause of the shard the one that is
 * over last, whose time and error it then has; a start that only waits for a lock is tried after 100 ms. type_name is NULL for a type that was dropped. INSERT and COPY of the first three columns send, as
 * shard_tell() does.
 */
CREATE VIEW @extschema@.shard_inbox AS
SELECT t.type_name, CASE WHEN shard.payload_readable(r.type_id) THEN r.entity_id END AS entity_id, r.message, r.seq, r.place, r.attempts, r.next_at, r.sqlstate,
       r.error, r.blocked_by, r.number,
       CASE
           WHEN r.place <> 'stash' OR NOT shard.payload_readable(r.type_id) THEN NULL
           WHEN t.mode <> 'hosting' OR t.problem IS NOT NULL THEN 'type'
           WHEN r.what = 'start' AND r.blocked_by IS NOT NULL AND r.next_at <= clock_timestamp() + interval '100 ms' THEN 'lock'
           WHEN r.what IS NOT NULL THEN r.what
           WHEN r.blocked_by IS NOT NULL THEN 'lock'
           WHEN r.attempts > 0 THEN 'retry'
       END AS waits_for
FROM (
    SELECT i.type_id, i.entity_id, i.message, i.seq, 'inbox' AS place, 0 AS attempts,
           NULL::timestamptz AS next_at, NULL::text AS sqlstate, NULL::text AS error,
           NULL::int4 AS blocked_by, NULL::int8 AS number, NULL::text AS what
    FROM shard.inbox_rows() i
    UNION ALL
    SELECT h.type_id, h.entity, shard.payload_json(h.type_id, h.payload), h.seq, h.place,
           h.attempts, CASE WHEN w.what IS NULL THEN h.next_at ELSE w.next_at END,
           CASE WHEN shard.payload_readable(h.type_id) THEN coalesce(h.sqlstate, w.sqlstate) END,
           CASE WHEN shard.payload_readable(h.type_id) THEN coalesce(h.error, w.error) END,
           CASE h.place WHEN 'stash' THEN shard.inbox_blocker(h.type_id, h.shard, h.entity) END,
           CASE WHEN shard.payload_readable(h.type_id) THEN h.number END,
           w.what
    FROM shard.held_here h
    LEFT JOIN LATERAL (
        SELECT CASE WHEN s.next_at IS NULL THEN 'quarantine' ELSE 'start' END AS what, s.next_at, s.sqlstate, s.error
        FROM shard.held s
        WHERE s.type_id = h.type_id AND s.shard = h.shard AND s.entity = h.entity AND s.place = 'start'
        UNION ALL
        SELECT 'pause', p.next_at, p.sqlstate, p.error
        FROM shard.held p
        WHERE p.type_id = h.type_id AND p.shard = h.shard AND p.pauses AND p.next_at > clock_timestamp()
        ORDER BY next_at DESC NULLS FIRST LIMIT 1
    ) w ON h.place = 'stash'
    UNION ALL
    SELECT p.type_id, p.entity, shard.payload_json(p.type_id, p.payload), p.arrival, 'parked', 0,
           NULL, NULL, NULL, NULL, NULL, NULL
    FROM shard.parked p
    WHERE p.turn IS NULL AND p.kind IN (1, 7, 13, 14, 15, 27, 28)
) r LEFT JOIN shard.type t USING (type_id);
GRANT SELECT, INSERT ON @extschema@.shard_inbox TO PUBLIC;
COMMENT ON VIEW @extschema@.shard_inbox IS 'messages that wait on this node; INSERT and COPY send';

/* Rights are checked in C, for each row's type. */
CREATE FUNCTION shard.inbox_insert() RETURNS trigger
LANGUAGE c AS 'MODULE_PATHNAME', 'shard_inbox_view_insert';
REVOKE ALL ON FUNCTION shard.inbox_insert() FROM PUBLIC;
COMMENT ON FUNCTION shard.inbox_insert() IS 'sends the message that is inserted into view shard_inbox';
CREATE TRIGGER inbox_insert INSTEAD OF INSERT ON @extschema@.shard_inbox
FOR EACH ROW EXECUTE FUNCTION shard.inbox_insert();

CREATE VIEW @extschema@.shard_dead_letters AS
SELECT CASE WHEN shard.payload_readable(d.type_id) THEN d.id END AS id, d.at, t.type_name,
       CASE WHEN shard.payload_readable(d.type_id) THEN d.entity END AS entity_id,
       shard.payload_json(d.type_id, d.payload) AS message,
       CASE WHEN shard.payload_readable(d.type_id) THEN d.sqlstate END AS sqlstate,
       CASE WHEN shard.payload_readable(d.type_id) THEN d.error END AS error,
       CASE WHEN shard.payload_readable(d.type_id) THEN d.detail END AS detail,
       CASE WHEN shard.payload_readable(d.type_id) THEN d.hint END AS hint,
       CASE WHEN shard.payload_readable(d.type_id) THEN d.context END AS context,
       d.attempts,
       CASE WHEN shard.payload_readable(d.type_id) THEN d.mid_node || '-' || d.mid_seq END AS message_id
FROM shard.dead_letter d LEFT JOIN shard.type t USING (type_id);
GRANT SELECT ON @extschema@.shard_dead_letters TO PUBLIC;
COMMENT ON VIEW @extschema@.shard_dead_letters IS 'messages that were given up; shard_redrive() sends them again, shard_discard() deletes them';
