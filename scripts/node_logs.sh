#!/bin/sh
# The ends of Ray's logs on this node, the kernel's log and the stacks of hung workers, as a packed
# archive in base64; changes nothing.
#   N_LOGS Ray's log folder   N_ENGINE, N_NAME of its container, if it has one
#   N_MINUTES how old a log may be   N_STACKS 1: also stacks, where py-spy is there
set -u
: "${N_LOGS:?}" "${N_ENGINE=}" "${N_NAME=}" "${N_MINUTES=1440}" "${N_STACKS=}"
# shellcheck disable=SC2016 # the inner shell puts in the values
collect='
work=$(mktemp -d) || exit 1
trap "rm -rf \"$work\"" EXIT
if cd "$1" 2>/dev/null; then
    find . -maxdepth 1 -type f -size +0 -mmin "-$2" \( -name "worker-*" -o -name "raylet*" \
        -o -name "gcs_server*" -o -name "job-driver*" -o -name "*agent*" -o -name "runtime_env*" \
        -o -name "monitor*" \) | sort | while IFS= read -r file; do
        tail -c 300000 "$file" >"$work/${file#./}"
    done
fi
if [ -n "$3" ] && command -v py-spy >/dev/null 2>&1; then
    for folder in /proc/[0-9]*; do
        case $(tr "\000" " " <"$folder/cmdline" 2>/dev/null) in
            ray::*) timeout 10 py-spy dump --nonblocking --pid "${folder#/proc/}" \
                >"$work/stack-${folder#/proc/}.log" 2>/dev/null ;;
        esac
    done
fi
dmesg 2>/dev/null | tail -n 2000 >"$work/dmesg.txt"
tar -C "$work" -czf - . | base64
'
if [ -n "$N_NAME" ]; then
    "$N_ENGINE" exec "$N_NAME" sh -c "$collect" sh "$N_LOGS" "$N_MINUTES" "$N_STACKS"
else
    sh -c "$collect" sh "$N_LOGS" "$N_MINUTES" "$N_STACKS"
fi
