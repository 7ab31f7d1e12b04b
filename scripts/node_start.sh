#!/bin/sh
# Start Ray on one node. The command is "$@"; variables for Ray are exported in front of this text.
#   N_ID the cluster's id   N_ROOT its folder on the node   N_TOKEN its token
#   N_ENGINE, N_NAME the container's engine and name, when the command starts one
#   N_TLS_CA, N_TLS_CERT, N_TLS_KEY its certificates, if Ray uses TLS
#   N_HEAD, N_PORT the head's address and GCS port, on a worker
# After a failure, the last lines of the command are printed; `cluster up` stops its processes.
set -u
: "${N_TLS_CA=}" "${N_TLS_CERT=}" "${N_TLS_KEY=}"
: "${N_ID:?}" "${N_ROOT:?}" "${N_TOKEN:?}" "${N_ENGINE=}" "${N_NAME=}" "${N_HEAD=}" "${N_PORT=}"
PATH=$PATH:/usr/sbin:/sbin
umask 077

# Ray waits for minutes for a head that it cannot reach, and names neither address nor port.
python=${1:-python3}
[ -z "$N_NAME" ] || python=python3
if [ -n "$N_HEAD" ] && command -v "$python" >/dev/null 2>&1; then
    connect='import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 10).close()'
    if ! said=$("$python" -I -c "$connect" "$N_HEAD" "$N_PORT" 2>&1); then
        printf '? head %s\n' "$(printf '%s' "$said" | tail -n 1)"
        exit 1
    fi
fi

# Always a new folder: another user could have prepared one with this name.
if ! mkdir "$N_ROOT"; then
    [ ! -e "$N_ROOT" ] || printf '%s exists; was an earlier cluster not stopped?\n' "$N_ROOT" >&2
    exit 1
fi
# A file whose write failed (a full disk) may be empty: what was written is read again.
if ! { printf '%s\n' "$N_ID" >"$N_ROOT/.reprise" && printf '%s' "$N_TOKEN" >"$N_ROOT/token" &&
    [ "$(cat "$N_ROOT/.reprise")" = "$N_ID" ] && [ "$(cat "$N_ROOT/token")" = "$N_TOKEN" ]; }; then
    rm -f "$N_ROOT/.reprise" "$N_ROOT/token"
    rmdir "$N_ROOT"
    printf 'cannot write to %s: %s KiB and %s files free; nothing was started\n' "$N_ROOT" \
        "$(df -Pk "${N_ROOT%/*}/" | awk 'NR == 2 { print $4 }')" \
        "$(df -Pi "${N_ROOT%/*}/" | awk 'NR == 2 { print $4 }')" >&2
    exit 1
fi
if [ -n "$N_TLS_KEY" ] && ! { mkdir "$N_ROOT/tls" && printf '%s\n' "$N_TLS_CA" >"$N_ROOT/tls/ca.crt" &&
    printf '%s\n' "$N_TLS_CERT" >"$N_ROOT/tls/node.crt" && printf '%s\n' "$N_TLS_KEY" >"$N_ROOT/tls/node.key" &&
    [ "$(cat "$N_ROOT/tls/node.key")" = "$N_TLS_KEY" ]; }; then
    printf 'cannot write the certificates to %s; nothing was started\n' "$N_ROOT/tls" >&2
    exit 1
fi

cd "$N_ROOT" || exit 1
env REPRISE_CLUSTER="$N_ID" "$@" >"$N_ROOT/start.log" 2>&1
code=$?
if [ "$code" = 0 ] && [ -n "$N_NAME" ]; then
    # The engine returns before the container's command may fail.
    sleep 3
    if [ "$("$N_ENGINE" inspect -f '{{.State.Running}}' "$N_NAME" 2>&1)" != true ]; then
        "$N_ENGINE" logs --tail 20 "$N_NAME" >>"$N_ROOT/start.log" 2>&1
        code=1
    fi
fi
if [ "$code" != 0 ]; then
    # Without colours, blank lines and the frames of a traceback, which are indented.
    sed 's/\x1b\[[0-9;]*[A-Za-z]//g' "$N_ROOT/start.log" | grep -v '^[[:space:]]' | grep . | tail -n 12 >&2
    exit "$code"
fi
grep -lF "REPRISE_CLUSTER=$N_ID" /proc/[0-9]*/environ 2>/dev/null | while IFS=/ read -r _ _ pid _; do
    # Field 22 of stat, the start time, distinguishes a reused pid from the recorded process.
    start=$(sed 's/.*) //' "/proc/$pid/stat" 2>/dev/null | cut -d' ' -f20)
    [ -z "$start" ] || printf '%s %s %s\n' "$pid" "$start" "$(cat "/proc/$pid/comm")"
done | tee "$N_ROOT/pids" | sed 's/^/= pid /'
