"""The source of verl's config files: a checkout, the rehearsal's environment, or the wheel."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from reprise.core.errors import CannotTell, OperatorError

__all__ = ["VerlTree", "find_tree", "tree_at"]

_SHA = re.compile(r"[0-9a-f]{40}")
_FETCH_SECONDS = 300


@lru_cache(maxsize=256)
def _text(path: Path, changed: int) -> str:
    """A source file, read once as long as it does not change: every rule looks its line up."""
    return path.read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True)
class VerlTree:
    """A folder that holds the package `verl`, which is read and never imported.

    `origin` describes its source; `version` is the text of verl/version/version,
    which is "0.9.0.dev" for the commit that the Hy3 guide names; `commit` is None for a wheel.
    """

    package: Path
    origin: str
    version: str
    commit: str | None = None

    @property
    def config(self) -> Path:
        """The folder with ppo_trainer.yaml and its groups."""
        return self.package / "trainer" / "config"

    def source(self, relative: str) -> str | None:
        """The text of one of verl's files, such as `trainer/main_ppo.py`; None when absent."""
        path = self.package / relative
        try:
            return _text(path, path.stat().st_mtime_ns)
        except FileNotFoundError:
            return None

    def label(self) -> str:
        """Version, commit and origin, for the report."""
        commit = f" ({self.commit[:10]})" if self.commit else ""
        return f"verl {self.version}{commit}, {self.origin}"


def tree_at(folder: Path, origin: str, display: str | None = None) -> VerlTree | None:
    """The tree in `folder`, which is a checkout of verl, a site folder or the package itself.

    None when ppo_trainer.yaml is missing in it.
    """
    for package in (folder / "verl", folder):
        if (package / "trainer" / "config" / "ppo_trainer.yaml").is_file():
            version_file = package / "version" / "version"
            version = (
                version_file.read_text(encoding="utf-8").strip()
                if version_file.is_file()
                else "unknown"
            )
            return VerlTree(package, display or origin, version, _commit(folder))
    return None


def _commit(folder: Path) -> str | None:
    """The commit that is checked out in `folder`, if it is the top of a git work tree."""
    if not (folder / ".git").exists():
        return None
    command = ["git", "-C", str(folder), "rev-parse", "HEAD"]
    try:
        answer = subprocess.run(
            command,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
            timeout=30,
        )
    except subprocess.TimeoutExpired:
        return None
    text = answer.stdout.strip()
    return text if answer.returncode == 0 and _SHA.fullmatch(text) else None


def find_tree(
    root: Path,
    checkout: str,
    release: str,
    explicit: Path | None = None,
    say: Callable[[str], None] = lambda _: None,
    commit: str | None = None,
) -> VerlTree:
    """The verl tree for a recipe of the project in `root`, in this order of preference.

    `explicit` (the operator's own folder); the checkout third_party/<checkout>, unless that is ''
    or at a commit other than `commit`; verl `release` in the rehearsal's environment;
    .cache/verl-<release>, fetched from the package index at its locked sha256 when it is missing
    (1.7 MB; afterwards it needs no network).

    Raises OperatorError when `explicit` is not verl, CannotTell when the release cannot be fetched.
    """
    if explicit is not None:
        tree = tree_at(explicit, f"{explicit} (--verl)")
        if tree is None:
            raise OperatorError("recipe-verl-tree.no-verl", str(explicit))
        return tree
    place = f"third_party/{checkout}"
    checkout_tree = tree_at(root / place, place) if checkout else None
    if checkout_tree is not None and commit in (None, checkout_tree.commit):
        return checkout_tree
    for site in sorted((root / ".venv-rehearsal").glob("lib/python3.*/site-packages")):
        if (site / f"verl-{release}.dist-info").is_dir():
            tree = tree_at(site, ".venv-rehearsal")
            if tree is not None:
                return tree
    return _cached(root, release, say)


def _cached(root: Path, release: str, say: Callable[[str], None]) -> VerlTree:
    folder = root / ".cache" / f"verl-{release}"
    if not folder.is_dir():
        say(f"fetching verl {release}'s config files from the package index (1.7 MB, once)")
        _fetch(root, release, folder)
    tree = tree_at(folder, f".cache/verl-{release} (wheel of the package index)")
    if tree is None:
        raise OperatorError("recipe-verl-tree.cache-damaged", str(folder), folder=folder)
    return tree


def _locked_line(root: Path, release: str) -> str:
    """The requirement of verl with its hashes, as a file of requirements/ locks it."""
    pattern = re.compile(rf"^verl=={re.escape(release)}(?: \\\n +--hash=\S+)+", re.MULTILINE)
    for path in sorted((root / "requirements").glob("*.txt")):
        found = pattern.search(path.read_text(encoding="utf-8"))
        if found is not None:
            return found.group(0)
    raise CannotTell("recipe-verl-tree.no-hashes", str(root / "requirements"), release=release)


def _fetch(root: Path, release: str, folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".verl-") as scratch:
        listing = Path(scratch) / "requirements.txt"
        listing.write_text(_locked_line(root, release) + "\n")
        target = Path(scratch) / "site"
        tried = []
        for installer in _installers():
            options = ["--no-deps", "--require-hashes", "--target", str(target), "-r", str(listing)]
            try:
                answer = subprocess.run(
                    [*installer, "install", *options],
                    capture_output=True,
                    encoding="utf-8",
                    errors="replace",
                    check=False,
                    timeout=_FETCH_SECONDS,
                    env=os.environ | {"PIP_DISABLE_PIP_VERSION_CHECK": "1"},
                )
            except subprocess.TimeoutExpired:
                tried.append(f"{' '.join(installer)}: no result after {_FETCH_SECONDS:.0f} s")
                continue
            if answer.returncode == 0:
                # Another command may have finished first, with the same bytes.
                if not folder.exists():
                    target.rename(folder)
                return
            last = (answer.stderr.strip().splitlines() or ["exit code without a message"])[-1]
            tried.append(f"{' '.join(installer)}: {last}")
    raise CannotTell("recipe-verl-tree.not-fetched", f"verl {release}", tried="; ".join(tried))


def _installers() -> list[list[str]]:
    """pip of this environment, of the Python that made it, then uv: whichever there is."""
    found = [[sys.executable, "-m", "pip"]]
    if sys.base_prefix != sys.prefix:
        found.append([str(Path(sys.base_prefix) / "bin" / "python3"), "-m", "pip"])
    uv = shutil.which("uv")
    if uv:
        found.append([uv, "pip"])
    return found
