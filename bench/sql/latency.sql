-- Latency of a tell on an idle system, in ms: p50 and p99 from commit to visible, p50 of tell plus
-- commit, p50 of all. Variable: rounds.
-- A lost message shall end the wait for it.
SET statement_timeout = '2min';
TRUNCATE bench.latency;
CALL bench.measure_latency(:rounds);
SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY visible),
  percentile_cont(0.99) WITHIN GROUP (ORDER BY visible),
  percentile_cont(0.5) WITHIN GROUP (ORDER BY committed),
  percentile_cont(0.5) WITHIN GROUP (ORDER BY whole)
FROM bench.latency;
