#!/bin/sh
# Shared storage is proved by a file that one host wrote: read it here, or remove it (P_REMOVE=yes).
# Printed as scripts/probe.sh prints. P_SHARED holds NAME=PATH a line, P_NONCE the file's word.
set -u
: "${P_SHARED=}" "${P_NONCE:?}" "${P_REMOVE=}"
printf '%s\n' "$P_SHARED" | while IFS='=' read -r name path; do
    [ -n "$name" ] || continue
    file=$path/.reprise-$P_NONCE
    if [ "$P_REMOVE" = yes ]; then
        rm -f -- "$file"
    elif [ "$(cat -- "$file" 2>/dev/null)" = "$P_NONCE" ]; then
        printf '= seen %s yes\n' "$name"
    else
        printf '= seen %s no\n' "$name"
    fi
done
