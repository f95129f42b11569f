UPDATE bench.plain SET count = count + 1 WHERE entity_id = 'e0' RETURNING count;
