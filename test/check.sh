#!/bin/bash
# usage: check.sh [TIER ...]
#
# Sets up, builds with assertions, installs into a private PostgreSQL in a temporary folder, and
# runs the tiers: lint unit regress isolation tap mutants (default: all of them), or long: the TAP
# tests that know SHARD_LONG_SECONDS, for an hour. A failed tier does not stop the others. The last
# line is "N passed, N failed".
#
# Root does not run servers: then everything after the build runs as an unprivileged account.
#
# Environment: PG_MAJOR or PG_CONFIG choose the server, CHECK_KEEP=1 keeps the folder,
# CHECK_TIMEOUT is the most that one tier may take, in seconds, PROVE_TESTS the TAP files to run.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$root"

tiers=("$@")
[ $# -gt 0 ] || tiers=(lint unit regress isolation tap mutants)
limit=${CHECK_TIMEOUT:-1800}
passed=0
failed=0

packages=(build test)
[[ " ${tiers[*]} " != *" lint "* ]] || packages+=(lint)
test/setup.sh "${packages[@]}"
PG_CONFIG=$(pg_config_path)
export PG_CONFIG

ensure_user
work=$(mktemp -d "${TMPDIR:-/tmp}/shard-check.XXXXXX")
export TEST_HOME=$work
chmod 755 "$work"

# Ends the servers of this run that a test left, found by their folders, and nothing else.
clean_up() {
  local pidfile
  while IFS= read -r pidfile; do
    as_user "$bindir/pg_ctl" -D "${pidfile%/*}" -m immediate -s stop || true
  done < <([ -z "${bindir:-}" ] || find "$work" -name postmaster.pid)
  if [ -n "${CHECK_KEEP:-}" ]; then say "kept: $work"; else rm -rf "$work"; fi
}
trap clean_up EXIT
trap 'exit 130' INT TERM

count() {  # passed failed
  passed=$((passed + $1))
  failed=$((failed + $2))
}

# Adds up the lines of a TAP log; a runner that failed without a failed line counts as one.
count_tap() {  # log, exit status
  local good bad
  good=$(grep -cE '^ok\b' "$1" || true)
  bad=$(grep -cE '^not ok\b' "$1" || true)
  bad=$((bad - $(grep -cE '^not ok\b.*# TODO' "$1" || true)))
  [ "$2" = 0 ] || [ "$bad" -gt 0 ] || bad=1
  count "$good" "$bad"
}

# Runs a command within the time limit as the unprivileged account, output to a log.
run_logged() {  # log command ...
  local log=$1 status=0
  shift
  as_user timeout --kill-after=30 "$limit" "$@" >"$log" 2>&1 </dev/null || status=$?
  [ "$status" != 124 ] || echo "# stopped: took longer than $limit s" >>"$log"
  return "$status"
}

excerpt() {  # title, file, lines
  [ -s "$2" ] || return 0
  printf -- '---- %s\n' "$1"
  tail -n "$3" "$2"
  printf -- '----\n'
}

# ---- tiers ------------------------------------------------------------------------------------

build_all() {
  local log=$work/build.log
  if ! bindir=$(test/private.sh build/check "$work" SHARD_ASSERTIONS=1 2>"$log"); then
    bindir=
    excerpt "build" "$log" 60
    count 0 1
    return
  fi
  count 1 0
  pgxs=$(dirname "$("$bindir/pg_config" --pgxs)")/../..
  pgxs=$(cd "$pgxs" && pwd)
  mkdir "$work/src"
  for folder in sql expected test; do
    [ ! -e "$folder" ] || cp -r "$folder" "$work/src/"
  done
  rm -rf "$work/src/test/unit/build"
  # The unprivileged account may be unable to enter this source tree.
  [ "$(id -u)" != 0 ] || chown -R "$TEST_USER" "$work"
}

tier_lint() {
  local log=$work/lint.log status=0
  timeout --kill-after=30 "$limit" test/lint.sh build/check/shard.so >"$log" 2>&1 || status=$?
  count_tap "$log" "$status"
  if [ "$status" = 0 ]; then grep -E '^(not )?ok' "$log"; else cat "$log"; fi
}

tier_unit() {
  local program log status
  [ -f test/unit/Makefile ] || return 0
  if ! make -s -j "$(nproc)" -C build/check/test/unit >"$work/unit.log" 2>&1; then
    excerpt "unit tests do not build" "$work/unit.log" 40
    count 0 1
    return
  fi
  for program in build/check/test/unit/build/*_test; do
    [ -x "$program" ] || continue
    log=$work/$(basename "$program").log
    status=0
    timeout --kill-after=30 "$limit" "$program" >"$log" 2>&1 || status=$?
    count_tap "$log" "$status"
    report "$(basename "$program")" "$log" "$status"
    [ "$status" = 0 ] || { grep -A3 '^not ok' "$log" | head -40 || true; excerpt "$program" "$log" 20; }
  done
}

# One line for a file of tests.
report() {  # name, log, exit status
  printf '%-6s %s (%s)\n' "$([ "$3" = 0 ] && echo ok || echo FAILED)" "$1" \
    "$(grep -cE '^(not )?ok\b' "$2" || true)"
}

# pg_regress and its isolation twin print a line per test: "test name ... ok" in 15, "ok 1 - name"
# since 16.
run_regress() {  # tier, runner, input folder, tests
  local tier=$1 runner=$2 input=$3 output=$work/$1 status=0 good bad
  shift 3
  [ $# -gt 0 ] || return 0
  as_user mkdir -p "$output"
  (cd "$output" && run_logged "$output.log" "$pgxs/src/test/$runner" \
    --bindir="$bindir" --inputdir="$input" --outputdir="$output" --dbname=shard_regress \
    --temp-instance="$output/instance" --temp-config="$work/src/test/shard.conf" \
    --encoding=UTF8 --no-locale "$@") || status=$?
  good=$(grep -cE '^(ok |test .*\.\.\. ok )' "$output.log" || true)
  bad=$(grep -cE '^(not ok |test .*\.\.\. FAILED)' "$output.log" || true)
  [ "$status" = 0 ] || [ "$bad" -gt 0 ] || bad=1
  count "$good" "$bad"
  grep -E '^((not )?ok |test .*\.\.\. )' "$output.log" || true
  [ "$status" != 0 ] || return 0
  excerpt "$tier: differences" "$output/regression.diffs" 200
  [ -s "$output/regression.diffs" ] || excerpt "$tier" "$output.log" 40
  excerpt "$tier: the server's log" "$output/log/postmaster.log" 30
}

tier_regress() {
  local tests
  read -ra tests <<<"$(make -s print-REGRESS_TESTS)"
  run_regress regress regress/pg_regress "$work/src" "${tests[@]}"
}

tier_isolation() {
  local tests
  read -ra tests <<<"$(make -s print-ISOLATION_TESTS)"
  run_regress isolation isolation/pg_isolation_regress "$work/src/test/isolation" "${tests[@]}"
}

run_tap() {  # files
  local file name log status trace
  for file in "$@"; do
    name=$(basename "$file" .pl)
    log=$work/$name.log
    status=0
    as_user mkdir -p "$work/tap/$name"
    # A folder for each file keeps its servers' logs apart.
    (cd "$work/src" && run_logged "$log" env PATH="$bindir:$PATH" TESTDIR="$work/tap/$name" \
      TESTDATADIR="$work/tap/$name/tmp_check" TESTLOGDIR="$work/tap/$name/tmp_check/log" \
      PG_TEST_PORT_DIR="$work/tap" PG_REGRESS="$pgxs/src/test/regress/pg_regress" \
      SHARD_TEST_CONF="$work/src/test/shard.conf" \
      prove -v -I "$pgxs/src/test/perl" -I "$work/src/test/perl" "$file") || status=$?
    count_tap "$log" "$status"
    report "$file" "$log" "$status"
    [ "$status" != 0 ] || continue
    grep -A6 '^not ok' "$log" | head -60 || true
    excerpt "$file" "$log" 40
    for trace in "$work/tap/$name"/tmp_check/log/*; do
      [ ! -f "$trace" ] || excerpt "$(basename "$trace")" "$trace" 40
    done
  done
}

tier_tap() {
  local files
  read -ra files <<<"${PROVE_TESTS:-$(printf '%s ' test/t/*.pl)}"
  [ -e "${files[0]}" ] || return 0
  run_tap "${files[@]}"
}

# The crash loops: those TAP tests that run for as long as SHARD_LONG_SECONDS says.
tier_long() {
  local files
  export SHARD_LONG_SECONDS=${SHARD_LONG_SECONDS:-3600}
  mapfile -t files < <(grep -ls SHARD_LONG_SECONDS test/t/*.pl)
  limit=$((SHARD_LONG_SECONDS + limit))
  run_tap "${files[@]}"
}

# Builds that are broken on purpose; test/mutants.sh says "ok" for each that the tests notice.
tier_mutants() {
  local log=$work/mutants.log status=0
  [ -x test/mutants.sh ] || return 0
  timeout --kill-after=30 "$limit" test/mutants.sh >"$log" 2>&1 </dev/null || status=$?
  count_tap "$log" "$status"
  grep -E '^(not )?ok' "$log" || true
  [ "$status" = 0 ] || excerpt mutants "$log" 60
}

# ---- all of them ------------------------------------------------------------------------------

timed() {  # name, command
  local start=$SECONDS before=$failed
  say "$1"
  "$2"
  say "$1: $([ "$failed" = "$before" ] && echo ok || echo FAILED), $((SECONDS - start)) s"
}

timed build build_all
for tier in "${tiers[@]}"; do
  declare -F "tier_$tier" >/dev/null || die "unknown tier \"$tier\""
  case $tier in
    lint | mutants | unit) timed "$tier" "tier_$tier" ;;
    # Without a build these cannot run, which must not look like success.
    *) if [ -n "$bindir" ]; then timed "$tier" "tier_$tier"; else
         say "$tier: not run, there is no build"; count 0 1
       fi ;;
  esac
done

clean_up
trap - EXIT
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
