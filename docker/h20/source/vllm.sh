#!/bin/sh
# Build vLLM from its source archive with the differences in FOLDER: sh vllm.sh FOLDER
# FOLDER has vllm.txt (the archive and its hash), 44483.diff, 45589.diff and SHA256SUMS of the two.
set -eu
source=$1
sh "$source/ready.sh" "$source"
# shellcheck source=/dev/null
. "$source/git/env.sh"
work=$(mktemp -d)
python3 -m pip download --no-deps --no-binary vllm --no-build-isolation --require-hashes \
    -r "$source/vllm.txt" -d "$work"
tar -xzf "$work"/vllm-*.tar.gz -C "$work"
for name in 44483.diff 45589.diff; do
    patch --directory "$work"/vllm-*/ --strip 1 --fuzz 0 --forward --batch <"$source/$name"
done
python3 -m pip install --no-deps --no-index --no-build-isolation "$work"/vllm-*/
rm -rf "$work"
