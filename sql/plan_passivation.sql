--
-- Which entities the passivation strategies let go: cases by table.
--
-- A case runs some accesses, of which those after "before" count: wanted says which access let which
-- entity go, "access>entity", in order; state, if given, which entities are active in the end.
-- P01 to P53 are the published cases of the strategies; a letter behind marks the steps that follow
-- them there. B: boundaries.
--
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS shard;
RESET client_min_messages;
CREATE SCHEMA plan_passivation_test;
SET search_path = plan_passivation_test, public;

-- Ids of a shard, each some times in a row; and the ways to write down what is wanted.
CREATE FUNCTION ids(first int, last int, shard int = 1, times int = 1) RETURNS text[] LANGUAGE sql
RETURN ARRAY(SELECT CASE WHEN shard = 1 THEN '' ELSE shard || '/' END || i
             FROM generate_series(first, last, sign(last - first + 0.5)::int) i, generate_series(1, times) n
             ORDER BY (i - first) * sign(last - first + 0.5), n);
-- The ids 1 to 20 of shard 1, or whichever, accessed 1, 2, 3, 4, 1, 2, ... times.
CREATE FUNCTION varied(first int, last int, shard int = 1, falling boolean = false) RETURNS text[] LANGUAGE sql
RETURN ARRAY(SELECT CASE WHEN shard = 1 THEN '' ELSE shard || '/' END || i
             FROM generate_series(first, last) i,
                  generate_series(1, CASE WHEN falling THEN 4 - (i - 1) % 4 ELSE (i - 1) % 4 + 1 END) n
             ORDER BY i, n);
-- Each of the ids lets go the one that is so much greater.
CREATE FUNCTION each(first int, last int, plus int, shard int = 1) RETURNS text LANGUAGE sql
RETURN (SELECT string_agg(format('%s%s>%s%s', prefix, i, prefix, i + plus), ' ' ORDER BY n)
        FROM CAST(CASE WHEN shard = 1 THEN '' ELSE shard || '/' END AS text) prefix,
             generate_series(first, last, sign(last - first + 0.5)::int) WITH ORDINALITY AS g (i, n));
-- One access lets them all go.
CREATE FUNCTION all_of(access text, entities text[]) RETURNS text LANGUAGE sql
RETURN (SELECT string_agg(access || '>' || entity, ' ' ORDER BY n) FROM unnest(entities) WITH ORDINALITY AS u (entity, n));

CREATE FUNCTION run(strategy text, settings jsonb, before text[], accesses text[]) RETURNS text LANGUAGE sql
RETURN (SELECT coalesce(string_agg((before || accesses)[step] || '>' || passivated, ' ' ORDER BY n), '')
        FROM shard_plan_passivation(strategy, settings, before || accesses)
             WITH ORDINALITY AS p (step, passivated, n)
        WHERE step > cardinality(before));
-- Entities that left, or were taken out, no later than with their last access.
CREATE FUNCTION state(strategy text, settings jsonb, accesses text[]) RETURNS text LANGUAGE sql
RETURN (WITH accessed AS (SELECT entity, max(n) AS at FROM unnest(accesses) WITH ORDINALITY AS a (entity, n)
                          WHERE entity NOT LIKE '!%' GROUP BY entity),
             gone AS (SELECT entity, max(at) AS at
                      FROM (SELECT passivated, step FROM shard_plan_passivation(strategy, settings, accesses)
                            UNION ALL
                            SELECT substr(entity, 9), n FROM unnest(accesses) WITH ORDINALITY AS a (entity, n)
                            WHERE entity LIKE '!remove %') AS g (entity, at)
                      GROUP BY entity)
        SELECT string_agg(entity, ' ' ORDER BY length(entity), entity)
        FROM accessed LEFT JOIN gone USING (entity) WHERE gone.at IS NULL OR gone.at < accessed.at);

CREATE TABLE plan (
    number int GENERATED ALWAYS AS IDENTITY,
    id text,
    strategy text,
    settings jsonb,
    before text[],
    accesses text[],
    wanted text,
    state text
);

-- none, idle
INSERT INTO plan (id, strategy, settings, before, accesses, wanted) VALUES
('P01', 'none', '{}', '{}', ids(1, 20) || '{@1000, 2/21@31536000000}', ''),
('P02', 'idle', '{"passivate_idle_after": 1000}', '{}', '{1,2/2,2/2@500,2/2@1000,2/2@1500,@2500,@2501}', '2/2@1500>1 @2501>2/2'),
('P02 not yet', 'idle', '{"passivate_idle_after": 1000}', '{}', '{1,2/2,2/2@500,@1000}', ''),
('P02 now', 'idle', '{"passivate_idle_after": "1 s"}', '{}', '{1,2/2,2/2@500,@1001}', '@1001>1'),
('P02 again', 'idle', '{"passivate_idle_after": 1000}', '{1,2/2,@2000}', '{1,2/2,1,@3000,@3001}', '@3001>2/2 @3001>1'),
('P02 default', 'idle', '{}', '{}', '{1,@120000,@120001}', '@120001>1'),
('P02 late', 'idle', '{"passivate_idle_after": 1000}', '{}', '{1,1@1001,1@2001}', '1@1001>1'),
('P02 fraction', 'idle', '{"passivate_idle_after": 0.5}', '{}', '{1,2@1,3}', '2@1>1'),
('P02 removed', 'idle', '{"passivate_idle_after": 1000}', '{}', '{1,2,!remove 1,@2000}', '@2000>2'),
('P02 shard stopped', 'idle', '{"passivate_idle_after": 1000}', '{}', '{1,2/2,!stop 2,@2000}', '@2000>1');

-- lru
INSERT INTO plan (id, strategy, settings, before, accesses, wanted, state)
SELECT id, 'lru', '{"active_entity_limit": 10}', before, accesses, wanted, state FROM (VALUES
('P10', '{}', ids(1, 20), each(11, 20, -10), array_to_string(ids(11, 20), ' ')),
('P11', ids(1, 20), '{2/21}', all_of('2/21', ids(11, 15)), array_to_string(ids(16, 20) || ids(21, 21, 2), ' ')),
('P12', ids(1, 20) || '{2/21}', ids(1, 20), each(1, 5, 15) || ' ' || each(6, 20, -5), array_to_string(ids(16, 20) || ids(21, 21, 2), ' ')),
('P13', ids(1, 20) || '{2/21}' || ids(1, 20), ids(21, 24, 2) || '{3/31}', all_of('3/31', '{16,17,2/21}'), array_to_string(ids(18, 20) || ids(22, 24, 2) || ids(31, 31, 3), ' ')),
('P13 b', ids(1, 20) || ids(21, 24, 2) || '{3/31}', ids(25, 30, 2), each(25, 30, -3, 2), array_to_string(ids(18, 20) || ids(28, 30, 2) || ids(31, 31, 3), ' ')),
('P13 c', ids(1, 20) || ids(21, 24, 2) || '{3/31}', ids(31, 40, 3), each(34, 40, -3, 3), NULL),
('P13 d', ids(16, 20) || ids(28, 30, 2) || ids(38, 40, 3), '{!remove 19,!remove 2/29,!remove 3/39,11,2/21,3/31,12,2/22,3/32,13,2/23,3/33}', '12>18 2/22>2/28 3/32>3/38 13>20 2/23>2/30 3/33>3/40', array_to_string(ids(11, 13) || ids(21, 23, 2) || ids(31, 33, 3), ' '))
) AS c (id, before, accesses, wanted, state);
INSERT INTO plan (id, strategy, settings, before, accesses, wanted, state) VALUES
('P10 limit falls', 'lru', '{"active_entity_limit": 10}', ids(1, 20) || '{2/21}', '{!limit 6}' || ids(1, 10), '!limit 6>16 !limit 6>17 ' || each(1, 3, 17) || ' ' || each(4, 10, -3), array_to_string(ids(8, 10) || ids(21, 21, 2), ' ')),
('P10 limit rises', 'lru', '{"active_entity_limit": 10}', ids(1, 20) || '{2/21,!limit 6}' || ids(1, 10), '{!limit 12}' || ids(11, 20), each(14, 20, -6), array_to_string(ids(15, 20) || ids(21, 21, 2), ' ')),
('P10 idle', 'lru', '{"active_entity_limit": 3, "passivate_idle_after": "1 s"}', '{}', '{1,2,3,3@500,3@1000,@1001,3@1500,@2501}', '@1001>1 @1001>2 @2501>3', NULL);

-- segmented lru
INSERT INTO plan (id, strategy, settings, before, accesses, wanted, state)
SELECT id, 'slru', '{"active_entity_limit": 10, "levels": 2, "proportions": [0.2, 0.8]}', before, accesses, wanted, state FROM (VALUES
('P20', '{}', ids(1, 20), each(11, 20, -10), array_to_string(ids(11, 20), ' ')),
('P21', ids(1, 20), ids(11, 20), '', array_to_string(ids(11, 20), ' ')),
('P21 b', ids(1, 20) || ids(11, 20), ids(1, 5), each(1, 2, 10) || ' ' || each(3, 5, -2), array_to_string(ids(4, 5) || ids(13, 20), ' ')),
('P21 c', ids(1, 20) || ids(11, 20) || ids(1, 5), '{2/21}', all_of('2/21', '{4,5,13,14,15}'), array_to_string(ids(16, 20) || ids(21, 21, 2), ' ')),
('P21 d', ids(1, 20) || ids(11, 20) || ids(1, 5) || '{2/21}', ids(20, 11), '15>20 ' || each(14, 11, 1), array_to_string(ids(11, 11) || ids(16, 19) || ids(21, 21, 2), ' '))
) AS c (id, before, accesses, wanted, state);
INSERT INTO plan (id, strategy, settings, before, accesses, wanted, state) VALUES
('P20 default levels', 'slru', '{"active_entity_limit": 10}', ids(1, 20) || ids(11, 20), ids(1, 5), each(1, 2, 10) || ' ' || each(3, 5, -2), NULL),
('P20 limit falls', 'slru', '{"active_entity_limit": 20}', ids(1, 30) || '{2/31}', '{!limit 10}' || ids(1, 10), all_of('!limit 10', ids(21, 25)) || ' ' || each(1, 5, 25) || ' ' || each(6, 10, -5), array_to_string(ids(6, 10) || ids(31, 31, 2), ' ')),
('P20 limit rises', 'slru', '{"active_entity_limit": 20}', ids(1, 30) || '{2/31,!limit 10}' || ids(1, 10), '{!limit 30}' || ids(11, 30), each(21, 30, -15), array_to_string(ids(16, 30) || ids(31, 31, 2), ' ')),
('P20 idle', 'slru', '{"active_entity_limit": 10, "passivate_idle_after": 1000}', '{}', '{1,2,2,3@500,2@600,@1001,@1501,@1601}', '@1001>1 @1501>3 @1601>2', NULL),
-- three levels of 2: 1 and 2 rise to the top, 3 and 4 to the middle; demoted ones go behind
('three levels', 'slru', '{"active_entity_limit": 6, "levels": 3}', '{1,2,3,4,1,2,1,2,3,4,5,6}', '{7,8,3,4,9,10,11}', '7>5 8>6 9>7 10>8 11>9', NULL),
('one level is lru', 'slru', '{"active_entity_limit": 10, "levels": 1}', ids(1, 20) || '{2/21}', ids(1, 20), each(1, 5, 15) || ' ' || each(6, 20, -5), NULL),
-- shares are rounded down, the lowest level gets the rest: 4 and 3 of 7
('levels rounded', 'slru', '{"active_entity_limit": 7, "proportions": [0.5, 0.5]}', ids(1, 7) || ids(1, 4), '{8,9,10,11,12,13}', '8>5 9>6 10>7 11>1 12>8 13>9', NULL);

-- mru
INSERT INTO plan (id, strategy, settings, before, accesses, wanted, state)
SELECT id, 'mru', '{"active_entity_limit": 10}', before, accesses, wanted, state FROM (VALUES
('P30', '{}', ids(1, 20), each(11, 20, -1), '1 2 3 4 5 6 7 8 9 20'),
('P31', ids(1, 20), '{2/21}', all_of('2/21', '{20,9,8,7,6}'), '1 2 3 4 5 2/21'),
('P31 b', ids(1, 20) || '{2/21}', ids(1, 20), each(6, 20, -1), '1 2 3 4 20 2/21'),
('P31 c', ids(1, 20) || '{2/21}' || ids(1, 20) || ids(21, 24, 2), '{3/31}', all_of('3/31', '{20,4,2/24}'), '1 2 3 2/21 2/22 2/23 3/31'),
('P31 d', ids(1, 20) || '{2/21}' || ids(1, 20) || ids(21, 24, 2) || '{3/31}', ids(24, 30, 2), each(24, 30, -1, 2), '1 2 3 2/21 2/22 2/30 3/31'),
('P31 e', ids(1, 3) || '{2/21}', '{3/31}' || ids(31, 40, 3), each(34, 40, -1, 3), '1 2 3 2/21 3/31 3/32 3/40'),
('P31 f', ids(1, 3) || '{2/21,2/22,2/30,3/31,3/32,3/40}', '{!remove 2,!remove 2/22,!remove 3/32,12,2/23,3/34,13,2/24,3/35,14,2/25,3/36}', '13>12 2/24>2/23 3/35>3/34 14>13 2/25>2/24 3/36>3/35', '1 3 14 2/21 2/25 2/30 3/31 3/36 3/40'),
('P30 limit falls', ids(1, 20) || '{2/21}', '{!limit 6}' || ids(1, 10), '!limit 6>5 !limit 6>4 4>3 ' || each(5, 10, -1), '1 2 10 2/21'),
('P30 limit rises', ids(1, 20) || '{2/21,!limit 6}' || ids(1, 10), '{!limit 12}' || ids(11, 20), each(14, 20, -1), '1 2 10 11 12 20 2/21')
) AS c (id, before, accesses, wanted, state);
INSERT INTO plan (id, strategy, settings, before, accesses, wanted) VALUES
('P30 idle', 'mru', '{"active_entity_limit": 3, "passivate_idle_after": 1000}', '{}', '{1,2,3@500,4@1001}', '4@1001>1 4@1001>2');

-- lfu
INSERT INTO plan (id, strategy, settings, before, accesses, wanted, state)
SELECT id, 'lfu', '{"active_entity_limit": 10}', before, accesses, wanted, state FROM (VALUES
('P40', '{}', varied(1, 20), '11>1 12>5 13>9 14>13 15>2 16>6 17>10 18>17 19>14 20>18', '3 4 7 8 11 12 15 16 19 20'),
('P41', varied(1, 20), '{2/21}', all_of('2/21', '{3,7,11,15,19}'), '4 8 12 16 20 2/21'),
('P42', varied(1, 20) || '{2/21}', varied(1, 20), (SELECT string_agg(format('%s>%s', i, CASE (i - 1) % 4 WHEN 0 THEN i + 3 ELSE i - 1 END), ' ' ORDER BY i) FROM generate_series(1, 20) i), '4 8 12 16 20 2/21'),
('P42 b', varied(1, 20) || '{2/21}' || varied(1, 20) || ids(21, 24, 2), '{3/31}', all_of('3/31', '{4,8,2/22}'), '12 16 20 2/21 2/23 2/24 3/31'),
('P42 c', varied(1, 20) || '{2/21}' || varied(1, 20) || ids(21, 24, 2) || '{3/31}', varied(21, 30, 2), '2/22>2/23 2/23>2/24 2/24>2/22 2/25>2/21 2/26>2/25 2/27>2/26 2/28>2/23 2/29>2/27 2/30>2/29', '12 16 20 2/24 2/28 2/30 3/31'),
('P42 d', ids(1, 1) || '{2/21,3/31}', varied(31, 40, 3, true), '3/34>3/32 3/35>3/31 3/36>3/35 3/37>3/36 3/38>3/34 3/39>3/38 3/40>3/39', '1 2/21 3/33 3/37 3/40'),
('P42 e', '{2/0,3/0}' || varied(12, 12) || varied(16, 16) || varied(20, 20) || '{!remove 2/0,!remove 3/0}' || varied(30, 30, 2) || varied(24, 24, 2) || varied(28, 28, 2) || varied(40, 40, 3, true) || varied(33, 33, 3, true) || varied(37, 37, 3, true),
 '{!remove 16,!remove 2/24,!remove 3/33,11,2/21,3/31,12,2/22,3/32,12,2/22,3/32,13,2/23,3/33,13,2/23,3/33,13,2/23,3/33}', '2/22>2/21 3/32>3/40 13>11 2/23>2/30 3/33>3/31', '12 13 20 2/22 2/23 2/28 3/32 3/33 3/37'),
('P40 limit falls', ids(1, 20) || '{2/21}', '{!limit 6}' || ids(1, 10), '!limit 6>16 !limit 6>17 ' || each(1, 3, 17) || ' ' || each(4, 10, -3), array_to_string(ids(8, 10) || ids(21, 21, 2), ' ')),
('P40 limit rises', ids(1, 20) || '{2/21,!limit 6}' || ids(1, 10), '{!limit 12}' || ids(11, 20), each(14, 20, -6), array_to_string(ids(15, 20) || ids(21, 21, 2), ' '))
) AS c (id, before, accesses, wanted, state);
INSERT INTO plan (id, strategy, settings, before, accesses, wanted) VALUES
('P40 idle', 'lfu', '{"active_entity_limit": 3, "passivate_idle_after": 1000}', '{}', '{1,1,1,2,3,2@500,4@1001}', '4@1001>1 4@1001>3');

-- lfu with aging: past fame fades, plain lfu keeps 1 to 5 for ever
INSERT INTO plan (id, strategy, settings, before, accesses, wanted, state)
SELECT id, strategy, '{"active_entity_limit": 10}', ids(1, 2, 1, 5) || ids(3, 5, 1, 10) || before, accesses, wanted, state FROM (VALUES
('aging a', 'lfu_aging', '{}', ids(6, 20), each(11, 20, -5), array_to_string(ids(1, 5) || ids(16, 20), ' ')),
('aging b', 'lfu_aging', ids(6, 20), '{2/21}', all_of('2/21', ids(16, 20)), array_to_string(ids(1, 5) || ids(21, 21, 2), ' ')),
('aging c', 'lfu_aging', ids(6, 20) || '{2/21}', ids(6, 10), '6>1 7>2 8>6 9>7 10>8', '3 4 5 9 10 2/21'),
('aging d', 'lfu_aging', ids(6, 20) || '{2/21}' || ids(6, 10), ids(11, 15), '11>9 12>10 13>11 14>12 15>13', '3 4 5 14 15 2/21'),
('aging e', 'lfu_aging', ids(6, 20) || '{2/21}' || ids(6, 15), ids(16, 20), '16>3 17>4 18>5 19>14 20>15', array_to_string(ids(16, 20) || ids(21, 21, 2), ' ')),
('no aging', 'lfu', ids(6, 20) || '{2/21}', ids(6, 10), '6>1 7>6 8>7 9>8 10>9', '2 3 4 5 10 2/21')
) AS c (id, strategy, before, accesses, wanted, state);

-- composite
INSERT INTO plan (id, strategy, settings, before, accesses, wanted, state)
SELECT id, 'composite', '{"active_entity_limit": 20, "window_proportion": 0.2, "proportions": [0.25, 0.75]}', before, accesses, wanted, state FROM (VALUES
('P50', '{}', ids(1, 40), each(21, 40, -4), array_to_string(ids(1, 16) || ids(37, 40), ' ')),
('P51', ids(1, 40), ids(1, 20), each(17, 20, 20), array_to_string(ids(1, 20), ' ')),
('P52', ids(1, 40) || ids(1, 20), ids(17, 20, 1, 5) || ids(21, 24), each(21, 24, -20), array_to_string(ids(5, 24), ' ')),
('P53', ids(1, 40) || ids(1, 20) || ids(17, 20, 1, 5) || ids(21, 24), ids(25, 28), each(25, 28, -4), array_to_string(ids(5, 20) || ids(25, 28), ' ')),
('P53 b', ids(1, 40) || ids(1, 20) || ids(17, 20, 1, 5) || ids(21, 28), '{2/41}', all_of('2/41', '{25,26,17,18,19,20,5,6,7,8}'), array_to_string(ids(9, 16) || ids(27, 28) || ids(41, 41, 2), ' ')),
('P53 c', ids(1, 40) || ids(1, 20) || ids(17, 20, 1, 5) || ids(21, 28) || '{2/41}', ids(17, 20), '17>27 18>28 19>9 20>10', array_to_string(ids(11, 20) || ids(41, 41, 2), ' ')),
('P50 limit falls', ids(1, 40), '{2/41,!limit 10}' || ids(1, 10), all_of('2/41', '{37,38}' || ids(1, 8)) || ' ' || all_of('!limit 10', '{39}' || ids(9, 12)) || ' 1>40 ' || each(2, 5, 11) || ' ' || each(6, 10, -1), array_to_string(ids(1, 4) || ids(10, 10) || ids(41, 41, 2), ' ')),
('P50 limit rises', ids(1, 40) || '{2/41,!limit 10}' || ids(1, 10), '{!limit 30}' || ids(1, 20), each(16, 20, -3), array_to_string(ids(1, 12) || ids(18, 20) || ids(41, 41, 2), ' '))
) AS c (id, before, accesses, wanted, state);
-- without a window, the filter judges each newcomer at once
INSERT INTO plan (id, strategy, settings, before, accesses, wanted, state)
SELECT id, 'composite', '{"active_entity_limit": 10, "window_proportion": 0, "levels": 1}', before, accesses, wanted, state FROM (VALUES
('no window a', '{}', ids(1, 20), each(11, 20, 0), array_to_string(ids(1, 10), ' ')),
('no window b', ids(1, 20), ids(11, 20, 1, 5), each(11, 20, -10), array_to_string(ids(11, 20), ' ')),
('no window c', ids(1, 20) || ids(11, 20, 1, 5), ids(1, 3, 1, 2), '1>1 1>1 2>2 2>2 3>3 3>3', array_to_string(ids(11, 20), ' ')),
('no window d', ids(1, 20) || ids(11, 20, 1, 5) || ids(1, 3, 1, 2), '{2/21}' || ids(1, 10), all_of('2/21', ids(11, 15)) || ' ' || each(1, 5, 15) || ' ' || each(6, 10, 0), array_to_string(ids(1, 5) || ids(21, 21, 2), ' '))
) AS c (id, before, accesses, wanted, state);
INSERT INTO plan (id, strategy, settings, before, accesses, wanted, state) VALUES
('no filter', 'composite', '{"active_entity_limit": 10, "window_proportion": 0.2, "admission_filter": "none"}', '{}', ids(1, 15), '11>1 12>2 13>3 14>4 15>5', array_to_string(ids(6, 15), ' ')),
('P50 idle', 'composite', '{"active_entity_limit": 3, "passivate_idle_after": "1 s"}', '{}', '{1,2,3,3@500,3@1000,@1001,3@1500,@2501}', '@1001>1 @1001>2 @2501>3', NULL),
-- counters of 2 bits are full at 3: 1, accessed ten times, is not more than 2, accessed three times
('counters fill up', 'composite', '{"active_entity_limit": 1, "frequency_sketch_counter_bits": 2, "frequency_sketch_reset_multiplier": 1000}', ids(1, 1, 1, 3), ids(2, 2, 1, 10), '2>2 2>2 2>2 2>2 2>2 2>2 2>2 2>2 2>2 2>2', '1'),
-- halved with the eighth access: 7 of 1 are 3 then and the first of 2 is 0, so that 5 of 2 are enough
('counters are halved', 'composite', '{"active_entity_limit": 1, "frequency_sketch_reset_multiplier": 8}', ids(1, 1, 1, 7), ids(2, 2, 1, 5), '2>2 2>2 2>2 2>2 2>1', '2'),
('counters are not', 'composite', '{"active_entity_limit": 1}', ids(1, 1, 1, 7), ids(2, 2, 1, 5), '2>2 2>2 2>2 2>2 2>2', '1');

-- boundaries: limit 1
INSERT INTO plan (id, strategy, settings, before, accesses, wanted)
SELECT 'B01 limit 1', strategy, '{"active_entity_limit": 1}', '{}', '{1,2,2,1,3}', wanted FROM (VALUES
('lru', '2>1 1>2 3>1'), ('slru', '2>1 1>2 3>1'), ('mru', '2>1 1>2 3>1'), ('lfu', '2>1 1>2 3>1'),
('lfu_aging', '2>1 1>2 3>1'), ('composite', '2>2 2>1 1>1 3>3')) AS c (strategy, wanted);
-- more shards than the limit: shares are 0; nobody stays, or only who was accessed last
INSERT INTO plan (id, strategy, settings, before, accesses, wanted)
SELECT 'B02 share 0', strategy, '{"active_entity_limit": 2}', '{1,2/2}', '{3/3,3/3,3/4,2/5,1}', wanted FROM (VALUES
('lru', '3/3>1 3/3>2/2 3/3>3/3 3/3>3/3 3/4>3/4 2/5>2/5 1>1'),
('slru', '3/3>1 3/3>2/2 3/3>3/3 3/3>3/3 3/4>3/4 2/5>2/5 1>1'),
('mru', '3/3>1 3/3>2/2 3/4>3/3'),
('lfu', '3/3>1 3/3>2/2 3/4>3/3'),
('lfu_aging', '3/3>1 3/3>2/2 3/4>3/3'),
('composite', '3/3>1 3/3>2/2 3/3>3/3 3/3>3/3 3/4>3/4 2/5>2/5 1>1')) AS c (strategy, wanted);
INSERT INTO plan (id, strategy, settings, before, accesses, wanted) VALUES
('B03 11 by 4 is 2', 'lru', '{"active_entity_limit": 11}', '{2/1,3/1,4/1}', ids(1, 5), each(3, 5, -2)),
('B04 shard stopped', 'lru', '{"active_entity_limit": 4}', '{1,2,3,4,2/1}', '{!stop 2,5,6,7}', '7>3'),
('B04 shard not active', 'lru', '{"active_entity_limit": 4}', '{1,2,3,4}', '{!stop 2,5}', '5>1'),
('B04 shard comes again', 'lru', '{"active_entity_limit": 4}', '{1,2,2/1,!stop 2}', '{2/2,2/3,2/4}', '2/4>2/2'),
('B05 default limit', 'lru', '{}', '{}', ids(1, 100001), '100001>1'),
('B05 null is the default', 'lru', '{"active_entity_limit": null}', '{}', ids(1, 100001), '100001>1'),
('B05 greatest limit', 'composite', '{"active_entity_limit": 2147483647}', '{}', ids(1, 100), ''),
('B06 ids of any form', 'lru', '{"active_entity_limit": 1}', '{}', '{a@b,/x,x/1,1/2/3,1/!limit 4,a b@1,ü}', '/x>a@b x/1>/x 1/2/3>x/1 1/!limit 4>2/3 a b@1>!limit 4 ü>a b'),
('B06 the same id', 'lru', '{"active_entity_limit": 2}', '{}', '{a,2/a,1/a,2/a,01/a,b}', 'b>a'),
('B07 no accesses', 'lru', '{}', '{}', '{}', '');

CREATE TABLE result AS
SELECT *, run(strategy, settings, before, accesses) AS got,
       CASE WHEN state IS NOT NULL THEN state(strategy, settings, before || accesses) END AS got_state
FROM plan;

-- All of them hold.
SELECT id, strategy, got = wanted AND (state IS NULL OR state = got_state) AS ok FROM result ORDER BY number;
-- What is wrong with those that do not.
SELECT id, wanted, got, state, got_state FROM result WHERE got <> wanted OR state <> got_state ORDER BY number;

-- As rows.
SELECT * FROM shard_plan_passivation('lru', '{"active_entity_limit": 3}', '{a,b,c,a,d,2/x}');

-- Settings that are refused: unknown, of another strategy, of another kind, out of range, at odds.
CREATE FUNCTION refused(strategy text, settings jsonb, accesses text[]) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    detail text;
    hint text;
BEGIN
    PERFORM shard_plan_passivation(strategy, settings, accesses);
    RETURN 'accepted';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
    RETURN format(E'%s: %s\n  %s\n  %s', SQLSTATE, SQLERRM, detail, hint);
END $$;
\pset format unaligned
\pset tuples_only on
SELECT refused('fifo', '{}', '{}');
SELECT refused('lru', '[]', '{}');
SELECT refused('lru', '{"active_entities": 1}', '{}');
SELECT refused('lru', '{"levels": 2}', '{}');
SELECT refused('idle', '{"active_entity_limit": 1}', '{}');
SELECT refused('none', '{"passivate_idle_after": 1000}', '{}');
SELECT refused('idle', '{"passivate_idle_after": 0}', '{}');
SELECT refused('idle', '{"passivate_idle_after": "-1 s"}', '{}');
SELECT refused('idle', '{"passivate_idle_after": [1]}', '{}');
SELECT refused('idle', '{"passivate_idle_after": "soon"}', '{}');
SELECT refused('lru', '{"active_entity_limit": 0}', '{}');
SELECT refused('lru', '{"active_entity_limit": -1}', '{}');
SELECT refused('lru', '{"active_entity_limit": 1.5}', '{}');
SELECT refused('lru', '{"active_entity_limit": 2147483648}', '{}');
SELECT refused('lru', '{"active_entity_limit": 1e400}', '{}');
SELECT refused('lru', '{"active_entity_limit": "10"}', '{}');
SELECT refused('slru', '{"levels": 0}', '{}');
SELECT refused('slru', '{"levels": 11}', '{}');
SELECT refused('slru', '{"levels": 3, "proportions": [0.2, 0.8]}', '{}');
SELECT refused('slru', '{"proportions": [0.5, 0.8]}', '{}');
SELECT refused('slru', '{"proportions": [-0.2, 0.8]}', '{}');
SELECT refused('slru', '{"proportions": []}', '{}');
SELECT refused('slru', '{"proportions": 0.2}', '{}');
SELECT refused('composite', '{"window_proportion": 1.1}', '{}');
SELECT refused('composite', '{"admission_filter": "bloom"}', '{}');
SELECT refused('composite', '{"frequency_sketch_depth": 9}', '{}');
SELECT refused('composite', '{"frequency_sketch_counter_bits": 5}', '{}');
SELECT refused('composite', '{"frequency_sketch_reset_multiplier": 0}', '{}');
-- Accesses that are refused.
SELECT refused('lru', '{}', '{""}');
SELECT refused('lru', '{}', '{2/}');
SELECT refused('lru', '{}', '{2147483648/a}');
SELECT refused('lru', '{}', '{@}');
SELECT refused('lru', '{}', '{@soon}');
SELECT refused('lru', '{}', '{a@5,b@4}');
SELECT refused('lru', '{}', '{!limit 0}');
SELECT refused('lru', '{}', '{!limit 99999999999999999999}');
SELECT refused('lru', '{}', '{!start 1}');
SELECT refused('lru', '{}', '{"!remove "}');
SELECT refused('lru', '{}', '{a,NULL}');
SELECT refused(NULL, '{}', '{}');
SELECT refused('lru', NULL, '{}');
SELECT refused('lru', '{}', NULL);
\pset format aligned
\pset tuples_only off

-- Anybody may look.
SELECT provolatile, proparallel, has_function_privilege('public', oid, 'EXECUTE') AS public
FROM pg_proc WHERE proname = 'shard_plan_passivation';

SET client_min_messages = warning;
DROP SCHEMA plan_passivation_test CASCADE;
