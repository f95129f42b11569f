\set e random(0, 999)
SELECT shard_tell('single', 'e' || :e, '{"pad": "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", "delta": 1}');
