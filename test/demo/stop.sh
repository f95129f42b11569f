#!/bin/bash
# Stops the servers of the worked example and removes their folder.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/server.sh"

if [ ! -s "$note" ]; then
  echo 'The demo is not running.'
  exit
fi
use_folder "$(<"$note")"
stop_servers
rm -rf "$folder" "$note"
echo 'The demo is stopped, its folder removed.'
