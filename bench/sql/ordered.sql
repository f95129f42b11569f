-- The type of the scenario with numbers.
CREATE FUNCTION bench.number(message jsonb) RETURNS int8 LANGUAGE sql RETURN (message->>'n')::int8;
INSERT INTO bench.types VALUES
  ('ordered', 'bench.counter(jsonb,jsonb)', $$sum((state->>'count')::int8)$$);
SELECT shard_start('ordered', 'bench.counter(jsonb,jsonb)', ordered_by => 'bench.number(jsonb)');
SELECT count(shard_tell('ordered', 'e' || i, bench.message() || '{"n": 0}')) FROM generate_series(0, 999) i;
SELECT bench.drain();
