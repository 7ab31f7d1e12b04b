"""Write the measured tables of docs/triage.md from the corpus of logs; --check only compares.

The logs are those of tests/triage/corpus.py. A root counts as right when its file and its line are
those of the fault; a log without one counts when none is named.
"""

from __future__ import annotations

import sys
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from reprise.triage.engine import examine  # noqa: E402
from reprise.triage.model import Role  # noqa: E402
from reprise.triage.patterns import load_library  # noqa: E402
from tests.triage.corpus import ROOT as NAMED  # noqa: E402
from tests.triage.corpus import Scenario, scenarios  # noqa: E402

TARGET = ROOT / "docs" / "triage.md"
BEGIN, END = "<!-- tables: begin -->", "<!-- tables: end -->"


@dataclass(frozen=True)
class Tried:
    """One log and what triage said."""

    scenario: Scenario
    named: bool
    exact: bool
    category: str
    cascade: tuple[str, ...]


def attempt(scenario: Scenario) -> Tried:
    """Triage one log of the corpus."""
    with tempfile.TemporaryDirectory() as folder:
        found = examine([scenario.write(Path(folder))]).diagnosis
    root = found.root.first if found.root else None
    exact = root is not None and (root.file, root.line) == (scenario.file, scenario.line)
    patterns = dict.fromkeys(
        group.first.pattern for group in found.cascade if group.first.role is Role.CASCADE
    )
    return Tried(
        scenario,
        root is not None,
        exact and found.category == scenario.category,
        found.category,
        tuple(patterns),
    )


def share(part: int, whole: int) -> str:
    """A share with what it is made of."""
    return f"{part}/{whole} ({100 * part / whole:.0f} %)" if whole else "–"


def tables() -> str:
    """All tables as Markdown."""
    tried = [attempt(item) for item in scenarios()]
    return "\n".join([*by_origin(tried), "", *by_category(tried), "", *by_cascade(tried), ""])


def by_origin(tried: list[Tried]) -> list[str]:
    """Precision and recall, by where the logs are from."""
    lines = [
        "| logs | how many | with a root | precision | recall | false root, where none is |",
        "|---|---|---|---|---|---|",
    ]
    rows = {"case": "shipped cases", "recorded": "recorded", "built": "built"}
    for origin, title in [*rows.items(), ("", "all")]:
        some = [item for item in tried if origin in ("", item.scenario.origin)]
        wanted = [item for item in some if item.scenario.state == NAMED]
        named = [item for item in some if item.named]
        right = sum(item.exact for item in wanted)
        others = [item for item in some if item.scenario.state != NAMED]
        lines.append(
            f"| {title} | {len(some)} | {len(wanted)} | {share(right, len(named))} | "
            f"{share(right, len(wanted))} | {share(sum(i.named for i in others), len(others))} |"
        )
    return lines


def by_category(tried: list[Tried]) -> list[str]:
    """Which logs show a category, and what followed from it there."""
    library = load_library()
    logs, follows = defaultdict(list), defaultdict(set)
    for item in tried:
        if item.scenario.state == NAMED:
            logs[item.scenario.category].append(item.scenario.name)
            follows[item.scenario.category] |= set(item.cascade)
    lines = ["| category | retry | logs | its cascade there |", "|---|---|---|---|"]
    for name in sorted(logs):
        retry = library.category(name).retry
        lines.append(
            f"| `{name}` | {retry} | {', '.join(sorted(logs[name]))} | "
            f"{', '.join(sorted(follows[name])) or '–'} |"
        )
    return lines


def by_cascade(tried: list[Tried]) -> list[str]:
    """Of which categories a pattern was a consequence."""
    of = defaultdict(set)
    for item in tried:
        for pattern in item.cascade:
            of[pattern].add(item.scenario.category or item.category)
    lines = ["| cascade | was a consequence of |", "|---|---|"]
    return [*lines, *(f"| {name} | {', '.join(sorted(of[name]))} |" for name in sorted(of))]


def main() -> None:
    """Write the tables, or compare them."""
    text = TARGET.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    new = f"{before}{BEGIN}\n\n{tables()}\n{END}{after}"
    if "--check" in sys.argv[1:]:
        if new != text:
            sys.exit(f"{TARGET}: the tables are out of date: make docs")
        return
    TARGET.write_text(new, encoding="utf-8")


if __name__ == "__main__":
    main()
