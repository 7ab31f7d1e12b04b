"""The wheels of a bundle: pip brings them, each checked against its locked hash."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from packaging.markers import Marker
from packaging.utils import canonicalize_name

from reprise.bundle.configs import CONFIGS
from reprise.core.errors import OperatorError
from reprise.core.files import sha256_file
from reprise.core.findings import Report
from reprise.core.pip import find_pip
from reprise.lock.model import Environment, Lock, Package
from reprise.lock.requirements import Pin, read_pins

__all__ = ["OnStep", "Staging", "add_configs", "add_environment", "add_package"]

# Called with what is being done, and how many of how many bytes are (None where not known).
OnStep = Callable[[str, int, int | None], None]


@dataclass(slots=True)
class Staging:
    """Files of the bundle-to-be, by their path in it, in the order in which they are written."""

    root: Path
    folder: Path
    lock: Lock
    on_step: OnStep
    files: dict[str, Path] = field(default_factory=dict)


def add_configs(staging: Staging, report: Report) -> None:
    """The wheels of verl whose config files the check of a recipe reads, where no tree has them."""
    file = staging.root / CONFIGS
    if not file.is_file():
        return
    try:
        _download(staging, "verl-configs", read_pins(file))
    except OperatorError as error:
        report.failed("bundle-configs", error.where, error.message, error.fix)


def add_environment(staging: Staging, name: str, environment: Environment) -> None:
    """Every wheel of an environment's requirements. Raises OperatorError when one cannot be had."""
    pins = read_pins(staging.root / environment.requirements)
    # Left alone, pip takes the file whose hash the index announces: a build of torch for CUDA,
    # also where the site has one for the CPU. Ask for that by name first; when there is none,
    # the download of all pins takes what there is.
    for pin in (pin for pin in pins if pin.name == "torch"):
        with contextlib.suppress(OperatorError):
            _download(staging, pin.name, [replace(pin, version=f"{pin.version}+cpu")])
    wheels = _download(staging, name, pins)
    # Where pip took a build of torch for CUDA, what that build asks for must come along.
    if any(file.startswith("torch-") and "+cpu" not in file for file in wheels):
        for extra in environment.extra:
            _download(staging, name, read_pins(staging.root / extra))


def add_package(staging: Staging, package: Package) -> None:
    """The wheel of one package. Raises OperatorError when it cannot be had."""
    name = canonicalize_name(package.name)
    _download(staging, package.name, [Pin(name, package.version, "", package.sha256)])


def _download(staging: Staging, name: str, pins: Sequence[Pin]) -> set[str]:
    """Let pip bring the files of `pins`, each checked against its hash; gives their names.

    What an earlier run brought is not fetched again. Pins whose marker does not hold for this
    Python are left out: a bundle serves machines with the Python that made it.
    """
    staging.on_step(f"{name}: wheels", 0, None)
    wheels, new = staging.folder / "wheels", staging.folder / "new"
    wheels.mkdir(exist_ok=True)
    new.mkdir(exist_ok=True)
    have = {sha256_file(file): file for file in wheels.iterdir()}
    wanted = [pin for pin in pins if not pin.marker or Marker(pin.marker).evaluate()]
    lacking = [pin for pin in wanted if not any(value in have for value in pin.sha256)]
    if lacking:
        _pip_download(staging, name, lacking, new)
    for file in new.iterdir():
        file.replace(wheels / file.name)
        have[sha256_file(wheels / file.name)] = wheels / file.name
    found = {have[value].name for pin in wanted for value in pin.sha256 if value in have}
    staging.files |= {f"wheels/{file}": wheels / file for file in sorted(found)}
    return found


def _pip_download(staging: Staging, name: str, pins: Sequence[Pin], into: Path) -> None:
    file = staging.folder / f"{name}.txt"
    lines = (" ".join((f"{p.name}=={p.version}", *(f"--hash=sha256:{h}" for h in p.sha256)))
             for p in pins)  # fmt: skip
    file.write_text("".join(f"{line}\n" for line in lines))
    command = [*find_pip(), "download", "-q", "--no-deps", "--require-hashes", "--no-input"]
    command += ["--prefer-binary", "-d", str(into.absolute()), "-r", str(file.absolute())]
    done = subprocess.run(
        command, capture_output=True, encoding="utf-8", errors="replace", check=False
    )
    if done.returncode != 0:
        said = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        message = (said or done.stderr.strip().splitlines() or ["pip failed"])[-1]
        fix = "check the network and pip's settings, then repeat: what is there already is kept"
        raise OperatorError("bundle-wheels", name, message, fix)
