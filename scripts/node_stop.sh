#!/bin/sh
# Stop the processes of one cluster id on this node, and no others; print those that remain.
#   N_ID the cluster's id   N_ROOT its folder   N_ENGINE, N_NAME of its container, if it has one
set -u
: "${N_ID:?}" "${N_ROOT:?}" "${N_ENGINE=}" "${N_NAME=}"
PATH=$PATH:/usr/sbin:/sbin

# Pids of processes whose environment has the id, of recorded ones that still have their start
# time, and of all of their children: a worker can have overwritten its environment with a title.
own() {
    # In a variable, not in a file: with a full disk a list in a file would be empty.
    roots=$({
        grep -lF "REPRISE_CLUSTER=$N_ID" /proc/[0-9]*/environ 2>/dev/null | cut -d/ -f3
        [ ! -r "$N_ROOT/pids" ] || while read -r pid start _; do
            now=$(sed 's/.*) //' "/proc/$pid/stat" 2>/dev/null | cut -d' ' -f20)
            [ "$now" != "$start" ] || printf '%s\n' "$pid"
        done <"$N_ROOT/pids"
    } | tr '\n' ' ')
    cat /proc/[0-9]*/stat 2>/dev/null |
        sed -n 's/^\([0-9]*\) (.*) \(.\) \([0-9]*\) .*/\1 \3 \2/p' | awk -v roots="$roots" '
        BEGIN { count = split(roots, list, " "); for (i = 1; i <= count; i++) mine[list[i]] = 1 }
        { parent[$1] = $2; state[$1] = $3 }
        END {
            do {
                more = 0
                for (pid in parent) if (!(pid in mine) && (parent[pid] in mine)) { mine[pid] = 1; more = 1 }
            } while (more)
            for (pid in mine) if ((pid in state) && state[pid] != "Z") print pid
        }'
}

gone() { # SECONDS: wait until nothing is left
    end=$(($(date +%s) + $1))
    while [ -n "$(own)" ]; do
        [ "$(date +%s)" -lt "$end" ] || return 1
        sleep 0.3
    done
}

if [ -n "$N_NAME" ] && command -v "$N_ENGINE" >/dev/null 2>&1; then
    if [ "$("$N_ENGINE" inspect -f '{{index .Config.Labels "reprise.cluster"}}' "$N_NAME" 2>/dev/null)" = "$N_ID" ]; then
        # Files of root in the container can only be removed inside it.
        "$N_ENGINE" exec "$N_NAME" rm -rf "$N_ROOT/r" >/dev/null 2>&1
        "$N_ENGINE" rm -f "$N_NAME" >/dev/null || printf '= left container %s\n' "$N_NAME"
    fi
fi
pids=$(own)
if [ -n "$pids" ]; then
    # shellcheck disable=SC2086 # a list of pids
    kill $pids 2>/dev/null
    if ! gone 4; then
        while pids=$(own) && [ -n "$pids" ] && [ "${tries:=0}" -lt 10 ]; do
            tries=$((tries + 1))
            # shellcheck disable=SC2086
            kill -9 $pids 2>/dev/null
            gone 2 && break
        done
    fi
fi
left=$(own)
for pid in $left; do
    printf '= left %s %s\n' "$pid" "$(cat "/proc/$pid/comm" 2>/dev/null)"
done
mark=$(cat "$N_ROOT/.reprise" 2>/dev/null)
if [ -z "$left" ] && [ "$mark" = "$N_ID" ]; then
    rm -rf -- "$N_ROOT"
elif [ -z "$left" ] && [ -z "$mark" ] && [ ! -L "$N_ROOT" ] &&
    [ "$(stat -c %u "$N_ROOT" 2>/dev/null)" = "$(id -u)" ]; then
    # Without its mark (its write failed), only the start script's own files are removed.
    rm -f -- "$N_ROOT/.reprise" "$N_ROOT/token" "$N_ROOT/start.log" "$N_ROOT/pids"
    rmdir -- "$N_ROOT" 2>/dev/null
fi
if [ ! -e "$N_ROOT" ] && [ ! -L "$N_ROOT" ]; then
    :
elif [ "$mark" = "$N_ID" ] || [ -n "$left" ]; then
    printf '= left folder %s\n' "$N_ROOT"
else
    # Not a folder that this cluster made: its start ends before anything runs there.
    printf '= strange %s\n' "$N_ROOT"
fi
printf '= stopped yes\n'
