"""How fast the hosts read weights and write checkpoints, all of them at once."""

from __future__ import annotations

import secrets
import shlex
from typing import Any

from reprise.cluster.answer import Answer
from reprise.cluster.doctor.active import Runner, floor_of
from reprise.cluster.doctor.context import Context
from reprise.cluster.doctor.doctor import Scripts
from reprise.cluster.doctor.facts import parse_facts
from reprise.cluster.doctor.marks import Marks
from reprise.cluster.ssh import Job, assignments

__all__ = ["check_storage"]

# Bounds of one measurement of one folder on one host.
_MIB, _SECONDS = 2048, 10.0
_READ = ("model", "data")
_WRITE = "checkpoints"


def check_storage(
    context: Context, run: Runner, scripts: Scripts, marks: Marks
) -> dict[str, dict[str, dict[str, float]]]:
    """Measure the folders of the site file and compare; GB/s by kind (read, write), folder, host.

    Nothing is measured where the site file names no folder.
    """
    paths = context.site.paths.shared()
    read = {name: paths[name] for name in _READ if name in paths}
    write = {_WRITE: paths[_WRITE]} if _WRITE in paths else {}
    if not read and not write:
        return {}
    hosts = [host for host, _ in context.answered()]
    python = context.site.paths.python
    if context.site.container.image is not None:
        python = "python3"
    nonce = secrets.token_hex(8)
    exported = {
        "S_READ": "".join(f"{name} {path}\n" for name, path in read.items()),
        "S_WRITE": "".join(f"{name} {path}\n" for name, path in write.items()),
        "S_MIB": str(_MIB),
        "S_SECONDS": f"{_SECONDS:g}",
        "S_NONCE": nonce,
    }
    # Writing, reading back, and each folder that is read; a storage that hangs ends the script.
    limit = (3 * len(write) + 2 * len(read)) * _SECONDS + 30
    line = f"printf '%s' \"$code\" | timeout -k 5 {limit:.0f} {shlex.quote(python)} -I -\n"
    values = {"code": scripts.text("storage.py")}
    script = assignments(values) + assignments(exported, export=True) + line
    jobs: list[Job] = [(host, script) for host in hosts]
    figures: dict[str, dict[str, dict[str, float]]] = {"read": {}, "write": {}}
    wanted = [("write", _WRITE)] * len(write) + [("read", name) for name in (*write, *read)]
    for answer in run(jobs, limit + 20):
        for kind, name in wanted:
            _judge(context, answer, kind, name, {**read, **write}[name], figures, marks)
    return figures


def _judge(
    context: Context,
    answer: Answer,
    kind: str,
    name: str,
    path: str,
    figures: dict[str, dict[str, dict[str, float]]],
    marks: Marks,
) -> None:
    """One folder on one host against its floor; what was not measured is unknown."""
    facts = parse_facts(answer.host, answer.output)
    words = facts.pairs(kind).get(name, "").split()
    shown: dict[str, Any] = {"name": name, "path": path, "verb": kind}
    if not words:
        said = (answer.said.splitlines() or [answer.outcome.value])[-1]
        why = facts.why(f"{kind}.{name}") or facts.why(f"write.{name}") or said
        marks.blank("storage.unread", answer.host, **shown, why=why)
        return
    figure = float(words[0])
    figures[kind].setdefault(name, {})[answer.host] = figure
    floor, source = floor_of(context, f"storage_{kind}")
    shown |= {"figure": figure}
    if floor is None:
        marks.blank("storage.no-floor", answer.host, **shown, profile=context.profile.name)
    elif figure < floor:
        marks.bad("storage.too-low", answer.host, **shown, floor=floor, source=source)
    else:
        marks.note("storage.measured", answer.host, **shown, floor=floor, source=source)
