\set e random(0, 999)
INSERT INTO bench.bare VALUES ('single', 'e' || :e, '{"pad": "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", "delta": 1}');
