"""Who may import whom: rooms know the shared modules and meet only in the pipelines."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ROOMS = {"lock", "data", "recipe", "cluster", "run", "triage", "curves", "rehearsal"}
SHARED = {
    "children",
    "errors",
    "files",
    "findings",
    "jobenv",
    "metrics",
    "nearby",
    "parallel",
    "progress",
    "tensorfiles",
}
MODULES = sorted((ROOT / "reprise").rglob("*.py"))


def part_of(module: str) -> str:
    """The room, shared module or other part that a dotted name below `reprise` belongs to."""
    return module.split(".")[1] if "." in module else ""


def module_name(path: Path, root: Path) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path, root: Path) -> Iterator[tuple[int, str]]:
    """Line and dotted name of everything that a file imports, also inside functions."""
    package = module_name(path, root)
    if path.name != "__init__.py":
        package = package.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, base] if base else above)
            # `from reprise import curves` names the room in the alias.
            yield from (
                (node.lineno, f"{base}.{alias.name}" if base == "reprise" else base)
                for alias in node.names
            )


def allowed(part: str) -> set[str] | None:
    """The parts of `reprise` that a part may import; None: any but the command line."""
    if part in ROOMS:
        return SHARED | {part}
    if part in SHARED:
        return SHARED
    if part == "project":
        return SHARED
    return None


def breaches(path: Path, root: Path) -> list[str]:
    part = part_of(module_name(path, root))
    permitted = allowed(part)
    found = []
    for line, name in imports(path, root):
        if name.split(".")[0] != "reprise" or part in {"cli", "__main__"}:
            continue
        target = part_of(name)
        wrong = target == "cli" if permitted is None else target not in permitted
        if wrong:
            found.append(f"{path.relative_to(root)}:{line} imports {name}")
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_follow_the_plan(path: Path) -> None:
    assert breaches(path, ROOT) == []


@pytest.mark.parametrize(
    ("file", "text", "ok"),
    [
        ("curves/a.py", "from reprise.lock.read import read_lock", False),
        ("curves/a.py", "from reprise import lock", False),
        ("curves/a.py", "from ..lock import read", False),
        ("curves/a.py", "def f():\n    import reprise.run.jobs", False),
        ("curves/a.py", "from reprise.pipeline import judge_folder", False),
        ("curves/a.py", "from reprise.cli.render import finish", False),
        (
            "curves/a.py",
            "from . import judge\nfrom reprise.metrics.table import T\nimport rich",
            True,
        ),
        ("metrics/a.py", "from reprise.curves import judge", False),
        ("files.py", "from reprise.errors import OperatorError", True),
        ("pipeline_x.py", "from reprise.lock import read\nfrom reprise.run import jobs", True),
        ("pipeline_x.py", "from reprise.cli import app", False),
        ("cli/lock.py", "from reprise.lock import read\nfrom reprise.pipeline import x", True),
    ],
)
def test_the_rule_sees_a_breach(tmp_path: Path, file: str, text: str, ok: bool) -> None:
    path = tmp_path / "reprise" / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    assert (breaches(path, tmp_path) == []) is ok


def test_every_part_is_known() -> None:
    parts = {part_of(module_name(path, ROOT)) for path in MODULES} - {""}
    known = ROOMS | SHARED | {"cli", "project", "__main__"}
    assert {part for part in parts if not part.startswith("pipeline")} <= known


def test_the_plug_ins_do_not_know_the_operators_package() -> None:
    found = [
        f"{path}:{line}"
        for path in sorted((ROOT / "plugins").rglob("*.py"))
        for line, name in imports(path, ROOT / "plugins")
        if name.split(".")[0] == "reprise"
    ]
    assert found == []


def test_what_the_rehearsals_interpreter_runs_stands_alone() -> None:
    # These files are started by an interpreter that has torch and not this package.
    found = [
        f"{path}:{line} imports {name}"
        for path in [*sorted((ROOT / "reprise" / "rehearsal").glob("build_*.py"))]
        for line, name in imports(path, ROOT)
        if name.split(".")[0] == "reprise"
    ]
    assert found == []
