\set i random(0, 49)
SELECT shard_tell('brief', 'e' || :i, '{}');
SELECT shard_ask('brief', 'e' || :i, '{}', '60 s');
