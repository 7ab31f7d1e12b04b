"""Fetching locked files from a hub, its cache, a folder; and everything that can go wrong."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import hf_hub_download

from reprise.core.errors import CannotTell, OperatorError
from reprise.data.fetch import Places, Wanted, count_rows, fetch
from reprise.data.read.parquet import write_rows
from reprise.hub.huggingface import Hub
from reprise.hub.verified import Verified

from .hub_server import REVISION, Behaviour, serving
from .inputs import row

FILE = "data/a.parquet"


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_TOKEN", "HF_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)


def content(folder: Path) -> bytes:
    path = folder / "made.parquet"
    rows = [
        row(f"{i}+1?", str(i + 1), extra_info={"split": "train", "index": i}) for i in range(50)
    ]
    write_rows(path, rows)
    return path.read_bytes()


class Site:
    """A data folder, a cache and a memory of its own."""

    def __init__(self, folder: Path, data: bytes, rows: int | None = None) -> None:
        self.target = folder / "DATA" / "set" / "a.parquet"
        self.cache = folder / "cache"
        self.verified = Verified(folder / "verified.json")
        self.wanted = Wanted(
            "a",
            "org/set",
            REVISION,
            FILE,
            self.target,
            hashlib.sha256(data).hexdigest(),
            len(data),
            rows,
        )

    def fetch(self, *endpoints: str, **options: Any) -> Any:
        hubs = [Hub(endpoint, self.cache) for endpoint in endpoints]
        places = Places(hubs, options.pop("local", None))
        return fetch(self.wanted, places, self.verified, **options)

    def names(self) -> list[str]:
        folder = self.target.parent
        return sorted(item.name for item in folder.iterdir()) if folder.exists() else []


@pytest.fixture()
def data(tmp_path: Path) -> bytes:
    return content(tmp_path)


def test_from_the_hub_then_nothing_to_do(tmp_path: Path, data: bytes) -> None:
    site = Site(tmp_path, data, rows=50)
    told = Behaviour({FILE: data})
    with serving(told) as endpoint:
        first = site.fetch(endpoint)
        asked = len(told.requests)
        again = site.fetch(endpoint)
    assert site.target.read_bytes() == data
    assert site.names() == ["a.parquet"]
    assert (first.how, first.origin) == ("download", endpoint)
    assert again.how == "present"
    assert len(told.requests) == asked
    assert all(f"/resolve/{REVISION}/" in line for line in told.requests)


def in_cache(site: Site, data: bytes) -> Path:
    """What another program's download has left in huggingface_hub's cache."""
    with serving(Behaviour({FILE: data})) as endpoint:
        found = hf_hub_download(
            "org/set",
            FILE,
            repo_type="dataset",
            revision=REVISION,
            endpoint=endpoint,
            cache_dir=site.cache,
        )
    return Path(found).resolve()


def test_from_the_cache_without_a_network(tmp_path: Path, data: bytes) -> None:
    site = Site(tmp_path, data)
    blob = in_cache(site, data)
    assert site.fetch("http://127.0.0.1:9").how == "hard link"
    assert site.target.read_bytes() == data
    assert site.target.stat().st_ino == blob.stat().st_ino
    assert site.names() == ["a.parquet"]


def test_a_damaged_cache_is_not_used(tmp_path: Path, data: bytes) -> None:
    site = Site(tmp_path, data)
    in_cache(site, data).write_bytes(b"x" * len(data))
    with serving(Behaviour({FILE: data})) as endpoint:
        assert site.fetch(endpoint).how == "download"
    assert site.target.read_bytes() == data


def test_the_token_comes_from_the_environment_only(
    tmp_path: Path, data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = Behaviour({FILE: data})
    with serving(told) as endpoint:
        Site(tmp_path / "a", data).fetch(endpoint)
        assert set(told.tokens) == {None}
        monkeypatch.setenv("HF_TOKEN", "hf_secret")
        Site(tmp_path / "b", data).fetch(endpoint)
    assert "Bearer hf_secret" in told.tokens


def test_the_endpoint_of_the_environment_is_used(
    tmp_path: Path, data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(Behaviour({FILE: data})) as endpoint:
        monkeypatch.setenv("HF_ENDPOINT", endpoint + "/")
        assert Hub().endpoint == endpoint
        assert Hub("http://other").endpoint == "http://other"


@pytest.mark.parametrize("layout", ["set/a.parquet", "data/a.parquet", "a.parquet", None])
def test_from_a_folder_or_a_file(layout: str | None, tmp_path: Path, data: bytes) -> None:
    local = tmp_path / "local" / (layout or "other-name")
    local.parent.mkdir(parents=True)
    local.write_bytes(data)
    site = Site(tmp_path, data)
    done = site.fetch(local=local if layout is None else tmp_path / "local")
    assert done.how in ("copy", "reflink")
    assert site.target.read_bytes() == data
    # The operator's own file stays apart from ours.
    assert site.target.stat().st_ino != local.stat().st_ino


def test_a_local_file_of_other_bytes_is_refused(tmp_path: Path, data: bytes) -> None:
    local = tmp_path / "a.parquet"
    local.write_bytes(data[:-1] + b"x")
    site = Site(tmp_path, data)
    with pytest.raises(OperatorError, match="expected sha256"):
        site.fetch(local=local)
    assert site.names() == []


def test_another_file_in_the_way_stays_until_replace(tmp_path: Path, data: bytes) -> None:
    site = Site(tmp_path, data)
    site.target.parent.mkdir(parents=True)
    site.target.write_bytes(b"mine")
    with serving(Behaviour({FILE: data})) as endpoint:
        with pytest.raises(OperatorError, match="another file is in place") as caught:
            site.fetch(endpoint)
        assert "--replace" in caught.value.fix
        assert site.target.read_bytes() == b"mine"
        site.fetch(endpoint, replace=True)
    assert site.target.read_bytes() == data


def test_deep_reads_what_memory_would_pass(tmp_path: Path, data: bytes) -> None:
    site = Site(tmp_path, data)
    with serving(Behaviour({FILE: data})) as endpoint:
        site.fetch(endpoint)
    before = site.target.stat()
    with site.target.open("r+b") as file:
        file.seek(100)
        file.write(b"\x00\x01")
    os.utime(site.target, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert site.fetch().how == "present"
    with pytest.raises(OperatorError, match="another file is in place"):
        site.fetch(deep=True)


def test_a_server_with_other_bytes_is_refused_before_the_download(
    tmp_path: Path, data: bytes
) -> None:
    site = Site(tmp_path, data)
    for other in (data[:-5], data[:-1] + b"x"):
        told = Behaviour({FILE: other})
        with serving(told) as endpoint, pytest.raises(OperatorError, match="not the locked file"):
            site.fetch(endpoint)
        assert all(line.startswith("HEAD") for line in told.requests)
    assert site.names() == []


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [
        (401, 2, "HF_TOKEN"),
        (403, 2, "HF_TOKEN"),
        (404, 1, "check the lock entry"),
        (429, 2, "wait"),
        (500, 2, "repeat"),
        (503, 2, "repeat"),
    ],
)
def test_http_errors_are_findings(
    status: int, code: int, words: str, tmp_path: Path, data: bytes
) -> None:
    site = Site(tmp_path, data)
    with (
        serving(Behaviour({FILE: data}, status=status)) as endpoint,
        pytest.raises(OperatorError) as caught,
    ):
        site.fetch(endpoint)
    assert caught.value.exit_code == code
    assert words in caught.value.fix
    assert endpoint in caught.value.where
    assert site.names() == []


def test_a_server_that_is_not_there(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(CannotTell):
        Site(tmp_path, data).fetch("http://127.0.0.1:9")


def test_the_next_mirror_is_tried(tmp_path: Path, data: bytes) -> None:
    site = Site(tmp_path, data)
    with (
        serving(Behaviour(status=503)) as bad,
        serving(Behaviour({FILE: data})) as good,
    ):
        assert site.fetch(bad, good).origin == good


def test_a_server_that_lies_about_its_bytes(tmp_path: Path) -> None:
    """Its digest is right but not what it sends: refused, and nothing of it is kept."""
    data = os.urandom(100_000)
    site = Site(tmp_path, data)
    told = Behaviour({FILE: data}, sent=bytes([data[0] ^ 1]) + data[1:])
    with serving(told) as endpoint:
        with pytest.raises(OperatorError, match="the server sent"):
            site.fetch(endpoint)
        assert not site.target.exists()
        told.sent = None
        site.fetch(endpoint)
    assert site.target.read_bytes() == data


def leave_part(target: Path, data: bytes, count: int, wrong: bool = False) -> None:
    """What a killed download leaves: its bytes, and of which file they are."""
    part = bytes(count) if wrong else data[:count]
    target.parent.mkdir(parents=True, exist_ok=True)
    (target.parent / f".{target.name}.part").write_bytes(part)
    digest = hashlib.sha256(data).hexdigest()
    (target.parent / f".{target.name}.part.of").write_text(f"{digest} {len(data)}\n")


def test_a_part_is_resumed(tmp_path: Path) -> None:
    data = os.urandom(3_000_000)
    site = Site(tmp_path, data)
    leave_part(site.target, data, 40_000)
    told = Behaviour({FILE: data})
    with serving(told) as endpoint:
        site.fetch(endpoint)
    assert site.target.read_bytes() == data
    assert any("bytes=40000-" in line for line in told.requests)
    assert site.names() == ["a.parquet"]


def test_a_part_of_another_file_is_not_resumed(tmp_path: Path) -> None:
    data = os.urandom(100_000)
    site = Site(tmp_path, data)
    site.target.parent.mkdir(parents=True)
    (site.target.parent / ".a.parquet.part").write_bytes(b"of another program")
    told = Behaviour({FILE: data})
    with serving(told) as endpoint:
        site.fetch(endpoint)
    assert site.target.read_bytes() == data
    assert not any("bytes=" in line for line in told.requests)


def test_wrong_bytes_after_a_resume_start_over(tmp_path: Path) -> None:
    """A part that was damaged on the disk: the server is not blamed."""
    data = os.urandom(100_000)
    site = Site(tmp_path, data)
    leave_part(site.target, data, 40_000, wrong=True)
    counted: list[int] = []
    with serving(Behaviour({FILE: data})) as endpoint:
        site.fetch(endpoint, progress=counted.append)
    assert site.target.read_bytes() == data
    assert sum(counted) == len(data)


@pytest.mark.parametrize("ranges", [True, False])
@pytest.mark.parametrize("part", [0, 40_000])
def test_a_page_instead_of_the_file_leaves_the_part(
    tmp_path: Path, part: int, ranges: bool
) -> None:
    """A login page, with status 200 for any request, even for the rest of a file."""
    data = os.urandom(100_000)
    site = Site(tmp_path, data)
    page = b"<!DOCTYPE html><html><body>Log in</body></html>" + bytes(100_000)
    if part:
        leave_part(site.target, data, part)
    told = Behaviour({FILE: data}, sent=page[: len(data)], ranges=False)
    with serving(told) as endpoint:
        with pytest.raises(CannotTell, match="page in HTML"):
            site.fetch(endpoint)
        assert (site.target.parent / ".a.parquet.part").read_bytes() == data[:part]
        told.sent, told.ranges = None, ranges
        site.fetch(endpoint)
    assert site.target.read_bytes() == data


def test_a_slow_line_that_breaks_keeps_what_came(tmp_path: Path) -> None:
    """Less than 10 MiB between two breaks: every MiB is kept, so the download ends."""
    data = os.urandom(5_000_000)
    site = Site(tmp_path, data)
    told = Behaviour({FILE: data}, cut=1_500_000, cuts=3)
    with serving(told) as endpoint:
        site.fetch(endpoint)
    assert site.target.read_bytes() == data
    starts = [
        int(line.rsplit("bytes=", 1)[1].split("-")[0]) for line in told.requests if "bytes=" in line
    ]
    assert starts == sorted(starts) and starts[0] >= 1 << 20


def test_a_server_without_ranges_starts_again(tmp_path: Path) -> None:
    data = os.urandom(100_000)
    site = Site(tmp_path, data)
    site.target.parent.mkdir(parents=True)
    leave_part(site.target, data, 40_000)
    counted: list[int] = []
    with serving(Behaviour({FILE: data}, ranges=False)) as endpoint:
        site.fetch(endpoint, progress=counted.append)
    assert site.target.read_bytes() == data
    assert sum(counted) == len(data)


def test_a_download_that_is_cut_goes_on_where_it_stopped(tmp_path: Path) -> None:
    data = os.urandom(12_000_000)
    site = Site(tmp_path, data)
    told = Behaviour({FILE: data}, cut=11_000_000, cuts=1)
    with serving(told) as endpoint:
        site.fetch(endpoint)
    assert site.target.read_bytes() == data
    assert any("bytes=10485760-" in line for line in told.requests)  # ten whole pieces of 1 MiB


@pytest.mark.full
def test_a_server_that_always_cuts_is_a_finding(tmp_path: Path) -> None:
    data = os.urandom(300_000)
    site = Site(tmp_path, data)
    with (
        serving(Behaviour({FILE: data}, cut=0, cuts=10_000)) as endpoint,
        pytest.raises(CannotTell, match="download failed"),
    ):
        site.fetch(endpoint)
    assert not site.target.exists()


@pytest.mark.full
def test_a_server_that_fails_after_the_question_is_a_finding(tmp_path: Path, data: bytes) -> None:
    site = Site(tmp_path, data)
    with (
        serving(Behaviour({FILE: data}, get_status=503)) as endpoint,
        pytest.raises(CannotTell, match="HTTP 503"),
    ):
        site.fetch(endpoint)


def test_rows_that_differ_from_the_lock_are_told(tmp_path: Path, data: bytes) -> None:
    site = Site(tmp_path, data, rows=51)
    with serving(Behaviour({FILE: data})) as endpoint:
        site.fetch(endpoint)
    with pytest.raises(OperatorError, match="the lock has 51") as caught:
        count_rows(site.wanted)
    assert "versions.lock" in caught.value.fix


_RUN = """
import sys
from pathlib import Path
from reprise.data.fetch import Places, Wanted, fetch
from reprise.hub.huggingface import Hub
from reprise.hub.verified import Verified
folder, endpoint, sha, size = Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
wanted = Wanted("a", "org/set", sys.argv[5], "data/a.parquet",
                folder / "DATA" / "set" / "a.parquet", sha, size)
print("ready", flush=True)
fetch(wanted, Places([Hub(endpoint, folder / "cache")]), Verified(folder / "verified.json"))
"""


def run(folder: Path, endpoint: str, wanted: Wanted) -> subprocess.Popen[str]:
    arguments = [str(folder), endpoint, wanted.sha256, str(wanted.bytes), REVISION]
    return subprocess.Popen(
        [sys.executable, "-c", _RUN, *arguments], stdout=subprocess.PIPE, text=True
    )


@pytest.mark.full
def test_killed_at_ten_moments(tmp_path: Path) -> None:
    """Each of ten runs is killed a little later than the one before; the last one finishes."""
    data = os.urandom(24_000_000)
    told = Behaviour({FILE: data}, pause=0.004)
    with serving(told) as endpoint:
        for moment in range(10):
            folder = tmp_path / str(moment)
            site = Site(folder, data)
            process = run(folder, endpoint, site.wanted)
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(0.15 * moment)
            process.kill()
            process.wait()
            if site.target.exists():
                assert site.target.read_bytes() == data
            assert run(folder, endpoint, site.wanted).wait() == 0
            assert site.target.read_bytes() == data
            assert site.names() == ["a.parquet"]
    assert any("bytes=" in line for line in told.requests), "no download was taken up again"


def mounted(folder: Path, options: str) -> bool:
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


needs_mount = pytest.mark.skipif(os.geteuid() != 0, reason="mounting a file system needs root")


@needs_mount
def test_a_full_file_system(tmp_path: Path) -> None:
    data = os.urandom(400_000)
    local = tmp_path / "local.parquet"
    local.write_bytes(data)
    small = tmp_path / "small"
    assert mounted(small, "size=200k")
    try:
        for known in (len(data), None):
            site = Site(small, data)
            site.wanted = Wanted(**{
                name: getattr(site.wanted, name) for name in Wanted.__slots__
            } | {"bytes": known})  # fmt: skip
            with pytest.raises(OperatorError, match="no space left") as caught:
                site.fetch(local=local)
            assert caught.value.exit_code == 1
            assert site.names() == []
    finally:
        subprocess.run(["umount", str(small)], check=True)


@needs_mount
def test_a_read_only_folder(tmp_path: Path, data: bytes) -> None:
    local = tmp_path / "local.parquet"
    local.write_bytes(data)
    fixed = tmp_path / "fixed"
    assert mounted(fixed, "ro,size=1m")
    try:
        with pytest.raises(OperatorError, match="cannot write") as caught:
            Site(fixed, data).fetch(local=local)
        assert "DATA_DIR" in caught.value.fix
    finally:
        subprocess.run(["umount", str(fixed)], check=True)


def test_two_fetches_at_once(tmp_path: Path) -> None:
    data = os.urandom(3_000_000)
    site = Site(tmp_path, data)
    told = Behaviour({FILE: data}, pause=0.02)
    with serving(told) as endpoint:
        both = [run(tmp_path, endpoint, site.wanted) for _ in range(2)]
        assert [process.wait() for process in both] == [0, 0]
    assert site.target.read_bytes() == data
    assert site.names() == ["a.parquet"]
    # The one that waited took the file of the other.
    assert len([line for line in told.requests if line.startswith("GET")]) == 1
