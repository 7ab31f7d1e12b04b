#!/bin/sh
# Check shared storage with a file that the head wrote: read it, or remove it (P_REMOVE=yes).
# Output as of scripts/probe.sh. P_SHARED has NAME=PATH per line, P_NONCE is the file's content.
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
