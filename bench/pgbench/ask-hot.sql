SELECT shard_ask('account', 'e0', '{"delta": 1}');
