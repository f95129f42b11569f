#!/bin/bash
# usage: initdb.sh -D FOLDER [OPTION ...]
#
# Stands in for initdb in TAP tests, as the templates of PostgreSQL's own tests do since 16: the first call with
# some options runs it, the next ones copy what came of that. Some hundred servers are made in a run, and initdb
# takes fifteen times as long as a copy. The copies have one system identifier, which no node compares with others'.
#
# Environment: INITDB is the true one, INITDB_TEMPLATES a folder for templates.
set -euo pipefail

if [ "${1:-}" != -D ] || [ $# -lt 2 ]; then exec "$INITDB" "$@"; fi
folder=$2
shift 2
template=$INITDB_TEMPLATES/$(tr -c '[:alnum:]\n-' _ <<<"template $*")
if [ ! -d "$template" ]; then
  # Who is first at the same time as somebody else: one of them counts.
  new=$(mktemp -d "$INITDB_TEMPLATES/new.XXXXXX")
  "$INITDB" -D "$new" "$@"
  mv -T "$new" "$template" 2>/dev/null || rm -rf "$new"
fi
mkdir -p "$folder"
cp -a "$template/." "$folder"
