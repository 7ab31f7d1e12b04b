"""Compare an image with the lock, by its provenance file and the engine's data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson
from packaging.utils import canonicalize_name

from reprise.core.findings import Report
from reprise.lock.model import Lock, Machine
from reprise.lock.read import machine_hash
from reprise.machines.registry import machine_of_lock

__all__ = ["Held", "judge_images", "parse_held"]


@dataclass(frozen=True, slots=True)
class Held:
    """One host's image: its id, its provenance.json (None: it has none), and containers in it.

    `layers` are the digests of its unpacked layers, empty if unknown: ids of docker's two image
    stores differ for one image. `running` gives the image's id of each container of a cluster
    there, by its name.
    """

    id: str
    provenance: Mapping[str, Any] | None
    running: Mapping[str, str]
    layers: tuple[str, ...] = ()

    def same(self, other: Held) -> bool:
        """Is it the same image?"""
        return self.id == other.id or bool(self.layers and self.layers == other.layers)


def parse_held(output: str) -> Held | None:
    """The answer of scripts/image_state.sh; None when the host does not have the image."""
    values: dict[str, list[str]] = {}
    for line in output.splitlines():
        if line.startswith("= "):
            key, _, value = line[2:].partition(" ")
            values.setdefault(key, []).append(value)
    identity = "".join(values.get("id", []))
    if not identity:
        return None
    try:
        about = orjson.loads("".join(values.get("provenance", [])))
    except orjson.JSONDecodeError:
        about = None
    try:
        layers = orjson.loads("".join(values.get("layers", [])))
    except orjson.JSONDecodeError:
        layers = None
    pairs = [value.split(" ") for value in values.get("container", [])]
    return Held(
        identity,
        about if isinstance(about, dict) else None,
        {pair[0]: pair[-1] for pair in pairs},
        tuple(map(str, layers)) if isinstance(layers, list) else (),
    )


def judge_images(lock: Lock, machine: Machine, image: str, hosts: Mapping[str, Held]) -> Report:
    """Judge the `image` of every host (by its name) against the lock and the others.

    Rules: image-id (the same everywhere), image-running (what runs is that image), image-base (the
    locked digest), image-lock (built from this state of the lock), image-packages (the lock's
    packages at their versions), image-unresolved (no package that the site still has to add).
    """
    report = Report("image verify")
    first = next(iter(hosts.values()), None)
    for host, held in hosts.items():
        if first is not None and not held.same(first):
            report.failed(
                "image-id.differs", host, found=held.id[:19], expected=first.id[:19], image=image
            )
        for name, identity in held.running.items():
            if identity != held.id:
                report.failed(
                    "image-running.other",
                    host,
                    name=name,
                    found=identity[:19],
                    expected=held.id[:19],
                )
        if held.provenance is None:
            report.unknown("image-provenance.absent", host, image=image)
            continue
        _against_lock(report, lock, machine, host, held.provenance, image)
    for rule in ("image-id", "image-running") if hosts else ():
        report.settle(rule)
    return report


def _against_lock(
    report: Report, lock: Lock, machine: Machine, host: str, about: Mapping[str, Any], image: str
) -> None:
    report.settle("image-provenance")
    if about.get("machine") != machine:
        report.failed("image-machine.other", host, found=about.get("machine"), expected=machine)
        return
    bases = [entry for entry in lock.image.values() if machine in entry.machines]
    for entry in bases:
        found = str(about.get("base_digest") or "no digest")
        if entry.digest is None:
            report.unknown("image-base.not-locked", host, found=found)
        elif found != entry.digest:
            report.failed("image-base.built", host, found=found, expected=entry.digest, image=image)
    wanted = machine_hash(lock, machine)
    if about.get("lock_sha256") != wanted:
        report.failed(
            "image-lock.other-state",
            host,
            found=str(about.get("lock_sha256"))[:12],
            expected=wanted[:12],
            machine=machine,
            image=image,
        )
    _packages(report, lock, machine, host, about, image)
    site = machine_of_lock(machine).image
    for name in about.get("unresolved", []):
        report.unknown("image-unresolved.package", host, package=name, image=site)
    # The lock has no entry for the cpu image's base: there is nothing to compare it with.
    rules = ("image-lock", "image-packages", "image-unresolved")
    for rule in (*rules, "image-base") if bases else rules:
        report.settle(rule)


def _packages(
    report: Report, lock: Lock, machine: Machine, host: str, about: Mapping[str, Any], image: str
) -> None:
    frozen = [line for lines in about.get("freeze", {}).values() for line in lines]
    have = {canonicalize_name(name): version for name, _, version in map(_split, frozen)}
    for package in (p for p in lock.package.values() if machine in p.machines):
        found = have.get(canonicalize_name(package.name), "absent")
        if found != package.version:
            report.failed(
                "image-packages.version",
                host,
                package=package.name,
                found=found,
                expected=package.version,
                image=image,
            )


def _split(line: str) -> tuple[str, str, str]:
    return line.partition("==")
