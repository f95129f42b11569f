/*
 * Entity types: starting, altering, looking at them. Rights are checked in C: to create types, to change a type, to
 * send to it.
 */

/*
 * Makes an entity type and its state table shard_entity.<type_name>, or
 * resumes it. handler and extractors: name, or name(argtypes). The same call
 * again does nothing; with other settings it is an error that names them.
 * Caller: CREATE on the database, EXECUTE on the functions; becomes the owner.
 */
CREATE FUNCTION @extschema@.shard_start(
    type_name             text,
    handler               text,
    number_of_shards      int4 DEFAULT 1000,
    hash                  text DEFAULT 'murmur2',
    entity_id_extractor   text DEFAULT NULL,
    message_extractor     text DEFAULT NULL,
    shard_id_extractor    text DEFAULT NULL,
    role                  text DEFAULT NULL,
    allocation_strategy   text DEFAULT 'least_shard',
    allocation_settings   jsonb DEFAULT '{}',
    passivation_strategy  text DEFAULT NULL,
    passivate_idle_after  interval DEFAULT '2 min',
    max_attempts          int4 DEFAULT 5,
    retry_backoff         interval DEFAULT '100 ms',
    max_retry_backoff     interval DEFAULT '30 s',
    handler_timeout       interval DEFAULT '5 s',
    handoff_timeout       interval DEFAULT '60 s',
    max_message_size      int8 DEFAULT 1048576,
    buffer_size           int4 DEFAULT 100000,
    ordered_by            text DEFAULT NULL,
    ordered_window        int4 DEFAULT 1000,
    ordered_timeout       interval DEFAULT '10 s',
    ordered_from          int4 DEFAULT NULL,
    max_dead_letters      int4 DEFAULT 100000,
    max_dead_letters_size int8 DEFAULT 268435456,
    dead_letters_full     text DEFAULT 'wait',
    active_entity_limit   int4 DEFAULT NULL,
    passivation_settings  jsonb DEFAULT '{}',
    stop_message          jsonb DEFAULT NULL,
    remember_entities     boolean DEFAULT false,
    entity_recovery_strategy  text DEFAULT 'all',
    entity_recovery_frequency interval DEFAULT '100 ms',
    entity_recovery_number    int4 DEFAULT 5,
    start_message         jsonb DEFAULT NULL,
    entity_restart_backoff interval DEFAULT '10 s',
    supervision           text DEFAULT 'restart',
    decider               text DEFAULT NULL,
    max_restarts          int4 DEFAULT NULL,
    restart_window        interval DEFAULT '1 min',
    shard_failure_backoff interval DEFAULT '10 s',
    worker                text DEFAULT 'shared',
    replicas              int4 DEFAULT 0,
    min_insync            int4 DEFAULT 2,
    on_too_few            text DEFAULT 'run'
) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'shard_start';
GRANT EXECUTE ON FUNCTION @extschema@.shard_start(text, text, int4, text, text, text, text, text, text, jsonb, text, interval, int4, interval, interval, interval, interval, int8, int4, text, int4, interval, int4, int4, int8, text, int4, jsonb, jsonb, boolean, text, interval, int4, jsonb, interval, text, text, int4, interval, interval, text, int4, int4, text) TO PUBLIC;
COMMENT ON FUNCTION @extschema@.shard_start(text, text, int4, text, text, text, text, text, text, jsonb, text, interval, int4, interval, interval, interval, interval, int8, int4, text, int4, interval, int4, int4, int8, text, int4, jsonb, jsonb, boolean, text, interval, int4, jsonb, interval, text, text, int4, interval, interval, text, int4, int4, text) IS 'starts an entity type: messages to its entities are handled by the given function';

/* Routes messages of a type without running its entities; there is no other node yet. */
CREATE FUNCTION @extschema@.shard_start_proxy(
    type_name text,
    role      text DEFAULT NULL,
    handler   text DEFAULT NULL
) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'shard_start_proxy';
GRANT EXECUTE ON FUNCTION @extschema@.shard_start_proxy(text, text, text) TO PUBLIC;
COMMENT ON FUNCTION @extschema@.shard_start_proxy(text, text, text) IS 'starts an entity type as a proxy, which only routes messages';

/*
 * Changes one setting of a type, also handler and search_path; value NULL is
 * the setting's default. Caller: member of the type's owner.
 */
CREATE FUNCTION @extschema@.shard_alter(type_name text, setting text, value text) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'shard_alter';
GRANT EXECUTE ON FUNCTION @extschema@.shard_alter(text, text, text) TO PUBLIC;
COMMENT ON FUNCTION @extschema@.shard_alter(text, text, text) IS 'changes a setting of an entity type';

/*
 * Stops handling messages of a type; they wait, and its state is kept, until
 * shard_start. Caller: member of the type's owner.
 */
CREATE FUNCTION @extschema@.shard_stop_type(type_name text) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'shard_stop_type';
GRANT EXECUTE ON FUNCTION @extschema@.shard_stop_type(text) TO PUBLIC;
COMMENT ON FUNCTION @extschema@.shard_stop_type(text) IS 'stops an entity type; keeps its state and messages';

/*
 * Removes a type and its state table; unless force, only while the table is
 * empty and no message waits. In a cluster its shards move to other members that
 * host it. Caller: member of the type's owner.
 */
CREATE FUNCTION @extschema@.shard_drop_type(type_name text, force boolean DEFAULT false) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'shard_drop_type';
GRANT EXECUTE ON FUNCTION @extschema@.shard_drop_type(text, boolean) TO PUBLIC;
COMMENT ON FUNCTION @extschema@.shard_drop_type(text, boolean) IS 'removes an entity type and its state table from this node';

/*
 * The shard of an entity, as in column shard of its state table. Caller: any role that may send to the type. Not in parallel
 * queries: it calls the type's extractor, of which nobody asks that it may be there.
 */
CREATE FUNCTION @extschema@.shard_shard_id(type_name text, entity_id text) RETURNS int4
LANGUAGE c STABLE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'shard_shard_id';
GRANT EXECUTE ON FUNCTION @extschema@.shard_shard_id(text, text) TO PUBLIC;
COMMENT ON FUNCTION @extschema@.shard_shard_id(text, text) IS 'the shard of an entity';

/*
 * Why messages of a type wait, as far as it is seen without running it. View shard_types calls it with the rights of
 * the role that reads the view.
 */
CREATE FUNCTION shard.type_problem(type_id int4) RETURNS text
LANGUAGE c STABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'shard_type_problem';
GRANT EXECUTE ON FUNCTION shard.type_problem(int4) TO PUBLIC;
COMMENT ON FUNCTION shard.type_problem(int4) IS 'why messages of an entity type wait';

/* What a type is on this node: a proxy, where the node lacks its role. */
CREATE FUNCTION shard.type_mode(mode text, role text) RETURNS text
LANGUAGE c STABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'shard_type_mode';
GRANT EXECUTE ON FUNCTION shard.type_mode(text, text) TO PUBLIC;
COMMENT ON FUNCTION shard.type_mode(text, text) IS 'whether an entity type runs on this node';

CREATE VIEW @extschema@.shard_types AS
SELECT t.type_name,
       t.handler,
       coalesce(c.relowner, t.owner)::regrole AS owner,
       shard.type_mode(t.mode, t.settings->>'role') AS mode,
       t.number_of_shards,
       CASE WHEN pg_has_role(coalesce(c.relowner, t.owner), 'MEMBER') THEN t.settings
            ELSE t.settings - '{start_message,stop_message}'::text[] END || jsonb_build_object('hash', t.hash, 'search_path', t.search_path) AS settings,
       coalesce(CASE WHEN r.type_id IS NOT NULL THEN 'its entities are on their way to other shards: call shard_reshard() again, see shard_reshardings' END,
                shard.type_problem(t.type_id), t.problem) AS problem
FROM shard.type t LEFT JOIN pg_class c ON c.oid = t.state_table LEFT JOIN shard.reshard r USING (type_id)
WHERE t.mode <> 'dropped';
GRANT SELECT ON @extschema@.shard_types TO PUBLIC;
COMMENT ON VIEW @extschema@.shard_types IS 'entity types, their settings, and why messages of a type wait';

CREATE VIEW @extschema@.shard_type_names AS
SELECT t.type_name FROM shard.type t WHERE t.mode <> 'dropped';
GRANT SELECT ON @extschema@.shard_type_names TO PUBLIC;
COMMENT ON VIEW @extschema@.shard_type_names IS 'names of the entity types';
