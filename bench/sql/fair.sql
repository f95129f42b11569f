-- Types whose handlers take 100 ms and 1 ms, by sleeping: what is measured is who has the worker. Servers sleep for whole
-- milliseconds, and for two if asked for one.
SET client_min_messages = warning;
CREATE OR REPLACE FUNCTION bench.lasting(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS
'BEGIN PERFORM pg_sleep(0.1); RETURN message; END';
CREATE OR REPLACE FUNCTION bench.brief(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS
'BEGIN PERFORM pg_sleep(0.0009); RETURN message; END';
SELECT shard_start('lasting', 'bench.lasting(jsonb,jsonb)', number_of_shards => 50, handler_timeout => '10 s'),
       shard_start('brief', 'bench.brief(jsonb,jsonb)', number_of_shards => 50);
-- their shards have homes by then
SELECT count(shard_ask(t, 'e' || i, '{}', '60 s')) FROM generate_series(0, 49) i, unnest('{brief}'::text[]) t;
