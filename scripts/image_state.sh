#!/bin/sh
# What does this host's container engine hold and run? Prints as scripts/probe.sh prints.
#   I_ENGINE the engine   I_IMAGE the image
# The image is started once, without network, to read what it says of itself, and removed.
set -u
: "${I_ENGINE:?}" "${I_IMAGE:?}"
id=$("$I_ENGINE" image inspect --format '{{.Id}}' "$I_IMAGE" 2>&1)
case $id in
    sha256:*) printf '= id %s\n' "$id" ;;
    *[Nn]o\ such*) exit 0 ;;
    *) printf '%s\n' "$id" >&2; exit 1 ;;
esac
printf '= provenance %s\n' "$("$I_ENGINE" run --rm --network none --label io.reprise.verify=1 \
    --entrypoint cat "$I_IMAGE" /etc/reprise/provenance.json 2>/dev/null | tr -d '\n')"
"$I_ENGINE" ps --quiet --filter label=reprise.cluster | while read -r one; do
    printf '= container %s\n' "$("$I_ENGINE" inspect --format '{{.Name}} {{.Image}}' "$one")"
done
