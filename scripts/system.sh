#!/bin/sh
# Check that the commands of requirements/debian.txt exist; as root on Debian, install missing ones.
set -eu
cd "$(dirname "$0")/.."
PATH=$PATH:/usr/sbin:/sbin

missing=''
while read -r name package; do
    case $name in '' | '#'*) continue ;; esac
    command -v "$name" >/dev/null 2>&1 || missing="$missing $package"
done <requirements/debian.txt
[ -n "$missing" ] || exit 0

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    printf 'system packages:%s\n' "$missing" >&2
    export DEBIAN_FRONTEND=noninteractive
    # shellcheck disable=SC2086 # a list of package names
    apt-get install -y -q --no-install-recommends $missing >&2 && exit 0
    apt-get update -q >&2
    # shellcheck disable=SC2086
    exec apt-get install -y -q --no-install-recommends $missing >&2
fi
printf 'error: the tests need missing commands; Debian packages:%s\n' "$missing" >&2
printf '    fix: as root, apt-get install%s\n' "$missing" >&2
exit 2
