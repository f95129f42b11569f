\set e random(0, 999)
SELECT shard_ask('account', 'e' || :e, '{"get": true}');
