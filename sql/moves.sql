-- Functions and views of moves on a node that is alone: there is nowhere to move to, and each says so.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS shard;
\set SHOW_CONTEXT never
CREATE FUNCTION moves_same(text) RETURNS int IMMUTABLE LANGUAGE sql RETURN $1::int;
CREATE FUNCTION moves_h(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN message;
SELECT shard_start('moves', 'moves_h', 4, shard_id_extractor => 'moves_same', allocation_strategy => 'external');
SELECT shard_tell('moves', '1', '{}');
SELECT shard_drain();

-- What there is, and where.
SELECT shard, node, epoch, phase, to_node, here, reason FROM shard_homes WHERE type_name = 'moves';
SELECT node, evacuated FROM shard_members;
SELECT * FROM shard_rebalances;
SELECT type_name, shard, from_node, to_node, why FROM shard_decisions WHERE what = 'moved';
SELECT * FROM shard_rebalance_plan();
SELECT * FROM shard_rebalance_plan('moves');
SELECT * FROM shard_rebalance_plan('no_type');

-- Moves.
SELECT shard_move('no_type', 1, 1);
SELECT shard_move('moves', 4, 1);
SELECT shard_move('moves', -1, 1);
SELECT shard_move('moves', 1, 2);
SELECT shard_move('moves', 1, 1);
SELECT shard_move('moves', 2, 1);
SELECT shard_move('moves', 1, NULL);
SELECT shard_move('moves', NULL, 1);
SELECT shard_move(NULL, 1, 1);
SELECT shard_rebalance();
SELECT shard_rebalance('moves');
SELECT shard_rebalance('no_type');

-- Pins.
SELECT shard_pin('no_type', 1, 1);
SELECT shard_pin('moves', 4, 1);
SELECT shard_pin('moves', 1, 2);
SELECT shard_pin('moves', 1, 0);
SELECT shard_pin('moves', 1, NULL);
SELECT shard_pin('moves', 2, 1);
SELECT shard_pin('moves', 1, 1);
SELECT shard, node, pinned_to FROM shard_homes WHERE type_name = 'moves';
SELECT shard_unpin('moves', 1);
SELECT shard, node, pinned_to FROM shard_homes WHERE type_name = 'moves';
SELECT shard_unpin('moves', 2);
SELECT shard_unpin('moves', 2);
SELECT what, type_name, shard, from_node, to_node, node FROM shard_decisions WHERE type_name = 'moves' ORDER BY at;

-- Evacuation: nobody takes the shards, so they stay.
SELECT shard_evacuate(2);
SELECT shard_evacuate(NULL);
SELECT shard_evacuate(1, timeout => '-1 s');
SELECT shard_evacuate(1, timeout => NULL);
SELECT shard_evacuate(1);
SELECT node, evacuated FROM shard_members;
SELECT shard_evacuate(1, false);
SELECT node, evacuated FROM shard_members;

-- A function waits for the control worker, which must not wait for it; nor may a handler.
BEGIN;
CREATE TABLE moves_written ();
SELECT shard_pin('moves', 1, 1);
ROLLBACK;
CREATE FUNCTION moves_try(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE message->>'do';
    RETURN message;
END $$;
SELECT shard_start('moves_try', 'moves_try(jsonb,jsonb)', 1);
SELECT shard_ask('moves_try', 'a', '{"do": "SELECT shard_rebalance()"}');
SELECT shard_ask('moves_try', 'a', '{"do": "SELECT * FROM shard_rebalance_plan()"}');
SELECT shard_ask('moves_try', 'a', '{"do": "SELECT * FROM shard_decisions"}');

-- Rights.
CREATE ROLE regress_moves_nobody;
SET ROLE regress_moves_nobody;
SELECT shard_move('moves', 1, 1);
SELECT shard_pin('moves', 1, 1);
SELECT shard_unpin('moves', 1);
SELECT shard_give_up('moves', 1);
SELECT shard_evacuate(1);
SELECT shard_rebalance();
SELECT * FROM shard_rebalance_plan();
SELECT * FROM shard_decisions;
SELECT * FROM shard_rebalances;
RESET ROLE;
DROP ROLE regress_moves_nobody;

SELECT shard_drop_type('moves', true), shard_drop_type('moves_try', true);
DROP FUNCTION moves_h, moves_same, moves_try;
