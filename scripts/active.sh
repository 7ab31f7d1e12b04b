#!/bin/sh
# Run the vendor's own tests on this host, where they are installed; they use its GPUs.
#   A_SLOTS the GPUs of the host   active_facts, a function in front of this text: which tests
set -u
: "${A_SLOTS:?}"
PATH=$PATH:/usr/sbin:/sbin

output() { # KEY SECONDS COMMAND...: its output as facts; why there is none
    key=$1 seconds=$2
    shift 2
    command -v "$1" >/dev/null 2>&1 || return 0
    printf '= %s.ran %s\n' "$key" "$1"
    text=$(timeout -k 5 "$seconds" "$@" 2>&1)
    code=$?
    [ -z "$text" ] || printf '%s\n' "$text" | sed "s/^/= $key /"
    case $code in
        0) ;;
        124 | 137) printf '? %s %s gave no result within %s s\n' "$key" "$1" "$seconds" ;;
        *) printf '? %s %s ended with %s: %s\n' "$key" "$1" "$code" "$(printf '%s' "$text" | tail -n 1)" ;;
    esac
}

collective() { # nccl-tests or rccl-tests: all GPUs of the host in one process
    [ "$A_SLOTS" -gt 1 ] || return 0
    for folder in /opt/nccl-tests/build /usr/local/nccl-tests/build /opt/rccl-tests/build; do
        PATH=$PATH:$folder
    done
    output collective 120 all_reduce_perf -b 1G -e 1G -g "$A_SLOTS" -n 10 -w 3
}

active_facts
printf '= active yes\n'
