#!/bin/sh
# Install Debian or Ubuntu packages while an image is built: sh apt.sh PACKAGE...
#   APT_SOURCES  sources to use for this instead of the base's own, separated by semicolons, each as
#                "URL SUITE COMPONENT...": a site's mirror, or a snapshot of one date
# Versions are those of the base's sources at the time of the build, or of the snapshot's date;
# provenance.json in the image lists them. Lists, logs and caches go, so that two builds differ in
# nothing that only tells when they ran, and so do host keys: a set-up script makes them, and every
# container of the image would share them.
set -eu
[ $# -gt 0 ] || { echo 'usage: apt.sh PACKAGE...' >&2; exit 2; }
export DEBIAN_FRONTEND=noninteractive

set -- --no-install-recommends "$@"
list=''
if [ -n "${APT_SOURCES:-}" ]; then
    list=$(mktemp)
    # A snapshot's lists are older than they say they may be.
    printf '%s\n' "$APT_SOURCES" | tr ';' '\n' | sed -n 's/^ *\([^ ].*\)$/deb [check-valid-until=no] \1/p' >"$list"
    chmod 644 "$list"
fi
apt() { apt-get -q ${list:+-o "Dir::Etc::SourceList=$list" -o Dir::Etc::SourceParts=/dev/null} "$@"; }

apt update
apt install -y "$@"
apt clean
[ -z "$list" ] || rm -f "$list"
rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin /var/cache/apt/archives/lock /var/cache/ldconfig/aux-cache /var/cache/debconf/*-old \
    /var/lib/dpkg/*-old /var/log/apt /var/log/dpkg.log /var/log/alternatives.log /run/adduser /etc/ssh/ssh_host_*
