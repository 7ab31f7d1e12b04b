"""Which data sources verl's built-in scorer knows, read from its source without importing it."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from reprise.core.errors import CannotTell

__all__ = ["ROUTER_FILE", "Router", "find_router", "read_router"]

# Where verl keeps the function that picks a scorer by data_source (220e903 and 0.9.1 alike).
ROUTER_FILE = Path("verl/utils/reward_score/__init__.py")
_FUNCTION = "default_compute_score"
_ARGUMENT = "data_source"


@dataclass(frozen=True, slots=True)
class Router:
    """The names (exact, case-sensitive) and prefixes that lead to a scorer, and where that stands.

    `names` and `prefixes` give the line of `source` that routes them.
    """

    source: Path
    names: Mapping[str, int]
    prefixes: Mapping[str, int]

    def knows(self, data_source: str) -> bool:
        """Whether a row of this data source gets a score instead of NotImplementedError."""
        return data_source in self.names or any(data_source.startswith(p) for p in self.prefixes)

    def nearest(self, data_source: str) -> str | None:
        """The known name that was probably meant, or None.

        A path or mirror name counts by its last part (`/data/gsm8k` means `openai/gsm8k`), and
        letter case is ignored, since both are how wrong names come about.
        """
        wanted = data_source.rstrip("/").lower()
        if not wanted:
            return None
        tail = wanted.rsplit("/", 1)[-1]
        by_lower = {name.lower(): name for name in self.names}
        by_tail = {name.lower().rsplit("/", 1)[-1]: name for name in self.names}
        if wanted in by_lower:
            return by_lower[wanted]
        if tail in by_tail:
            return by_tail[tail]
        close = difflib.get_close_matches(tail, list(by_tail), n=1, cutoff=0.6)
        return by_tail[close[0]] if close else None


def find_router(roots: Iterable[Path]) -> Router:
    """Read the router below the first root that holds verl's source.

    A root is a checkout or a site-packages folder. Raises CannotTell when none does.
    """
    looked = []
    for root in roots:
        looked.append(str(root))
        if (root / ROUTER_FILE).is_file():
            return read_router(root / ROUTER_FILE)
    raise CannotTell("data-source.verl-s-source", ", ".join(looked) or "verl")


def read_router(path: Path) -> Router:
    """Collect every name that the function compares `data_source` with.

    Raises CannotTell when the file cannot be read or no longer routes by comparison.
    """
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError) as error:
        raise CannotTell("data-source.cannot-read", str(path), error=error) from None
    names: dict[str, int] = {}
    prefixes: dict[str, int] = {}
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef) and function.name == _FUNCTION:
            for node in ast.walk(function):
                _collect(node, names, prefixes)
    if not names:
        raise CannotTell("data-source.comparison-data-source", str(path))
    return Router(path, names, prefixes)


def _collect(node: ast.AST, names: dict[str, int], prefixes: dict[str, int]) -> None:
    """Add what one expression routes: `== "x"`, `in ["x", "y"]` or `.startswith("x")`."""
    if isinstance(node, ast.Compare) and _is_argument(node.left):
        for operator, value in zip(node.ops, node.comparators, strict=True):
            if isinstance(operator, ast.Eq | ast.In):
                names.update(dict.fromkeys(_strings(value), node.lineno))
    elif (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "startswith"
        and _is_argument(node.func.value)
    ):
        for value in node.args:
            prefixes.update(dict.fromkeys(_strings(value), node.lineno))


def _is_argument(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == _ARGUMENT


def _strings(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Constant):
        return [node.value] if isinstance(node.value, str) else []
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        return [text for item in node.elts for text in _strings(item)]
    return []
