#!/bin/sh
# Build and install one commit with what is installed, and nothing more: sh install.sh OWNER/NAME COMMIT
set -eu
folder=$(mktemp -d)
sh "$(dirname "$0")/fetch.sh" "$1" "$2" "$folder/tree"
python3 -m pip install --no-deps --no-index --no-build-isolation "$folder/tree"
rm -rf "$folder"
