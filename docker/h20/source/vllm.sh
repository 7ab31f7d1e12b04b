#!/bin/sh
# Build vLLM from its source archive with the differences in FOLDER: sh vllm.sh FOLDER
# FOLDER has vllm.txt (the archive and its hash), 44483.diff, 45589.diff and SHA256SUMS of the two.
set -eu
source=$1
for name in 44483.diff 45589.diff SHA256SUMS; do
    if [ ! -f "$source/$name" ]; then
        printf 'error: expected %s in docker/h20/source, found no such file\n' "$name" >&2
        printf '    fix: bring the pull request as it stood (docs/images.md)\n' >&2
        exit 1
    fi
done
(cd "$source" && sha256sum --check --strict SHA256SUMS)
work=$(mktemp -d)
python3 -m pip download --no-deps --no-binary vllm --no-build-isolation --require-hashes \
    -r "$source/vllm.txt" -d "$work"
tar -xzf "$work"/vllm-*.tar.gz -C "$work"
for name in 44483.diff 45589.diff; do
    patch --directory "$work"/vllm-*/ --strip 1 --fuzz 0 --forward --batch <"$source/$name"
done
python3 -m pip install --no-deps --no-index --no-build-isolation "$work"/vllm-*/
rm -rf "$work"
