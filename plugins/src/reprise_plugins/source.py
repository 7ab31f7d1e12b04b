"""Read the source of a symbol of an installed package without importing it.

A bridge is written against certain lines of somebody else's code. Reading these lines from the
file takes milliseconds and needs neither torch nor a device, so every process, and the command
``python -m reprise_plugins`` on a machine without either, can tell whether they are still there.
"""

import ast
import hashlib
import importlib.util
from collections.abc import Iterator
from functools import cache
from pathlib import Path

#: The digest of a symbol that its module does not define.
ABSENT = "absent"


@cache
def package_root(package: str, tree: Path | None = None) -> Path | None:
    """Return the folder of a top-level package, or None where it is not installed.

    ``tree`` is a checkout that is looked into before the import path. The package is not imported.
    """
    if tree is not None and (tree / package).is_dir():
        return tree / package
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return None
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations)))


def module_file(module: str, tree: Path | None = None) -> Path | None:
    """Return the file of a dotted module, or None where package or module is missing."""
    package, *rest = module.split(".")
    root = package_root(package, tree)
    if root is None:
        return None
    base = root.joinpath(*rest)
    for candidate in (
        base.with_suffix(".py") if rest else root / "__init__.py",
        base / "__init__.py",
    ):
        if candidate.is_file():
            return candidate
    return None


def symbol_digest(module: str, symbol: str, tree: Path | None = None) -> str | None:
    """Return the sha256 of the source lines of ``symbol`` ("function" or "Class.method").

    ``ABSENT`` where the module does not define it, None where the module is not installed.
    Decorators count, comments above do not; the text is hashed as it stands in the file, so the
    digest does not depend on the Python version that reads it.
    """
    file = module_file(module, tree)
    if file is None:
        return None
    return _digests(file, symbol)


@cache
def _digests(file: Path, symbol: str) -> str:
    text = file.read_text(encoding="utf-8")
    scope: list[ast.stmt] = ast.parse(text).body
    found: ast.stmt | None = None
    for name in symbol.split("."):
        found = next((node for node in _flat(scope) if _defines(node, name)), None)
        if found is None:
            return ABSENT
        scope = found.body if isinstance(found, ast.ClassDef) else []
    assert found is not None
    first = min([found.lineno, *(d.lineno for d in getattr(found, "decorator_list", []))])
    lines = text.splitlines()[first - 1 : found.end_lineno]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _flat(scope: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield statements, with those below `try` and `if` (guarded imports)."""
    for node in scope:
        yield node
        if isinstance(node, ast.Try | ast.If):
            yield from _flat(node.body)
            yield from _flat(node.orelse)


def _defines(node: ast.stmt, name: str) -> bool:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return node.name == name
    if isinstance(node, ast.ImportFrom | ast.Import):
        return any((alias.asname or alias.name) == name for alias in node.names)
    return False


def version_of(package: str, tree: Path | None = None) -> str | None:
    """Return the version that a package states in its own files, or None.

    verl writes it to ``verl/version/version`` and vLLM to ``vllm/_version.py``. The metadata of
    an installed distribution is not asked: it says nothing about a checkout on PYTHONPATH.
    """
    root = package_root(package, tree)
    if root is None:
        return None
    plain = root / "version" / "version"
    if plain.is_file():
        return plain.read_text(encoding="utf-8").strip()
    generated = root / "_version.py"
    if generated.is_file():
        for node in ast.parse(generated.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
                return str(node.value.value)
    return None
