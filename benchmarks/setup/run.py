"""Bytes and seconds of `reprise setup` against the guide's clone and checkout.

Serves bare copies of the repositories over smart HTTP on this machine, counts the bytes that leave
the server, and brings every tree of one machine both ways in turn:

    guide   git clone URL, then git checkout COMMIT, one repository after the other
    setup   `reprise setup`: the locked commits alone, in parallel, verified file by file

    python benchmarks/setup/run.py --repositories FOLDER [--machine h20] [--rounds 3] [--out FILE]

FOLDER holds owner/name.git for each tree (bare repositories or git directories). A repository that
lacks objects of the locked commit cannot be served whole: with --rewrite the files that are not
there are taken out of its history first (in a copy), the same for both ways.
"""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from lock.servers import smart_http  # noqa: E402

from reprise.lock import read_lock  # noqa: E402
from reprise.lock.model import Tree  # noqa: E402
from reprise.trees.setup import setup_trees  # noqa: E402
from reprise.trees.sources import Mirror  # noqa: E402

FORGE = "https://github.com/"


def git(*args: str, cwd: Path | None = None, stdin: bytes | None = None) -> bytes:
    done = subprocess.run(["git", *args], cwd=cwd, input=stdin, capture_output=True, check=False)
    if done.returncode != 0:
        sys.exit(f"git {' '.join(args)}: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout


def lacking(repo: Path) -> list[str]:
    """Blobs that reachable trees name and the repository does not have."""
    listed = git("rev-list", "--objects", "--all", "--missing=print", cwd=repo).decode()
    return [line[1:].split()[0] for line in listed.splitlines() if line.startswith("?")]


def prepare(source: Path, target: Path, tree: Tree, rewrite: bool) -> Tree:
    """A servable copy of `source` at `target`; the tree as it must be locked there."""
    target.parent.mkdir(parents=True, exist_ok=True)
    missing = lacking(source)
    if not missing:
        git("clone", "-q", "--mirror", "--no-hardlinks", f"file://{source}", str(target))
        return tree
    if not rewrite:
        sys.exit(f"{source} lacks {len(missing)} objects: repeat with --rewrite")
    return without(source, target, tree, set(missing))


def without(source: Path, target: Path, tree: Tree, missing: set[str]) -> Tree:
    """Copy the history up to the branches, leaving out every file whose content is missing."""
    git("init", "-q", "--bare", str(target))
    marks = target / "marks"
    command = [
        "fast-export",
        "--all",
        "--no-data",
        f"--export-marks={marks}",
        "--signed-tags=strip",
    ]
    command += ["--tag-of-filtered-object=drop", "--reencode=yes"]
    stream = git(*command, cwd=source)
    kept: list[bytes] = []
    for line in stream.split(b"\n"):
        parts = line.split(b" ", 3)
        if parts[0] == b"M" and len(parts) == 4 and parts[2].decode() in missing:
            kept.append(b"D " + parts[3])
        else:
            kept.append(line)
    # The new history refers to contents by name: they are borrowed until it is packed.
    (target / "objects/info/alternates").write_text(f"{source / 'objects'}\n")
    new_marks = target / "new-marks"
    git("fast-import", "--quiet", "--force", f"--export-marks={new_marks}", cwd=target,
        stdin=b"\n".join(kept))  # fmt: skip
    names = dict(line.split()[::-1] for line in marks.read_text().splitlines())
    renamed = dict(line.split() for line in new_marks.read_text().splitlines())
    commit = renamed[names[tree.commit or ""]]
    git("repack", "-q", "-a", "-d", cwd=target)
    (target / "objects/info/alternates").unlink()
    found = git("rev-parse", f"{commit}^{{tree}}", cwd=target).decode().strip()
    return tree.model_copy(update={"commit": commit, "tree": found})


def guide(trees: dict[str, Tree], url: str, into: Path) -> None:
    for name, tree in trees.items():
        place = into / name
        git("clone", "-q", tree.url.replace(FORGE, url), str(place))
        git("checkout", "-q", tree.commit or "", cwd=place)


def ours(trees: dict[str, Tree], url: str, into: Path) -> None:
    report = setup_trees(into, trees, [Mirror(FORGE, url)])
    if report.exit_code != 0:
        sys.exit(f"setup failed: {[item.message for item in report.errors()]}")


def measure(
    way: Callable[[dict[str, Tree], str, Path], None],
    trees: dict[str, Tree], base: Path, work: Path,
) -> tuple[float, int]:  # fmt: skip
    into = Path(tempfile.mkdtemp(dir=work))
    with smart_http(base) as (url, sent):
        start = time.monotonic()
        way(trees, url, into)
        seconds = time.monotonic() - start
    shutil.rmtree(into)
    return seconds, sent[0]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--repositories", type=Path, required=True)
    parser.add_argument("--machine", default="h20")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rewrite", action="store_true")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    lock = read_lock(ROOT / "versions.lock")
    with tempfile.TemporaryDirectory(prefix="reprise-bench-") as folder:
        work, trees = Path(folder), dict[str, Tree]()
        for name, tree in lock.tree.items():
            if options.machine in tree.machines and tree.path:
                below = tree.url.removeprefix(FORGE)
                source = (options.repositories / below).resolve()
                trees[name] = prepare(source, work / "srv" / below, tree, options.rewrite)
        runs: dict[str, list[tuple[float, int]]] = {"guide": [], "setup": []}
        for _ in range(options.rounds):
            for name, way in (("guide", guide), ("setup", ours)):
                runs[name].append(measure(way, trees, work / "srv", work))
                print(name, *runs[name][-1], flush=True)
    seconds = {name: statistics.median(run[0] for run in rows) for name, rows in runs.items()}
    sent = {name: statistics.median(run[1] for run in rows) for name, rows in runs.items()}
    result = {
        "machine": options.machine, "trees": sorted(trees), "rounds": options.rounds,
        "runs": runs, "median_seconds": seconds, "median_bytes": sent,
        "times_faster": seconds["guide"] / seconds["setup"],
        "share_of_bytes": sent["setup"] / sent["guide"],
        "python": platform.python_version(), "git": git("version").decode().strip(),
    }  # fmt: skip
    text = json.dumps(result, indent=2)
    if options.out:
        options.out.write_text(text + "\n")
    print(text)
    wanted = result["times_faster"] >= 2 and result["share_of_bytes"] <= 0.2
    sys.exit(0 if wanted else 1)


if __name__ == "__main__":
    main()
