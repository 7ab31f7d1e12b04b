#!/bin/sh
# The processes of this cluster on this node. Output as of scripts/probe.sh; read only.
#   N_ID the cluster's id   N_ENGINE, N_NAME of its container, if it has one
set -u
: "${N_ID:?}" "${N_ENGINE=}" "${N_NAME=}"
if [ -n "$N_NAME" ]; then
    printf '= container %s\n' "$("$N_ENGINE" inspect -f '{{.State.Status}}' "$N_NAME" 2>/dev/null || echo missing)"
fi
grep -lF "REPRISE_CLUSTER=$N_ID" /proc/[0-9]*/environ 2>/dev/null | while IFS=/ read -r _ _ pid _; do
    printf '= own %s %s\n' "$pid" "$(cat "/proc/$pid/comm" 2>/dev/null)"
done
printf '= complete yes\n'
