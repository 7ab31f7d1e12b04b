"""State of NVIDIA GPUs that slows or breaks a training: MIG, ECC, clocks, PCIe, NVLink, Xid errors.

Written from NVIDIA's public documentation and recorded outputs; not run on hardware.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from reprise.machines.accelerator import Facts, Health

__all__ = ["QUESTION", "clocks", "links", "state", "xid_errors"]

_STATE, _CLOCKS, _LINKS, _XID = "gpu.state", "gpu.clocks", "gpu.nvlink", "xid"
_FIELDS = (
    *("index", "pci.bus_id", "persistence_mode", "mig.mode.current", "ecc.mode.current"),
    *("ecc.errors.uncorrected.volatile.total", "pcie.link.gen.max"),
    *("pcie.link.width.current", "pcie.link.width.max"),
)
_CSV = "--format=csv,noheader,nounits"
# Drivers from 535 on call the second field clocks_event_reasons; the old name still works there.
QUESTION = f"""\
rows {_STATE} 5 nvidia-smi --query-gpu={",".join(_FIELDS)} {_CSV}
case $code in 124 | 137) return ;; esac
rows {_CLOCKS} 3 nvidia-smi --query-gpu=index,clocks_throttle_reasons.active {_CSV}
case $code in
    0) ;;
    124 | 137) return ;;
    *) rows {_CLOCKS} 3 nvidia-smi --query-gpu=index,clocks_event_reasons.active {_CSV} ;;
esac
rows {_LINKS} 4 nvidia-smi nvlink --status
rows gpu.firmware 3 nvidia-smi --query-gpu=index,name,vbios_version {_CSV}
"""
# Bits of nvmlClocksThrottleReasons (nvml.h) that mean a fault; idle and power caps are normal.
_SLOWDOWNS = {
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}
# Xid errors after which NVIDIA's catalogue asks for a reset of the GPU or its replacement; the
# others are often the fault of a program (13, 31, 43, 45) or were corrected.
_FATAL = {
    48: "double-bit memory error",
    62: "micro-controller halted",
    64: "row remapping failed",
    74: "NVLink error",
    79: "GPU has fallen off the bus",
    95: "uncontained memory error",
    119: "GSP does not answer",
    120: "GSP error",
    140: "unrecovered ECC error",
}
_XID_LINE = re.compile(r"Xid \(([^)]*)\): (\d+)")
_UNKNOWN = re.compile(r"^(?:\[.*\]|N/A|ERR!|)$")


@dataclass(frozen=True, slots=True)
class _Row:
    """One GPU of `nvidia-smi --query-gpu`; a value that was not reported is None."""

    index: str
    bus: str
    values: dict[str, str | None]

    @property
    def name(self) -> str:
        """The GPU in findings: its index and its place on the bus."""
        return f"{self.index} ({self.bus})"


def state(facts: Facts) -> Iterator[Health]:
    """MIG, ECC, persistence mode and PCIe link of every GPU; one result a kind of fault."""
    rows = _rows(facts)
    if not rows:
        why = facts.why(_STATE) or "no answer of nvidia-smi"
        yield Health.unknown("gpu-state.unread", why=why)
        return
    yield from _mig(rows)
    yield from _ecc(rows)
    yield from _persistence(rows)
    yield from _pcie(rows)
    # MIG: [N/A] is a GPU without it. Errors are not counted while ECC is off.
    unread = {
        field: [row.name for row in rows if row.values[field] is None]
        for field in ("persistence_mode", "ecc.mode.current", "pcie.link.width.current")
    }
    missing = {field: names for field, names in unread.items() if names}
    for field, names in missing.items():
        yield Health.unknown("gpu-state.not-reported", field=field, gpus=", ".join(names))
    if not missing:
        yield Health.good("gpu-state")


def _rows(facts: Facts) -> list[_Row]:
    found = []
    for line in facts.all(_STATE):
        words = [word.strip() for word in line.split(",")]
        if words[0].isdigit() and len(words) == len(_FIELDS):
            values = [None if _UNKNOWN.match(word) else word for word in words]
            named = dict(zip(_FIELDS, values, strict=True))
            found.append(_Row(words[0], words[1], named))
    return found


def _mig(rows: Sequence[_Row]) -> Iterator[Health]:
    on = [row for row in rows if row.values["mig.mode.current"] == "Enabled"]
    if on:
        yield Health.error("gpu-mig.enabled", gpus=_named(on), ids=_ids(on))
    else:
        yield Health.good("gpu-mig")


def _ecc(rows: Sequence[_Row]) -> Iterator[Health]:
    field = "ecc.errors.uncorrected.volatile.total"
    counts = {row.index: row.values[field] or "" for row in rows}
    wrong = [row for row in rows if counts[row.index].isdigit() and int(counts[row.index]) > 0]
    off = [row for row in rows if row.values["ecc.mode.current"] == "Disabled"]
    if wrong:
        shown = ", ".join(f"{row.name}: {counts[row.index]}" for row in wrong)
        yield Health.error("gpu-ecc.volatile", gpus=shown, ids=_ids(wrong))
    if off:
        yield Health.warn("gpu-ecc.off", gpus=_named(off), tool="nvidia-smi")
    if not wrong and not off:
        yield Health.good("gpu-ecc")


def _persistence(rows: Sequence[_Row]) -> Iterator[Health]:
    off = [row for row in rows if row.values["persistence_mode"] == "Disabled"]
    if off:
        yield Health.warn("gpu-persistence.off", gpus=_named(off))
    else:
        yield Health.good("gpu-persistence")


def _pcie(rows: Sequence[_Row]) -> Iterator[Health]:
    """The link's width against the possible one, its generation against the other GPUs'.

    The current generation is not judged: an idle GPU lowers it.
    """
    narrow = []
    for row in rows:
        now, most = row.values["pcie.link.width.current"], row.values["pcie.link.width.max"]
        if now and most and now.isdigit() and most.isdigit() and int(now) < int(most):
            narrow.append(f"{row.name}: x{now} of x{most}")
    if narrow:
        yield Health.warn("gpu-pcie.narrow", gpus=", ".join(narrow), tool="nvidia-smi -q")
    gens = Counter(gen for row in rows if (gen := row.values["pcie.link.gen.max"]))
    common = gens.most_common(1)[0][0] if gens else None
    slow = [row for row in rows if row.values["pcie.link.gen.max"] not in (None, common)]
    for row in slow:
        generation = row.values["pcie.link.gen.max"]
        yield Health.warn("gpu-pcie.generation", gpu=row.name, generation=generation, most=common)
    if not narrow and not slow:
        yield Health.good("gpu-pcie")


def clocks(facts: Facts) -> Iterator[Health]:
    """GPUs whose clocks the hardware reduces: heat, or the power supply."""
    masks: dict[str, int] = {}
    for line in facts.all(_CLOCKS):
        index, _, value = (word.strip() for word in line.partition(","))
        if index.isdigit() and re.fullmatch(r"0x[0-9a-fA-F]+", value):
            masks[index] = int(value, 16)
    if not masks:
        why = facts.why(_CLOCKS) or "no answer of nvidia-smi"
        yield Health.unknown("gpu-clocks.unread", why=why)
        return
    slow = {
        index: [name for bit, name in _SLOWDOWNS.items() if mask & bit]
        for index, mask in masks.items()
    }
    shown = [f"{index} ({', '.join(names)})" for index, names in slow.items() if names]
    if shown:
        yield Health.warn("gpu-clocks.reduced", gpus=", ".join(shown))
    else:
        yield Health.good("gpu-clocks")


def links(facts: Facts) -> Iterator[Health]:
    """NVLink of every GPU: all links with a speed, as many as the other GPUs have."""
    found: dict[str, dict[str, bool]] = {}
    gpu = None
    for line in facts.all(_LINKS):
        if match := re.match(r"^GPU (\d+):", line.strip()):
            gpu = match[1]
            found[gpu] = {}
        elif gpu is not None and (match := re.match(r"^Link (\d+): (.*)$", line.strip())):
            # Only a speed shows that a link is up; any other text does not.
            found[gpu][match[1]] = re.match(r"^[\d.]+ GB/s", match[2]) is not None
    if not found:
        why = facts.why(_LINKS) or "no answer of nvidia-smi nvlink"
        yield Health.unknown("gpu-nvlink.unread", why=why)
        return
    most = max(len(ports) for ports in found.values())
    down = []
    for index, ports in found.items():
        inactive = [number for number, up in ports.items() if not up]
        if not ports:
            down.append(f"{index} (no links)")
        elif inactive:
            down.append(f"{index} (links {', '.join(inactive)})")
        elif len(ports) < most:
            down.append(f"{index} ({len(ports)} of {most} links)")
    if down:
        yield Health.error("gpu-nvlink.inactive", gpus="; ".join(down))
    else:
        yield Health.good("gpu-nvlink")


def xid_errors(facts: Facts) -> Iterator[Health]:
    """Xid errors of the kernel log: those that need a reset are errors."""
    fatal: dict[tuple[int, str], None] = {}
    others: dict[str, None] = {}
    for line in facts.all(_XID):
        match = _XID_LINE.search(line)
        if match is None:
            continue
        number = int(match[2])
        if number in _FATAL:
            fatal[number, match[1]] = None
        else:
            others[match[0]] = None
    by_number: dict[int, list[str]] = defaultdict(list)
    for number, place in fatal:
        by_number[number].append(place)
    for number, places in by_number.items():
        yield Health.error(
            "gpu-xid.fatal", number=number, meaning=_FATAL[number], gpus=", ".join(places)
        )
    if others:
        yield Health.warn("gpu-xid.found", errors=", ".join(others))
    if facts.one("xid.read") is None:
        yield Health.unknown("gpu-xid.unread", why=facts.why("xid.read") or "no answer")
    elif not by_number and not others:
        yield Health.good("gpu-xid")


def _named(rows: Sequence[_Row]) -> str:
    return ", ".join(row.name for row in rows)


def _ids(rows: Sequence[_Row]) -> str:
    """The GPUs as `nvidia-smi -i` takes them."""
    return ",".join(row.bus for row in rows)
