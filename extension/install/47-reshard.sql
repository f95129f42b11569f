/*
 * Another number of shards, or another way from entities to shards (doc/protocol/resharding.md).
 */

/*
 * Moves the entities of a type that is stopped to the shards that they are in by these settings, in slices that commit;
 * called again it goes on where it was. NULL: the type's own; shard_id_extractor '': the hash. Caller: member of the
 * type's owner, not in a transaction block.
 */
CREATE PROCEDURE @extschema@.shard_reshard(
    type_name          text,
    number_of_shards   int4 DEFAULT NULL,
    hash               text DEFAULT NULL,
    shard_id_extractor text DEFAULT NULL
)
LANGUAGE c AS 'MODULE_PATHNAME', 'shard_reshard';
GRANT EXECUTE ON PROCEDURE @extschema@.shard_reshard(text, int4, text, text) TO PUBLIC;
COMMENT ON PROCEDURE @extschema@.shard_reshard(text, int4, text, text) IS 'gives an entity type that is stopped another number of shards';

CREATE VIEW @extschema@.shard_reshardings AS
SELECT t.type_name, t.number_of_shards AS from_shards, r.number_of_shards AS to_shards,
       r.shard_id_extractor,
       CASE WHEN r.moving THEN 'moving' ELSE 'leaving' END AS state,
       least(r.next_shard, greatest(t.number_of_shards, r.number_of_shards)) AS shards_done,
       greatest(t.number_of_shards, r.number_of_shards) AS shards,
       r.entities AS entities_moved, r.began_at, r.stepped_at
FROM shard.reshard r JOIN shard.type t USING (type_id)
WHERE shard.shards_readable(r.type_id);
GRANT SELECT ON @extschema@.shard_reshardings TO PUBLIC;
COMMENT ON VIEW @extschema@.shard_reshardings IS 'entity types whose entities are on their way to other shards, and how far that is';
