"""Whether the first weight update writes every parameter of the rollout.

Before the first update every parameter is filled with NaN; what is NaN after it was not written,
whatever loaded the rest: a name that the engine passes over, a missing shard, one expert of many.
A record with the numbers is written to ``REPRISE_RUN_DIR/written``.

``REPRISE_WRITTEN=fail`` ends the job where something is left, ``count`` only records it.
``REPRISE_WRITTEN_DIGESTS=1`` adds the SHA-256 of each parameter's bytes, to compare two engines.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reprise_plugins.switches import SwitchError

if TYPE_CHECKING:
    import torch

VARIABLE = "REPRISE_WRITTEN"
DIGESTS = "REPRISE_WRITTEN_DIGESTS"
FAIL, COUNT = "fail", "count"
#: Elements that are looked at at once: the answer takes a byte each.
_PIECE = 2**26
#: Parameters that an error names.
_NAMED = 4
#: Bounds of the random values of an engine's dummy weights: what was there before.
_DUMMY = 1e-3


class UnwrittenError(RuntimeError):
    """A weight update left parameters of the rollout unwritten."""


def mode(environ: Mapping[str, str] | None = None) -> str:
    """Return ``fail``, ``count``, or "" where nothing is asked. Raises ``SwitchError``."""
    environ = os.environ if environ is None else environ
    text = environ.get(VARIABLE, "").strip().lower()
    if text not in ("", FAIL, COUNT):
        raise SwitchError(f"{VARIABLE} is {text!r}; expected {FAIL} or {COUNT}")
    return text


def _pieces(tensor: "torch.Tensor") -> "Iterator[torch.Tensor]":
    """Yield views of a tensor of at most ``_PIECE`` elements; whole where it is not contiguous."""
    if tensor.is_contiguous():
        yield from tensor.view(-1).split(_PIECE)
    else:
        yield tensor


def digests(parameters: "Iterable[tuple[str, torch.Tensor]]") -> dict[str, str]:
    """Return the SHA-256 of each parameter's type, shape and bytes, by its name in the engine."""
    import torch

    found = {}
    for name, parameter in parameters:
        data = parameter.data.contiguous().cpu()
        text = hashlib.sha256(f"{data.dtype} {tuple(data.shape)}".encode())
        text.update(data.view(-1).view(torch.uint8).numpy().tobytes())
        found[name] = text.hexdigest()
    return found


def checkable(tensor: "torch.Tensor") -> bool:
    """Return whether NaN can be written and found: no integers, nothing of eight bits."""
    return bool(tensor.is_floating_point()) and tensor.element_size() >= 2


class Guard:
    """The first weight update of one model of one engine.

    ``begin`` before its first tensor, ``end`` when all have come; further calls do nothing.
    """

    def __init__(self, engine: str, how: str) -> None:
        self.engine, self.how = engine, how
        self.begun = self.ended = False
        self.rank: int = 0

    def begin(self, parameters: "Iterable[tuple[str, torch.Tensor]]") -> None:
        """Fill every parameter with NaN."""
        if self.begun:
            return
        self.begun = True
        for _, parameter in parameters:
            if checkable(parameter):
                parameter.data.fill_(float("nan"))

    def end(self, parameters: "Iterable[tuple[str, torch.Tensor]]") -> dict[str, Any] | None:
        """Return the record of the update, once; None when there is nothing to look at.

        Raises ``UnwrittenError`` where a parameter was left and ``how`` is ``fail``. With ``count``
        what was left gets small random values, as an engine's dummy weights have.
        """
        if not self.begun or self.ended:
            return None
        self.ended = True
        named = list(parameters)
        record = self._look(named)
        if os.environ.get(DIGESTS, "").strip() == "1":
            record["digests"] = digests(named)
        keep(record)
        if record["unwritten"] and self.how == FAIL:
            raise UnwrittenError(message(record))
        print(f"reprise-plugins: {message(record)}", flush=True)
        return record

    def _look(self, parameters: "Iterable[tuple[str, torch.Tensor]]") -> dict[str, Any]:
        unwritten: list[dict[str, Any]] = []
        unchecked: list[str] = []
        count = elements = 0
        for name, parameter in parameters:
            count += 1
            if not checkable(parameter):
                unchecked.append(name)
                continue
            elements += parameter.numel()
            left = 0
            for piece in _pieces(parameter.data):
                empty = piece.isnan()
                found = int(empty.sum())
                if found and self.how == COUNT:
                    piece[empty] = piece.new_empty(found).uniform_(-_DUMMY, _DUMMY)
                left += found
            if left:
                unwritten.append({"name": name, "elements": left, "of": parameter.numel()})
        return {
            "engine": self.engine,
            "rank": self.rank,
            "pid": os.getpid(),
            "parameters": count,
            "written": count - len(unwritten) - len(unchecked),
            "elements": elements,
            "unwritten": unwritten,
            "unchecked": unchecked,
        }


def message(record: Mapping[str, Any]) -> str:
    """Return the record in one sentence, with the first parameters that were left."""
    count, left = record["parameters"], record["unwritten"]
    more = f", {len(record['unchecked'])} cannot be checked" if record["unchecked"] else ""
    if not left:
        return (
            f"the first weight update wrote {record['written']} of {count} parameters of "
            f"{record['engine']}{more}"
        )
    named = ", ".join(f"{r['name']} ({r['elements']} of {r['of']} elements)" for r in left[:_NAMED])
    rest = f" and {len(left) - _NAMED} more" if len(left) > _NAMED else ""
    return (
        f"the first weight update left {len(left)} of {count} parameters of {record['engine']} "
        f"unwritten{more}: {named}{rest}. The rollout would sample from other weights than the "
        "trainer's: compare the names that the trainer sends with those that the engine's "
        "load_weights knows (docs/plugins.md)"
    )


def keep(record: Mapping[str, Any]) -> None:
    """Write the record into the run's folder, where there is one on this host."""
    run = os.environ.get("REPRISE_RUN_DIR", "")
    if not run or not Path(run).is_dir():
        return
    folder = Path(run) / "written"
    folder.mkdir(exist_ok=True)
    name = f"{record['engine'].lower()}-{record['pid']}"
    half = folder / f".{name}.half"
    half.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    half.replace(folder / f"{name}.json")
