#!/bin/bash
# usage: check.sh [TIER ...]
#
# Sets up, builds with assertions, installs into a private PostgreSQL in a temporary folder, and
# runs the tiers (default: all of them), in two lanes side by side: what runs servers, which waits more than it
# works, and what mostly computes, each tier of which is shown when it has ended. Others are long: the crash loops for an
# hour, and night: random faults in a cluster for HOURS (8). A failed tier does not stop the others. The last line is
# "N passed, N failed".
#
# Root does not run servers: then everything after the build runs as an unprivileged account.
#
# Environment: PG_MAJOR or PG_CONFIG choose the server; CHECK_KEEP=1 keeps the folder; TMPDIR says where it is;
# CHECK_TIMEOUT is the most that all may take, in seconds; PROVE_TESTS names the TAP files to run;
# MUTANT=name tests a build that is broken on purpose, and tells the tests by SHARD_MUTANT.
#
# Exit status: 0 all passed, 1 some failed, 3 there was no build to test.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$root"

serving=(regress isolation tap cluster attack demo nemesis outside)
computing=(lint unit models sim fuzz sim-mutants mutants)
tiers=("$@")
[ $# -gt 0 ] || tiers=("${serving[@]}" "${computing[@]}")
limit=${CHECK_TIMEOUT:-3600}
build=build/${MUTANT:+mutant-}${MUTANT:-check}
[ -z "${MUTANT:-}" ] || export SHARD_MUTANT=$MUTANT
passed=0
failed=0

packages=(build test)
[[ " ${tiers[*]} " != *" lint "* ]] || packages+=(lint)
[[ " ${tiers[*]} " != *" models "* ]] || packages+=(model)
[[ " ${tiers[*]} " != *" outside "* ]] || packages+=(outside)
[[ " ${tiers[*]} " != *" fuzz "* ]] || packages+=(fuzz)
test/setup.sh "${packages[@]}"
PG_CONFIG=$(pg_config_path)
export PG_CONFIG

# Where to work: in memory, if there is plenty. Some hundred servers come and go, of a thousand files each, for which the file
# system of a disk takes more of the processors than the servers do.
room() {
  local memory=/dev/shm free
  free=$(awk '/^MemAvailable:/ { print $2 }' /proc/meminfo)
  if [ -z "${TMPDIR:-}" ] && [ "${free:-0}" -ge 12000000 ] && [ -w "$memory" ] &&
     [ "$(df --output=avail -k "$memory" | tail -1)" -ge 8000000 ] && ! grep -q " $memory .*noexec" /proc/mounts; then
    echo "$memory"
  else
    echo "${TMPDIR:-/tmp}"
  fi
}

ensure_user
work=$(mktemp -d "$(room)/shard-check.XXXXXX")
export TEST_HOME=$work
user_prefix=()
[ "$(id -u)" != 0 ] || user_prefix=(runuser -u "$TEST_USER" --)
chmod 755 "$work"

# Ends what this run started and nothing else: the commands that run, and servers that a test left,
# which their folders tell.
children=()
lane=
end_children() {
  local child
  for child in "${children[@]}" $lane; do
    if kill "$child" 2>/dev/null; then wait "$child" || true; fi
  done
}
clean_up() {
  local pidfile
  end_children
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
  good=$(grep -cE '^ok ([0-9]|-)' "$1" || true)
  bad=$(grep -cE '^not ok ([0-9]|-)' "$1" || true)
  bad=$((bad - $(grep -cE '^not ok .*# TODO' "$1" || true)))
  [ "$2" = 0 ] || [ "$bad" -gt 0 ] || bad=1
  count "$good" "$bad"
}

# What failed, once more at the end: who sees the last lines only is to know as well.
remember() {  # name, log, exit status
  [ "$3" != 0 ] || return 0
  echo "FAILED $1" >>"$work/failures"
  { grep -hE -A2 '^(not ok |test .*\.\.\. FAILED|# (stopped|died))' "$2" | grep -v '^ok' | cut -c 1-300 | head -6; } >>"$work/failures" || true
}

# Runs a command within what is left of the time limit, output to a log. In the background, since
# a shell that waits for a command in the foreground hears no signal.
run_logged() {  # log, command ...
  local log=$1 status=0 left=$((limit - SECONDS))
  shift
  timeout --kill-after=30 "$((left > 1 ? left : 1))" "$@" >"$log" 2>&1 </dev/null &
  children=("$!")
  wait "$!" || status=$?
  children=()
  [ "$status" != 124 ] || echo "# stopped: no time left of $limit s" >>"$log"
  return "$status"
}

# The same as the unprivileged account, in a folder of this run.
run_as_user() {  # log, folder, command ...
  local log=$1 folder=$2
  shift 2
  run_logged "$log" "${user_prefix[@]}" env --chdir="$folder" HOME="$work" TMPDIR="$work" "$@"
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
  # A mutant differs in a few files from the sound build: it begins as a copy of the latest one.
  if [ -n "${MUTANT:-}" ] && [ -e build/check/shard.so ] && [ ! build/check/shard.so -ot "$build/shard.so" ]; then
    rm -rf "$build" "$build.new"
    cp -a build/check "$build.new"
    mv "$build.new" "$build"
  fi
  if ! bindir=$(test/private.sh "$build" "$work" SHARD_ASSERTIONS=1 ${MUTANT:+MUTANT="$MUTANT"} 2>"$log"); then
    bindir=
    excerpt "build" "$log" 60
    count 0 1
    return
  fi
  count 1 0
  pgxs=$(dirname "$("$bindir/pg_config" --pgxs)")/../..
  pgxs=$(cd "$pgxs" && pwd)
  mkdir "$work/src"
  for folder in README.md doc sql expected test; do
    [ ! -e "$folder" ] || cp -r "$folder" "$work/src/"
  done
  rm -rf "$work/src/test/unit/build"
  mkdir -p "$work/programs" "$work/templates" "$work/tap"
  ln -s ../src/test/initdb.sh "$work/programs/initdb"
  # The unprivileged account may be unable to enter this source tree.
  [ "$(id -u)" != 0 ] || chown -R "$TEST_USER" "$work"
}

tier_lint() {
  local log=$work/lint.log status=0
  run_logged "$log" test/lint.sh "$build/shard.so" || status=$?
  count_tap "$log" "$status"
  remember lint "$log" "$status"
  if [ "$status" = 0 ]; then grep -E '^(not )?ok' "$log"; else cat "$log"; fi
}

tier_unit() {
  local program log status
  [ -f test/unit/Makefile ] || return 0
  if ! make -s -j "$(nproc)" -C "$build/test/unit" >"$work/unit.log" 2>&1; then
    excerpt "unit tests do not build" "$work/unit.log" 40
    count 0 1
    return
  fi
  for program in "$build"/test/unit/build/*_test; do
    [ -x "$program" ] || continue
    log=$work/$(basename "$program").log
    status=0
    run_logged "$log" "$program" || status=$?
    count_tap "$log" "$status"
    report "$(basename "$program")" "$log" "$status"
    [ "$status" = 0 ] || { grep -A3 '^not ok' "$log" | head -40 || true; excerpt "$program" "$log" 20; }
  done
}

# Runs a script that prints TAP.
run_script() {  # tier, lines of an excerpt, script and its arguments
  local log=$work/$1.$(basename "$3").log status=0
  run_logged "$log" "${@:3}" || status=$?
  count_tap "$log" "$status"
  grep -E '^((not )?ok|# [0-9]+ histories)' "$log" || true
  remember "$1" "$log" "$status"
  [ "$status" = 0 ] || excerpt "$1" "$log" "$2"
}

# Searches the models of the protocol.
tier_models() {
  run_script models 120 test/model/run.sh
}

# One line for a file of tests.
report() {  # name, log, exit status, seconds
  printf '%-6s %s (%s%s)\n' "$([ "$3" = 0 ] && echo ok || echo FAILED)" "$1" \
    "$(grep -cE '^(not )?ok ([0-9]|-)' "$2" || true)" "${4:+, $4 s}"
  remember "$1" "$2" "$3"
}

# pg_regress and its isolation twin print a line per test: "test name ... ok" in 15, "ok 1 - name"
# since 16.
run_regress() {  # tier, runner, input folder, tests
  local tier=$1 runner=$2 input=$3 output=$work/$1 status=0 good bad
  shift 3
  [ $# -gt 0 ] || return 0
  as_user mkdir -p "$output"
  run_as_user "$output.log" "$output" "$pgxs/src/test/$runner" \
    --bindir="$bindir" --inputdir="$input" --outputdir="$output" --dbname=shard_regress \
    --temp-instance="$output/instance" --temp-config="$work/src/test/shard.conf" \
    --encoding=UTF8 --no-locale "$@" || status=$?
  good=$(grep -cE '^(ok |test .*\.\.\. ok )' "$output.log" || true)
  bad=$(grep -cE '^(not ok |test .*\.\.\. FAILED)' "$output.log" || true)
  [ "$status" = 0 ] || [ "$bad" -gt 0 ] || bad=1
  count "$good" "$bad"
  grep -E '^((not )?ok |test .*\.\.\. )' "$output.log" || true
  # What the server itself complains about is wrong, whatever the results.
  if grep -E 'leak|TRAP|PANIC|terminated by signal' "$output/log/postmaster.log"; then
    echo "not ok - $tier: the server's log is clean"
    count 0 1
    status=1
  else
    count 1 0
  fi
  remember "$tier" "$output.log" "$status"
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

# Starts a TAP file in the background: pid in $started. A folder for each keeps its servers' logs apart;
# ports are shared out by files in the common one.
start_tap() {  # file, log
  local name left=$((limit - SECONDS))
  name=$(basename "$1" .pl)
  as_user mkdir -p "$work/tap/$name"
  timeout --kill-after=30 "$((left > 1 ? left : 1))" \
    "${user_prefix[@]}" env --chdir="$work/src" HOME="$work" TMPDIR="$work" \
    PATH="$work/programs:$bindir:$PATH" INITDB="$bindir/initdb" INITDB_TEMPLATES="$work/templates" TESTDIR="$work/tap/$name" \
    TESTDATADIR="$work/tap/$name/tmp_check" TESTLOGDIR="$work/tap/$name/tmp_check/log" \
    PG_TEST_PORT_DIR="${PG_TEST_PORT_DIR:-$work/tap}" PG_REGRESS="$pgxs/src/test/regress/pg_regress" \
    SHARD_TEST_CONF="$work/src/test/shard.conf" \
    prove -v -I "$pgxs/src/test/perl" -I "$work/src/test/perl" "$1" >"$2" 2>&1 </dev/null &
  started=$!
}

end_tap() {  # file, log, exit status, seconds
  local name trace
  name=$(basename "$1" .pl)
  [ "$3" != 124 ] || echo "# stopped: no time left of $limit s" >>"$2"
  count_tap "$2" "$3"
  report "$1" "$2" "$3" "$4"
  [ "$3" != 0 ] || return 0
  grep -A6 '^not ok' "$2" | head -60 || true
  excerpt "$1" "$2" 40
  for trace in "$work/tap/$name"/tmp_check/log/*; do
    [ ! -f "$trace" ] || excerpt "$(basename "$trace")" "$trace" 40
  done
}

# How many files run at a time: one more when nothing computes beside them.
room_for() {  # how many beside it
  if [ -z "$lane" ] || kill -0 "$lane" 2>/dev/null; then echo "$1"; else echo $(($1 + 1)); fi
}

run_tap() {  # how many at a time, files
  local most=$1 ended status
  local -A file_of=() since=()
  shift
  while [ $# -gt 0 ] || [ ${#file_of[@]} -gt 0 ]; do
    if [ $# -gt 0 ] && [ ${#file_of[@]} -lt "$(room_for "$most")" ]; then
      start_tap "$1" "$work/$(basename "$1" .pl).log"
      file_of[$started]=$1
      since[$started]=$SECONDS
      children+=("$started")
      shift
      continue
    fi
    status=0
    wait -n -p ended "${!file_of[@]}" || status=$?
    end_tap "${file_of[$ended]}" "$work/$(basename "${file_of[$ended]}" .pl).log" "$status" \
      $((SECONDS - since[$ended]))
    unset "file_of[$ended]"
    children=("${!file_of[@]}")
  done
}

run_tap_of() {  # how many at a time, default files
  local files most=$1
  shift
  read -ra files <<<"${PROVE_TESTS:-$*}"
  if [ ! -e "${files[0]}" ]; then
    # No test by default is none; one that was asked for is missing.
    [ -z "${PROVE_TESTS:-}" ] || { echo "FAILED ${files[0]} is not there"; count 0 1; }
    return 0
  fi
  run_tap "$most" "${files[@]}"
}

# Tests of one node and of the links between nodes.
tier_tap() {
  run_tap_of 3 test/t/[03]*.pl
}

# Tests of clusters; they wait more than they work.
tier_cluster() {
  run_tap_of 4 test/t/1*.pl
}

# What an attacker tries, each by its name in doc/security.md.
tier_attack() {
  run_tap_of 4 test/attack/*.pl
}

# The worked example, small; in a folder of its own, as everything here.
tier_demo() {
  run_tap 1 test/demo/demo.pl
}

# Random faults in a cluster under load.
tier_nemesis() {
  run_tap_of 1 test/nemesis/[0-9]*.pl
}

# From outside, with a driver and books that know nothing of our tables; OUTSIDE_SECONDS is how long.
tier_outside() {
  local log=$work/outside.log status=0
  as_user mkdir -p "$work/outside"
  run_as_user "$log" "$work" /usr/bin/python3 "$work/src/test/outside/check.py" --bindir "$bindir" --dir "$work/outside" \
    --seconds "${OUTSIDE_SECONDS:-45}" ${SHARD_SEED:+--seed "$SHARD_SEED"} || status=$?
  if [ "$status" = 0 ]; then count 1 0; else count 0 1; fi
  report outside "$log" "$status"
  grep -E 'rounds,|verdict' "$log" || true
  [ "$status" = 0 ] || excerpt outside "$log" 100
}

tier_night() {
  local seconds=$((${HOURS:-8} * 3600)) files
  files=(test/nemesis/[0-9]*.pl)
  limit=$((SECONDS + seconds + limit))
  export SHARD_SECONDS=$((seconds / ${#files[@]}))
  run_tap 1 "${files[@]}"
}

# What takes long on any machine; and the crash loops, those TAP tests whose length SHARD_SECONDS sets, for an hour in all.
tier_long() {
  local files total=${SHARD_SECONDS:-3600}
  limit=$((SECONDS + total + limit))
  mapfile -t files < <(grep -Ls 'ShardLedger::seconds' test/long/*.pl)
  run_tap 2 "${files[@]}"
  mapfile -t files < <(grep -ls 'ShardLedger::seconds' test/t/*.pl test/long/*.pl)
  [ ${#files[@]} -gt 0 ] || { echo "no test is a crash loop"; count 0 1; return; }
  export SHARD_SECONDS=$((total / ${#files[@]}))
  run_tap 1 "${files[@]}"
}

# Histories of simulated clusters, under the sanitizers.
tier_sim() {
  run_script sim 120 test/sim/run.sh
}

# More of them.
tier_all-sim() {
  limit=$((SECONDS + 3600 + limit))
  run_script sim 120 test/sim/run.sh 1600 3600 3200 4000 1200
}

# Any bytes at the decoders, any messages at a node: half a minute.
tier_fuzz() {
  run_script fuzz 120 test/fuzz/run.sh 30
}

# Builds that are broken on purpose: the tests of a running server have to notice.
tier_mutants() {
  # Their servers and those of the tests beside them share out the ports.
  PG_TEST_PORT_DIR=$work/tap run_script mutants 60 test/mutants.sh --few
}

# The same of the core and the simulator's model: unit tests and the simulator's checkers have to notice.
tier_sim-mutants() {
  run_script sim-mutants 60 test/sim/mutants.sh --few
}

# All of both.
tier_all-mutants() {
  limit=$((SECONDS + 3600 + limit))
  run_script mutants 60 test/mutants.sh
  run_script sim-mutants 60 test/sim/mutants.sh
}

# ---- all of them ------------------------------------------------------------------------------

timed() {  # name, command
  local start=$SECONDS before=$failed
  say "$1"
  "$2"
  say "$1: $([ "$failed" = "$before" ] && echo ok || echo FAILED), $((SECONDS - start)) s"
}

# Without a build what runs servers cannot run, which must not look like success.
run_tier() {  # tier
  if [[ " ${computing[*]} " == *" $1 "* ]] || [ -n "$bindir" ]; then
    timed "$1" "tier_$1"
  else
    say "$1: not run, there is no build"
    count 0 1
  fi
}

# One after the other, beside what runs servers; what came of them goes to file "lane".
run_lane() {  # tier ...
  trap 'end_children; exit 143' INT TERM
  local tier
  lane=
  children=()
  passed=0
  failed=0
  for tier in "$@"; do
    run_tier "$tier" >"$work/$tier.tier" 2>&1
    cat "$work/$tier.tier"
  done
  echo "$passed $failed" >"$work/lane"
}

beside=()
for tier in "${tiers[@]}"; do
  declare -F "tier_$tier" >/dev/null || die "unknown tier \"$tier\""
  [[ " ${computing[*]} " != *" $tier "* ]] || beside+=("$tier")
done
timed build build_all
if [ ${#beside[@]} -gt 0 ]; then
  run_lane "${beside[@]}" &
  lane=$!
fi
for tier in "${tiers[@]}"; do
  [[ " ${computing[*]} " == *" $tier "* ]] || run_tier "$tier"
done
if [ -n "$lane" ]; then
  wait "$lane" || true
  lane=
  # A lane that ended before its time has shown nothing.
  read -r more_passed more_failed <"$work/lane" || { more_passed=0 more_failed=1; }
  count "$more_passed" "$more_failed"
fi

[ ! -s "$work/failures" ] || { say "what failed"; cat "$work/failures"; }
clean_up
trap - EXIT
echo "$passed passed, $failed failed"
[ -n "$bindir" ] || exit 3
[ "$failed" = 0 ]
