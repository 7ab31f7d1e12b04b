#!/bin/sh
# The ends of Ray's logs on this node, the kernel's log and the stacks of hung workers, as a packed
# archive in base64 between two lines with the clock. Lines that begin with "missing" say what could
# not be collected. Changes nothing.
#   N_LOGS Ray's log folder   N_ENGINE, N_NAME of its container, if it has one
#   N_MINUTES how old a log may be   N_STACKS 1: also stacks, where py-spy is there
#   N_PATH also searched for py-spy
set -u
: "${N_LOGS:?}" "${N_ENGINE=}" "${N_NAME=}" "${N_MINUTES=1440}" "${N_STACKS=}" "${N_PATH=}"
# shellcheck disable=SC2016 # the inner shell puts in the values
collect='
clock() { date "+clock %s.%N %z" || :; }
clock
PATH=$PATH${4:+:$4}
work=$(mktemp -d) || exit 1
trap "rm -rf \"$work\"" EXIT
logs=/nowhere
if cd "$1" 2>/dev/null; then
    logs=$(pwd -P)
    find . -maxdepth 1 -type f -size +0 -mmin "-$2" \( -name "worker-*" -o -name "raylet*" \
        -o -name "gcs_server*" -o -name "job-driver*" -o -name "*agent*" -o -name "runtime_env*" \
        -o -name "monitor*" -o -name "ray_process_exit*" \) | sort | while IFS= read -r file; do
        tail -c 300000 "$file" >"$work/${file#./}"
    done
else
    echo "missing Ray log folder $1 cannot be read"
fi
stacks() {
    if ! command -v py-spy >/dev/null 2>&1; then
        echo "missing stacks of the workers: py-spy is not installed"
        return
    fi
    found=0 refused=0
    for folder in /proc/[0-9]*; do
        # Processes of this Ray write into its log folder; there may be another Ray.
        case $(readlink "$folder/fd/2" 2>/dev/null) in "$logs"/*) ;; *) continue ;; esac
        case $(tr "\000" " " <"$folder/cmdline" 2>/dev/null) in
            ray::IDLE*|ray::JobSupervisor*) ;;
            ray::*|VLLM::*|sglang::*)
                pid=${folder#/proc/}
                found=$((found + 1))
                timeout 10 py-spy dump --nonblocking --pid "$pid" >"$work/stack-$pid.log" \
                    2>"$work/said" || { refused=$((refused + 1)); rm -f "$work/stack-$pid.log"; } ;;
        esac
    done
    [ "$found" -gt 0 ] || echo "missing stacks of the workers: no worker runs"
    [ "$refused" = 0 ] || echo "missing stacks of $refused of $found workers: py-spy said: \
$(grep . "$work/said" | tail -n 1 | cut -c1-200)"
    rm -f "$work/said"
}
[ -z "$3" ] || stacks
dmesg 2>/dev/null | tail -n 2000 >"$work/dmesg.txt"
tar -C "$work" -czf - . | base64
clock
'
if [ -n "$N_NAME" ]; then
    "$N_ENGINE" exec "$N_NAME" sh -c "$collect" sh "$N_LOGS" "$N_MINUTES" "$N_STACKS" "$N_PATH"
else
    sh -c "$collect" sh "$N_LOGS" "$N_MINUTES" "$N_STACKS" "$N_PATH"
fi
