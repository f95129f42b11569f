--
-- shard_plan_downing(): whom a side of a partition downs. Each case is one side's view; the other
-- side's is a case of its own. Members are letters: A is node 1. A small letter after one is its
-- status: joining, weakly_up, leaving, exiting, down; up without. The first member of "here" asks; it
-- reports that it cannot reach those "there". Reports are pairs: AB, A cannot reach B.
--
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS shard;
RESET client_min_messages;

CREATE TEMP TABLE cast_of (letter text PRIMARY KEY, age int, roles jsonb);
INSERT INTO cast_of VALUES
    ('A', 5, '["r3"]'), ('B', 4, '["r1", "r3"]'), ('C', 3, '["r2"]'), ('D', 2, '["r1", "r2", "r3"]'),
    ('E', 1, '[]'), ('F', 5, '[]'), ('G', 6, '[]'), ('H', 7, '[]'), ('I', 8, '[]');

CREATE FUNCTION pg_temp.view(here text, there text, reports text) RETURNS jsonb
LANGUAGE sql AS $$
WITH member AS (
    SELECT m.parts[1] AS letter, m.parts[2] AS mark, s.is_here
    FROM (VALUES (here, true), (there, false)) s (side, is_here),
         regexp_matches(s.side, '([A-Z])([a-z]?)', 'g') AS m (parts)
), report AS (
    SELECT left(here, 1) AS observer, letter AS subject FROM member WHERE NOT is_here
    UNION
    SELECT left(word, 1), right(word, 1) FROM regexp_split_to_table(reports, ' ') word WHERE word <> ''
)
SELECT jsonb_build_object(
    'self', ascii(here) - 64,
    'members', (SELECT jsonb_agg(jsonb_build_object(
            'node', ascii(letter) - 64, 'age', age, 'roles', roles, 'seen', is_here,
            'status', CASE mark WHEN 'j' THEN 'joining' WHEN 'w' THEN 'weakly_up'
                                WHEN 'l' THEN 'leaving' WHEN 'e' THEN 'exiting'
                                WHEN 'd' THEN 'down' ELSE 'up' END,
            'reachable', letter = left(here, 1) OR
                         (is_here AND letter NOT IN (SELECT subject FROM report))))
        FROM member JOIN cast_of USING (letter)),
    'unreachable_by', (SELECT coalesce(jsonb_agg(jsonb_build_array(ascii(observer) - 64,
                                                                   ascii(subject) - 64)), '[]')
                       FROM report));
$$;

CREATE TEMP TABLE cases (
    number int GENERATED ALWAYS AS IDENTITY,
    id text, here text, there text, strategy text, settings jsonb, wanted text,
    reports text DEFAULT '');

-- The sides that a quorum keeps.
INSERT INTO cases (id, here, there, strategy, settings, wanted) VALUES
    ('S01', 'ACE', 'BD', 'static_quorum', '{"quorum_size": 3}', 'BD'),
    ('S01', 'BD', 'ACE', 'static_quorum', '{"quorum_size": 3}', 'BD'),
    ('S02', 'AB', 'CD', 'static_quorum', '{"quorum_size": 3}', 'AB'),
    ('S02', 'CD', 'AB', 'static_quorum', '{"quorum_size": 3}', 'CD'),
    ('role', 'ABC', 'DE', 'static_quorum', '{"quorum_size": 2, "role": "r3"}', 'DE'),
    ('role', 'DE', 'ABC', 'static_quorum', '{"quorum_size": 2, "role": "r3"}', 'DE'),
    ('role of nobody', 'ABC', 'DE', 'static_quorum', '{"quorum_size": 2, "role": "r9"}', 'ABC'),
    ('too many', 'ABC', 'DEF', 'static_quorum', '{"quorum_size": 3}', 'ABCDEF'),
    ('too many', 'DEF', 'ABC', 'static_quorum', '{"quorum_size": 3}', 'ABCDEF'),
    ('just enough', 'ABC', 'DE', 'static_quorum', '{"quorum_size": 3}', 'DE'),
    ('joining', 'ABCj', 'DEFj', 'static_quorum', '{"quorum_size": 3}', 'ABC'),
    ('joining', 'DEFj', 'ABCj', 'static_quorum', '{"quorum_size": 3}', 'DEF'),
    ('joining', 'ABC', 'DEFj', 'static_quorum', '{"quorum_size": 3}', 'DEF'),
    ('joining', 'DEFj', 'ABC', 'static_quorum', '{"quorum_size": 3}', 'DEF'),
    ('leaving', 'ABCl', 'DE', 'static_quorum', '{"quorum_size": 3}', 'DE'),
    ('leaving', 'DE', 'ABCl', 'static_quorum', '{"quorum_size": 3}', 'DE'),
    ('exiting', 'ABCe', 'DE', 'static_quorum', '{"quorum_size": 3}', 'AB'),
    ('exiting', 'DE', 'ABCe', 'static_quorum', '{"quorum_size": 3}', 'DE'),
    ('one member', 'A', '', 'static_quorum', '{"quorum_size": 1}', ''),
    ('below quorum, all well', 'AB', '', 'static_quorum', '{"quorum_size": 3}', ''),
    ('quorum of one', 'A', 'B', 'static_quorum', '{"quorum_size": 1}', 'AB'),
    ('two members', 'A', 'B', 'static_quorum', '{"quorum_size": 2}', 'A'),
    ('large quorum', 'AB', 'C', 'static_quorum', '{"quorum_size": 2147483647}', 'AB'),
    ('S70', 'A', 'BC', 'static_quorum', '{"quorum_size": 5}', 'A'),
    ('S70', 'BC', 'A', 'static_quorum', '{"quorum_size": 5}', 'BC'),
    ('S71', 'ABCD', 'EFGH', 'static_quorum', '{"quorum_size": 5}', 'ABCD'),
    ('S71', 'EFGH', 'ABCD', 'static_quorum', '{"quorum_size": 5}', 'EFGH'),
    ('S72', 'ABCDE', 'FGHI', 'static_quorum', '{"quorum_size": 5}', 'FGHI'),
    ('S72', 'FGHI', 'ABCDE', 'static_quorum', '{"quorum_size": 5}', 'FGHI'),
    ('S73', 'A', 'BCDEF', 'static_quorum', '{"quorum_size": 5}', 'A'),
    ('S73', 'BCDEF', 'A', 'static_quorum', '{"quorum_size": 5}', 'A'),
    ('S74', 'ABCD', 'EFGHI', 'static_quorum', '{"quorum_size": 5}', 'ABCD'),
    ('S74', 'EFGHI', 'ABCD', 'static_quorum', '{"quorum_size": 5}', 'ABCD');

-- The larger side, of two halves the one with the lowest node.
INSERT INTO cases (id, here, there, strategy, settings, wanted) VALUES
    ('S10', 'ACE', 'BD', 'keep_majority', '{}', 'BD'),
    ('S10', 'BD', 'ACE', 'keep_majority', '{}', 'BD'),
    ('S11', 'AB', 'CDE', 'keep_majority', '{}', 'AB'),
    ('S11', 'CDE', 'AB', 'keep_majority', '{}', 'AB'),
    ('S12', 'B', 'AC', 'keep_majority', '{}', 'B'),
    ('S12', 'AC', 'B', 'keep_majority', '{}', 'B'),
    ('S13', 'AB', 'CD', 'keep_majority', '{}', 'CD'),
    ('S13', 'CD', 'AB', 'keep_majority', '{}', 'CD'),
    ('S14', 'A', 'B', 'keep_majority', '{}', 'B'),
    ('S14', 'B', 'A', 'keep_majority', '{}', 'B'),
    ('S15', 'AB', 'CDE', 'keep_majority', '{"role": "r3"}', 'CDE'),
    ('S15', 'CDE', 'AB', 'keep_majority', '{"role": "r3"}', 'CDE'),
    ('S16', 'ADE', 'BC', 'keep_majority', '{"role": "r2"}', 'ADE'),
    ('S16', 'BC', 'ADE', 'keep_majority', '{"role": "r2"}', 'ADE'),
    ('S17', 'C', 'E', 'keep_majority', '{"role": "r3"}', 'CE'),
    ('S17', 'E', 'C', 'keep_majority', '{"role": "r3"}', 'CE'),
    ('S18', 'BD', 'AjC', 'keep_majority', '{}', 'AC'),
    ('S18', 'AjC', 'BD', 'keep_majority', '{}', 'AC'),
    ('S19', 'ABj', 'CDE', 'keep_majority', '{}', 'AB'),
    ('S19', 'CDE', 'ABj', 'keep_majority', '{}', 'AB'),
    ('S75', 'AB', 'C', 'keep_majority', '{}', 'C'),
    ('S75', 'C', 'AB', 'keep_majority', '{}', 'C'),
    ('three parts', 'AB', 'CDE', 'keep_majority', '{}', 'AB'),
    ('three parts', 'CD', 'ABE', 'keep_majority', '{}', 'CD'),
    ('three parts', 'E', 'ABCD', 'keep_majority', '{}', 'E'),
    ('two came up over there', 'ABFG', 'CDE', 'keep_majority', '{}', 'CDE'),
    ('two came up over there', 'CDE', 'ABFjGj', 'keep_majority', '{}', 'ABCDEFG'),
    ('one came up over there', 'ABF', 'CDE', 'keep_majority', '{}', 'CDE'),
    ('one came up over there', 'CDE', 'ABFj', 'keep_majority', '{}', 'ABCDEF'),
    ('one came up over here', 'CDEF', 'AB', 'keep_majority', '{}', 'AB'),
    ('one came up over here', 'AB', 'CDEFj', 'keep_majority', '{}', 'AB'),
    ('one exits over there', 'AlBEj', 'CD', 'keep_majority', '{}', 'ABCDE'),
    ('one exits over there', 'CD', 'AeB', 'keep_majority', '{}', 'B'),
    ('all are leaving', 'AlBl', 'Cl', 'keep_majority', '{}', 'ABC'),
    ('leaving counts', 'ABCl', 'DE', 'keep_majority', '{}', 'DE'),
    ('leaving counts', 'DE', 'ABCl', 'keep_majority', '{}', 'DE'),
    ('self alone', 'A', 'BCDE', 'keep_majority', '{}', 'A'),
    ('all but self crashed, two', 'A', 'BC', 'keep_majority', '{}', 'A'),
    ('one member', 'A', '', 'keep_majority', '{}', ''),
    ('all well', 'ABCDE', '', 'keep_majority', '{}', ''),
    ('exiting is left alone', 'AB', 'Ce', 'keep_majority', '{}', ''),
    ('down is not downed again', 'AB', 'Cd', 'keep_majority', '{}', ''),
    ('down does not count', 'AB', 'CDdEd', 'keep_majority', '{}', 'C'),
    ('down does not count', 'C', 'ABDdEd', 'keep_majority', '{}', 'C'),
    ('unreachable newcomer', 'A', 'Bj', 'keep_majority', '{}', 'B'),
    ('cut off newcomer', 'Aj', 'B', 'keep_majority', '{}', 'A'),
    ('weakly up', 'BC', 'Aw', 'keep_majority', '{}', 'A'),
    ('weakly up', 'Aw', 'BC', 'keep_majority', '{}', 'A'),
    ('empty role is none', 'AB', 'C', 'keep_majority', '{"role": ""}', 'C');

-- The side of the oldest, E; then D.
INSERT INTO cases (id, here, there, strategy, settings, wanted) VALUES
    ('S40', 'AE', 'BCD', 'keep_oldest', '{}', 'BCD'),
    ('S40', 'BCD', 'AE', 'keep_oldest', '{}', 'BCD'),
    ('S41', 'AE', 'BCD', 'keep_oldest', '{"role": "r2"}', 'AE'),
    ('S41', 'BCD', 'AE', 'keep_oldest', '{"role": "r2"}', 'AE'),
    ('S42', 'E', 'ABCD', 'keep_oldest', '{}', 'E'),
    ('S42', 'ABCD', 'E', 'keep_oldest', '{"down_if_alone": true}', 'E'),
    ('S43', 'E', 'ABCD', 'keep_oldest', '{"down_if_alone": false}', 'ABCD'),
    ('S43', 'ABCD', 'E', 'keep_oldest', '{"down_if_alone": false}', 'ABCD'),
    ('two members', 'B', 'A', 'keep_oldest', '{}', 'A'),
    ('two members', 'A', 'B', 'keep_oldest', '{}', 'A'),
    ('equal ages', 'A', 'F', 'keep_oldest', '{}', 'F'),
    ('equal ages', 'F', 'A', 'keep_oldest', '{}', 'F'),
    ('one member', 'A', '', 'keep_oldest', '{}', ''),
    ('role of nobody', 'AB', 'C', 'keep_oldest', '{"role": "r9"}', 'ABC'),
    ('role of nobody', 'C', 'AB', 'keep_oldest', '{"role": "r9"}', 'ABC'),
    ('oldest exits', 'ABD', 'CEe', 'keep_oldest', '{}', 'C'),
    ('oldest may have exited', 'CEl', 'ABD', 'keep_oldest', '{}', 'ABCDE'),
    ('oldest leaves', 'AEl', 'BCD', 'keep_oldest', '{}', 'ABCDE'),
    ('oldest leaves', 'BCD', 'AEl', 'keep_oldest', '{}', 'BCD'),
    ('others leave', 'AE', 'BlClD', 'keep_oldest', '{}', 'BCD'),
    ('others leave', 'BlClD', 'AE', 'keep_oldest', '{}', 'BCD'),
    ('company of the oldest leaves', 'DlE', 'ABC', 'keep_oldest', '{}', 'ABCDE'),
    ('company of the oldest leaves', 'ABC', 'DlE', 'keep_oldest', '{}', 'ABC'),
    ('one of the many leaves', 'E', 'ABCl', 'keep_oldest', '{}', 'E'),
    ('one of the many leaves', 'ABCl', 'E', 'keep_oldest', '{}', 'E'),
    ('all but one of the many leave', 'E', 'ABlClDl', 'keep_oldest', '{}', 'E'),
    ('all but one of the many leave', 'ABlClDl', 'E', 'keep_oldest', '{}', 'ABCDE'),
    ('oldest exits, next is alone', 'DEe', 'ABC', 'keep_oldest', '{}', 'D'),
    ('oldest exits, next is alone', 'ABC', 'DEl', 'keep_oldest', '{}', 'ABC'),
    ('other one leaves', 'A', 'Be', 'keep_oldest', '{}', ''),
    ('other one leaves', 'Bl', 'A', 'keep_oldest', '{}', 'AB'),
    ('newcomer with the oldest', 'EAj', 'BCD', 'keep_oldest', '{}', 'AE'),
    ('newcomer with the oldest', 'BCD', 'EAj', 'keep_oldest', '{}', 'ABCDE'),
    ('newcomer with the oldest', 'EAj', 'BCD', 'keep_oldest', '{"down_if_alone": false}', 'BCD'),
    ('newcomer with the oldest', 'BCD', 'EAj', 'keep_oldest', '{"down_if_alone": false}', 'BCD');

-- The other strategies.
INSERT INTO cases (id, here, there, strategy, settings, wanted) VALUES
    ('down all', 'ABC', 'DE', 'down_all', '{}', 'ABCDE'),
    ('down all', 'DE', 'ABC', 'down_all', '{}', 'ABCDE'),
    ('down all, statuses', 'AlBj', 'CdDeEw', 'down_all', '{}', 'ABE'),
    ('down all, all well', 'ABC', '', 'down_all', '{}', ''),
    ('manual', 'ABC', 'DE', 'manual', '{}', ''),
    ('auto', 'AB', 'CD', 'auto', '{}', 'CD'),
    ('auto', 'CD', 'AB', 'auto', '{}', 'AB'),
    ('auto, statuses', 'AB', 'CjDeEdFl', 'auto', '{}', 'CF');

-- Indirectly connected members, whom others of the same side report.
INSERT INTO cases (id, here, there, strategy, settings, reports, wanted) VALUES
    ('(A B)', 'AB', '', 'keep_majority', '{}', 'AB BA', 'AB'),
    ('(A B)', 'BA', '', 'keep_majority', '{}', 'AB BA', 'AB'),
    ('one way', 'AB', '', 'keep_majority', '{}', 'BA', 'AB'),
    ('one way', 'BA', '', 'keep_majority', '{}', 'BA', 'AB'),
    ('(A B) C', 'ABC', '', 'keep_majority', '{}', 'AB BA', 'AB'),
    ('(A B) C', 'CAB', '', 'keep_majority', '{}', 'AB BA', 'AB'),
    ('(A B C)', 'ABC', '', 'keep_majority', '{}', 'AB BC CA', 'ABC'),
    ('(A D) (B C)', 'ABCD', '', 'keep_majority', '{}', 'AD DA BC CB', 'ABCD'),
    ('(A B C) D E', 'DABCE', '', 'keep_majority', '{}', 'AB BC CA', 'ABC'),
    ('A (B C) D (E F) G', 'ABCDEFG', '', 'keep_majority', '{}', 'BC CB EF FE', 'BCEF'),
    ('seen: (A B C)', 'ABC', '', 'keep_majority', '{}', 'AB AC', 'ABC'),
    ('seen: (A D) (B C) E', 'EABCD', '', 'keep_majority', '{}', 'BC CB AD', 'ABCD'),
    ('(A B) D E, C crashed', 'ABDE', 'C', 'keep_majority', '{}', 'AB BA', 'ABC'),
    ('A (B C) | D E', 'ABC', 'DE', 'keep_majority', '{}', 'BC CB', 'BCDE'),
    ('A (B C) | D E', 'DE', 'ABC', 'keep_majority', '{}', '', 'DE'),
    ('A (B C) | D E, known', 'DE', 'ABC', 'keep_majority', '{}', 'BC CB', 'BCDE'),
    ('A (B C) | D E F G', 'ABC', 'DEFG', 'keep_majority', '{}', 'BC CB', 'ABC'),
    ('A (B C) | D E F G', 'DEFG', 'ABC', 'keep_majority', '{}', '', 'ABC'),
    ('A (B C) | D E F G, known', 'DEFG', 'ABC', 'keep_majority', '{}', 'BC CB', 'ABC'),
    ('A B C | (D E) F G', 'ABC', 'DEFG', 'keep_majority', '{}', '', 'ABC'),
    ('A B C | (D E) F G, known', 'ABC', 'DEFG', 'keep_majority', '{}', 'DE ED', 'ABCDE'),
    ('A B C | (D E) F G', 'DEFG', 'ABC', 'keep_majority', '{}', 'DE ED', 'ABCDE'),
    ('(B E F) across', 'ABC', 'DEFG', 'keep_majority', '{}', 'BE EF FB', 'ABCEF'),
    ('(B E F) across', 'DEFG', 'ABC', 'keep_majority', '{}', 'BE EF FB', 'ABCEF'),
    ('A B C | (D E) (F G)', 'DEFG', 'ABC', 'keep_majority', '{}', 'DE GF', 'ABCDEFG'),
    ('never sure', 'ABC', 'DEFG', 'keep_majority', '{}', 'DE GF', 'ABCDEFG'),
    ('quorum: (A B) C', 'ABC', '', 'static_quorum', '{"quorum_size": 2}', 'AB BA', 'AB'),
    ('quorum: too many first', 'ABC', '', 'static_quorum', '{"quorum_size": 1}', 'AB BA', 'ABC'),
    ('oldest: (A B) C', 'ABC', '', 'keep_oldest', '{}', 'AB BA', 'AB'),
    ('oldest: A (B C) | D E F G', 'ABC', 'DEFG', 'keep_oldest', '{}', 'BC CB', 'ABC'),
    ('oldest: A (B C) | D E F G', 'DEFG', 'ABC', 'keep_oldest', '{}', 'BC CB', 'ABC'),
    ('oldest: A B C | (D E) F G', 'ABC', 'DEFG', 'keep_oldest', '{}', 'DE ED', 'ABCDE'),
    ('oldest: A B C | (D E) F G', 'DEFG', 'ABC', 'keep_oldest', '{}', 'DE ED', 'ABCDE'),
    ('all: (A B) C', 'ABC', '', 'down_all', '{}', 'AB BA', 'ABC');

CREATE TEMP VIEW results AS
SELECT number, id, here, there, strategy, settings, reports, wanted,
       (SELECT coalesce(string_agg(chr(64 + node), '' ORDER BY place), '')
        FROM unnest(shard_plan_downing(pg_temp.view(here, there, reports), strategy, settings))
             WITH ORDINALITY d (node, place)) AS downs
FROM cases;

SELECT id, here, there, strategy, nullif(settings, '{}') AS settings, downs
FROM results WHERE reports = '' ORDER BY number;
SELECT id, here, there, strategy, reports, downs
FROM results WHERE reports <> '' ORDER BY number;

-- All are as they must be, and in rising order.
SELECT count(*) AS cases, count(*) FILTER (WHERE downs = wanted) AS as_wanted FROM results;
SELECT * FROM results WHERE downs <> wanted ORDER BY number;

-- The two sides of a case with clean links never both live on, whatever the case is about.
SELECT a.id, a.here, b.here AS there
FROM results a JOIN results b ON a.strategy = b.strategy AND a.settings = b.settings
     AND a.here = b.there AND a.there = b.here AND a.reports = '' AND b.reports = ''
WHERE a.strategy <> 'auto'
  AND translate(regexp_replace(a.here, '[A-Z][ed]|[a-z]', '', 'g'), a.downs, '') <> ''
  AND translate(regexp_replace(b.here, '[A-Z][ed]|[a-z]', '', 'g'), b.downs, '') <> '';

-- An unsorted view, large ids, and what may be left out.
SELECT shard_plan_downing('{"self": 2000000000, "members": [{"node": 2147483647, "reachable": false},
    {"node": 2000000000}, {"node": 1, "reachable": false}, {"node": 7}, {"node": 5}]}', 'keep_majority');
-- Reports make a member unreachable by themselves; one that has seen all is indirectly connected.
SELECT shard_plan_downing('{"self": 1, "members": [{"node": 1}, {"node": 2}, {"node": 3, "seen": false}],
    "unreachable_by": [[1, 3], [2, 3], [2, 3]]}', 'keep_majority');
SELECT shard_plan_downing('{"self": 1, "members": [{"node": 1}, {"node": 2},
    {"node": 3, "reachable": false, "seen": true}]}', 'keep_majority');
-- The report of one that is down makes nobody unreachable.
SELECT shard_plan_downing('{"self": 1, "members": [{"node": 1}, {"node": 2},
    {"node": 3, "status": "down"}], "unreachable_by": [[3, 2]]}', 'keep_majority');
-- The example of the documentation.
SELECT shard_plan_downing('{"self": 1, "members": [
    {"node": 1}, {"node": 2}, {"node": 3, "reachable": false},
    {"node": 4, "reachable": false}, {"node": 5, "reachable": false}]}', 'keep_majority');
-- As many members as can be.
SELECT cardinality(shard_plan_downing(jsonb_build_object('self', 1, 'members', (
    SELECT jsonb_agg(jsonb_build_object('node', n, 'reachable', n <= 32)) FROM generate_series(1, 64) n)),
    'keep_majority'));

-- Everybody may ask.
CREATE ROLE regress_shard_planner;
SET ROLE regress_shard_planner;
SELECT shard_plan_downing('{"self": 1, "members": [{"node": 1}]}', 'down_all');
RESET ROLE;
DROP ROLE regress_shard_planner;

-- What is not as it must be.
CREATE FUNCTION pg_temp.refused(view jsonb, strategy text = 'keep_majority', settings jsonb = '{}')
RETURNS TABLE (state text, message text, detail text, hint text) LANGUAGE plpgsql AS $$
BEGIN
    PERFORM shard_plan_downing(view, strategy, settings);
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT,
                            detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
    RETURN NEXT;
END $$;
\x
SELECT * FROM pg_temp.refused('{"self": 1, "members": [{"node": 1}]}', 'keep_newest');
SELECT * FROM pg_temp.refused('{"self": 1, "members": [{"node": 1}]}', '');
SELECT * FROM pg_temp.refused('{"self": 1, "members": [{"node": 1}]}', NULL);
SELECT * FROM pg_temp.refused(NULL);
SELECT * FROM pg_temp.refused('{"self": 1, "members": [{"node": 1}]}', 'keep_majority', NULL);
SELECT * FROM pg_temp.refused('{"self": 1, "members": [{"node": 1}]}', 'keep_majority', '{"quorum_size": 2}');
SELECT * FROM pg_temp.refused('{"self": 1, "members": [{"node": 1}]}', 'manual', '{"role": "r1"}');
SELECT * FROM pg_temp.refused('{"self": 1, "members": [{"node": 1}]}', 'static_quorum');
SELECT * FROM pg_temp.refused('{"self": 1, "members": [{"node": 1}]}', 'static_quorum', '{"quorum_size": 0}');
SELECT * FROM pg_temp.refused('{"self": 1, "members": [{"node": 1}]}', 'static_quorum', '{"quorum_size": "3"}');
SELECT * FROM pg_temp.refused('{"self": 1, "members": [{"node": 1, "age": 1}]}', 'keep_oldest', '{"down_if_alone": "on"}');
SELECT * FROM pg_temp.refused('{"self": 1, "members": [{"node": 1}]}', 'keep_oldest');
SELECT * FROM pg_temp.refused('[]');
SELECT * FROM pg_temp.refused('3');
SELECT * FROM pg_temp.refused('{"members": [{"node": 1}]}');
SELECT * FROM pg_temp.refused('{"self": 1}');
SELECT * FROM pg_temp.refused('{"self": 1, "members": []}');
SELECT * FROM pg_temp.refused('{"self": 2, "members": [{"node": 1}]}');
SELECT * FROM pg_temp.refused('{"self": 1, "member": [{"node": 1}]}');
SELECT * FROM pg_temp.refused('{"self": 1, "members": [{"node": 1}, {"node": 2}, {"node": 1}]}');
SELECT * FROM pg_temp.refused('{"self": 1, "members": [{"node": 1, "reachable": false}]}');
SELECT * FROM pg_temp.refused('{"self": 1, "members": [{"node": 0}]}');
SELECT * FROM pg_temp.refused('{"self": 1, "members": [{"node": 1}, {"node": 1.5}]}');
SELECT * FROM pg_temp.refused('{"self": 1, "members": [{"node": 1}, {"node": 2147483648}]}');
SELECT * FROM pg_temp.refused('{"self": 1, "members": [{"age": 1}]}');
SELECT * FROM pg_temp.refused('{"self": 1, "members": [{"node": 1, "status": "removed"}]}');
SELECT * FROM pg_temp.refused('{"self": 1, "members": [{"node": 1, "rank": 1}]}');
SELECT * FROM pg_temp.refused('{"self": 1, "members": [{"node": 1, "roles": "r1"}]}');
SELECT * FROM pg_temp.refused('{"self": 1, "members": [{"node": 1}], "unreachable_by": [[1, 2]]}');
SELECT * FROM pg_temp.refused('{"self": 1, "members": [{"node": 1}], "unreachable_by": [[1, 1]]}');
SELECT * FROM pg_temp.refused('{"self": 1, "members": [{"node": 1}], "unreachable_by": [[1]]}');
SELECT * FROM pg_temp.refused(jsonb_build_object('self', 1, 'members',
    (SELECT jsonb_agg(jsonb_build_object('node', n)) FROM generate_series(1, 65) n)));
