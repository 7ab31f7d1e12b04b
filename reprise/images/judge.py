"""Is an image what the lock says: judged by what it and the engine that holds it tell."""

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

    `running` gives the image's id of each container of a cluster there, by its name.
    """

    id: str
    provenance: Mapping[str, Any] | None
    running: Mapping[str, str]


def parse_held(output: str) -> Held | None:
    """The answer of scripts/image_state.sh; None when the host does not hold the image."""
    values: dict[str, list[str]] = {}
    for line in output.splitlines():
        if line.startswith("= "):
            key, _, value = line[2:].partition(" ")
            values.setdefault(key, []).append(value)
    identity = "".join(values.get("id", []))
    if not identity:
        return None
    try:
        told = orjson.loads("".join(values.get("provenance", [])))
    except orjson.JSONDecodeError:
        told = None
    pairs = [value.split(" ") for value in values.get("container", [])]
    return Held(
        identity,
        told if isinstance(told, dict) else None,
        {pair[0]: pair[-1] for pair in pairs},
    )


def judge_images(lock: Lock, machine: Machine, image: str, hosts: Mapping[str, Held]) -> Report:
    """Judge the `image` of every host (by its name) against the lock and the others.

    Rules: image-id (the same everywhere), image-running (what runs is that image), image-base (the
    locked digest), image-lock (built from this state of the lock), image-packages (the lock's
    packages at their versions), image-unresolved (nothing that the site still has to bring).
    """
    report = Report("image verify")
    again = f"build it again (`reprise image build`) and load it on every host: {image}"
    first = next(iter(hosts.values())).id if hosts else ""
    for host, held in hosts.items():
        if held.id != first:
            told = f"image id {held.id[:19]}, the first host has {first[:19]}"
            report.failed("image-id", host, told, again)
        for name, identity in held.running.items():
            if identity != held.id:
                told = f"container {name} runs image {identity[:19]}, not {held.id[:19]}"
                fix = "`reprise cluster down`, then up: a container keeps the image it began with"
                report.failed("image-running", host, told, fix)
        if held.provenance is None:
            told = f"{image} has no /etc/reprise/provenance.json: it was not built here"
            report.unknown("image-provenance", host, told, again)
            continue
        _against_lock(report, lock, machine, host, held.provenance, again)
    for rule in ("image-id", "image-running") if hosts else ():
        report.settle(rule)
    return report


def _against_lock(
    report: Report, lock: Lock, machine: Machine, host: str, about: Mapping[str, Any], again: str
) -> None:
    report.settle("image-provenance")
    if about.get("machine") != machine:
        told = f"the image is for {about.get('machine')}, not for {machine}"
        report.failed("image-machine", host, told, "name the right image, or --machine")
        return
    bases = [entry for entry in lock.image.values() if machine in entry.machines]
    for entry in bases:
        found = str(about.get("base_digest") or "no digest")
        if entry.digest is None:
            told = f"is built on {found}; the lock has no digest to compare with"
            report.unknown("image-base", host, told, "`make image-lock`")
        elif found != entry.digest:
            told = f"is built on {found}, the lock has {entry.digest}"
            report.failed("image-base", host, told, again)
    wanted = machine_hash(lock, machine)
    if about.get("lock_sha256") != wanted:
        told = f"was built from the lock {str(about.get('lock_sha256'))[:12]}, this one is "
        report.failed("image-lock", host, f"{told}{wanted[:12]} for {machine}", again)
    _packages(report, lock, machine, host, about, again)
    site = machine_of_lock(machine).image
    for name in about.get("unresolved", []):
        fix = f"copy its wheel to docker/{site}/site and build again (docs/images.md)"
        report.unknown("image-unresolved", host, f"{name} is not in the image", fix)
    # The cpu image's base is no entry of the lock: there is nothing to compare it with.
    rules = ("image-lock", "image-packages", "image-unresolved")
    for rule in (*rules, "image-base") if bases else rules:
        report.settle(rule)


def _packages(
    report: Report, lock: Lock, machine: Machine, host: str, about: Mapping[str, Any], again: str
) -> None:
    frozen = [line for lines in about.get("freeze", {}).values() for line in lines]
    have = {canonicalize_name(name): version for name, _, version in map(_split, frozen)}
    for package in (p for p in lock.package.values() if machine in p.machines):
        found = have.get(canonicalize_name(package.name), "absent")
        if found != package.version:
            told = f"{package.name} {found}, the lock has {package.version}"
            report.failed("image-packages", host, told, again)


def _split(line: str) -> tuple[str, str, str]:
    return line.partition("==")
