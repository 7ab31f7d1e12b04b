#!/bin/sh
# Apply the site's own patches while the MUSA image is built: sh patches.sh FOLDER
# FOLDER/patches/<path with % for />/NAME.patch is applied below that path, in the order of the
# names, so that FOLDER/patches/home%Megatron-LM/01-x.patch changes /home/Megatron-LM. A patch that
# does not fit exactly, or a path that is not there, ends the build.
set -eu
for place in "$1"/patches/*; do
    [ -d "$place" ] || continue
    target=/$(basename "$place" | tr % /)
    if [ ! -d "$target" ]; then
        printf 'error: %s: the image has no folder %s\n' "$place" "$target" >&2
        exit 1
    fi
    for patch in "$place"/*.patch; do
        [ -f "$patch" ] || continue
        printf '%s: %s\n' "$target" "$(basename "$patch")"
        patch --directory "$target" --strip 1 --fuzz 0 --forward --batch <"$patch"
    done
done
