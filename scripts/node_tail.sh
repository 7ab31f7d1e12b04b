#!/bin/sh
# The last telling lines of Ray's logs on one node, for a start that failed; read only.
#   N_ROOT the cluster's folder   N_ENGINE, N_NAME of its container, if it has one
# Output: `= log FILE LINE`.
set -u
: "${N_ROOT:?}" "${N_ENGINE=}" "${N_NAME=}"

# FILE COUNT: errors, warnings and failed checks of a log; without any, its last line. Indented lines
# are the frames of a traceback.
tell() {
    [ -s "$1" ] || return 0
    lines=$(tail -c 200000 "$1" | sed 's/\x1b\[[0-9;]*[A-Za-z]//g' | grep -v '^[[:space:]]' | grep -v '^$')
    found=$(printf '%s\n' "$lines" |
        grep -E ' [EFCW] [0-9]|[Ee]rror|ERROR|FATAL|Check failed|Exception|timed out|[Rr]efused|[Nn]o space' |
        tail -n "$2")
    [ -n "$found" ] || found=$(printf '%s\n' "$lines" | tail -n 1)
    [ -z "$found" ] || printf '%s\n' "$found" | cut -c1-400 | sed "s/^/= log ${1##*/} /"
}

tell "$N_ROOT/start.log" 3
for name in raylet.err raylet.out gcs_server.err gcs_server.out dashboard.log; do
    tell "$N_ROOT/r/session_latest/logs/$name" 2
done
if [ -n "$N_NAME" ] && command -v "$N_ENGINE" >/dev/null 2>&1; then
    "$N_ENGINE" logs --tail 3 "$N_NAME" 2>&1 | cut -c1-400 | sed 's/^/= log container /'
fi
printf '= complete yes\n'
