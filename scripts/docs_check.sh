#!/bin/sh
# Fail when a generated page of docs/ is out of date.
set -eu
cd "$(dirname "$0")/.."
bad=0
for page in cli_reference rules_reference json_schemas; do
    .venv/bin/python "scripts/$page.py" --check || bad=1
done
exit $bad
