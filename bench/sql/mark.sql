-- The counters around a pgbench run: WAL bytes, region workers' CPU µs, messages handled by the
-- type. Variable: type (may be empty).
SELECT pg_current_wal_insert_lsn() - '0/0', coalesce(bench.worker_cpu(), 0),
  CASE WHEN :'type' = '' THEN 0 ELSE bench.total(:'type') END;
