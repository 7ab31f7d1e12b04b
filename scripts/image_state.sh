#!/bin/sh
# Print the images and containers of this host's engine, in the format of scripts/probe.sh.
#   I_ENGINE the engine   I_IMAGE the image
# The image is started once, without network, to read its provenance, and removed.
set -u
: "${I_ENGINE:?}" "${I_IMAGE:?}"
id=$("$I_ENGINE" image inspect --format '{{.Id}}' "$I_IMAGE" 2>&1)
# podman writes no sha256: before its ids.
case $id in
    sha256:*) ;;
    *[Nn]o\ such* | *not\ known*) exit 0 ;;
    '' | *[!0-9a-f]*) printf '%s\n' "$id" >&2; exit 1 ;;
    *) id=sha256:$id ;;
esac
printf '= id %s\n' "$id"
# Docker's containerd store has another id for the same image; the layers are the same.
printf '= layers %s\n' "$("$I_ENGINE" image inspect --format '{{json .RootFS.Layers}}' "$I_IMAGE" 2>/dev/null | tr -d '\n')"
about=$("$I_ENGINE" run --rm --network none --no-healthcheck --label io.reprise.verify=1 \
    --entrypoint cat "$I_IMAGE" /etc/reprise/provenance.json 2>/dev/null)
case $? in
    125 | 126 | 127) printf '%s cannot start a container of %s\n' "$I_ENGINE" "$I_IMAGE" >&2; exit 1 ;;
esac
printf '= provenance %s\n' "$(printf '%s' "$about" | tr -d '\n')"
"$I_ENGINE" ps --quiet --filter label=reprise.cluster | while read -r one; do
    printf '= container %s\n' "$("$I_ENGINE" inspect --format '{{.Name}} {{.Image}}' "$one" |
        sed 's/ \([0-9a-f]*\)$/ sha256:\1/')"
done
