#!/bin/sh
# What a container of these images starts with.
#   node        serve SSH in the foreground, so that `reprise cluster up HOSTFILE` can use this host
#   COMMAND...  run it instead
# For `node`:
#   SSH_PORT    port to listen on (2222: with the host's network, 22 is the host's own)
#   SSH_KEYS    folder with authorized_keys and, if the host's key is to stay the same from one
#               container to the next, ssh_host_ed25519_key (/run/secrets)
# Without a host key a new one is made, and its public part printed for known_hosts.
set -eu
if [ "${1:-}" != node ]; then
    [ $# -gt 0 ] || set -- sh
    exec "$@"
fi

keys=${SSH_KEYS:-/run/secrets}
port=${SSH_PORT:-2222}
if [ ! -r "$keys/authorized_keys" ]; then
    printf 'error: expected public keys in %s/authorized_keys, found no such file\n' "$keys" >&2
    printf '    fix: mount it: -v FILE:%s/authorized_keys:ro\n' "$keys" >&2
    exit 1
fi
case $port in
    '' | *[!0-9]*) printf 'error: SSH_PORT is no number: %s\n' "$port" >&2; exit 1 ;;
esac

# Mounted files have the owner and mode that they have outside; sshd wants a host key of its own.
own=$(mktemp -d)
chmod 755 "$own"
umask 077
cat "$keys/authorized_keys" >"$own/authorized_keys"
if [ -r "$keys/ssh_host_ed25519_key" ]; then
    cat "$keys/ssh_host_ed25519_key" >"$own/ssh_host_ed25519_key"
else
    ssh-keygen -q -t ed25519 -N '' -C "$(hostname)" -f "$own/ssh_host_ed25519_key"
    printf 'host key: %s\n' "$(cat "$own/ssh_host_ed25519_key.pub")"
fi

# sshd gives a login its own environment: what the image sets for its libraries must be handed on.
settings=$(env | LC_ALL=C sort | sed -n -E \
    '/^(PATH|LANG|TZ|PYTHONPATH|LIBRARY_PATH|CPATH|(LD|CUDA|NVIDIA|NCCL|MUSA|MCCL|MTHREADS|VERL|SGLANG)_[A-Z0-9_]*)=[^"\\]*$/s/.*/ "&"/p' |
    tr -d '\n')
umask 022
cat /etc/reprise/sshd_config - >"$own/sshd_config" <<CONFIG
Port $port
HostKey $own/ssh_host_ed25519_key
AuthorizedKeysFile $own/authorized_keys
SetEnv$settings
CONFIG
if [ "$(id -u)" = 0 ]; then mkdir -p /run/sshd; fi
printf 'sshd listens on port %s\n' "$port"
exec /usr/sbin/sshd -D -e -f "$own/sshd_config"
