-- Prints one scenario's table from the samples on standard input.
-- Variables: scenario, title, summary (the file that gets the same as TSV).
CREATE TEMP TABLE sample (id serial, scenario text, metric text, unit text, value float8, bound text);
\copy sample (scenario, metric, unit, value, bound) FROM pstdin WITH (HEADER)

CREATE FUNCTION pg_temp.show(value float8) RETURNS text LANGUAGE sql
RETURN CASE WHEN abs(value) >= 100 THEN to_char(value, 'FM999,999,999,990')
  ELSE to_char(value, 'FM90.00') END;

CREATE TEMP VIEW summary AS
SELECT metric, unit, count(*) AS runs, percentile_cont(0.5) WITHIN GROUP (ORDER BY value) AS median,
  min(value), max(value), nullif(bound, '') AS bound, split_part(bound, ' ', 1) AS relation,
  nullif(split_part(bound, ' ', 2), '')::float8 AS "limit"
FROM sample
WHERE scenario = :'scenario'
GROUP BY metric, unit, bound
ORDER BY min(id);

CREATE TEMP VIEW verdict AS
SELECT *, CASE
  WHEN bound IS NULL THEN ''
  WHEN relation = '>=' AND median >= "limit" OR relation = '<=' AND median <= "limit" THEN 'PASS'
  ELSE 'below' END AS verdict
FROM summary;

\pset footer off
\pset null ''
\pset title :scenario' — ':title
SELECT metric, pg_temp.show(median) AS median,
  pg_temp.show(min) || ' – ' || pg_temp.show(max) AS "min – max", unit, bound, verdict FROM verdict;

\pset title
\pset format unaligned
\pset tuples_only on
\pset fieldsep '\t'
\setenv summary :summary
SELECT :'scenario', metric, unit, runs, median, min, max, bound, verdict FROM verdict
\g | cat >>"$summary"
