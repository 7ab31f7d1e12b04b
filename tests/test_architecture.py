"""Who may import whom: the package is built in layers, and an import only points down."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
# From the ground up: a layer may import itself and those before it.
LAYERS = (
    *("core", "machines", "lock", "hub", "metrics", "trees", "images", "bundle", "curves"),
    *("models", "data", "rehearsal", "triage", "runs", "cluster", "recipe", "flows", "cli"),
)
MOST_FILES = 18
MODULES = sorted((ROOT / "reprise").rglob("*.py"))
FOLDERS = sorted({path.parent for path in MODULES} - {ROOT / "reprise"})


def module_name(path: Path, root: Path) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path, root: Path) -> Iterator[tuple[int, str]]:
    """Line and dotted name of everything that a file imports, also inside functions."""
    package = module_name(path, root)
    if path.name != "__init__.py":
        package = package.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, base] if base else above)
            # `from reprise import curves` names the layer in the alias.
            yield from (
                (node.lineno, f"{base}.{alias.name}" if base == "reprise" else base)
                for alias in node.names
            )


def layer_of(module: str) -> str:
    """The layer that a dotted name below `reprise` belongs to; empty for `reprise` itself."""
    return module.split(".")[1] if "." in module else ""


def breaches(path: Path, root: Path) -> list[str]:
    """The imports of a file that point up, or to a layer that does not exist."""
    layer = layer_of(module_name(path, root))
    if layer in {"", "__main__"}:
        return []
    below = {"", *LAYERS[: LAYERS.index(layer) + 1]}
    return [
        f"{path.relative_to(root)}:{line} imports {name}"
        for line, name in imports(path, root)
        if name.split(".")[0] == "reprise"
        and layer_of(name) not in below
        and name != "reprise.__version__"
    ]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_down(path: Path) -> None:
    assert breaches(path, ROOT) == []


@pytest.mark.parametrize(
    ("file", "text", "ok"),
    [
        ("curves/a.py", "from reprise.lock.read import read_lock", True),
        ("curves/a.py", "from reprise import models", False),
        ("curves/a.py", "from ..data import check", False),
        ("curves/a.py", "def f():\n    import reprise.runs.ray.jobs", False),
        ("curves/a.py", "from reprise.flows.reproduce import judge_folder", False),
        ("curves/a.py", "from . import judge\nfrom reprise.metrics.table import T", True),
        ("core/files.py", "from reprise.lock.read import read_lock", False),
        ("core/files.py", "from reprise.core.errors import OperatorError", True),
        ("flows/x.py", "from reprise.recipe import card\nfrom reprise.runs import ray", True),
        ("flows/x.py", "from reprise.cli import app", False),
        ("cli/commands/lock.py", "from reprise.flows.lock.verify import x", True),
    ],
)
def test_the_rule_finds_a_breach(tmp_path: Path, file: str, text: str, ok: bool) -> None:
    path = tmp_path / "reprise" / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    assert (breaches(path, tmp_path) == []) is ok


def test_every_folder_is_a_layer() -> None:
    folders = {
        path.name for path in (ROOT / "reprise").iterdir() if (path / "__init__.py").exists()
    }
    assert folders == set(LAYERS)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_folder_says_what_belongs_in_it(folder: Path) -> None:
    doc = ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))) or ""
    sentences = re.findall(r"[.?!](?:\s|$)", doc)
    assert len(sentences) >= 2 and len(doc.splitlines()) <= 6, "two sentences on what belongs here"


def test_no_folder_is_a_heap() -> None:
    counts = Counter(path.parent for path in MODULES)
    large = {str(folder.relative_to(ROOT)): n for folder, n in counts.items() if n > MOST_FILES}
    assert large == {}


def test_the_tests_mirror_the_package() -> None:
    own = {"front", "gpu", "plugins", "regression"}
    folders = {path.parent.name for path in (ROOT / "tests").glob("*/*.py")}
    assert folders - own <= set(LAYERS)


def test_the_plug_ins_do_not_know_the_operators_package() -> None:
    found = [
        f"{path}:{line}"
        for path in sorted((ROOT / "plugins").rglob("*.py"))
        for line, name in imports(path, ROOT / "plugins")
        if name.split(".")[0] == "reprise"
    ]
    assert found == []


def test_what_another_interpreter_runs_stands_alone() -> None:
    # These files are started by an interpreter that has torch or verl and not this package.
    alone = [
        *(ROOT / "reprise/rehearsal").glob("build_*.py"),
        ROOT / "reprise/data/reward/worker.py",
        ROOT / "reprise/models/class_worker.py",
    ]
    found = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in sorted(alone)
        for line, name in imports(path, ROOT)
        if name.split(".")[0] == "reprise"
    ]
    assert found == []


def test_text_is_utf8_in_every_locale() -> None:
    """Text files and other programs' output have an encoding that no locale changes."""
    found = []
    for path in [*(ROOT / "reprise").rglob("*.py"), *(ROOT / "scripts").rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            given = {word.arg for word in node.keywords}
            reads = name == "read_text" and not node.args
            decodes = any(
                word.arg in {"text", "universal_newlines"}
                and isinstance(word.value, ast.Constant)
                and word.value.value is True
                for word in node.keywords
            )
            if (reads or decodes) and "encoding" not in given:
                found.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert [place for place in found if "/rehearsal/" not in place] == []


HEAVY = ("ray", "pyarrow", "hydra", "numpy", "scipy", "matplotlib", "httpx2", "psutil", "yaml")


def test_the_help_imports_nothing_heavy() -> None:
    """Each command imports what it works with when it is called: `--help` needs none of it."""
    code = (
        "import sys; sys.argv = ['reprise', '--help']\n"
        "from reprise.cli import main\n"
        "try:\n    main()\n"
        "except SystemExit:\n    pass\n"
        f"print(*(name for name in {HEAVY!r} if name in sys.modules), file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert "support-bundle" in done.stdout
    assert done.stderr.split() == []
