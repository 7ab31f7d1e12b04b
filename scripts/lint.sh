#!/bin/sh
# All linters, in one pass: the exit code is 1 when any of them found something.
set -u
cd "$(dirname "$0")/.." || exit 2
bin=.venv/bin
bad=0
try() { printf '+ %s\n' "$*"; "$@" || bad=1; }

try $bin/ruff check .
try $bin/ruff format --check .
try $bin/mypy --strict reprise
(cd plugins && exec ../$bin/mypy) || bad=1
try $bin/mypy --strict scripts/cli_reference.py scripts/json_schemas.py scripts/lock_requirements.py scripts/venv_prune.py scripts/rules_reference.py scripts/pip_settings.py scripts/test_full.py
# Shell files are found by name or first line; a checkout without git has them too.
shells=$(grep -rlE --exclude-dir='.venv*' --exclude-dir='.git' --exclude-dir=third_party \
    --exclude-dir=.cache --exclude-dir=tests '^#!/(bin/sh|bin/bash|usr/bin/env (ba)?sh)' . | sort)
# shellcheck disable=SC2086 # names without spaces
try $bin/shellcheck $shells
dockerfiles=$(find docker -name 'Dockerfile*' 2>/dev/null | sort)
# shellcheck disable=SC2086
[ -z "$dockerfiles" ] || try $bin/hadolint $dockerfiles
exit $bad
