"""Weights folders, whole and damaged: only headers are read."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reprise.core.findings import Report, Verdict
from reprise.models import shards
from reprise.models.check import HERE, inspect_here, judge

from .weights import INDEX, POINTER, layer, model, shard, tensor


def check(folder: Path, **locked: Any) -> Report:
    report = Report("model check")
    judge(report, {HERE: inspect_here(folder)}, folder, **locked)
    return report


def messages(report: Report) -> str:
    return "\n".join(f"{item.where}: {item.message}" for item in report.errors())


def test_a_whole_model_passes(tmp_path: Path) -> None:
    report = check(model(tmp_path / "m"))
    assert report.verdict is Verdict.OK, messages(report)
    (facts,) = report.data["hosts"]
    assert (facts["shards"], facts["tensors"], facts["bytes"]) == (3, 30, 314)


def test_pointer_missing_and_cut_shards(tmp_path: Path) -> None:
    folder = model(tmp_path / "m")
    (folder / "model-00001-of-00003.safetensors").write_text(POINTER)
    (folder / "model-00002-of-00003.safetensors").unlink()
    shard(folder / "model-00003-of-00003.safetensors", layer(1), cut=3)
    told = messages(check(folder))
    assert f"00001-of-00003.safetensors: git-lfs pointer of {len(POINTER)} bytes" in told
    assert "00002-of-00003.safetensors: missing" in told
    assert "00003-of-00003.safetensors: truncated: the header needs" in told


def test_a_header_longer_than_the_file(tmp_path: Path) -> None:
    folder = model(tmp_path / "m")
    (folder / "model-00002-of-00003.safetensors").write_bytes(struct.pack("<Q", 5000) + b"{}")
    assert "header length 5,000 exceeds the rest of the file (2 bytes)" in messages(check(folder))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "shorter than a header"),
        (b"\x02\0\0\0\0\0\0\0[]", "not a JSON object"),
        (b"\x02\0\0\0\0\0\0\0{]", "damaged header"),
        (b'\x0c\0\0\0\0\0\0\0{"a": [1, 2]}', "damaged header"),
    ],
)
def test_damaged_shards(content: bytes, words: str, tmp_path: Path) -> None:
    folder = model(tmp_path / "m")
    (folder / "model-00002-of-00003.safetensors").write_bytes(content)
    assert words in messages(check(folder))


def test_bytes_too_many_gaps_and_wrong_lengths(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    shard(path, {"w": tensor(2, 2)})
    path.write_bytes(path.read_bytes() + b"\0")
    assert "too long" in str(shards.read_shard(path)[1])
    for offsets, words in (([2, 10], "gap or overlap"), ([0, 6], "6 bytes for shape")):
        header = json.dumps({"w": {"dtype": "BF16", "shape": [2, 2], "data_offsets": offsets}})
        path.write_bytes(struct.pack("<Q", len(header)) + header.encode() + bytes(10))
        assert words in str(shards.read_shard(path)[1])


def test_index_and_headers_disagree(tmp_path: Path) -> None:
    folder = model(tmp_path / "m")
    index = json.loads((folder / INDEX).read_text(encoding="utf-8"))
    index["weight_map"]["model.layers.0.lost.weight"] = "model-00002-of-00003.safetensors"
    del index["weight_map"]["lm_head.weight"]
    index["metadata"]["total_size"] += 7
    (folder / INDEX).write_text(json.dumps(index))
    told = messages(check(folder))
    assert "1 tensors are missing from their shard in the index: model.layers.0.lost" in told
    assert "1 tensors are missing from the index: lm_head.weight" in told
    assert "314 bytes of tensors, but metadata.total_size is 321" in told


def test_a_single_file_needs_no_index(tmp_path: Path) -> None:
    folder = model(tmp_path / "m")
    for path in folder.glob("model*"):
        path.unlink()
    ends = {"model.embed_tokens.weight": tensor(8, 2), "lm_head.weight": tensor(8, 2)}
    tensors = ends | {"model.norm.weight": tensor(2)} | layer(0) | layer(1)
    shard(folder / "model.safetensors", tensors)
    assert check(folder).verdict is Verdict.OK


def test_a_single_file_next_to_an_index_is_what_transformers_loads(tmp_path: Path) -> None:
    folder = model(tmp_path / "m")
    shard(folder / "model.safetensors", layer(0))
    assert "transformers loads it and ignores the index" in messages(check(folder))
    # An index of one file is no second set of weights.
    index = json.loads((folder / INDEX).read_text(encoding="utf-8"))
    names = dict.fromkeys(index["weight_map"], "model.safetensors")
    (folder / INDEX).write_text(json.dumps(index | {"weight_map": names}))
    assert "ignores the index" not in messages(check(folder))


def test_layers_that_the_index_lacks_are_named_without_the_shards(tmp_path: Path) -> None:
    folder = model(tmp_path / "m", num_hidden_layers=3)
    for path in folder.glob("*.safetensors"):
        path.unlink()
    assert "layers without tensors: 2 (of 3)" in messages(check(folder))


def test_an_unknown_class_is_unknown(tmp_path: Path) -> None:
    folder = model(tmp_path / "m", architectures=["NewestForCausalLM"])
    report = check(folder)
    assert report.verdict is Verdict.UNKNOWN
    (text,) = [item.message for item in report.findings if item.rule == "model-class"]
    assert text.startswith("names and shapes were not compared")


def test_small_files_that_are_pointers(tmp_path: Path) -> None:
    folder = model(tmp_path / "m")
    for name in ("config.json", "tokenizer.json"):
        (folder / name).write_text(POINTER)
    told = messages(check(folder))
    assert told.count("git-lfs pointer") == 2


def test_an_empty_or_missing_folder(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert "config.json: file not found" in messages(check(tmp_path / "empty"))
    assert "folder not found" in messages(check(tmp_path / "none"))


def test_the_locked_digests_are_compared(tmp_path: Path) -> None:
    folder = model(tmp_path / "m")
    facts = check(folder).data["hosts"][0]
    same = {key: facts[key] for key in ("config_sha256", "index_sha256")}
    assert check(folder, **same).verdict is Verdict.OK
    told = messages(check(folder, config_sha256="0" * 64))
    assert "expected sha256 000" in told and facts["config_sha256"] in told


def test_the_script_runs_alone(tmp_path: Path) -> None:
    """As it is sent to a host: its text on standard input, nothing installed, no site packages."""
    folder = model(tmp_path / "a model")
    answer = subprocess.run(
        [sys.executable, "-I", "-S", "-", str(folder)],
        input=Path(shards.__file__).read_text(encoding="utf-8"),
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(answer.stdout) == json.loads(json.dumps(shards.inspect_folder(folder)))


@given(data=st.data())
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
def test_random_damage_never_raises(data: st.DataObject, tmp_path: Path) -> None:
    folder = model(tmp_path / "m")
    names = sorted(path.name for path in folder.iterdir() if path.name != "tokenizer.json")
    path = folder / data.draw(st.sampled_from(names))
    content = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] ^= data.draw(st.integers(1, 255))
    path.write_bytes(bytes(content[: data.draw(st.integers(0, len(content)))]))
    report = check(folder)
    assert report.checks
    json.dumps(report.to_json())
