"""The rule on firmware: GPUs, RDMA adapters and hosts of one kind have the same version."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from reprise.cluster.doctor.context import Context
from reprise.cluster.doctor.facts import Facts
from reprise.cluster.doctor.marks import Marks

__all__ = ["firmware"]

_GPU = "gpu.firmware"
# What a mainboard's firmware prints where its maker filled in nothing, and virtual machines.
_EMPTY = frozenset({"", "none", "default string", "to be filled by o.e.m.", "not specified"})

_Part = tuple[str, str]
"""A kind of part, and its version."""


def firmware(context: Context, marks: Marks) -> None:
    """Versions of each host against those of most parts of the same kind, on all hosts."""
    usual = {read: _most(context, read) for read in (_gpus, _adapters, _bios)}
    for host, facts in context.answered():
        name, before = host.name, len(marks.marks)
        for model, found, most in _others(facts, _gpus, usual[_gpus]):
            marks.warn("firmware.gpu-differs", name, model=model, found=found, most=most)
        for kind, found, most in _others(facts, _adapters, usual[_adapters]):
            marks.warn("firmware.rdma-differs", name, kind=kind, found=found, most=most)
        for kind, found, most in _others(facts, _bios, usual[_bios]):
            marks.warn("firmware.bios-differs", name, kind=kind, found=found, most=most)
        if gpus := ", ".join(_unread(facts)):
            marks.blank("firmware.unread", name, gpus=gpus)
        known = any(list(read(facts)) for read in usual)
        if known and len(marks.marks) == before:
            marks.good("firmware", name)


def _gpus(facts: Facts) -> Iterator[_Part]:
    for row in facts.all(_GPU):
        parts = [part.strip() for part in row.split(",")]
        if len(parts) == 3 and _is_version(parts[2]):
            yield parts[1], parts[2]


def _unread(facts: Facts) -> Iterator[str]:
    for row in facts.all(_GPU):
        parts = [part.strip() for part in row.split(",")]
        if parts[0].isdigit() and len(parts) == 3 and not _is_version(parts[2]):
            yield parts[0]


def _is_version(text: str) -> bool:
    return bool(text) and not text.startswith("[") and text not in ("N/A", "ERR!")


def _adapters(facts: Facts) -> Iterator[_Part]:
    for value in facts.all("rdma.firmware"):
        words = value.split(" ")
        if len(words) == 3 and words[1] and words[2]:
            yield words[1], words[2]


def _bios(facts: Facts) -> Iterator[_Part]:
    board, _, version = (facts.one("bios") or "").partition(", ")
    board, version = board.strip(), version.strip()
    if board.lower() not in _EMPTY and version.lower() not in _EMPTY:
        yield board, version


def _most(context: Context, read: Callable[[Facts], Iterator[_Part]]) -> dict[str, str]:
    """By kind, the version of most parts; of the first host in a tie."""
    counts: dict[str, Counter[str]] = {}
    for _, facts in context.answered():
        for kind, version in read(facts):
            counts.setdefault(kind, Counter())[version] += 1
    return {kind: versions.most_common(1)[0][0] for kind, versions in counts.items()}


def _others(
    facts: Facts, read: Callable[[Facts], Iterator[_Part]], usual: dict[str, str]
) -> list[tuple[str, str, str]]:
    """Kind, version and usual version of the parts that have another version."""
    other = sorted({part for part in read(facts) if part[1] != usual[part[0]]})
    return [(kind, version, usual[kind]) for kind, version in other]
