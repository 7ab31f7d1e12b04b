"""Resolve the reference of an entry: by git servers, registries and indexes."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from reprise.core.errors import CannotTell, OperatorError
from reprise.core.files import sha256_file
from reprise.core.pip import find_pip
from reprise.hub.registry import Resolved, layers_digest, resolve_tag
from reprise.images.engine import inspect_image
from reprise.lock.model import Environment, Image, Package, Tree
from reprise.lock.requirements import pins_sha256, read_pins
from reprise.lock.rewrite import Value
from reprise.trees.checkout import gitlinks
from reprise.trees.fetch import Cause, cause_of, fetch_commit
from reprise.trees.git import GitError, git
from reprise.trees.sources import Mirror, urls_for

__all__ = [
    "Changes",
    "commit_at",
    "resolve_environment",
    "resolve_image",
    "resolve_package",
    "resolve_tree",
]

# New values by table below the entry (() is the entry itself) and key.
Changes = dict[tuple[str, ...], dict[str, Value]]

_FULL = re.compile(r"[0-9a-fA-F]{40}")
_HEX = re.compile(r"[0-9a-fA-F]{7,39}")


def commit_at(url: str, ref: str) -> str | None:
    """The commit that a branch, tag or full reference of `url` names, or None.

    A tag is peeled; refs/heads/ and refs/tags/ distinguish a branch and a tag of one name.
    Raises CannotTell when the server cannot be asked, OperatorError when both exist.
    """
    try:
        listed = git("ls-remote", "--", url, ref, f"{ref}^{{}}")
    except GitError as error:
        raise CannotTell("git.server", url, reason=error.last_line) from error
    found = {name: commit for commit, _, name in
             (line.partition("\t") for line in listed.splitlines())}  # fmt: skip
    places = (ref, f"refs/tags/{ref}", f"refs/heads/{ref}")
    named = [found.get(f"{name}^{{}}", found[name]) for name in places if name in found]
    if len(set(named)) > 1:
        raise OperatorError("git-ref.tag-and-branch", ref, ref=ref)
    return named[0] if named else None


def resolve_tree(name: str, tree: Tree, to: str | None, mirrors: Sequence[Mirror]) -> Changes:
    """The commit and tree hash that `to` (else `want`) names, and its submodules' commits.

    `to` is a branch, a tag, a full hash, or a short one (for which the whole list of commits is
    fetched). Raises OperatorError or CannotTell.
    """
    ref = to or tree.want
    if not ref:
        raise OperatorError("git-ref.none-given", f"tree.{name}")
    urls = urls_for(tree.url, mirrors, tree.mirrors)
    commit = ref.lower() if _FULL.fullmatch(ref) else None
    if commit is None:
        commit = commit_at(urls[0], ref)
    with tempfile.TemporaryDirectory(prefix="reprise-lock-") as folder:
        repo = Path(folder)
        git("init", "-q", "--bare", "--template=", ".", cwd=repo)
        if commit is None:
            commit = _short(repo, urls[0], ref)
        fetch_commit(repo, commit, urls, lambda *_: None)
        found = git("rev-parse", f"{commit}^{{tree}}", cwd=repo).strip()
        links = gitlinks(repo, commit)
    changes: Changes = {(): {"want": ref, "commit": commit, "tree": found}}
    if commit != tree.commit:
        # What the commit calls itself was read by a human; at another commit it is not known.
        changes[()]["version"] = None
    for path, sub in tree.submodule.items():
        if path in links and links[path] != sub.commit:
            # Its tree hash goes with the commit it belonged to.
            changes[("submodule", path)] = {"commit": links[path], "tree": None}
    return changes


def _short(repo: Path, url: str, ref: str) -> str:
    """The one commit whose hash begins with `ref`; only commits are fetched to find it."""
    missing = OperatorError("git-ref.not-found", ref, url=url)
    if not _HEX.fullmatch(ref):
        raise missing
    try:
        specs = ["+refs/heads/*:refs/all/heads/*", "+refs/tags/*:refs/all/tags/*"]
        git("fetch", "-q", "--no-tags", "--filter=tree:0", "--", url, *specs, cwd=repo)
        listed = git("rev-list", "--all", cwd=repo).split()
    except GitError as error:
        if cause_of(error) is Cause.ABSENT:
            raise missing from error
        raise CannotTell("git.server", url, reason=error.last_line) from error
    found = [commit for commit in listed if commit.startswith(ref.lower())]
    if len(found) > 1:
        raise OperatorError("git-ref.several-commits", ref, count=len(found))
    if not found:
        raise missing
    return found[0]


def resolve_image(name: str, image: Image, to: str | None) -> tuple[Changes, str]:
    """The digest that the tag names now, and its source: a mirror, the registry or an engine."""
    tag = to or image.want
    failures: list[str] = []
    for repository in (*image.mirrors, image.repository):
        try:
            found = resolve_tag(repository, tag, image.platform)
        except CannotTell as error:
            failures.append(error.message)
            continue
        return _image_changes(tag, found), repository
    found = _held(name, image, tag, failures)
    return _image_changes(tag, found), "the local engine"


def _held(name: str, image: Image, tag: str, failures: list[str]) -> Resolved:
    """The image that the local engine has under the tag, with the digest of its pull.

    An image built or loaded from an archive on this machine has none; its id is not a digest.
    """
    reference = f"{image.repository}:{tag}"
    try:
        held = inspect_image(reference)
    except CannotTell as error:
        failures = [*failures, f"{error.where} {error.message}"]
        held = None
    else:
        if held is None:
            failures = [*failures, f"the local engine does not have {reference}"]
    own = image.repository.removeprefix("docker.io/")
    digests = {
        digest
        for repository, _, digest in (item.rpartition("@") for item in held.repo_digests)
        if repository.removeprefix("docker.io/") == own
    } if held else set()  # fmt: skip
    if held is not None and len(digests) != 1:
        count = f"{len(digests)} digests" if digests else "no digest"
        failures = [*failures, f"the local engine has {reference} under {count}"]
    if held is None or len(digests) != 1:
        raise CannotTell("registry.no-digest", f"image.{name}", reason="; ".join(failures))
    if held.platform != "/".join(image.platform.split("/")[:2]):
        raise OperatorError(
            "image-platform.local-engine", reference, found=held.platform, expected=image.platform
        )
    layers = layers_digest(held.layers) if held.layers else None
    return Resolved(digests.pop(), held.id, held.platform, layers)


def _image_changes(tag: str, found: Resolved) -> Changes:
    values: dict[str, Value] = {"want": tag, "digest": found.digest, "image_id": found.image_id}
    if found.layers_sha256 is not None:
        values["layers_sha256"] = found.layers_sha256
    return {(): values}


def resolve_package(name: str, package: Package, to: str | None) -> Changes:
    """The digest of the wheel of a release, fetched by pip from the index that it is set to."""
    version = to or package.version
    pip = find_pip()
    with tempfile.TemporaryDirectory(prefix="reprise-wheel-") as folder:
        command = [*pip, "download", "-q", "--no-deps", "--only-binary", ":all:", "-d", folder]
        command.append(f"{package.name}=={version}")
        done = subprocess.run(
            command, capture_output=True, check=False, encoding="utf-8", errors="replace"
        )
        files = sorted(Path(folder).iterdir())
        if done.returncode != 0 or not files:
            said = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
            why = (said or ["pip downloaded no wheel"])[-1]
            source = package.source or "the public index"
            raise CannotTell("index.no-wheel", f"package.{name}", reason=why, source=source)
        digests = [sha256_file(file) for file in files]
    return {(): {"want": version, "version": version, "sha256": digests}}


def resolve_environment(root: Path, environment: Environment) -> Changes:
    """The digests of the requirements files of an environment on this machine."""
    path = root / environment.requirements
    pins = read_pins(path)
    values: dict[str, Value] = {
        "sha256": sha256_file(path),
        "pins_sha256": pins_sha256(pins),
        "pins": len(pins),
    }
    extra: dict[str, Value] = {file: sha256_file(root / file) for file in environment.extra}
    return {(): values, ("extra",): extra}
