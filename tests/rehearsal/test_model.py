"""The model's cache: its key, and what it says when it cannot build. No torch needed."""

from __future__ import annotations

import dataclasses
import json
import shlex
import sys
from pathlib import Path

import pytest

from reprise.core.errors import OperatorError
from reprise.core.files import sha256_file
from reprise.rehearsal.model import ModelSettings, ensure_model, locked_versions, model_key

VERSIONS = {"torch": "1", "transformers": "2", "tokenizers": "3"}
CHANGED = {"arch": "qwen3"}


@pytest.fixture
def train(tmp_path):
    path = tmp_path / "train.parquet"
    path.write_bytes(b"rows")
    return path


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(ModelSettings)])
def test_every_setting_changes_the_key(field):
    plain = ModelSettings()
    value = CHANGED.get(field) or getattr(plain, field) * 2 + 1
    other = dataclasses.replace(plain, **{field: value})
    assert model_key(plain, "a", VERSIONS) != model_key(other, "a", VERSIONS)


def test_data_and_versions_change_the_key_and_nothing_else_does():
    settings = ModelSettings()
    key = model_key(settings, "a", VERSIONS)
    assert key == model_key(ModelSettings(), "a", dict(reversed(VERSIONS.items())))
    assert key != model_key(settings, "b", VERSIONS)
    assert key != model_key(settings, "a", VERSIONS | {"torch": "1.1"})
    assert key.startswith("hy3-")


def test_a_missing_interpreter_or_training_file_is_named(tmp_path, train):
    with pytest.raises(OperatorError) as error:
        ensure_model(tmp_path / "cache", tmp_path / "python", train, VERSIONS)
    assert (error.value.rule, error.value.where) == ("rehearsal-python", str(tmp_path / "python"))
    with pytest.raises(OperatorError) as error:
        ensure_model(tmp_path / "cache", Path(sys.executable), tmp_path / "none", VERSIONS)
    assert (error.value.rule, error.value.where) == ("toy-data", str(tmp_path / "none"))


def test_a_builder_that_fails_is_reported_with_its_last_line_and_leaves_no_model(tmp_path, train):
    """The interpreter is real, but has none of the rehearsal's packages (-S -E by a wrapper)."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -I -S "$@"\n')
    python.chmod(0o755)
    cache = tmp_path / "cache"
    with pytest.raises(OperatorError) as error:
        ensure_model(cache, python, train, VERSIONS)
    assert "ModuleNotFoundError" in error.value.message
    assert Path(error.value.where).is_file()
    assert [path for path in cache.iterdir() if path.is_dir()] == []


def test_a_kept_model_is_returned_without_starting_the_builder(tmp_path, train):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexit 7\n")
    python.chmod(0o755)
    cache = tmp_path / "cache"
    folder = cache / model_key(ModelSettings(), sha256_file(train), VERSIONS)
    folder.mkdir(parents=True)
    weights = folder / "model.safetensors"
    weights.write_bytes(b"weights")
    digest = sha256_file(weights)
    (folder / "provenance.json").write_text(json.dumps({"weights_sha256": digest}))
    model = ensure_model(cache, python, train, VERSIONS)
    assert (model.path, model.sha256) == (folder, digest)

    weights.write_bytes(b"damaged")
    with pytest.raises(OperatorError, match="code 7"):
        ensure_model(cache, python, train, VERSIONS)
    assert not folder.exists()


def test_locked_versions_reads_pins_and_names_what_is_missing(tmp_path):
    requirements = tmp_path / "requirements.txt"
    requirements.write_text(
        "tokenizers==0.22.2 \\\n    --hash=sha256:00\ntorch==2.13.0\ntransformers==5.6.0 ; x\n"
    )
    assert locked_versions(requirements) == {
        "torch": "2.13.0",
        "transformers": "5.6.0",
        "tokenizers": "0.22.2",
    }
    requirements.write_text("torch==2.13.0\n# transformers==5.6.0\n")
    with pytest.raises(OperatorError, match="transformers, tokenizers"):
        locked_versions(requirements)
