"""Logs that are no texts: an answer, no traceback, little memory."""

import gzip
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from reprise.triage.engine import examine

FAILURE = (
    b'(W pid=1) Traceback (most recent call last):\n(W pid=1)   File "a.py", line 3, in load\n'
    b"(W pid=1) torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
)
FILLER = b"(W pid=1) step done in 3.1 s, all is well\n" * 200


def found(path: Path) -> tuple[str, int]:
    diagnosis = examine([path]).diagnosis
    assert diagnosis.root is not None
    return diagnosis.category, diagnosis.root.first.line


def test_binary_junk_around_a_failure(tmp_path: Path) -> None:
    junk = random.Random(3).randbytes(300_000)
    log = tmp_path / "a.log"
    log.write_bytes(junk + b"\n" + FAILURE + junk)
    assert found(log) == ("gpu_oom", junk.count(b"\n") + 4)


def test_a_line_of_a_hundred_megabytes(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    with log.open("wb") as file:
        file.write(FILLER)
        for _ in range(100):
            file.write(b"x" * 1_000_000)
        file.write(b" CUDA out of memory. Tried to allocate 1.00 GiB in the same line\n")
    code = (
        "import re, sys; from pathlib import Path\n"
        "from reprise.triage.engine import examine\n"
        "d = examine([Path(sys.argv[1])]).diagnosis\n"
        # Not ru_maxrss: that begins with the memory of the process that started this one.
        "peak = re.search(r'VmHWM:\\s+(\\d+)', Path('/proc/self/status').read_text())[1]\n"
        "print(d.category, d.root.first.line, peak)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, str(log)], capture_output=True, text=True, check=True
    )
    category, line, peak = ran.stdout.split()
    assert (category, int(line)) == ("gpu_oom", 201)
    assert int(peak) < 200 * 1024


def test_a_line_without_an_end_and_windows_line_ends(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(FILLER + FAILURE.rstrip(b"\n"))
    assert found(log) == ("gpu_oom", 203)
    log.write_bytes((FILLER + FAILURE).replace(b"\n", b"\r\n"))
    assert found(log) == ("gpu_oom", 203)


def test_a_progress_bar_that_rewrites_its_line(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    bar = b"".join(b"\rTraining Progress: %d%%|##   |" % n for n in range(50))
    log.write_bytes(FILLER + bar + b"\r" + FAILURE)
    assert found(log) == ("gpu_oom", 203)


@pytest.mark.parametrize("cut", [1, 9, 200])
def test_a_packed_file_that_ends_early(tmp_path: Path, cut: int) -> None:
    noise = os.urandom(60_000).hex().encode()
    packed = gzip.compress(FAILURE + FILLER + noise, mtime=0)
    log = tmp_path / "a.log.gz"
    log.write_bytes(packed[:-cut])
    examined = examine([log])
    assert examined.diagnosis.category == "gpu_oom"
    assert any("ends early" in text for text in examined.unread)


def test_packed_files_of_several_members_and_damage(tmp_path: Path) -> None:
    log = tmp_path / "a.log.gz"
    log.write_bytes(gzip.compress(FILLER) + gzip.compress(FAILURE))
    assert found(log) == ("gpu_oom", 203)
    assert not examine([log]).unread
    packed = bytearray(gzip.compress(FAILURE + os.urandom(50_000)))
    packed[len(packed) // 2 : len(packed) // 2 + 40] = bytes(40)
    log.write_bytes(packed)
    examined = examine([log])
    assert any("damaged" in text or "ends early" in text for text in examined.unread)


def test_other_packings_are_named_not_guessed(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(b"\x28\xb5\x2f\xfd" + bytes(100))
    examined = examine([log])
    assert examined.diagnosis.state.value == "unknown"
    assert any("zstd" in text for text in examined.unread)


@pytest.mark.parametrize(
    "stamp",
    [
        "2026-08-02 10:00:{:02d},120 ERROR ",
        "[2026-08-02 10:00:{:02d}] ",
        "ERROR 08-02 10:00:{:02d} [core.py:10] ",
        "[rank0]:[E802 10:00:{:02d}.100 x.cpp:1] ",
        "2026-08-02T10:00:{:02d}.120Z stderr F ",
        "Aug  2 10:00:{:02d} n1 kernel: ",
    ],
)
def test_clock_formats_are_compared(tmp_path: Path, stamp: str) -> None:
    # The other file's failure is at second 30, in the commonest form.
    other = "2026-08-02 10:00:30,000 ERROR OSError: [Errno 28] No space left on device\n"
    line = "OSError: [Errno 116] Stale file handle: '/mnt/x'\n"
    (tmp_path / "b.log").write_text(other)
    for second, category in ((10, "io_error"), (50, "disk_full")):
        (tmp_path / "a.log").write_text(stamp.format(second) + line)
        assert examine([tmp_path]).diagnosis.category == category


def test_colours_and_folded_repeats_are_counted(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    line = "\x1b[36m(WorkerDict pid={}, ip=10.8.0.1{})\x1b[0m [rank{}]: torch.OutOfMemoryError: "
    line += "CUDA out of memory. Tried to allocate 2.00 GiB"
    log.write_text(
        "\n".join(line.format(40 + n, n, n) for n in range(3)) + " [repeated 5x across cluster]\n"
    )
    found = examine([log]).diagnosis.root
    assert found is not None
    assert found.count == 8 and found.ranks == {0, 1, 2}
    assert found.hosts == {"10.8.0.10", "10.8.0.11", "10.8.0.12"}


def test_empty_files_and_folders(tmp_path: Path) -> None:
    assert examine([tmp_path]).diagnosis.state.value == "unknown"
    (tmp_path / "a.log").write_bytes(b"")
    assert examine([tmp_path]).diagnosis.state.value == "unknown"


def test_many_unfinished_tracebacks_do_not_stop_it(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    begun = b"".join(
        b"(A pid=%d) Traceback (most recent call last):\n" % n + b"(B pid=1) text\n" * 5
        for n in range(400)
    )
    log.write_bytes(begun + FAILURE)
    assert found(log)[0] == "gpu_oom"
