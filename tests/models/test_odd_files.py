"""Files that are there and are not what they seem: each is found, none keeps the check waiting."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from reprise.core.findings import Report, Verdict
from reprise.models.check import HERE, inspect_here, judge
from reprise.models.classes import compare_all
from reprise.models.config import config_faults, impossible_count

from .weights import CONFIG, INDEX, model

SHARD = "model-00001-of-00003.safetensors"


def pipe(name: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / name).unlink()
        os.mkfifo(folder / name)

    return change


def text(name: str, content: str, encoding: str = "utf-8") -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_text(content, encoding=encoding)


def coded(name: str, encoding: str) -> Callable[[Path], object]:
    """The file's own text in another encoding: transformers reads UTF-8 without a BOM."""
    return lambda folder: (folder / name).write_text(
        (folder / name).read_text(encoding="utf-8"), encoding=encoding
    )


def link_to_itself(folder: Path) -> None:
    (folder / SHARD).unlink()
    (folder / SHARD).symlink_to(SHARD)


def setting(**changes: object) -> Callable[[Path], object]:
    return lambda folder: (folder / "config.json").write_text(json.dumps(CONFIG | changes))


ODD = {
    "config-pipe": (pipe("config.json"), "model-config"),
    "config-list": (text("config.json", "[1]"), "model-config"),
    "config-utf16": (coded("config.json", "utf-16"), "model-config"),
    "config-bom": (coded("config.json", "utf-8-sig"), "model-config"),
    "layers-negative": (setting(num_hidden_layers=-1), "model-config"),
    "layers-text": (setting(num_hidden_layers="2"), "model-config"),
    "layers-true": (setting(num_hidden_layers=True), "model-config"),
    "layers-billion": (setting(num_hidden_layers=10**9), "model-config"),
    "index-bom": (coded(INDEX, "utf-8-sig"), "model-index"),
    "index-list": (text(INDEX, "[]"), "model-index"),
    "index-pipe": (pipe(INDEX), "model-index"),
    "shard-pipe": (pipe(SHARD), "model-shard"),
    "shard-loop": (link_to_itself, "model-shard"),
    "tokenizer-cut": (text("tokenizer.json", '{"model": {"vocab": {"a": 0'), "model-files"),
    "tokenizer-pipe": (pipe("tokenizer.json"), "model-files"),
    "generation-list": (text("generation_config.json", "[]"), "model-files"),
}


def checked(folder: Path) -> Report:
    report = Report("model check")
    judge(report, {HERE: inspect_here(folder)}, folder)
    return report


@pytest.mark.parametrize("name", ODD)
def test_it_is_found(tmp_path: Path, name: str) -> None:
    change, rule = ODD[name]
    change(model(tmp_path / "m"))
    report = checked(tmp_path / "m")
    assert report.verdict is Verdict.PROBLEM
    assert rule in {finding.rule for finding in report.errors()}


def test_the_whole_model_has_none_of_it(tmp_path: Path) -> None:
    folder = model(tmp_path / "m")
    (folder / "generation_config.json").write_text("{}")
    assert list(checked(folder).errors()) == []


@pytest.mark.parametrize("key", ["num_hidden_layers", "num_experts", "n_routed_experts"])
def test_a_count_that_no_model_has_is_not_listed_or_built(key: str) -> None:
    config = CONFIG | {key: 10**9}
    tensors = {"model.layers.0.x": ["BF16", [2]]}
    assert impossible_count(config) == f"{key}=1,000,000,000"
    assert impossible_count({"text_config": {key: 10**9}}) is not None
    (found, right) = compare_all([(config, tensors), (CONFIG, tensors)], None)
    assert found.by is None and key in found.unknown
    assert right.missing
    assert len(config_faults(config, tensors)) < 10
