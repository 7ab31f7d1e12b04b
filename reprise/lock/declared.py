"""The requirements that a source tree declares, read from its files without running any."""

from __future__ import annotations

import ast
import contextlib
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

__all__ = ["Declaration", "declarations", "normal"]


@dataclass(frozen=True, slots=True)
class Declaration:
    """A requirement and its place: the file below the tree's root and its 1-based line."""

    file: str
    line: int
    requirement: Requirement


def normal(requirement: Requirement) -> str:
    """Name and versions alone, in one spelling: equal for two texts with the same requirement."""
    return f"{canonicalize_name(requirement.name)}{requirement.specifier}"


def declarations(root: Path) -> list[Declaration]:
    """The requirements in pyproject.toml, setup.py and requirements.txt at `root`.

    Extras are left out: nothing here requires them. `requires-python` becomes a
    requirement called python. Files that cannot be read as what they are raise OSError or
    ValueError.
    """
    found: list[Declaration] = []
    for file, reader in (
        ("requirements.txt", _requirements),
        ("pyproject.toml", _pyproject),
        ("setup.py", _setup),
    ):
        path = root / file
        if path.is_file():
            text = path.read_text(encoding="utf-8")
            found += [Declaration(file, line, item) for line, item in reader(text)]
    return found


def _parse(text: str) -> Requirement | None:
    try:
        return Requirement(text)
    except InvalidRequirement:
        return None


def _requirements(text: str) -> Iterator[tuple[int, Requirement]]:
    for number, raw in enumerate(text.splitlines(), 1):
        line = re.sub(r"(^|\s)#.*$", "", raw).strip()
        if line and not line.startswith("-") and (requirement := _parse(line)):
            yield number, requirement


def _line(text: str, part: str) -> int:
    """The line that has `part` in quotes, or 1."""
    for number, line in enumerate(text.splitlines(), 1):
        if f'"{part}"' in line or f"'{part}'" in line:
            return number
    return 1


def _pyproject(text: str) -> Iterator[tuple[int, Requirement]]:
    data: dict[str, Any] = tomllib.loads(text)
    project = data.get("project", {})
    python = project.get("requires-python")
    if isinstance(python, str):
        with contextlib.suppress(InvalidSpecifier):
            yield _line(text, python), Requirement(f"python{SpecifierSet(python)}")
    uv = data.get("tool", {}).get("uv", {})
    for item in [*project.get("dependencies", []), *uv.get("override-dependencies", [])]:
        requirement = _parse(item)
        # An override with a marker that is never true removes a dependency: it requires nothing.
        if requirement is not None and "'never'" not in item:
            yield _line(text, item), requirement


def _setup(text: str) -> Iterator[tuple[int, Requirement]]:
    """The literal list that setup.py calls install_requires, by name or as an argument."""
    for node in ast.walk(ast.parse(text)):
        value: ast.expr | None = None
        if isinstance(node, ast.Assign):
            names = [target.id for target in node.targets if isinstance(target, ast.Name)]
            value = node.value if "install_requires" in names else None
        elif isinstance(node, ast.keyword) and node.arg == "install_requires":
            value = node.value
        for item in value.elts if isinstance(value, ast.List | ast.Tuple) else ():
            if isinstance(item, ast.Constant) and isinstance(item.value, str):
                requirement = _parse(item.value)
                if requirement is not None:
                    yield item.lineno, requirement
