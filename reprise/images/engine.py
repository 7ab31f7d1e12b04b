"""Query the container engine of this machine. Nothing is pulled, started or changed."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from reprise.core.errors import CannotTell, OperatorError

__all__ = [
    "ENGINES",
    "HeldImage",
    "ask",
    "can_build",
    "find_engine",
    "held_with_label",
    "inspect_image",
    "must_answer",
]

ENGINES = ("docker", "podman", "nerdctl")
# A hanging daemon accepts a request and never answers.
_SECONDS = 60.0
_NEVER = datetime.min.replace(tzinfo=UTC)
# From this client on BuildKit is a program of its own, docker-buildx; 18.09 to 22 have it inside.
# https://docs.docker.com/engine/release-notes/23.0/ ("buildx and BuildKit as default builder")
_BUILDX_SINCE = 23
_ABSENT = ("no such image", "image not known", "not found", "no such object")


@dataclass(frozen=True, slots=True)
class HeldImage:
    """An image in the engine: its id, the digests it was pulled by, and its platform.

    `layers` are the digests of its unpacked layers, the same in every store: the id of docker's
    containerd store is the digest of a manifest, that of its classic store another. `tags` are the
    names that it has here, `bytes` its size unpacked, `tagged` when it last got a name here (where
    the engine knows: docker).
    """

    id: str
    repo_digests: tuple[str, ...]
    platform: str
    tags: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    bytes: int = 0
    tagged: datetime = _NEVER
    layers: tuple[str, ...] = ()

    @property
    def digests(self) -> tuple[str, ...]:
        """The digests alone, as sha256:…"""
        return tuple(item.rpartition("@")[2] for item in self.repo_digests)


def find_engine() -> str:
    """The engine to ask: REPRISE_ENGINE, else the first of docker, podman, nerdctl on PATH.

    Raises CannotTell when there is none.
    """
    named = os.environ.get("REPRISE_ENGINE")
    for candidate in (named,) if named else ENGINES:
        if found := shutil.which(candidate):
            return found
    tried = named or ", ".join(ENGINES)
    raise CannotTell("engine.absent", "container engine", names=tried)


def ask(engine: str, *words: str) -> subprocess.CompletedProcess[str]:
    """The result of `engine WORDS`, errors included. Raises CannotTell when it does not answer."""
    command = [engine, *words]
    try:
        return subprocess.run(
            command,
            capture_output=True,
            check=False,
            encoding="utf-8",
            errors="replace",
            timeout=_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _silent(engine, str(error)) from error


def _silent(engine: str, why: str) -> CannotTell:
    said = why.lower()
    if "permission denied" in said:
        return CannotTell("engine.permission", engine, reason=why)
    if "is the docker daemon running" in said:
        return CannotTell("engine.daemon", engine, reason=why)
    return CannotTell("engine.silent", engine, reason=why)


def must_answer(engine: str) -> None:
    """Raise CannotTell when the engine's daemon does not answer, before anything is prepared."""
    done = ask(engine, "version")
    if done.returncode != 0:
        raise _silent(engine, (done.stderr.strip().splitlines() or ["no message"])[-1])


def can_build(engine: str) -> None:
    """Raise OperatorError when this docker client has no BuildKit.

    The Dockerfiles mount secrets and folders in RUN, which docker's classic builder cannot do.
    """
    version = _without_buildkit(engine)
    if version is None:
        return
    others = dict.fromkeys(
        found
        for folder in os.get_exec_path()
        if (found := shutil.which("docker", path=folder)) and found != engine
    )
    able = next((other for other in others if _without_buildkit(other) is None), None)
    if able is None:
        raise OperatorError("engine-buildkit.absent", engine, version=version)
    raise OperatorError(
        "engine-buildkit.other-client", engine, version=version, client=shlex.quote(able)
    )


def _without_buildkit(engine: str) -> str | None:
    """The version of a docker client that cannot build; None for all other clients."""
    if Path(engine).name != "docker" or ask(engine, "buildx", "version").returncode == 0:
        return None
    version = ask(engine, "version", "--format", "{{.Client.Version}}").stdout.strip()
    major = version.partition(".")[0]
    return version if major.isdigit() and int(major) >= _BUILDX_SINCE else None


def inspect_image(reference: str, engine: str | None = None) -> HeldImage | None:
    """The image `reference` (name:tag or name@digest) in the engine, None if it has none.

    Raises CannotTell when no engine answers.
    """
    engine = engine or find_engine()
    done = ask(engine, "image", "inspect", reference)
    if done.returncode != 0:
        said = done.stderr.strip()
        if any(mark in said.lower() for mark in _ABSENT):
            return None
        raise _silent(engine, (said.splitlines() or ["no message"])[-1])
    return _held(orjson.loads(done.stdout))


def _held(answer: Any) -> HeldImage | None:
    found = answer[0] if isinstance(answer, list) and answer else None
    if not isinstance(found, dict):
        return None
    identity = str(found.get("Id", ""))
    return HeldImage(
        identity if identity.startswith("sha256:") else f"sha256:{identity}",
        tuple(found.get("RepoDigests") or ()),
        f"{found.get('Os', '')}/{found.get('Architecture', '')}",
        tuple(found.get("RepoTags") or ()),
        dict((found.get("Config") or {}).get("Labels") or {}),
        int(found.get("Size") or 0),
        _when((found.get("Metadata") or {}).get("LastTagTime")),
        tuple((found.get("RootFS") or {}).get("Layers") or ()),
    )


def _when(text: Any) -> datetime:
    try:
        return datetime.fromisoformat(str(text)).astimezone(UTC)
    except (ValueError, OverflowError):
        return _NEVER


def held_with_label(engine: str, *labels: str) -> list[HeldImage]:
    """The tagged images that carry all `labels` (key or key=value), the last one built first.

    Two builds that differ in settings alone (USER) were created at the same time, as their layers
    say: then the order is that of the names they got.
    Raises CannotTell when the engine does not answer.
    """
    words = ["images", "--quiet", "--no-trunc", "--filter", "dangling=false"]
    for label in labels:
        words += ["--filter", f"label={label}"]
    done = ask(engine, *words)
    if done.returncode != 0:
        raise _silent(engine, (done.stderr.strip().splitlines() or ["no message"])[-1])
    held = (inspect_image(identity, engine) for identity in dict.fromkeys(done.stdout.split()))
    tagged = [image for image in held if image is not None and image.tags]
    return sorted(tagged, key=lambda image: image.tagged, reverse=True)
