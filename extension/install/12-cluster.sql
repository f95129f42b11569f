/*
 * Tables of the cluster: what the control plane and the streams between nodes keep.
 */

/* Durable records of the control plane (core/map/action.h): only the control worker writes. */
CREATE TABLE shard.control (
    store   int2 NOT NULL,   -- ShardStore
    kind    int4 NOT NULL,   -- key: ShardMapKind, a, b
    a       int4 NOT NULL,
    b       int4 NOT NULL,
    n       int8 NOT NULL,   -- batch of the map that wrote it
    deleted boolean NOT NULL,
    value   bytea NOT NULL,
    PRIMARY KEY (store, kind, a, b)
) WITH (vacuum_truncate = off, toast.vacuum_truncate = off);
REVOKE ALL ON shard.control FROM PUBLIC;

/* Routes (H1, H4): where messages for a shard go. Written when that changes, by the lane's worker. */
CREATE TABLE shard.route (
    type_id int4 NOT NULL,
    shard   int4 NOT NULL,
    node    int4 NOT NULL,   -- home
    epoch   int4 NOT NULL,
    lost    int4 NOT NULL,   -- newest epoch that began without the state of the one before; 0: none
    n       int8 NOT NULL,   -- version of the fact
    doubt   int4 NOT NULL DEFAULT 0, -- newest epoch whose home is in the place of one that was undone with its voters (R29); 0: none
    PRIMARY KEY (type_id, shard)
);
REVOKE ALL ON shard.route FROM PUBLIC;

/*
 * Copies of shards of types with replicas that this node has, as home (the first of nodes) or backup, and their sets
 * (Q1, Q3). Written by the lane's worker, in the turn that meets the fact; what is said of a backup's records, when it
 * applies them, between turns (Q10).
 */
CREATE TABLE shard.copy (
    type_id int4 NOT NULL,
    shard   int4 NOT NULL,
    n       int8 NOT NULL,   -- version of the fact
    epoch   int4 NOT NULL,   -- of the home
    lost    int4 NOT NULL,   -- newest epoch that began without the state of the one before
    want    int4 NOT NULL,   -- wished number of nodes, the home included
    nodes   int4[] NOT NULL,
    applied int8 NOT NULL DEFAULT 0, -- turns up to this one are in the tables
    columns bytea,           -- of the images behind applied, as a record has told them; NULL: none has
    problem text,            -- why records are not applied; NULL: they are
    PRIMARY KEY (type_id, shard)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000);
REVOKE ALL ON shard.copy FROM PUBLIC;

/*
 * Shards of which this node has a copy, and another node is the home: their rows in the tables of messages that wait, orders,
 * timers, failures and marks are that home's (Q10), and mean nothing here.
 */
CREATE VIEW shard.backup_here AS
SELECT c.type_id, c.shard
FROM shard.copy c CROSS JOIN shard.node n
WHERE c.nodes[1] OPERATOR(pg_catalog.<>) n.node_id;
REVOKE ALL ON shard.backup_here FROM PUBLIC;
COMMENT ON VIEW shard.backup_here IS 'shards of which this node has a copy, and another node is the home';

/* What backups have of such shards in their records, and no other table has: outputs that are not done (Q29), */
CREATE TABLE shard.output (
    type_id    int4 NOT NULL,
    shard      int4 NOT NULL,
    oseq       int8 NOT NULL,
    kind       int2 NOT NULL,
    to_type    int4 NOT NULL,     -- for whom; of a reply: who was asked
    to_shard   int4 NOT NULL,
    entity     text COLLATE "C" NOT NULL,
    src_entity text COLLATE "C" NOT NULL,
    payload    bytea NOT NULL,
    PRIMARY KEY (type_id, shard, oseq)
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000);
REVOKE ALL ON shard.output FROM PUBLIC;

/* and dead letters of the home, by their names in the shard (Q35). */
CREATE TABLE shard.letter (
    type_id    int4 NOT NULL,
    shard      int4 NOT NULL,
    number     int8 NOT NULL,
    at         timestamptz NOT NULL,
    entity     text COLLATE "C" NOT NULL,
    kind       int2 NOT NULL,
    epoch      int4,
    stamp      bytea,
    src_type   int4,
    src_entity text COLLATE "C",
    mid_node   int4 NOT NULL,
    mid_seq    int8 NOT NULL,
    payload    bytea NOT NULL,
    sqlstate   text NOT NULL,
    error      text NOT NULL,
    detail     text,
    hint       text,
    context    text,
    attempts   int4 NOT NULL,
    PRIMARY KEY (type_id, shard, number)
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000);
REVOKE ALL ON shard.letter FROM PUBLIC;

/*
 * Messages that wait for a home: of shards without a route, whose home is not active here, or behind
 * items that are sent again (H1, H4). Stamped ones go first, by rseq; then by arrival. Those with a turn wait no more.
 */
CREATE TABLE shard.parked (
    type_id    int4 NOT NULL,
    shard      int4 NOT NULL,
    rseq       int8 NOT NULL,     -- of the stamp; 2^63 - 1: not stamped
    arrival    int8 NOT NULL,     -- seq of the log at which it was met
    kind       int2 NOT NULL,
    epoch      int4,              -- last tag; NULL: none
    sent       boolean NOT NULL,  -- possibly on a wire (N2)
    stamp      bytea,
    entity     text COLLATE "C" NOT NULL,
    src_type   int4,
    src_entity text COLLATE "C",
    mid_node   int4 NOT NULL,
    mid_seq    int8 NOT NULL,
    payload    bytea NOT NULL,
    parked_at  timestamptz NOT NULL DEFAULT pg_catalog.now(),
    turn       int8,              -- of a shard with replicas: it was taken in by that turn, and is kept until that is released (Q30); NULL: it waits
    PRIMARY KEY (type_id, shard, rseq, arrival)
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000);
REVOKE ALL ON shard.parked FROM PUBLIC;
CREATE INDEX parked_turn ON shard.parked (type_id, shard, turn) WHERE turn IS NOT NULL;

/*
 * Streams to peers (core/flow/stream.h), as of an incarnation's start or a rotation; packets tell the rest. channel,
 * here and below: 0; 1 and 2 are for turn records and outputs of shards that have replicas.
 */
CREATE TABLE shard.stream (
    node       int4 NOT NULL,
    lane       int2 NOT NULL,
    channel    int2 NOT NULL,
    gen        int4 NOT NULL,
    last       int8 NOT NULL,
    acked      int8 NOT NULL,
    truncated  int8 NOT NULL,
    begins     bytea NOT NULL,    -- lineage
    quarantine text,              -- why the link is quarantined; NULL: it is not
    PRIMARY KEY (node, lane, channel)
);
REVOKE ALL ON shard.stream FROM PUBLIC;

/* Streams from peers: positions as of a rotation; newer ones are rows of the log. */
CREATE TABLE shard.position (
    origin     int4 NOT NULL,
    lane       int2 NOT NULL,
    channel    int2 NOT NULL,
    inc        int4 NOT NULL,
    gen        int4 NOT NULL,
    seq        int8 NOT NULL,
    writer     uuid NOT NULL,
    quarantine text,
    PRIMARY KEY (origin, lane, channel)
);
REVOKE ALL ON shard.position FROM PUBLIC;

/* Packets that are kept for longer than the log should be: of peers that are away or slow. */
CREATE TABLE shard.outbox_kept (
    node      int4 NOT NULL,
    lane      int2 NOT NULL,
    channel   int2 NOT NULL,
    first_seq int8 NOT NULL,
    rows      int4 NOT NULL,
    payload   bytea NOT NULL,     -- as in the log
    kept_at   timestamptz NOT NULL DEFAULT pg_catalog.now(),
    PRIMARY KEY (node, lane, channel, first_seq)
);
REVOKE ALL ON shard.outbox_kept FROM PUBLIC;

/*
 * Turn records of shards with replicas whose segment of the log was emptied (Q7): at the home those that are not known
 * to be stored by all, or whose outputs are not done; at a backup those that are not applied. The newest record of a
 * shard is always there or in the log: the next one has to follow it.
 */
CREATE TABLE shard.turn_kept (
    type_id int4 NOT NULL,
    shard   int4 NOT NULL,
    turn    int8 NOT NULL,
    epoch   int4 NOT NULL,        -- of the home that made it
    record  bytea NOT NULL,       -- as in the log
    PRIMARY KEY (type_id, shard, turn)
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000);
REVOKE ALL ON shard.turn_kept FROM PUBLIC;

/*
 * What this node decided as coordinator of the cluster, and why: for people (shard_decisions). Bounded:
 * the newest 10 000.
 */
CREATE TABLE shard.decision (
    id        int8 PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    at        timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    kind      text NOT NULL,
    type_id   int4,          -- NULL: about a node
    shard     int4,
    from_node int4,
    to_node   int4,
    epoch     int4,
    why       text NOT NULL
);
REVOKE ALL ON shard.decision FROM PUBLIC;

/* Roles of links that speak for one node alone (T8). */
CREATE TABLE shard.peer_role (
    role oid PRIMARY KEY,
    node int4 NOT NULL
);
REVOKE ALL ON shard.peer_role FROM PUBLIC;

/*
 * What peers may call, and nothing else: a schema of its own, so that USAGE on it gives no sight of
 * schema shard. Granted by shard_allow_peer().
 */
CREATE SCHEMA shard_peer;
REVOKE ALL ON SCHEMA shard_peer FROM PUBLIC;
COMMENT ON SCHEMA shard_peer IS 'functions that other nodes of the cluster call';
