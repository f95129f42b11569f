#!/bin/bash
# Stops the server of the worked example and removes its folder.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/server.sh"

if [ ! -s "$note" ]; then
  echo 'The demo is not running.'
  exit
fi
use_folder "$(<"$note")"
if pg_ctl status >/dev/null 2>&1; then
  pg_ctl stop -m fast
fi
rm -rf "$folder" "$note"
echo 'The demo is stopped, its folder removed.'
