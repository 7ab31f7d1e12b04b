"""No code path of the package names a model: facts of a family are data (families.toml, cards)."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from reprise.models.families import families
from reprise.rehearsal.shapes import ARCHITECTURES

ROOT = Path(__file__).resolve().parents[1]

# `file: text` of what must name one, and why. Texts of rules, cards and groups are data.
ALLOWED: Mapping[str, str] = {}

# A class or type without its version: hy_v3 stays whole, since "hy" says nothing.
_VERSION = re.compile(r"(for|moe|v?\d|_text).*$")


def stems() -> set[str]:
    """The names of families that the project's own data knows, in small letters."""
    cards = [tomllib.loads(path.read_text()) for path in ROOT.glob("recipes/*/card.toml")]
    known = {str(card["model"]["config"]["model_type"]) for card in cards if "model" in card}
    known |= set(families()) | set(ARCHITECTURES)
    known |= {facts.tensors.class_name for facts in families().values() if facts.tensors}
    found = set()
    for name in known:
        whole = re.sub(r"[-_]", "", name.lower().partition("forcausal")[0])
        short = _VERSION.sub("", whole)
        found.add(short if len(short) > 2 else whole)
    return found


def pattern() -> re.Pattern[str]:
    """A family's name as a word of its own, however its parts are joined."""
    spelled = ("[-_. ]?".join(stem) for stem in sorted(stems(), key=len, reverse=True))
    return re.compile(rf"(?<![a-z])(?:{'|'.join(spelled)})(?:moe|v)?(?![a-z])")


def texts(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and text of each string and identifier; docstrings are prose."""
    prose = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            prose |= {id(n.value) for n in node.body[:1] if isinstance(n, ast.Expr)}
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.Constant) and id(node) not in prose:
            if isinstance(node.value, str):
                yield line, node.value
            elif isinstance(node.value, bytes):
                yield line, node.value.decode("utf-8", "replace")
        for field in ("id", "attr", "arg", "name", "asname", "module"):
            if isinstance(value := getattr(node, field, None), str):
                yield line, value


def named(source: str, names: re.Pattern[str]) -> list[tuple[int, str]]:
    """The texts of a module that name a model."""
    found = []
    for line, text in texts(ast.parse(source)):
        apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", text).lower()
        if names.search(apart):
            found.append((line, text))
    return found


def test_no_code_path_names_a_model() -> None:
    names, found, used = pattern(), [], set()
    for path in sorted((ROOT / "reprise").rglob("*.py")):
        where = path.relative_to(ROOT)
        assert not names.search(path.stem), f"{where}: the file itself names a model"
        for line, text in named(path.read_text(encoding="utf-8"), names):
            entry = f"{where}: {text}"
            used.add(entry)
            if entry not in ALLOWED:
                found.append(f"{where}:{line}: {text!r}")
    assert found == []
    assert set(ALLOWED) <= used, "entries of ALLOWED that nothing needs"


@pytest.mark.parametrize(
    "source",
    [
        'arch = "hy3"',
        'if family == "hy_v3": pass',
        "def _hy_v3(config): pass",
        "_WITH_QWEN = ()",
        'x = {"Qwen3MoeForCausalLM": 1}',
        "from reprise.models import glm4_moe",
        'f"runs/{a}/GLM-4.5-Air"',
        "x = LlamaConfig()",
        'kinds = ("gpt_oss", "other")',
        'x = b"deepseek-v3"',
        "f(qwen2=1)",
        'x = "Qwen2.5-7B"',
        'x = "meta-llama/Llama-3.1-8B"',
        'x = "mixtral"',
    ],
)
def test_code_that_names_a_model_is_found(source: str) -> None:
    assert named(source, pattern())


@pytest.mark.parametrize(
    "source",
    [
        '"""Like hy_v3 and Qwen3."""\n# llama\nx = 1',
        'def f():\n    """For example qwen3-8b."""\n    return 1',
        'x = "graphics philosophy delphi"',
        'x = "why v3"',
        "algorithm = 1",
    ],
)
def test_prose_and_other_words_are_not(source: str) -> None:
    assert named(source, pattern()) == []
