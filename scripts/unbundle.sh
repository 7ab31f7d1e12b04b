#!/bin/sh
# Open a bundle on a machine with nothing installed: check each part and join its files.
#
#   sh unbundle.sh FOLDER BUNDLE            a bundle in one file
#   sh unbundle.sh FOLDER BUNDLE.part*      a bundle in parts, in order
#
# Needs tar, sha256sum, awk and a POSIX shell. Afterwards FOLDER/git/project.bundle is the project and
# FOLDER/wheels the environments; docs/airgap.md has the next steps. This checks that all parts of
# one bundle are there, and the SHA-256 of every file; `reprise setup --bundle` checks them again.
set -eu

[ $# -ge 2 ] || { sed -n '2,10s/^#\{1,\} \{0,1\}//p' "$0" >&2; exit 2; }
into=$1
shift
mkdir -p "$into"

stop() {
    printf 'error: %s\n    fix: %s\n' "$1" "$2" >&2
    exit 1
}

bundle=
seen=' '
for part; do
    printf '%s\n' "$part" >&2
    manifest=$(tar tf "$part" | sed -n 1p)
    want=${manifest#manifest-}
    want=${want%.json}
    have=$(tar xOf "$part" "$manifest" | sha256sum | cut -d ' ' -f 1)
    [ "$want" = "$have" ] ||
        stop "$part is damaged: its manifest does not match its name" 'copy it again'
    tar xf "$part" -C "$into"
    mv "$into/$manifest" "$into/.manifest"
    # The manifest has one form: JSON in one line, its keys sorted.
    name=$(sed -n 's/.*"bundle":"\([0-9a-f]*\)","files".*/\1/p' "$into/.manifest")
    number=$(sed -n 's/.*"part":\([0-9]*\),"parts".*/\1/p' "$into/.manifest")
    parts=$(sed -n 's/.*"parts":\([0-9]*\),"pieces".*/\1/p' "$into/.manifest")
    [ "${bundle:-$name}" = "$name" ] ||
        stop "$part belongs to another bundle than the parts before it" 'name the parts of one bundle'
    bundle=$name
    seen="$seen$number "
done

missing=
number=1
while [ "$number" -le "$parts" ]; do
    case $seen in *" $number "*) ;; *) missing="$missing $number" ;; esac
    number=$((number + 1))
done
[ -z "$missing" ] ||
    stop "missing of $parts parts:$missing" "name all parts: sh unbundle.sh $into BUNDLE.part*"

# Pieces are called name@offset; the shell sorts them into their order.
find "$into/files" -name '*@000000000000000' | while IFS= read -r first; do
    name=${first%@*}
    cat "$name"@* >"$name.half"
    mv "$name.half" "$name"
    rm -f "$name"@*
done
sed -n 's/.*"files":\[\(.*\)\],"format".*/\1/p' "$into/.manifest" |
    awk '{ gsub(/\],\[/, "]\n["); print }' |
    awk -F '"' '{ print $4 "  " $2 }' >"$into/.sums"
(cd "$into/files" && sha256sum -c ../.sums >/dev/null) ||
    stop 'the files above differ from the manifest' 'copy the parts again'
cp -R "$into/files/." "$into/"
rm -rf "$into/files" "$into/.manifest" "$into/.sums"
printf 'unpacked into %s\n' "$into" >&2
