"""An environment as a folder (a site tree), trimmed and packed, for machines that have torch.

A machine with its own Python and torch needs neither an installer nor an index: a folder on
its import path is enough. What is left out of it is listed in a TOML file, each with its reason.
"""

from __future__ import annotations

import fnmatch
import lzma
import os
import shutil
import subprocess
import tarfile
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.markers import Marker

from reprise.core.errors import OperatorError
from reprise.core.files import dump_json, sha256_file, sha256_text, write_text, writing
from reprise.core.parallel import in_parallel
from reprise.core.pip import find_pip
from reprise.lock.requirements import read_pins
from reprise.trees.git import git

__all__ = [
    "Move",
    "Trim",
    "TrimFile",
    "build_site",
    "pack_checkout",
    "pack_files",
    "pack_folder",
    "read_trim",
    "trim_site",
]

RECORD = "reprise-site.json"
# Newest glibc of the platforms whose wheels are taken: that of Ubuntu 24.04, as verl's images have.
_GLIBC_MINOR = 39
# Bytes that go into one archive: about a quarter of it remains after compression.
_ARCHIVE = 160 * 2**20
_PRESET = 6


@dataclass(frozen=True, slots=True)
class Trim:
    """One rule: what matches `pattern` below the site tree is left out, because of `why`."""

    pattern: str
    why: str


@dataclass(frozen=True, slots=True)
class Move:
    """One file `source` of the site tree stands at `target` instead, because of `why`."""

    source: str
    target: str
    why: str


@dataclass(frozen=True, slots=True)
class TrimFile:
    """How a site tree differs from what an installer makes."""

    leave_out: tuple[Trim, ...] = ()
    moves: tuple[Move, ...] = ()


def read_trim(path: Path) -> TrimFile:
    """A trim file: `[[leave_out]]` tables with `pattern` and `why`, `[[move]]` with `from`, `to`.

    A pattern is matched against a path below the tree; `*` also matches `/`. A move names two
    files and has its `why` as well; it comes first. Raises OperatorError.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
        left_out = tuple(Trim(str(r["pattern"]), str(r["why"])) for r in content["leave_out"])
        moves = tuple(
            Move(str(row["from"]), str(row["to"]), str(row["why"]))
            for row in content.get("move", [])
        )
    except (tomllib.TOMLDecodeError, KeyError, TypeError) as error:
        raise OperatorError("site-trim.unreadable", str(path), error=error) from error
    for move in moves:
        for name in (move.source, move.target):
            if any(part in ("", ".", "..") for part in name.split("/")):
                raise OperatorError("site-trim.outside", str(path), name=name)
    return TrimFile(left_out, moves)


def build_site(requirements: Path, trim: Path | None, python: str, folder: Path) -> Path:
    """Install the pins of `requirements` for Python `python` (3.12) into a folder below `folder`.

    The folder is named after what decides its content and taken again when it is there. Wheels are
    those of x86_64 Linux. Without `trim` nothing is left out. Raises OperatorError when pip fails.
    """
    rules = read_trim(trim) if trim is not None else TrimFile()
    trim_sha256 = sha256_file(trim) if trim is not None else ""
    content = f"{python} {sha256_file(requirements)} {trim_sha256}"
    target = folder / f"site-{sha256_text(content)[:16]}"
    if (target / RECORD).is_file():
        return target
    half = folder / f"{target.name}.half"
    if half.exists():
        shutil.rmtree(half)
    _install(requirements, python, half)
    left_out = trim_site(half, rules)
    record = {
        "python": python,
        "requirements_sha256": sha256_file(requirements),
        "trim_sha256": trim_sha256,
        "bytes": sum(path.stat().st_size for path in half.rglob("*") if path.is_file()),
        "left_out_bytes": left_out,
    }
    dump_json(half / RECORD, record)
    half.rename(target)
    return target


def _pins_for(requirements: Path, python: str) -> str:
    """The pins that hold for `python` on x86_64 Linux: pip asks the Python that runs it instead."""
    machine = {
        "python_version": python,
        "python_full_version": f"{python}.0",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "os_name": "posix",
        "sys_platform": "linux",
        "platform_system": "Linux",
        "platform_machine": "x86_64",
    }
    lines: list[str] = []
    for pin in read_pins(requirements):
        if not pin.marker or Marker(pin.marker).evaluate(machine):
            hashes = (f"--hash=sha256:{value}" for value in pin.sha256)
            lines.append(" ".join((f"{pin.name}=={pin.version}", *hashes)))
    return "".join(f"{line}\n" for line in lines)


def _install(requirements: Path, python: str, target: Path) -> None:
    chosen = target.with_name(f"{target.name}.txt")
    write_text(chosen, _pins_for(requirements, python))
    platforms = ["manylinux2014", "manylinux2010", "manylinux1"]
    platforms += [f"manylinux_2_{minor}" for minor in range(5, _GLIBC_MINOR + 1)]
    command = [*find_pip(), "install", "-q", "--no-deps", "--require-hashes", "--no-input"]
    # `pip install` compares Requires-Python with the Python that runs pip.
    command += ["--ignore-requires-python"]
    command += ["--no-compile", "--python-version", python, "--implementation", "cp"]
    command += ["--abi", "cp" + python.replace(".", ""), "--abi", "abi3", "--abi", "none"]
    command += [word for name in platforms for word in ("--platform", f"{name}_x86_64")]
    command += ["--target", str(target.absolute()), "-r", str(chosen.absolute())]
    done = subprocess.run(
        command, capture_output=True, encoding="utf-8", errors="replace", check=False
    )
    if done.returncode != 0:
        said = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        message = (said or done.stderr.strip().splitlines() or ["pip failed"])[-1]
        raise OperatorError("site-install.pip", str(requirements), reason=message)


def trim_site(tree: Path, trim: TrimFile) -> dict[str, int]:
    """Move and remove what the rules name; the bytes that each pattern removed.

    Raises OperatorError for a rule without a file: a package has changed, and with it what must go.
    """
    rules = trim.leave_out
    gone = [move.source for move in trim.moves if not (tree / move.source).is_file()]
    if gone:
        raise OperatorError("site-trim.idle", str(tree), patterns=", ".join(gone))
    for move in trim.moves:
        (tree / move.target).parent.mkdir(parents=True, exist_ok=True)
        (tree / move.source).rename(tree / move.target)
    removed = {rule.pattern: 0 for rule in rules}
    for path in sorted(tree.rglob("*")):
        if not path.is_file() and not path.is_symlink():
            continue
        name = path.relative_to(tree).as_posix()
        rule = next((rule for rule in rules if fnmatch.fnmatchcase(name, rule.pattern)), None)
        if rule is not None:
            removed[rule.pattern] += path.lstat().st_size
            path.unlink()
    idle = [pattern for pattern, size in removed.items() if not size]
    if idle:
        raise OperatorError("site-trim.idle", str(tree), patterns=", ".join(idle))
    for path in sorted(tree.rglob("*"), reverse=True):
        if path.is_dir() and not any(path.iterdir()):
            path.rmdir()
    return removed


def pack_folder(
    folder: Path, into: Path, name: str, on_step: Callable[[str], None] = lambda _: None
) -> list[Path]:
    """Pack `folder` into archives `name-000.tar.xz`, …, each complete in itself; their paths.

    Sorted, without owners and times: the same files give the same bytes. What an earlier call
    finished is kept.
    """
    groups: list[list[Path]] = [[]]
    size = 0
    for path in sorted(folder.rglob("*")):
        if not path.is_file():
            continue
        length = path.stat().st_size
        if groups[-1] and size + length > _ARCHIVE:
            groups.append([])
            size = 0
        groups[-1].append(path)
        size += length
    targets = [into / f"{name}-{index:03d}.tar.xz" for index in range(len(groups))]

    def one(index: int) -> None:
        if not targets[index].exists():
            pack_files(targets[index], folder, groups[index])
            on_step(targets[index].name)

    # xz releases Python's lock: as many at once as there are processors.
    in_parallel(one, range(len(targets)), len(os.sched_getaffinity(0)))
    return targets


def pack_files(target: Path, root: Path, files: Sequence[Path]) -> None:
    """Write a .tar.xz of `files` under their names below `root`, whole or not at all."""
    with (
        writing(target) as out,
        lzma.open(out, "wb", preset=_PRESET) as packed,
        tarfile.open(fileobj=packed, mode="w|", format=tarfile.GNU_FORMAT) as tar,
    ):
        for path in files:
            info = tarfile.TarInfo(path.relative_to(root).as_posix())
            info.size = path.stat().st_size
            info.mode = 0o755 if os.access(path, os.X_OK) else 0o644
            with path.open("rb") as file:
                tar.addfile(info, file)


def pack_checkout(target: Path, checkout: Path, commit: str, paths: Sequence[str]) -> None:
    """Write a .tar.xz of `paths` of a checkout at `commit`, as git has them.

    For machines without git. Raises GitError.
    """
    half = target.with_suffix(".half")
    git("archive", "--format=tar", "-o", str(half.absolute()), commit, *paths, cwd=checkout)
    with writing(target) as out, lzma.open(out, "wb", preset=_PRESET) as packed:
        packed.write(half.read_bytes())
    half.unlink()
