-- One batched measurement, see "batched" in lib.sh.
-- Variables: how, type, entities, messages, prefix.
TRUNCATE bench.bare, bench.keyed;
-- No run shall pay for the writes of the one before.
CHECKPOINT;
SELECT bench.total(:'type') AS total, bench.worker_cpu() AS cpu \gset
SELECT clock_timestamp() AS started, pg_current_wal_insert_lsn() AS wal \gset
CALL bench.send(:'how', :'type', :messages, :entities, :'prefix') \gset
SELECT bench.drain() \g /dev/null
SELECT clock_timestamp() AS ended, pg_current_wal_insert_lsn() - :'wal' AS wal,
  bench.worker_cpu() - :'cpu' AS cpu \gset
SELECT bench.verify(:'how', :'type', :total, :messages) \g /dev/null
SELECT :messages / extract(epoch FROM :'ended'::timestamptz - :'started'),
  :wal::float8 / :messages, :'cpu'::float8 / :messages, :inbox_peak / 1e6;
