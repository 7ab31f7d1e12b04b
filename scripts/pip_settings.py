"""Print the settings that pip follows here as shell commands that give uv the same ones.

uv reads neither pip.conf nor PIP_* variables. What uv has been given by its own variables stays.
Constraints and choices between wheels and sources are left out: the lock names one version and
its hashes, so they could only forbid it. Standard library only; run by the environment's Python.
"""

from __future__ import annotations

import ast
import os
import re
import shlex
import subprocess
import sys

SECTIONS = ("global", "install", ":env:")
"""In the order in which pip applies them: a later one replaces an earlier one's value."""

NAMES = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "trusted-host": "UV_INSECURE_HOST",
    "timeout": "UV_HTTP_TIMEOUT",
    "cert": "SSL_CERT_FILE",
    "client-cert": "SSL_CLIENT_CERT",
    "proxy": "ALL_PROXY",
}
SWITCHES = {"no-index": "UV_NO_INDEX", "no-cache-dir": "UV_NO_CACHE"}
LISTS = {"find-links": ",", "extra-index-url": " ", "trusted-host": " "}
# pip's older spellings, and the name under which PIP_DEFAULT_TIMEOUT is listed.
SYNONYMS = {"pypi-url": "index-url", "default-timeout": "timeout"}
OFF = ("", "0", "false", "no", "off", "n", "f")


def settings(listing: str) -> dict[str, str]:
    """The values of `pip config list`, without their sections."""
    found: dict[str, dict[str, str]] = {section: {} for section in SECTIONS}
    for section, name, value in re.findall(r"^(:env:|[^.\n]+)\.([^=\n]+)=(.*)$", listing, re.M):
        if section in found:
            key = name.lower().replace("_", "-")
            found[section][SYNONYMS.get(key, key)] = str(ast.literal_eval(value))
    return {key: value for section in SECTIONS for key, value in found[section].items()}


def variables(values: dict[str, str]) -> dict[str, str]:
    """uv's variables for pip's `values`."""
    result = {}
    for key, variable in NAMES.items():
        if value := values.get(key, "").strip():
            result[variable] = LISTS[key].join(value.split()) if key in LISTS else value
    for key, variable in SWITCHES.items():
        if values.get(key, "").lower() not in OFF:
            result[variable] = "1"
    return result


def main() -> None:
    """Print one `export` a setting that uv does not have yet."""
    listing = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"],
        check=True,
        capture_output=True,
        encoding="utf-8",
    ).stdout
    for name, value in variables(settings(listing)).items():
        if not os.environ.get(name):
            print(f"export {name}={shlex.quote(value)}")


if __name__ == "__main__":
    main()
