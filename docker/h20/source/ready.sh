#!/bin/sh
# Is everything here that only the site can bring: sh ready.sh FOLDER
# Asked before the first package is installed: what follows takes hours. All that is missing at once.
set -eu
bad=0
say() {
    printf 'error: %s\n' "$1" >&2
    printf '    fix: %s\n' "$2" >&2
    bad=1
}

case ${GIT:-} in
    '') say 'no host of the repositories is named' '--build-arg GIT=https://a.host.that.has.them' ;;
    # A build argument stands in the image's history.
    *://*:*@*) say 'GIT has a password in it' 'name a host that asks for none' ;;
esac
missing=''
for name in 44483.diff 45589.diff SHA256SUMS; do
    [ -f "$1/$name" ] || missing="$missing $name"
done
if [ -n "$missing" ]; then
    say "missing in docker/h20/source:$missing" \
        'bring the pull requests as they stood, and sha256sum of both (docs/images.md)'
elif ! (cd "$1" && sha256sum --check --strict --quiet SHA256SUMS); then
    say 'a difference in docker/h20/source is not the one of SHA256SUMS' 'bring the one that you mean'
elif ! grep -q ' 44483\.diff$' "$1/SHA256SUMS" || ! grep -q ' 45589\.diff$' "$1/SHA256SUMS"; then
    say 'SHA256SUMS does not name both differences' 'sha256sum 44483.diff 45589.diff >SHA256SUMS'
fi
exit $bad
