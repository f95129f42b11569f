#!/usr/bin/env bash
# Runs scenarios with another commit and with this tree, in turn, and prints this / other:
#
#   bench/compare.sh COMMIT [SCENARIO…]      default A C
#
# Settings as for run.sh; BENCH_RUNS is how often each of them is run. A ratio is that of two runs which
# followed one another; the median of the ratios counts. With one environment for both the machine may
# change its speed meanwhile.
set -euo pipefail
bench=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$bench/../test/lib.sh"

[ $# -ge 1 ] || die 'usage: bench/compare.sh COMMIT [SCENARIO…]'
commit=$1
shift
scenarios=("$@")
if ((${#scenarios[@]} == 0)); then
  scenarios=(A C)
fi
rounds=${BENCH_RUNS:-5}

work=$(mktemp -d "${TMPDIR:-/tmp}/shard-compare.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir "$work/other"
git -C "$root" archive "$commit" | tar -C "$work/other" -xf -
# One way of measuring for both.
rm -rf "$work/other/bench"
cp -r "$root/bench" "$work/other/bench"

# Prints what one run measured: metric, unit, value.
measure() { # TREE
  local folder
  BENCH_RUNS=1 "$1/bench/run.sh" "${scenarios[@]}" >"$work/out" 2>&1 ||
    { cat "$work/out" >&2; die "the benchmark of $1 failed"; }
  folder=$(sed -n 's/^Results: //p' "$work/out")
  tail -n +2 "$folder/samples.tsv" | awk -F '\t' -v OFS='\t' '{ print $1 ": " $2, $3, $4 }'
}

for ((round = 1; round <= rounds; round++)); do
  # Who is first changes.
  if ((round % 2)); then
    measure "$work/other" >"$work/a"
    measure "$root" >"$work/b"
  else
    measure "$root" >"$work/b"
    measure "$work/other" >"$work/a"
  fi
  paste "$work/a" "$work/b" | awk -F '\t' -v OFS='\t' '$3 > 0 { print $1, $2, $3, $6, $6 / $3 }' >>"$work/all"
  echo "round $round of $rounds" >&2
done

sort -s -t $'\t' -k 1,1 "$work/all" | awk -F '\t' -v commit="$commit" '
  function median(list, n,   i, j, t) {
    for (i = 2; i <= n; i++) for (j = i; j > 1 && list[j - 1] > list[j]; j--) {
      t = list[j]; list[j] = list[j - 1]; list[j - 1] = t
    }
    return n % 2 ? list[(n + 1) / 2] : (list[n / 2] + list[n / 2 + 1]) / 2
  }
  function finish(   low, high) {
    if (n == 0) return
    m = median(ratio, n)
    printf "%-60s %14.2f %14.2f  %-10s %5.2f  (%.2f – %.2f)\n", name, median(other, n), median(here, n), unit, m,
      ratio[1], ratio[n]
  }
  BEGIN { printf "%-60s %14s %14s  %-10s %s\n", "median of", substr(commit, 1, 12), "this tree", "", "this / other (min – max)" }
  $1 != name { finish(); n = 0; name = $1; unit = $2 }
  { n++; other[n] = $3; here[n] = $4; ratio[n] = $5 }
  END { finish() }'
