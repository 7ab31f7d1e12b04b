"""Build an image of docker/ from the lock, with BuildKit, unless the engine holds it already."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from reprise.core.children import in_session
from reprise.core.errors import OperatorError
from reprise.core.files import sha256_text
from reprise.core.findings import Report
from reprise.images.base import Base, base_of
from reprise.images.engine import can_build, find_engine, inspect_image, must_answer
from reprise.images.files import EPOCH, Kind, lay_context, revision_of
from reprise.images.sources import PackageSources, package_sources
from reprise.lock.model import Lock
from reprise.lock.read import machine_hash, read_lock
from reprise.trees.git import without_credentials

__all__ = ["BuildOptions", "OnStep", "build_image"]

OnStep = Callable[[str], None]
"""Called with what the build does now."""

# BuildKit's plain output: "#9 [node 2/6] RUN ..."; podman's: "[1/2] STEP 2/6: RUN ...".
_STEP = re.compile(r"(?:#\d+ \[([^\]]+)\]|(?:\[\d+/\d+\] )?STEP (\d+/\d+):) (.*)")
# What our own build steps, pip and apt say when they refuse; everything else is in the log.
_ERROR = re.compile(r"^(?:#\d+ [\d.]+ )?(?:error|ERROR|E): (.*)")
# The engine passes these on to every RUN and keeps them out of the image and its history.
_PROXIES = ("http_proxy", "https_proxy", "ftp_proxy", "no_proxy")


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """What the operator may choose.

    `base` is used instead of the lock's; `target` ends at that stage; `args` are further build
    arguments (RUN_AS, APT_SOURCES, which is the variable's value where it is not named); `again`
    builds without the engine's cache.
    """

    base: str = ""
    target: str = ""
    args: Mapping[str, str] = field(default_factory=dict)
    again: bool = False


def build_image(
    lock_path: Path, kind: Kind, options: BuildOptions, on_step: OnStep = lambda _: None
) -> Report:
    """Build `kind` unless the engine holds it as these sources give it.

    `data`: `image` (name:tag, where the tag is a hash of everything that goes in), `id`, `bytes`,
    `base`, `built` and, when built, `seconds`. Raises OperatorError when it cannot be built,
    CannotTell when no engine answers.
    """
    options = _with_apt_sources(options)
    root, lock = lock_path.parent, read_lock(lock_path)
    engine = find_engine()
    must_answer(engine)
    report = Report("image build")
    sources = package_sources()
    for text in sources.notes:
        report.note("image-sources", kind.name, text)
    work = root / ".cache" / "images"
    work.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=work, prefix=f"{kind.name}-") as folder:
        on_step("files")
        context = Path(folder) / "context"
        context.mkdir()
        files = lay_context(root, kind, lock, context, sources.wheels)
        apt_sources = options.args.get("APT_SOURCES", "")
        base = base_of(engine, root, kind, lock, options.base, on_step, apt_sources)
        arguments = _arguments(lock, kind, base, options, revision_of(root))
        name = _name(kind, files, arguments, options)
        began = time.monotonic()
        held = inspect_image(name, engine)
        built = held is None or options.again
        if built:
            can_build(engine)
            command = _command(engine, kind, name, arguments, options)
            command += _secrets(Path(folder), sources)
            _run([*command, str(context)], work / f"{kind.name}.log", kind, on_step)
            held = inspect_image(name, engine)
    if held is None:
        fix = f"read {work / f'{kind.name}.log'}"
        raise OperatorError("image-build", name, "the engine built it and does not hold it", fix)
    report.passed("image-build")
    report.data = {"image": name, "id": held.id, "bytes": held.bytes, "base": base.reference}
    report.data |= {"built": built}
    if built:
        report.data["seconds"] = round(time.monotonic() - began, 1)
    return report


def _with_apt_sources(options: BuildOptions) -> BuildOptions:
    """APT_SOURCES of the environment as a build argument, which `--arg` goes before.

    Raises OperatorError for a password in it: build arguments stand in an image's history.
    """
    sources = options.args.get("APT_SOURCES", os.environ.get("APT_SOURCES", ""))
    if any(without_credentials(word) != word for word in sources.split()):
        message = "has a password in an address, which would stand in the image's history"
        fix = "name a mirror that asks for none"
        raise OperatorError("image-arg", "APT_SOURCES", message, fix)
    return replace(options, args={**options.args, "APT_SOURCES": sources}) if sources else options


def _arguments(
    lock: Lock, kind: Kind, base: Base, options: BuildOptions, revision: str
) -> dict[str, str]:
    return {
        "BASE": base.reference,
        "BASE_DIGEST": base.digest,
        "LOCK_SHA256": machine_hash(lock, kind.machine),
        "REVISION": revision,
        "SOURCE_DATE_EPOCH": str(EPOCH),
        **options.args,
    }


def _name(kind: Kind, files: str, arguments: Mapping[str, str], options: BuildOptions) -> str:
    """The image's name: its tag moves with everything that goes in but the commit's number."""
    told = [f"{key}={value}" for key, value in sorted(arguments.items()) if key != "REVISION"]
    key = sha256_text("\n".join([files, options.target, *told]))
    return f"reprise/{kind.name}:{key[:16]}"


def _command(
    engine: str, kind: Kind, name: str, arguments: Mapping[str, str], options: BuildOptions
) -> list[str]:
    command = [engine, "build", "--file", f"docker/{kind.name}/Dockerfile", "--tag", name]
    if Path(engine).name == "podman":
        # Its own format has no health checks.
        command += ["--format", "docker"]
    else:
        command += ["--progress", "plain"]
    if options.target:
        command += ["--target", options.target]
    if options.again:
        command.append("--no-cache")
    for key, value in arguments.items():
        command += ["--build-arg", f"{key}={value}"]
    for variable in _PROXIES:
        for key in (variable, variable.upper()):
            if os.environ.get(key):
                # By its name alone: a proxy's password is then in no list of processes.
                command += ["--build-arg", key]
    return command


def _secrets(folder: Path, sources: PackageSources) -> list[str]:
    """Write what the build may read while it runs, for this user's eyes; the engine's options."""
    place = folder / "secrets"
    place.mkdir(mode=0o700)
    texts = {"pip.conf": sources.conf.encode(), "nvidia-index": sources.nvidia_index.encode()}
    if sources.ca is not None:
        texts["ca"] = sources.ca.read_bytes()
    words: list[str] = []
    for name, text in texts.items():
        if text:
            (place / name).write_bytes(text)
            words += ["--secret", f"id={name},src={place / name}"]
    return words


def _run(command: list[str], log: Path, kind: Kind, on_step: OnStep) -> None:
    """Run the build in the context's folder; its whole output goes to `log`."""
    said: list[str] = []
    last = "no word"
    with (
        log.open("w", encoding="utf-8") as file,
        in_session(
            command,
            cwd=command[-1],
            env={**os.environ, "DOCKER_BUILDKIT": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
        ) as process,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            file.write(line)
            if found := _STEP.match(line):
                on_step(f"{found[1] or found[2]} {found[3][:60]}")
            if found := _ERROR.search(line):
                said.append(found[1].strip())
            elif line.strip():
                last = line.strip()
    if process.returncode != 0:
        message = "; ".join(dict.fromkeys(said)) or last
        fix = f"fix it, then repeat the command; the whole output is in {log}"
        raise OperatorError("image-build", f"docker/{kind.name}/Dockerfile", message, fix)
