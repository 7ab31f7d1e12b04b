"""Locks of files: held, refused, and on storage that has none."""

import os
import subprocess
import sys
from pathlib import Path

import orjson
import pytest

from reprise.core.files import hold_lock, try_lock
from reprise.core.project import find_project
from tests.locks import without_locks

ROOT = find_project().root


def test_a_lock_is_held_shared_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with path.open("ab") as one, path.open("ab") as other:
        assert hold_lock(one.fileno(), lambda: pytest.fail("nobody has it"))
        assert try_lock(other.fileno()) is False
        assert try_lock(other.fileno(), shared=True) is False
    with path.open("ab") as one, path.open("ab") as other:
        assert try_lock(one.fileno(), shared=True) and try_lock(other.fileno(), shared=True)


def python(code: str, tmp_path: Path) -> str:
    variables = {**os.environ, **without_locks(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=variables,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def test_storage_without_locks_is_told_from_a_lock_that_is_held(tmp_path: Path) -> None:
    code = (
        "import sys; from reprise.core.files import *\n"
        f"file = open({str(tmp_path / 'lock')!r}, 'ab')\n"
        "print(try_lock(file.fileno()), hold_lock(file.fileno(), sys.exit))"
    )
    assert python(code, tmp_path).split() == ["None", "False"]


def test_downloads_and_setup_work_there_and_train_says_what_is_missing(tmp_path: Path) -> None:
    code = (
        "import orjson; from pathlib import Path; from reprise.core.findings import Report\n"
        "from reprise.flows.train.disk import check_storage\n"
        "from reprise.hub.place import part_file\n"
        "from reprise.trees.setup import alone\n"
        f"folder = Path({str(tmp_path)!r})\n"
        "with alone(folder / 'lock', print), part_file(folder / 'file') as file:\n"
        "    file.write(b'whole')\n"
        "report = Report('train')\n"
        "check_storage(report, folder / 'runs', None)\n"
        "print(orjson.dumps([[f.rule, f.message] for f in report.findings]).decode())"
    )
    ((rule, message),) = orjson.loads(python(code, tmp_path))
    assert rule == "train-storage"
    assert "no file locks" in message and "3 minutes" in message
    assert (tmp_path / "file").read_bytes() == b"whole"
