#!/bin/sh
# Build a small Debian 12 from Debian's own packages and load it into the container engine.
#
#   scripts/image_base.sh NAME:TAG
#
# For sites with access to Debian's packages but to no container registry. Needs mmdebstrap, and root or
# user namespaces. APT_SOURCES as for docker/common/apt.sh ("URL SUITE COMPONENT..."; separated by
# semicolons); without it mmdebstrap's own default. Packages stay as they are: nothing of this
# machine, its certificates and settings of apt included, goes into it.
set -eu
name=${1:?NAME:TAG}
engine=${REPRISE_ENGINE:-docker}
command -v mmdebstrap >/dev/null 2>&1 || { echo 'error: mmdebstrap is not installed' >&2; exit 2; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
if [ -n "${APT_SOURCES:-}" ]; then
    printf '%s\n' "$APT_SOURCES" | tr ';' '\n' |
        sed -n 's/^ *\([^ ].*\)$/deb [check-valid-until=no] \1/p' >"$work/sources.list"
    set -- "$work/sources.list"
else
    set --
fi
# One date for all files: the same packages give the same archive.
SOURCE_DATE_EPOCH=315532800 mmdebstrap --quiet --variant=apt --include=ca-certificates \
    bookworm "$work/base.tar" "$@" >&2
"$engine" import "$work/base.tar" "$name"
