"""Which run the regression test judges."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("regression")
    group.addoption("--run", type=Path, help="judge this run folder, not the newest finished one")
    group.addoption("--root", type=Path, default=ROOT, help="folder with recipes/ and runs/")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test a recipe that has a reference; with --run the one recipe that its run.json names."""
    if "recipe" not in metafunc.fixturenames:
        return
    run, root = metafunc.config.getoption("run"), metafunc.config.getoption("root")
    if run is not None:
        recipes = [json.loads((run / "run.json").read_text(encoding="utf-8"))["model"]]
    else:
        manifests = root.glob("recipes/*/reference/reference.toml")
        recipes = sorted(path.parent.parent.name for path in manifests)
    metafunc.parametrize("recipe", recipes)
