/*
 * Schemas and tables. Everything in schema shard is internal and closed to
 * PUBLIC; shard_entity holds one ordinary table per entity type, owned by the
 * type's owner.
 */
CREATE SCHEMA shard;
REVOKE ALL ON SCHEMA shard FROM PUBLIC;
COMMENT ON SCHEMA shard IS 'internals of the extension shard; not for direct use';

CREATE SCHEMA shard_entity;
GRANT USAGE ON SCHEMA shard_entity TO PUBLIC;
COMMENT ON SCHEMA shard_entity IS 'state tables of the entity types, one each, owned by the type''s owner';

/* Identity of this node (doc/protocol.md, section 1): one row. */
CREATE TABLE shard.node (
    only_row          boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    cluster_id        uuid NOT NULL DEFAULT pg_catalog.gen_random_uuid(),
    node_id           int4 NOT NULL DEFAULT 1,
    inc_no            int4 NOT NULL DEFAULT 1,
    inc_uuid          uuid NOT NULL DEFAULT pg_catalog.gen_random_uuid(),
    system_identifier int8 NOT NULL,
    database_oid      oid NOT NULL,
    timeline          int4 NOT NULL,
    voter_state       text NOT NULL DEFAULT 'ok',
    fenced            text
);
REVOKE ALL ON shard.node FROM PUBLIC;
INSERT INTO shard.node (system_identifier, database_oid, timeline)
SELECT s.system_identifier,
       (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database()),
       c.timeline_id
FROM pg_catalog.pg_control_system() s, pg_catalog.pg_control_checkpoint() c;

/* Entity types. settings: every named setting of shard_start that has no column. */
CREATE TABLE shard.type (
    type_id          int4 PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    type_name        text NOT NULL UNIQUE,
    owner            regrole NOT NULL,
    handler          text NOT NULL,          -- schema-qualified name(argtypes), the name it had at shard_start
    handler_oid      oid NOT NULL,
    batch            boolean NOT NULL,
    state_type       regtype NOT NULL,
    state_table      regclass NOT NULL,
    mode             text NOT NULL DEFAULT 'hosting' CHECK (mode IN ('hosting', 'proxy', 'stopped')),
    number_of_shards int4 NOT NULL,
    hash             text NOT NULL,
    search_path      text NOT NULL,          -- of the definer; in force while user code runs
    settings         jsonb NOT NULL,
    extractors       oidvector NOT NULL,     -- of entity id, message, shard id, as when named; 0: none
    problem          text,                   -- why messages of the type wait; NULL: they do not
    problem_code     text
);
REVOKE ALL ON shard.type FROM PUBLIC;

/*
 * Ownership of shards (W4) and input positions (H7, N3). Nothing moves on a
 * single node, so both stay empty: a shard without a row is active here in
 * epoch 0.
 */
CREATE TABLE shard.own (
    type_id    int4 NOT NULL,
    shard      int4 NOT NULL,
    epoch      int4 NOT NULL,
    state      text NOT NULL CHECK (state IN ('active', 'stopping', 'sealed', 'staged')),
    move_id    int8,
    next_node  int4,
    next_epoch int4,
    turn       int8 NOT NULL DEFAULT 0,
    oseq       int8 NOT NULL DEFAULT 0,
    PRIMARY KEY (type_id, shard)
);
REVOKE ALL ON shard.own FROM PUBLIC;

CREATE TABLE shard.shard_input (
    type_id     int4 NOT NULL,
    shard       int4 NOT NULL,
    prefix_kind int2 NOT NULL,
    a           int4 NOT NULL,
    b           int4 NOT NULL,
    seq         int8 NOT NULL,
    PRIMARY KEY (type_id, shard, prefix_kind, a, b)
);
REVOKE ALL ON shard.shard_input FROM PUBLIC;

/* The inbox: a log of eight rotating segments (D1). No index, no TOAST, never UPDATE or DELETE. */
CREATE FUNCTION shard.segment_guard() RETURNS trigger
LANGUAGE c AS 'MODULE_PATHNAME', 'shard_segment_guard';
REVOKE ALL ON FUNCTION shard.segment_guard() FROM PUBLIC;
COMMENT ON FUNCTION shard.segment_guard() IS 'refuses SQL writes to a segment of the log, which would by-pass the append lock, and TRUNCATE';

DO $$
DECLARE
    n int;
BEGIN
    FOR n IN 0 .. 7 LOOP
        EXECUTE pg_catalog.format($f$
            CREATE TABLE shard.inbox_%1$s (
                seq        int8 NOT NULL,   -- order of the log; drawn under the append lock
                sender     int8 NOT NULL,   -- top-level xid8 of the sending transaction
                type_id    int4 NOT NULL,   -- 0 in rows of the log itself
                shard      int4 NOT NULL,
                kind       int2 NOT NULL,   -- core/message.h
                flags      int2 NOT NULL,
                chunk      int2 NOT NULL,   -- 0 .. chunks - 1, all of one seq
                chunks     int2 NOT NULL,
                entity     text NOT NULL,
                payload    bytea NOT NULL,
                epoch      int4,            -- home epoch tag; NULL: not yet routed
                stamp      bytea,           -- X2; NULL: handled from the inbox of its own home
                src_type   int4,            -- the entity that sent; NULL: a client
                src_entity text,
                mid_node   int4,            -- where the message first became durable; NULL: here, at this seq
                mid_seq    int8
            ) WITH (autovacuum_enabled = off, vacuum_truncate = off)
        $f$, n);
        EXECUTE pg_catalog.format('ALTER TABLE shard.inbox_%s ALTER entity SET STORAGE PLAIN, ALTER payload SET STORAGE PLAIN, ALTER stamp SET STORAGE PLAIN, ALTER src_entity SET STORAGE PLAIN', n);
        EXECUTE pg_catalog.format('REVOKE ALL ON shard.inbox_%s FROM PUBLIC', n);
        EXECUTE pg_catalog.format('CREATE TRIGGER segment_guard BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON shard.inbox_%s FOR EACH STATEMENT EXECUTE FUNCTION shard.segment_guard()', n);
    END LOOP;
END
$$;

/*
 * Messages that cannot be handled now. place: 'stash' waits for its entity or
 * for its type (D5); 'parked' and 'kept' belong to routing. seq is the inbox
 * seq at which the message was met: an entity's rows are handled in its order.
 */
CREATE TABLE shard.held (
    place      text NOT NULL CHECK (place IN ('stash', 'parked', 'kept')),
    type_id    int4 NOT NULL,
    shard      int4 NOT NULL,
    entity     text NOT NULL,
    seq        int8 NOT NULL,
    kind       int2 NOT NULL,
    epoch      int4,
    stamp      bytea,
    src_type   int4,
    src_entity text,
    mid_node   int4 NOT NULL,
    mid_seq    int8 NOT NULL,
    payload    bytea NOT NULL,
    attempts   int4 NOT NULL DEFAULT 0,
    next_at    timestamptz,                  -- not before; NULL: when the entity or type can run
    sqlstate   text,                         -- of the last failure
    error      text,
    held_at    timestamptz NOT NULL DEFAULT pg_catalog.now(),
    PRIMARY KEY (type_id, shard, entity, place, seq)
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000);
REVOKE ALL ON shard.held FROM PUBLIC;

/* Messages that were given up (P8): nothing is dropped in silence. */
CREATE TABLE shard.dead_letter (
    id         int8 PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    at         timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    type_id    int4 NOT NULL,
    shard      int4 NOT NULL,
    entity     text NOT NULL,
    kind       int2 NOT NULL,
    epoch      int4,
    stamp      bytea,
    src_type   int4,
    src_entity text,
    mid_node   int4 NOT NULL,
    mid_seq    int8 NOT NULL,
    payload    bytea NOT NULL,
    sqlstate   text NOT NULL,
    error      text NOT NULL,
    detail     text,
    hint       text,
    context    text,
    attempts   int4 NOT NULL
);
REVOKE ALL ON shard.dead_letter FROM PUBLIC;
