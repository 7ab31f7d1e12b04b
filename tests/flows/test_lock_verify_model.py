"""`lock verify` of models: what the Hub's cache holds at the locked revision."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from data.hub_server import REVISION, Behaviour, serving
from huggingface_hub import constants, hf_hub_download

from reprise.flows.lock.verify import verify_entries
from reprise.lock import parse_lock
from reprise.lock.rows import Row, ThisMachine
from reprise.models.fetch import remember_folder

FILES = {
    "config.json": b'{"model_type": "hy_v3"}',
    "model.safetensors.index.json": b'{"weight_map": {}}',
    "model.safetensors": b"weights",
}
CONFIG, INDEX, WHOLE = FILES


def digest(file: str) -> str:
    return hashlib.sha256(FILES[file]).hexdigest()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An empty cache, and a hub to fill it from; yields the hub's endpoint."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    with serving(Behaviour(dict(FILES))) as endpoint:
        yield endpoint


def fetch(endpoint: str, *files: str) -> None:
    for file in files:
        hf_hub_download("org/tiny", file, revision=REVISION, endpoint=endpoint, token=False)


def row(folder: Path, **digests: str) -> Row:
    lines = "".join(f'{key} = "{value}"\n' for key, value in digests.items())
    lock = parse_lock(
        f'schema = 1\n[model.tiny]\nmachines = ["h20"]\nrepo = "org/tiny"\n'
        f'revision = "{REVISION}"\n{lines}'
    )
    _, (found,) = verify_entries(lock, ["model.tiny"], ThisMachine(folder))
    return found


def test_config_and_index_as_locked(cache: str, tmp_path: Path) -> None:
    locked = {"config_sha256": digest(CONFIG), "index_sha256": digest(INDEX)}
    assert row(tmp_path, **locked).state == "missing"
    fetch(cache, CONFIG)
    found = row(tmp_path, **locked)
    assert (found.state, INDEX in found.message) == ("missing", True)
    fetch(cache, INDEX)
    assert row(tmp_path, **locked).state == "ok"
    other = row(tmp_path, config_sha256="0" * 64, index_sha256=digest(INDEX))
    assert (other.state, other.found) == ("drift", digest(CONFIG))


def test_without_a_digest_it_is_not_known(cache: str, tmp_path: Path) -> None:
    fetch(cache, CONFIG, INDEX)
    found = row(tmp_path, config_sha256=digest(CONFIG))
    assert found.state == "unknown" and digest(INDEX) in found.message
    assert row(tmp_path, config_sha256="0" * 64).state == "drift"
    assert row(tmp_path, index_sha256="0" * 64).state == "drift"


def test_a_model_in_one_file_needs_no_index(cache: str, tmp_path: Path) -> None:
    fetch(cache, CONFIG)
    locked = {"config_sha256": digest(CONFIG)}
    assert row(tmp_path, **locked).state == "missing"
    fetch(cache, WHOLE)
    assert row(tmp_path, **locked).state == "ok"
    # An index that the lock names must be there all the same.
    assert row(tmp_path, **locked, index_sha256=digest(INDEX)).state == "missing"


def test_the_folder_that_has_the_weights(cache: str, tmp_path: Path) -> None:
    """`model fetch` and `model check --lock` note it; the cache does not count then."""
    folder = tmp_path / "weights"
    folder.mkdir()
    for file, content in FILES.items():
        (folder / file).write_bytes(content)
    locked = {"config_sha256": digest(CONFIG), "index_sha256": digest(INDEX)}
    assert row(tmp_path, **locked).state == "missing"
    remember_folder(tmp_path, "tiny", folder)
    assert row(tmp_path, **locked).state == "ok"
    (folder / INDEX).write_bytes(b"other")
    assert row(tmp_path, **locked).state == "drift"
    (folder / INDEX).unlink()
    found = row(tmp_path, **locked)
    assert found.state == "missing" and str(folder) in found.message
