title="latency: a tell on an idle system"

for ((run = 1; run <= runs; run++)); do
  line=$(sql_file latency.sql -v rounds=200)
  read -r visible visible_p99 committed whole <<<"$line"
  record "commit returned → effect visible, p50" "ms" "$visible" "<= 2"
  record "commit returned → effect visible, p99" "ms" "$visible_p99"
  record "tell + commit, p50" "ms" "$committed"
  record "tell called → effect visible, p50" "ms" "$whole"
done
