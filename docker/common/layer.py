#!/usr/bin/env python3
"""What is done with Python packages while an image is built, by the image's own Python.

layer.py install     put the lock's packages over the base's, without their dependencies, and prove
                     that nothing else moved and no contradiction arose that the lock does not know
layer.py site        the same with wheels that the site brings
layer.py provenance  write /etc/reprise/provenance.json

It needs Python 3.10 (the MUSA image's) and what comes with pip, nothing else. Exit code 1: refused.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib.metadata
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Conflict = tuple[str, str, str]
"""A distribution, what it asks for, and the version that stands against it ("absent")."""


def toml(path: Path) -> dict[str, Any]:
    """The TOML file `path`; before Python 3.11 read by what pip brings along."""
    try:
        import tomllib as reader
    except ImportError:
        from pip._vendor import tomli as reader
    return reader.loads(path.read_text(encoding="utf-8"))


def canonical(name: str) -> str:
    """PEP 503. Debian's Python has no pip to ask, where only `provenance` runs."""
    return re.sub(r"[-_.]+", "-", name).lower()


def requirement(text: str) -> Any:
    """PEP 508; None when it cannot be read."""
    from pip._vendor.packaging.requirements import InvalidRequirement, Requirement

    try:
        return Requirement(text)
    except InvalidRequirement:
        return None


def normal(wanted: Any) -> str:
    """Name and version range alone, in one spelling: markers and extras say when, not what."""
    parts = sorted(str(part) for part in wanted.specifier)
    return f"{canonical(wanted.name)}{','.join(parts)}"


def survey() -> tuple[dict[str, str], set[Conflict]]:
    """What is installed here, as {name: version}, and which of its requirements are not met."""
    found = {}
    for distribution in importlib.metadata.distributions():
        name = distribution.metadata["Name"]
        # A name that is on the path twice counts as the import system finds it: first.
        if name:
            found.setdefault(canonical(name), distribution)
    versions = {name: item.version or "" for name, item in found.items()}
    conflicts = set()
    for name, item in found.items():
        for wanted in filter(None, map(requirement, item.requires or ())):
            if wanted.marker is not None and not wanted.marker.evaluate({"extra": ""}):
                continue
            have = versions.get(canonical(wanted.name))
            if have is None or not wanted.specifier.contains(have, prereleases=True):
                conflicts.add((name, normal(wanted), have or "absent"))
    return versions, conflicts


def known(lock: dict[str, Any], machine: str, image: str) -> set[tuple[str, str]]:
    """What the lock records for this machine's image: (declaring distribution, requirement)."""
    found = set()
    for item in lock.get("contradiction", {}).values():
        if machine in item["machines"] and item["declared_by"] == f"image.{image}":
            wanted = requirement(item["declares"])
            if wanted is not None:
                found.add((canonical(item.get("in_file", "")), normal(wanted)))
    return found


def report(problems: list[tuple[str, str]]) -> None:
    """Print every problem with what to do, and refuse when there is one."""
    for message, fix in problems:
        print(f"error: {message}\n    fix: {fix}", file=sys.stderr)
    if problems:
        raise SystemExit(1)


def pip(*words: str, **variables: str) -> None:
    """Run this interpreter's pip; its own words are shown."""
    command = [sys.executable, "-m", "pip", "install", "--no-deps", "--progress-bar", "off"]
    command += ["--root-user-action", "ignore", *words]
    environment = {**os.environ, "PIP_NO_CACHE_DIR": "1", "PIP_NO_INPUT": "1"}
    environment |= {"PIP_DISABLE_PIP_VERSION_CHECK": "1", **variables}
    if subprocess.run(command, env=environment, check=False).returncode != 0:
        fix = "give the build the index or the wheels that have it (docs/images.md)"
        report([("pip could not install what the lock names", fix)])


@contextlib.contextmanager
def proved(
    meant: dict[str, str], lock: dict[str, Any], options: argparse.Namespace
) -> Iterator[None]:
    """Around an installation of `meant`: refuse when more moved, or when something new clashes.

    What clashed before is the base's own affair and stays.
    """
    before, old = survey()
    yield
    importlib.invalidate_caches()
    after, new = survey()
    problems = []
    for name in sorted(before.keys() | after.keys()):
        was, found = before.get(name, "absent"), after.get(name, "absent")
        if name in meant and found != meant[name]:
            fix = "is another copy of it earlier on the path? Look at the base's PYTHONPATH"
            problems.append((f"{name} is {found} after {meant[name]} was installed", fix))
        elif name not in meant and was != found:
            fix = "read pip's words above: it was told to take no dependencies"
            problems.append((f"{name} moved from {was} to {found}, which nobody asked for", fix))
    recorded = known(lock, options.machine, options.image)
    clashed = {(name, wanted) for name, wanted, _ in old}
    for name, wanted, have in sorted(new):
        if (name, wanted) in clashed:
            continue
        told = f"{name} {after[name]} asks for {wanted}, {have} is here"
        if (name, wanted) in recorded:
            print(f"known: {told}")
            continue
        fix = "lock a version that fits, or record why it is right: a [contradiction.…] with "
        fix += f'declared_by = "image.{options.image}", in_file = "{name}", declares = "{wanted}"'
        problems.append((f"{told}, and the lock does not record it", fix))
    report(problems)


def install(options: argparse.Namespace) -> None:
    """The lock's packages of `options.machine`: by hash where the lock has one."""
    lock = toml(options.lock)
    chosen = [p for p in lock.get("package", {}).values() if options.machine in p["machines"]]
    hashed = [item for item in chosen if item.get("sha256")]
    others = [item for item in chosen if not item.get("sha256")]
    meant = {canonical(item["name"]): item["version"] for item in chosen}
    links = ["--find-links", str(options.wheels)] if any(options.wheels.glob("*.whl")) else []
    with proved(meant, lock, options):
        if hashed:
            listed = Path("/tmp/locked.txt")  # noqa: S108  # a layer in the making has one user
            listed.write_text("".join(f"{pinned(item)}\n" for item in hashed), encoding="utf-8")
            pip("--require-hashes", "-r", str(listed), *links)
            listed.unlink()
        index = options.nvidia_index.read_text().strip() if options.nvidia_index.is_file() else ""
        for item in others:
            print(f"{item['name']}=={item['version']}: the lock has no hash of it", flush=True)
            own = {"PIP_INDEX_URL": index, "PIP_EXTRA_INDEX_URL": ""} if index else {}
            pip(pinned(item), *links, **own)


def pinned(item: dict[str, Any]) -> str:
    """A package of the lock as a line of a requirements file."""
    hashes = [f"--hash=sha256:{value}" for value in item.get("sha256", ())]
    return " ".join([f"{item['name']}=={item['version']}", *hashes])


def site(options: argparse.Namespace) -> None:
    """Every wheel of the site's folder, as it is; the base's other packages must stay."""
    wheels = sorted(options.wheels.glob("*.whl"))
    if not wheels:
        print(f"{options.wheels.name}: the site brings no wheels")
        return
    meant = {}
    for wheel in wheels:
        name, version = wheel.name.split("-")[:2]
        meant[canonical(name)] = version
    with proved(meant, toml(options.lock), options):
        pip("--no-index", *map(str, wheels))


# A name that is on the path twice counts as the import system finds it: first.
_FREEZE = """
import importlib.metadata, json
found = {}
for item in importlib.metadata.distributions():
    name = item.metadata["Name"] or ""
    found.setdefault(name.lower(), f"{name}=={item.version}")
print(json.dumps(sorted(found.values())))
"""


def freeze(python: str) -> list[str]:
    """What an interpreter has installed, as name==version."""
    done = subprocess.run([python, "-I", "-c", _FREEZE], capture_output=True, text=True, check=True)
    return list(json.loads(done.stdout))


def debian() -> list[str]:
    """The system's packages, as name=version."""
    query = ["dpkg-query", "-W", "-f", "${Package}=${Version}\\n"]
    return sorted(subprocess.run(query, capture_output=True, text=True, check=True).stdout.split())


def digests(folder: Path) -> dict[str, str]:
    """The SHA-256 of each file of the site's folder, by its path there."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name[0] != ".")
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
    }


def provenance(options: argparse.Namespace) -> None:
    """Say what the image is made of. No time and no name of the building machine is in it."""
    base = options.base
    frozen = {python: freeze(python) for python in options.python}
    have = {canonical(line.partition("==")[0]) for lines in frozen.values() for line in lines}
    unresolved = sorted(set(options.needs) - have)
    if unresolved:
        print(f"unresolved: {', '.join(unresolved)}: the site brings them (docs/images.md)")
    about = {
        "schema": 1,
        "machine": options.machine,
        "base": base,
        "base_digest": options.base_digest or (base.rpartition("@")[2] if "@" in base else ""),
        "lock_sha256": options.lock_sha256,
        "lock_file_sha256": hashlib.sha256(options.lock.read_bytes()).hexdigest(),
        "revision": options.revision,
        "freeze": frozen,
        "system": debian(),
        "site": digests(options.site) if options.site else {},
        "unresolved": unresolved,
    }
    target = Path("/etc/reprise/provenance.json")
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    """Parse the command line and do one of the three."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True)
    tasks: dict[str, Callable[[argparse.Namespace], None]] = {
        "install": install,
        "site": site,
        "provenance": provenance,
    }
    for name, function in tasks.items():
        command = commands.add_parser(name)
        command.set_defaults(function=function)
        command.add_argument("--machine", required=True)
        command.add_argument("--lock", type=Path, required=True)
        if name != "provenance":
            command.add_argument("--image", required=True)
            command.add_argument("--wheels", type=Path, required=True)
        if name == "install":
            command.add_argument("--nvidia-index", type=Path, default=Path("/nonexistent"))
        if name == "provenance":
            command.add_argument("--base", default="")
            command.add_argument("--base-digest", default="")
            command.add_argument("--lock-sha256", default="")
            command.add_argument("--revision", default="")
            command.add_argument("--site", type=Path)
            command.add_argument("--python", action="append", default=[])
            command.add_argument("--needs", action="append", default=[])
    options = parser.parse_args()
    options.function(options)


if __name__ == "__main__":
    main()
