"""What several commands take is declared once."""

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]


def declarations(folder: Path) -> dict[str, list[str]]:
    """Each typer.Option and typer.Argument as written, and the places that declare it."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in (
                "typer.Option",
                "typer.Argument",
            ):
                found[ast.unparse(node)].append(f"{path.relative_to(folder)}:{node.lineno}")
    return found


def test_no_option_is_declared_twice() -> None:
    found = declarations(ROOT / "reprise/cli")
    assert len(found) > 80, "the declarations were not found"
    assert {text: places for text, places in found.items() if len(places) > 1} == {}
