"""`lock update` of data sets and models, against a server that answers as the Hub does."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from data.hub_server import REVISION, Behaviour, serving

from reprise.core.errors import CannotTell, OperatorError
from reprise.flows.lock.update import update_entry
from reprise.lock import read_lock

OLD = "1" * 40
ROWS = b"PAR1 the rows of another revision"
INDEX = json.dumps({"metadata": {}, "weight_map": {"a": "x", "b": "x", "c": "y"}}).encode()
CONFIG = b'{"model_type": "hy_v3"}'
TEXT = f"""# kept
schema = 1

[data.math]
machines = ["h20"]
repo = "org/math"  # a data set
want = "main"
revision = "{OLD}"
file = "data/math.parquet"
path = "math.parquet"
bytes = 1
sha256 = "{"2" * 64}"
rows = 10
unique_prompts = 5

[model.tiny]
machines = ["musa"]
repo = "org/tiny"
want = "main"
revision = "{OLD}"
config_sha256 = "{"3" * 64}"
bytes = 7
tensors = 9
"""


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Behaviour]:
    files = {
        "data/math.parquet": ROWS,
        "README.md": b"small",
        "config.json": CONFIG,
        "model.safetensors.index.json": INDEX,
    }
    commits = {"main": REVISION, "v1": OLD, REVISION: REVISION, OLD: OLD}
    told = Behaviour(files, commits, large={"data/math.parquet"})
    with serving(told) as endpoint:
        monkeypatch.setenv("HF_ENDPOINT", endpoint)
        monkeypatch.delenv("HF_TOKEN", raising=False)
        yield told


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "versions.lock"
    file.write_text(TEXT)
    return file


def test_a_data_set_moves_with_its_bytes(hub: Behaviour, path: Path) -> None:
    report = update_entry(path, "data.math")
    data = read_lock(path).data["math"]
    assert (data.want, data.revision) == ("main", REVISION)
    assert (data.bytes, data.sha256) == (len(ROWS), sha256(ROWS))
    assert (data.rows, data.unique_prompts) == (None, None), "rows were of the old file"
    moved = {row["key"] for row in report.data["moved"]}
    assert moved == {"revision", "bytes", "sha256", "rows", "unique_prompts"}
    assert report.data["machines"] == ["h20"]
    text = path.read_text(encoding="utf-8")
    assert text.startswith("# kept\n") and 'repo = "org/math"  # a data set\n' in text
    assert text.endswith(TEXT[TEXT.index("[model.tiny]") :])


def test_the_same_file_at_another_revision_keeps_its_rows(hub: Behaviour, path: Path) -> None:
    path.write_text(TEXT.replace("2" * 64, sha256(ROWS)))
    update_entry(path, "math", "v1")
    data = read_lock(path).data["math"]
    assert (data.want, data.revision, data.rows, data.unique_prompts) == ("v1", OLD, 10, 5)


def test_a_small_file_that_lies_in_git_is_fetched_and_hashed(hub: Behaviour, path: Path) -> None:
    hub.large.clear()
    update_entry(path, "math")
    data = read_lock(path).data["math"]
    assert (data.bytes, data.sha256) == (len(ROWS), sha256(ROWS))


def test_a_model_moves_with_its_config_and_index(hub: Behaviour, path: Path) -> None:
    report = update_entry(path, "tiny")
    model = read_lock(path).model["tiny"]
    assert (model.revision, model.config_sha256) == (REVISION, sha256(CONFIG))
    assert (model.index_sha256, model.tensors, model.bytes) == (sha256(INDEX), 3, None)
    assert report.data["machines"] == ["musa"]
    assert update_entry(path, "tiny").data["moved"] == []


def test_a_model_in_one_file_has_no_index(hub: Behaviour, path: Path) -> None:
    del hub.files["model.safetensors.index.json"]
    update_entry(path, "tiny")
    model = read_lock(path).model["tiny"]
    assert (model.config_sha256, model.index_sha256, model.tensors) == (sha256(CONFIG), None, None)


def test_what_the_hub_does_not_have(hub: Behaviour, path: Path) -> None:
    for name, ref in (("math", "nothing"), ("tiny", "nothing")):
        with pytest.raises(OperatorError, match="no such branch, tag or commit") as caught:
            update_entry(path, name, ref)
        assert not isinstance(caught.value, CannotTell)
    del hub.files["data/math.parquet"]
    with pytest.raises(OperatorError, match="no file data/math"):
        update_entry(path, "math")
    del hub.files["config.json"]
    with pytest.raises(OperatorError, match=r"no config\.json"):
        update_entry(path, "tiny")
    assert path.read_text(encoding="utf-8") == TEXT


@pytest.mark.parametrize("status", [401, 403, 429, 500])
def test_a_hub_that_refuses_leaves_the_lock(hub: Behaviour, path: Path, status: int) -> None:
    hub.status = status
    for name in ("math", "tiny"):
        with pytest.raises(CannotTell) as caught:
            update_entry(path, name)
        assert caught.value.where.endswith(name)
    assert path.read_text(encoding="utf-8") == TEXT
    if status in (401, 403):
        assert "HF_TOKEN" in caught.value.fix


def test_no_hub_at_all(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    with pytest.raises(CannotTell, match="no answer for"):
        update_entry(path, "tiny")


def test_the_token_comes_from_the_environment_alone(
    hub: Behaviour, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = tmp_path / "token"
    saved.write_text("hf_saved")
    monkeypatch.setenv("HF_TOKEN_PATH", str(saved))
    update_entry(path, "tiny")
    assert set(hub.tokens) == {None}
    monkeypatch.setenv("HF_TOKEN", "hf_named")
    hub.tokens.clear()
    update_entry(path, "math")
    assert set(hub.tokens) == {"Bearer hf_named"}


def test_the_command(hub: Behaviour, path: Path) -> None:
    (path.parent / "recipes").mkdir()
    command = [sys.executable, "-m", "reprise", "lock", "update", "math", "--to", "v1"]
    env = os.environ | {"NO_PROXY": "127.0.0.1"}
    done = subprocess.run(
        command, cwd=path.parent, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "want: main -> v1" in done.stdout
    assert read_lock(path).data["math"].want == "v1"
