/*
 * How far entities of types with ordered_by are in the numbers of their messages, on this node.
 * expected: the next one that is handled. waiting: messages with higher numbers, the first of them
 * first_waiting. skipped: numbers that were given up; late: messages that came after theirs was
 * passed, now dead letters; both since the entity began.
 */
CREATE VIEW @extschema@.shard_ordered AS
SELECT t.type_name, CASE WHEN shard.payload_readable(p.type_id) THEN p.shard END AS shard,
       CASE WHEN shard.payload_readable(p.type_id) THEN p.entity END AS entity_id,
       CASE WHEN shard.payload_readable(p.type_id) THEN p.began END AS began,
       CASE WHEN shard.payload_readable(p.type_id) THEN p.expected END AS expected, p.skipped, p.late,
       coalesce(h.waiting, 0) AS waiting, CASE WHEN shard.payload_readable(p.type_id) THEN h.first_waiting END AS first_waiting,
       h.waiting_since
FROM shard.ordered p
JOIN shard.type t USING (type_id)
JOIN shard.own o ON o.type_id = p.type_id AND o.shard = p.shard AND o.state IN ('active', 'stopping')
LEFT JOIN LATERAL (
    SELECT count(*) AS waiting, min(w.number) AS first_waiting, min(w.held_at) AS waiting_since
    FROM shard.held w
    WHERE w.type_id = p.type_id AND w.shard = p.shard AND w.entity = p.entity AND w.place = 'ordered'
) h ON true;
GRANT SELECT ON @extschema@.shard_ordered TO PUBLIC;
COMMENT ON VIEW @extschema@.shard_ordered IS 'entities of types with ordered_by: which message number is expected, and which messages wait for it';
