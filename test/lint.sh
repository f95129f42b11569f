#!/bin/bash
# usage: lint.sh [SHARD.SO]      checks the source; without a library one is built
#        lint.sh --indent        formats the C source
#
# Each check prints "ok - name", or "not ok - name" after what it found. What is checked and how to
# read the levels of files: test/lint.pl.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$root"
unset MUTANT

mapfile -t c_files < <(find extension test/unit test/sim test/fuzz bench -name build -prune -o \
  -name '*.[ch]' -print 2>/dev/null | sort)
mapfile -t scripts < <(find test bench .ci/run -name build -prune -o \
  \( -name '*.sh' -o -path .ci/run \) -print 2>/dev/null | sort)
library=${1:-}

if [ "$library" = --indent ]; then
  test/setup.sh lint
  exec clang-format -i "${c_files[@]}"
fi

failures=0
check() {  # name, command ...; what it prints are findings
  local name=$1 found status=0
  shift
  found=$("$@" 2>&1) || status=$?
  if [ "$status" = 0 ]; then
    echo "ok - $name"
  else
    sed 's/^/# /' <<<"$found"
    echo "not ok - $name"
    failures=$((failures + 1))
  fi
}

# ---- checks -----------------------------------------------------------------------------------

formatting() {
  local file status=0
  for file in "${c_files[@]}"; do
    # A patch shows what to do; a warning for each line does not.
    clang-format "$file" | diff -u --label "$file" --label "$file, formatted" "$file" - | head -n 30
    [ "${PIPESTATUS[1]}" = 0 ] || status=1
  done
  [ "$status" = 0 ] || echo 'run "make indent"'
  return "$status"
}

# Server headers are not read, test/cppcheck.h stands for them. Style is clang-format's matter.
static_analysis() {
  cppcheck --quiet --error-exitcode=1 -j "$(nproc)" --std=c11 --language=c --inline-suppr \
    --enable=warning,performance,portability --template='{file}:{line}: {message} [{id}]' \
    -I extension --include=test/cppcheck.h -DPG_VERSION_NUM=150000 -UFRONTEND \
    --suppress=missingInclude --suppress=unmatchedSuppression extension
}

# The compiler warns of much that is meant; of sets of lanes (ShardLanes) nothing may be cut off.
whole_masks() {
  local found files server
  server=$(pg_config_path)
  mapfile -t files < <(grep -lE 'ShardLanes|shard_lane|_lanes\(' --include='*.c' -r extension)
  found=$(printf '%s\n' "${files[@]}" | LC_ALL=C xargs -P "$(nproc)" -n 8 gcc -std=gnu11 -fsyntax-only -Wconversion \
    -Iextension -isystem "$("$server" --includedir-server)" -isystem "$("$server" --includedir)" 2>&1 |
    grep -E "error: |from 'ShardLanes'") || true
  [ -z "$found" ] || { printf '%s\n' "$found"; return 1; }
}

exported_symbols() {
  local names
  [ -f "$library" ] || { echo "there is no library to look at"; return 1; }
  names=$(nm -D --defined-only "$library" | awk '{print $NF}' |
    grep -vE '^(shard_|Shard|pg_finfo_shard_|(_PG_init|Pg_magic_func|_init|_fini)$)' || true)
  [ -z "$names" ] || { printf 'exported without our prefix: %s\n' $names; return 1; }
}

script_syntax() {
  local file status=0
  for file in "${scripts[@]}"; do bash -n "$file" || status=1; done
  return "$status"
}

# The control file says the version; whoever repeats it must agree.
one_version() {
  local version status=0
  version=$(sed -n "s/^default_version *= *'\(.*\)'/\1/p" extension/shard.control)
  grep -q "SHARD_EXTENSION_VERSION \"$version\"" extension/shard.h ||
    { echo "extension/shard.h is not at $version"; status=1; }
  [ "$(grep -c "\"version\": \"$version\"" META.json)" = 2 ] ||
    { echo "META.json is not at $version"; status=1; }
  grep -qF "## [$version]" CHANGELOG.md || { echo "CHANGELOG.md does not know $version"; status=1; }
  return "$status"
}

# ---- all of them ------------------------------------------------------------------------------

test/setup.sh build lint
if [ -z "$library" ]; then
  library=build/check/shard.so
  tree=$(mktemp -d "${TMPDIR:-/tmp}/shard-lint.XXXXXX")
  trap 'rm -rf "$tree"' EXIT
  test/private.sh build/check "$tree" SHARD_ASSERTIONS=1 >/dev/null || library=
fi

while IFS=$'\t' read -r name title; do
  check "$title" perl test/lint.pl "$name"
done < <(perl test/lint.pl)
check "exported symbols carry our prefix" exported_symbols
check "the version is the same everywhere" one_version
check "sets of lanes keep all their bits" whole_masks
check "shell scripts parse" script_syntax
check "C source is formatted" formatting
check "cppcheck finds nothing" static_analysis
[ "$failures" = 0 ]
