#!/bin/sh
# Healthy: where the container serves SSH, somebody listens; elsewhere, the image says what it is.
set -eu
case "$(tr '\0' ' ' </proc/1/cmdline)" in
    *sshd* | *reprise-node\ node*) ;;
    *) exec test -s /etc/reprise/provenance.json ;;
esac
# Field 2 is address:port, field 4 the state: 0A is LISTEN.
port=$(printf ':%04X' "${SSH_PORT:-2222}")
awk -v port="$port" '$4 == "0A" && substr($2, length($2) - 4) == port { found = 1 } END { exit !found }' \
    /proc/net/tcp /proc/net/tcp6
