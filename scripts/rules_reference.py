"""Write docs/rules.md from the registry of rules; with --check only compare (exit code 1)."""

from __future__ import annotations

import difflib
import sys
from itertools import groupby
from pathlib import Path

from reprise.core.rules import Rule, known_rules

TARGET = Path(__file__).resolve().parent.parent / "docs" / "rules.md"
HEAD = """# Rules

Look up a finding by its rule: what the rule checks, every text that it can print, and the fix.
`reprise explain RULE` prints the same. Words in braces are values of the machine or file at hand.

Written by `make docs` from `reprise/*/rules.toml`; CI fails when it is out of date.
"""


def cell(text: str) -> str:
    """A text as one cell of a Markdown table."""
    return text.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;") or "–"


def section(rule: Rule) -> str:
    """The heading and the table of one rule."""
    rows = [
        f"| {text.severity} | {cell(text.message)} | {cell(text.shown_fix)} |"
        for text in rule.texts.values()
    ]
    table = ["| | message | fix |", "|---|---|---|", *rows] if rows else []
    more = f"More: [{rule.doc}]({rule.doc})." if rule.doc else ""
    head = f"### {rule.id}\n\n{rule.about} {more}".rstrip()
    return "\n".join([head, "", *table, ""]) if table else head + "\n"


def reference() -> str:
    """The whole document, one chapter a layer."""
    parts = [HEAD]
    ordered = sorted(known_rules().values(), key=lambda rule: (rule.layer, rule.id))
    for layer, rules in groupby(ordered, key=lambda rule: rule.layer):
        parts.append(f"## {layer}\n")
        parts.extend(section(rule) for rule in rules)
    return "\n".join(parts)


def main() -> None:
    """Write the file, or compare it."""
    text = reference()
    if sys.argv[1:] != ["--check"]:
        TARGET.write_text(text, encoding="utf-8")
        return
    found = TARGET.read_text(encoding="utf-8") if TARGET.exists() else ""
    if found != text:
        sys.stdout.writelines(
            difflib.unified_diff(
                found.splitlines(True), text.splitlines(True), str(TARGET), "the registry"
            )
        )
        sys.exit("docs/rules.md is out of date: run `make docs` and commit it")


if __name__ == "__main__":
    main()
