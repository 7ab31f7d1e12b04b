"""Where nobody answers, and where the network breaks off in the middle."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from reprise.core.errors import OperatorError
from reprise.hub import download
from reprise.hub.download import Remote
from reprise.hub.huggingface import Hub, Unreached, download_explained, retries_told
from reprise.hub.verified import Verified
from reprise.models.fetch import ModelWanted, fetch_model

from .hub_server import REVISION, Behaviour, serving

ROOT = Path(__file__).resolve().parents[2]
NOBODY = "http://me:hush@127.0.0.1:9"


@pytest.mark.parametrize("command", ["data fetch", "model fetch hy3 there"])
def test_nobody_answers_is_one_finding_and_no_other_line(command: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "reprise", *command.split(), "--mirror", NOBODY],
        cwd=ROOT,
        env=os.environ | {"DATA_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (2, "")
    first, fix, verdict = done.stdout.splitlines()
    assert first.startswith("warning http://***@127.0.0.1:9: could not be asked: ConnectError")
    assert "--mirror URL" in fix
    assert "(0 checks passed, 0 failed, 1 could not be evaluated)" in verdict


def test_a_hub_that_nobody_reaches_is_asked_once() -> None:
    hub = Hub("http://127.0.0.1:9")
    with pytest.raises(Unreached) as first:
        hub.find("dataset", "org/a", REVISION, "a", None, None)
    with pytest.raises(Unreached) as second:
        hub.find("dataset", "org/b", REVISION, "b", None, None)
    assert second.value is first.value


def test_what_the_server_says_is_no_silence() -> None:
    with serving(Behaviour({"config.json": b"{}"}, commits={"main": REVISION})) as endpoint:
        with pytest.raises(OperatorError, match="HTTP 404"):
            Hub(endpoint).files("org/m", "other")
        assert set(Hub(endpoint).files("org/m", "main")) == {"config.json"}


def test_a_connection_that_is_reset_does_not_end_a_download(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "PAUSES", (0,))
    data = os.urandom(24_000_000)
    # Two breaks and one pause: bytes come between them, 10 MiB at a time.
    told = Behaviour({"w": data}, cut=11_000_000, cuts=2, reset=True)
    said: list[str] = []
    with serving(told) as endpoint, retries_told(said.append):
        url = f"{endpoint}/org/m/resolve/{REVISION}/w"
        remote = Remote(url, "the file w", len(data), hashlib.sha256(data).hexdigest())
        download_explained(remote, tmp_path / "w")
    assert (tmp_path / "w").read_bytes() == data
    assert told.cuts == 0
    assert any(line.startswith("the file w: ") for line in said)


def test_weights_are_not_asked_for_where_nobody_answers_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "PAUSES", ())
    files = {f"{n}.safetensors": Remote(f"{NOBODY}/{n}", f"{n}", 10, None) for n in range(9)}
    errors = fetch_model(
        files, ModelWanted("m", "org/m", REVISION), tmp_path / "m", Verified(tmp_path / "v.json")
    )
    *asked, last = errors
    assert len(asked) < len(files)
    assert all(isinstance(error, Unreached) for error in asked)
    assert f"{len(files) - len(asked)} more files were not asked for" in last.message
