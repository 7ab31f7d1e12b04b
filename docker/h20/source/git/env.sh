#!/bin/sh
# Read by the others: what names github.com itself (submodules, the trees that vLLM's CMake files
# fetch) comes from the host GIT as well, by the commits that stand there.
: "${GIT:?name the host of the repositories: --build-arg GIT=...}"
GIT=${GIT%/}
GIT_CONFIG_COUNT=1
GIT_CONFIG_KEY_0="url.$GIT/.insteadOf"
GIT_CONFIG_VALUE_0=https://github.com/
export GIT_CONFIG_COUNT GIT_CONFIG_KEY_0 GIT_CONFIG_VALUE_0
