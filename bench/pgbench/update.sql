\set e random(0, 999)
UPDATE bench.plain SET count = count + 1 WHERE entity_id = 'e' || :e RETURNING count;
