\set i random(0, 49)
SELECT shard_ask('lasting', 'a' || :i, '{}', '60 s');
