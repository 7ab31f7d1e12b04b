#!/bin/sh
# Open a bundle on a machine with nothing installed: check each part and join its files.
#
#   sh unbundle.sh FOLDER BUNDLE            a bundle in one file
#   sh unbundle.sh FOLDER BUNDLE.part*      a bundle in parts, in order
#
# Needs tar, sha256sum and a POSIX shell. Afterwards FOLDER/git/project.bundle is the project and
# FOLDER/wheels the environments; docs/airgap.md has the next steps. This checks each part's
# manifest and puts pieces together; `reprise setup --bundle` checks every bit again.
set -eu

[ $# -ge 2 ] || { sed -n '2,10s/^#\{1,\} \{0,1\}//p' "$0" >&2; exit 2; }
into=$1
shift
mkdir -p "$into"

for part; do
    printf '%s\n' "$part" >&2
    manifest=$(tar tf "$part" | sed -n 1p)
    want=${manifest#manifest-}
    want=${want%.json}
    have=$(tar xOf "$part" "$manifest" | sha256sum | cut -d ' ' -f 1)
    if [ "$want" != "$have" ]; then
        printf 'error: %s is damaged: its manifest does not match its name\n' "$part" >&2
        printf '    fix: copy it again\n' >&2
        exit 1
    fi
    tar xf "$part" -C "$into"
    rm -f "$into/$manifest"
done

# Pieces are called name@offset; the shell sorts them into their order.
find "$into/files" -name '*@000000000000000' | while IFS= read -r first; do
    name=${first%@*}
    cat "$name"@* >"$name.half"
    mv "$name.half" "$name"
    rm -f "$name"@*
done
cp -R "$into/files/." "$into/"
rm -rf "$into/files"
printf 'unpacked into %s\n' "$into" >&2
