/* Timers of the entities that live on this node. name '' is the receive time-out. */
CREATE VIEW @extschema@.shard_timers AS
SELECT t.type_name, CASE WHEN r.readable THEN m.entity END AS entity_id, CASE WHEN r.readable THEN m.name END AS name,
       CASE WHEN r.readable THEN m.due END AS due, CASE WHEN r.readable THEN m.every END AS every, shard.payload_json(m.type_id, m.message) AS message, CASE WHEN r.readable THEN m.fired END AS fired,
       (ARRAY['once', 'all', 'skip'])[m.missed] AS missed, CASE WHEN r.readable THEN m.zone END AS zone,
       CASE WHEN r.readable THEN m.idle * interval '1 microsecond' END AS receive_timeout
FROM shard.timer m
JOIN shard.type t USING (type_id)
JOIN shard.own o ON o.type_id = m.type_id AND o.shard = m.shard AND o.state IN ('active', 'stopping')
CROSS JOIN LATERAL (SELECT shard.payload_readable(m.type_id) AS readable) r;
GRANT SELECT ON @extschema@.shard_timers TO PUBLIC;
COMMENT ON VIEW @extschema@.shard_timers IS 'timers of the entities that live on this node, and when each is due';
