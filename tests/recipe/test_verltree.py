"""verl's config files from a package index that does not answer."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from reprise.core.errors import CannotTell
from reprise.recipe.card import card_of
from reprise.recipe.config import verltree

ROOT = Path(__file__).resolve().parents[2]


def test_an_index_that_hangs_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(ROOT / "requirements", tmp_path / "requirements")
    release = card_of(ROOT / "recipes", "rehearsal").verl.release
    monkeypatch.setattr(verltree, "_installers", lambda: [["sh", "-c", "exec sleep 300", "pip"]])
    monkeypatch.setattr(verltree, "_FETCH_SECONDS", 1)
    began = time.monotonic()
    with pytest.raises(CannotTell, match="no end in 1 s"):
        verltree.find_tree(tmp_path, "", release)
    assert time.monotonic() - began < 100
