#!/bin/sh
# Check out one commit of a repository: sh fetch.sh OWNER/NAME COMMIT FOLDER
# GIT is the address of the host (https://…, or git://… of a site's mirrors).
set -eu
# shellcheck source=/dev/null
. "$(dirname "$0")/env.sh"
git init --quiet "$3"
git -C "$3" fetch --quiet --depth 1 "$GIT/$1" "$2"
git -C "$3" checkout --quiet FETCH_HEAD
test "$(git -C "$3" rev-parse HEAD)" = "$2"
git -C "$3" submodule update --quiet --init --recursive --depth 1
