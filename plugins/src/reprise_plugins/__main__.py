"""``python -m reprise_plugins``: every bridge, and whether it fits what is installed.

Exit code 0: every bridge that is asked for fits. 1: one does not. 2: it cannot be told, because
verl or vLLM is not installed.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from reprise_plugins import bridge as states
from reprise_plugins import experts, source, switches, written
from reprise_plugins.bridges import BRIDGES, EXPERTS, WITH_SGLANG


def rows(tree: Path | None, asked: frozenset[str]) -> list[dict[str, Any]]:
    """Return one record a bridge, in the order of ``BRIDGES``.

    ``tree`` is a verl checkout to check instead of the installed verl. A bridge without a switch
    is plugged in by verl's configuration.
    """
    records = []
    for bridge in BRIDGES:
        state, notes = bridge.check(tree)
        records.append(
            {
                "id": bridge.id,
                "name": bridge.name,
                "state": state,
                "asked": bool(asked.intersection(bridge.switch)) if bridge.switch else None,
                "switch": list(bridge.switch),
                "means": bridge.means,
                "replaces": bridge.replaces,
                "why": bridge.why,
                "proof": bridge.proof,
                "install": bridge.install,
                "found": notes,
                "targets": [f"{target.module}:{target.symbol}" for target in bridge.targets],
            }
        )
    return records


def further(tree: Path | None) -> frozenset[str]:
    """Return the switches of the variables that are not in ``REPRISE_BRIDGES``.

    Those of an engine count where it is installed. Raises ``SwitchError``.
    """
    names = {EXPERTS} if experts.asked() else set()
    here = {name for name in ("sglang", "vllm") if source.package_root(name, tree) is not None}
    if "sglang" in here:
        names.add(WITH_SGLANG)
    if written.mode():
        names |= {f"written-{name}" for name in here}
    return frozenset(names)


def exit_code(records: list[dict[str, Any]]) -> int:
    """Return 1 if a bridge mismatches, else 2 if one could not be checked, else 0.

    A bridge that the environment does not ask for cannot fail a run and does not count.
    """
    counted = {record["state"] for record in records if record["asked"] is not False}
    if states.MISMATCH in counted:
        return 1
    return 2 if states.NOT_INSTALLED in counted else 0


def table(records: list[dict[str, Any]]) -> str:
    """Return the records as text, one line a bridge, and below it what does not fit."""
    words = {True: "yes", False: "no", None: "by config"}
    lines = [("id", "bridge", "state", "asked", "means")]
    lines += [(r["id"], r["name"], r["state"], words[r["asked"]], r["means"]) for r in records]
    widths = [max(len(line[i]) for line in lines) for i in range(4)]
    text = [
        "  ".join(
            [*(cell.ljust(width) for cell, width in zip(line, widths, strict=False)), line[4]]
        )
        for line in lines
    ]
    for record in records:
        if record["state"] in (states.MISMATCH, states.NOT_INSTALLED):
            text += [f"{record['id']}: {note}" for note in record["found"]]
            text.append(f"{record['id']}: install {record['install']}")
    return "\n".join(text)


def main(arguments: list[str] | None = None) -> int:
    """Print the table, or with --json one object, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m reprise_plugins", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--all", action="store_true", help="count bridges that are not asked for")
    parser.add_argument("--tree", type=Path, help="check this verl checkout, not the installed one")
    options = parser.parse_args(arguments)
    try:
        asked = switches.asked()
        asked |= further(options.tree)
    except switches.SwitchError as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 1
    if options.all:
        asked = frozenset({switches.CPU, *switches.SELECTABLE})
    records = rows(options.tree, asked)
    versions = {name: source.version_of(name, options.tree) for name in ("verl", "vllm")}
    if options.json:
        print(json.dumps({"versions": versions, "bridges": records}, indent=2))
    else:
        print(table(records))
    return exit_code(records)


if __name__ == "__main__":
    sys.exit(main())
