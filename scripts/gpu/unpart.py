#!/usr/bin/env python3
"""Put one part, or several, of a bundle for a bare machine into place; Python alone is needed.

    python3 unpart.py INTO gpu.bundle.part001 ...

Parts may come one at a time and in any order, each removed before the next. Every part is checked
whole before it counts, every file again when its last piece has come; then what it holds goes into
INTO/project, INTO/project/third_party, INTO/site (or INTO/site-sglang) and INTO/operator. Exit
code 0: everything is in place; 2: parts are missing (it says which); 1: a part is damaged or of
another bundle.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import sys
import tarfile
from pathlib import Path

FORMAT = "reprise-bundle-1"
MANIFEST = re.compile(r"manifest-([0-9a-f]{64})\.json")
BLOCK = 1 << 20


class Damaged(Exception):
    """A part is not what it was when it was written."""


class OtherContent(Exception):
    """The bundle has git bundles and wheels, which git and pip install."""


def save(path: Path, value: object) -> None:
    """Write JSON whole or not at all."""
    half = path.with_name(path.name + ".half")
    with half.open("w") as file:
        json.dump(value, file)
        file.flush()
        os.fsync(file.fileno())
    half.replace(path)


def load(path: Path) -> dict:
    """The JSON object in `path`, or an empty one."""
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def read_manifest(tar: tarfile.TarFile) -> dict:
    """The part's manifest, which carries its own digest in its name."""
    first = tar.next()
    named = MANIFEST.fullmatch(first.name) if first is not None else None
    if first is None or named is None:
        raise Damaged("it does not begin with a manifest")
    body = tar.extractfile(first).read()
    if hashlib.sha256(body).hexdigest() != named[1]:
        raise Damaged("its manifest has another sha256 than its name says")
    manifest = json.loads(body)
    if manifest["format"] != FORMAT:
        raise Damaged(f"its format is {manifest['format']}, expected {FORMAT}")
    for path, _, _ in manifest["files"]:
        if any(part in ("", ".", "..") for part in path.split("/")):
            raise Damaged(f"it names a path that leads out of the bundle: {path!r}")
    return manifest


def take_pieces(tar: tarfile.TarFile, manifest: dict, store: Path) -> list[list]:
    """Write the part's pieces under their own names; returns them once all have their digests."""
    sizes = {path: size for path, size, _ in manifest["files"]}
    for path, offset, size, digest in manifest["pieces"]:
        member = tar.next()
        name = f"files/{path}" + ("" if size == sizes[path] else f"@{offset:015d}")
        if member is None or member.name != name or member.size != size:
            raise Damaged(f"{name} is not where its manifest says")
        found = hashlib.sha256()
        source = tar.extractfile(member)
        target = store / f"{hashlib.sha256(path.encode()).hexdigest()[:24]}@{offset:015d}"
        with target.open("wb") as out:
            while block := source.read(BLOCK):
                found.update(block)
                out.write(block)
        if found.hexdigest() != digest:
            target.unlink()
            raise Damaged(f"{name} has another sha256 than its manifest says")
    return manifest["pieces"]


def read_part(part: Path, into: Path) -> None:
    """Check one part and keep its pieces; a part of another bundle raises Damaged."""
    store, state_file = into / "pieces", into / "state.json"
    store.mkdir(parents=True, exist_ok=True)
    state = load(state_file)
    try:
        with tarfile.open(part, "r:") as tar:
            manifest = read_manifest(tar)
            if state and {path for path, _, _ in state["files"]} == set(state.get("placed", [])):
                # One bundle is in place: another may be put beside it.
                state = state if state["bundle"] == manifest["bundle"] else {}
            if state.get("bundle", manifest["bundle"]) != manifest["bundle"]:
                raise Damaged("it is of another bundle than the parts before")
            if not any(path == "unpart.py" for path, _, _ in manifest["files"]):
                raise OtherContent
            take_pieces(tar, manifest, store)
            if tar.next() is not None:
                raise Damaged("something follows its pieces")
    except (tarfile.TarError, KeyError, ValueError, EOFError) as error:
        raise Damaged(str(error)) from error
    state.setdefault("bundle", manifest["bundle"])
    state["parts"] = manifest["parts"]
    state["files"] = manifest["files"]
    state["about"] = manifest["about"]
    state["read"] = sorted({*state.get("read", []), manifest["part"]})
    save(state_file, state)


def join(into: Path, path: str, size: int, digest: str) -> Path | None:
    """The file `path` of the bundle, when all its pieces are there and it has its digest."""
    key = hashlib.sha256(path.encode()).hexdigest()[:24]
    pieces = sorted((into / "pieces").glob(f"{key}@*"))
    if sum(piece.stat().st_size for piece in pieces) != size or not pieces:
        return None
    whole, found = into / "pieces" / f"{key}.whole", hashlib.sha256()
    with whole.open("wb") as out:
        for piece in pieces:
            with piece.open("rb") as source:
                while block := source.read(BLOCK):
                    found.update(block)
                    out.write(block)
    if found.hexdigest() != digest:
        raise Damaged(f"{path} has another sha256 than its manifest says")
    return whole


def place(into: Path, path: str, file: Path) -> None:
    """Unpack an archive where it belongs, or copy a plain file."""
    project = into / "project"
    if path.startswith("also/"):
        target = project / path[len("also/") :]
        target.parent.mkdir(parents=True, exist_ok=True)
        file.replace(target)
        return
    if not path.endswith(".tar.xz"):
        file.replace(into / path)
        return
    if path.startswith("trees/"):
        target = project / path[len("trees/") : -len(".tar.xz")]
    else:
        # A site tree: a GPU environment's, or that of `reprise` itself.
        kind = path.partition("/")[0]
        site = kind in ("site", "operator") or kind.startswith("site-")
        target = into / kind if site else project
    target.mkdir(parents=True, exist_ok=True)
    with tarfile.open(file, "r:xz") as tar:
        # Python 3.11.0 to 3.11.3 have no filter; what is unpacked was compared with its hash.
        kind = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        tar.extractall(target, **kind)  # noqa: S202
    file.unlink()


def main(arguments: list[str]) -> int:
    """Read the parts, place what is complete, say what is missing."""
    if len(arguments) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    into = Path(arguments[0])
    for part in map(Path, arguments[1:]):
        try:
            read_part(part, into)
            state = load(into / "state.json")
            placed = set(state.get("placed", []))
            for path, size, digest in state["files"]:
                if path in placed:
                    continue
                whole = join(into, path, size, digest)
                if whole is None:
                    continue
                place(into, path, whole)
                key = hashlib.sha256(path.encode()).hexdigest()[:24]
                for piece in (into / "pieces").glob(f"{key}@*"):
                    piece.unlink()
                state["placed"] = sorted({*state.get("placed", []), path})
                save(into / "state.json", state)
        except Damaged as damage:
            print(f"error: {part.name} is damaged: {damage}", file=sys.stderr)
            print("    fix: copy it again from the machine that made the bundle", file=sys.stderr)
            return 1
        except OtherContent:
            said = "git bundles and wheels; expected archives for a machine without git and pip"
            print(f"error: {part.name}: it has {said}", file=sys.stderr)
            print(f"    fix: reprise setup --bundle {shlex.quote(str(part))}", file=sys.stderr)
            return 1
        except OSError as error:
            print(f"error: {part}: {error}", file=sys.stderr)
            return 1
    state = load(into / "state.json")
    missing = sorted(set(range(1, state["parts"] + 1)) - set(state["read"]))
    unplaced = [path for path, _, _ in state["files"] if path not in state.get("placed", [])]
    if missing or unplaced:
        text = ", ".join(map(str, missing)) or f"pieces of {', '.join(unplaced)}"
        print(f"{len(state['read'])} of {state['parts']} parts; missing: {text}")
        return 2
    print(f"{state['parts']} of {state['parts']} parts; everything is installed below {into}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
