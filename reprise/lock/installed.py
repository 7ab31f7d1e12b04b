"""What a given Python interpreter has installed, asked of that interpreter itself."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

import orjson
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from reprise.core.errors import CannotTell

__all__ = ["Distribution", "Installed", "query"]

# Runs under any Python 3.8 or later, with the standard library alone. A name that is on the path
# twice is reported once, as the import system would find it.
_SCRIPT = r"""
import importlib.metadata as m, json, os, platform, sys
found = {}
for d in m.distributions():
    name = d.metadata["Name"]
    if name and name.lower() not in found:
        found[name.lower()] = [name, d.version, list(d.requires or [])]
i = sys.implementation
v = "%d.%d.%d" % i.version[:3]
json.dump({"found": list(found.values()), "prefix": sys.prefix, "markers": {
  "implementation_name": i.name, "implementation_version": v, "os_name": os.name,
  "platform_machine": platform.machine(), "platform_release": platform.release(),
  "platform_system": platform.system(), "platform_version": platform.version(),
  "python_full_version": platform.python_version(), "sys_platform": sys.platform,
  "platform_python_implementation": platform.python_implementation(),
  "python_version": ".".join(platform.python_version_tuple()[:2])}}, sys.stdout)
"""


@dataclass(frozen=True, slots=True)
class Distribution:
    """One installed distribution: its name as written, version and declared requirements."""

    name: str
    version: str
    requires: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Installed:
    """The distributions of an interpreter by canonical name, and its marker environment."""

    python: Path
    distributions: dict[str, Distribution]
    markers: dict[str, str]

    def applies(self, requirement: Requirement) -> bool:
        """Whether the requirement's marker holds there, with no extra asked for."""
        marker = requirement.marker
        return marker is None or marker.evaluate({**self.markers, "extra": ""})

    def requirements(self) -> list[tuple[Distribution, Requirement]]:
        """Each requirement that applies, with its declarer; unreadable ones are left out."""
        result: list[tuple[Distribution, Requirement]] = []
        for distribution in self.distributions.values():
            for text in distribution.requires:
                try:
                    requirement = Requirement(text)
                except InvalidRequirement:
                    continue
                if self.applies(requirement):
                    result.append((distribution, requirement))
        return result


def query(python: Path) -> Installed:
    """Ask the interpreter `python` for its distributions. Nothing of them is imported.

    Raises CannotTell when it cannot be run.
    """
    fix = "name another interpreter with --python, or make the environment: `make setup`"
    command = [str(python), "-I", "-c", _SCRIPT]
    try:
        done = subprocess.run(command, capture_output=True, check=False, timeout=120)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotTell("python", str(python), f"cannot be run: {error}", fix) from error
    if done.returncode != 0:
        last = (done.stderr.decode(errors="replace").strip().splitlines() or ["no message"])[-1]
        raise CannotTell("python", str(python), f"cannot list its packages: {last}", fix)
    answer = orjson.loads(done.stdout)
    found: dict[str, Distribution] = {
        canonicalize_name(name): Distribution(name, version or "", tuple(requires))
        for name, version, requires in answer["found"]
    }
    return Installed(python, found, answer["markers"])
