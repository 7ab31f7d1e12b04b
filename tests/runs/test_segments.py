import os
import subprocess
import sys
import time
from multiprocessing import shared_memory
from pathlib import Path

import pytest

from reprise.runs.ray.processes import MARK, stop_all
from reprise.runs.ray.segments import Segments, remove_segments
from tests.saying import unique

# Makes a segment, says its name, and is killed before it can remove it.
MAKER = """
import time
from multiprocessing import resource_tracker, shared_memory
made = shared_memory.SharedMemory(create=True, size=1 << 20)
resource_tracker.unregister(made._name, "shared_memory")
print(made.name, flush=True)
time.sleep(60)
"""


def _start(mark: str) -> tuple[subprocess.Popen[str], Path]:
    process = subprocess.Popen(
        [sys.executable, "-c", MAKER],
        env={**os.environ, MARK: mark},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return process, Path("/dev/shm") / process.stdout.readline().strip()


def test_what_a_killed_run_left_in_shared_memory_is_removed_and_no_other(tmp_path: Path) -> None:
    record, run = tmp_path / "segments", unique("shm")
    watch = Segments(run, record)
    ours, our_file = _start(run)
    other, other_file = _start(unique("other"))
    try:
        deadline = time.monotonic() + 90
        while not record.exists() and time.monotonic() < deadline:
            time.sleep(0.1)
        assert record.read_text(encoding="utf-8").split() == [our_file.name]
        ours.kill()
        ours.wait()
        assert our_file.exists()
        watch.close()
        assert stop_all(run) == []
        assert remove_segments(record) == [our_file.name]
        assert not our_file.exists()
        assert other_file.exists()
    finally:
        for process, file in ((ours, our_file), (other, other_file)):
            process.kill()
            process.wait()
            file.unlink(missing_ok=True)


def test_a_segment_still_in_use_is_left_alone(tmp_path: Path) -> None:
    segment = shared_memory.SharedMemory(create=True, size=1 << 12)
    record = tmp_path / "segments"
    try:
        record.write_text(segment.name + "\n")
        assert remove_segments(record) == []
        assert (Path("/dev/shm") / segment.name).exists()
    finally:
        segment.close()
        segment.unlink()


@pytest.mark.parametrize("text", ["", "never-made\n", "../../etc/hostname\n"])
def test_a_record_cannot_name_anything_else(tmp_path: Path, text: str) -> None:
    record = tmp_path / "segments"
    record.write_text(text)
    assert remove_segments(record) == []


def test_no_record_is_no_error(tmp_path: Path) -> None:
    assert remove_segments(tmp_path / "none") == []
