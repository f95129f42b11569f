/*
 * Trying a passivation strategy.
 */

/*
 * Which entities a passivation strategy lets go, for a list of accesses to the entities of one type
 * on one node: a row for each, step being the place of the access in the list, in the order in which
 * they leave. Reads and changes nothing.
 *
 * strategy: none, idle, lru, slru, mru, lfu, lfu_aging, composite.
 *
 * settings, by name; null is the default:
 *   active_entity_limit   100000, all but none and idle; divided by the active shards
 *   passivate_idle_after  milliseconds or interval, all but none; 2 min with idle, else off (0)
 *   levels, proportions   2, [0.2, 0.8], lowest level first; slru, composite
 *   window_proportion     0.01; composite, as all that follow
 *   admission_filter      frequency_sketch, or none
 *   frequency_sketch_depth 4, _counter_bits 4, _width_multiplier 4, _reset_multiplier 10
 *
 * accesses: 'id' is an access to an entity in shard 1, 'shard/id' to one in another shard, which
 * becomes active with its first access. With '@' and a number, the access is that many milliseconds
 * after the beginning, without at the same time as the one before. '@ms' alone lets time pass.
 * '!limit n' changes the limit, '!remove shard/id' takes out an entity that left by itself,
 * '!stop shard' a shard. In the result, entities of shard 1 are an id, others shard/id.
 *
 * 22023: unknown strategy, unknown or contradictory settings, an access that cannot be read or goes
 * back in time. 22007: text that is no interval. 22004: NULL.
 */
CREATE FUNCTION @extschema@.shard_plan_passivation(strategy text, settings jsonb, accesses text[])
RETURNS TABLE (step int4, passivated text)
LANGUAGE c IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'shard_plan_passivation';
GRANT EXECUTE ON FUNCTION @extschema@.shard_plan_passivation(text, jsonb, text[]) TO PUBLIC;
COMMENT ON FUNCTION @extschema@.shard_plan_passivation(text, jsonb, text[]) IS 'which entities a passivation strategy lets go after each access. strategy: none, idle, lru, slru, mru, lfu, lfu_aging, composite. settings: active_entity_limit, passivate_idle_after (ms or interval), levels, proportions, window_proportion, admission_filter, frequency_sketch_depth, frequency_sketch_counter_bits, frequency_sketch_width_multiplier, frequency_sketch_reset_multiplier. accesses: ''id'' (shard 1), ''shard/id'', either with ''@ms'' (milliseconds since the beginning); ''@ms'' lets time pass; ''!limit n'', ''!remove shard/id'', ''!stop shard''. Error 22023 for unknown or contradictory settings and unreadable accesses';
