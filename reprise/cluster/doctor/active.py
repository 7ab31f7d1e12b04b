"""An all-reduce between all hosts: the only check that uses the GPUs and the network."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

import orjson
from platformdirs import user_state_path

from reprise.cluster.doctor.context import Context
from reprise.cluster.doctor.doctor import Scripts
from reprise.cluster.doctor.facts import parse_facts
from reprise.cluster.doctor.marks import Marks
from reprise.cluster.ssh import Job, Ssh, assignments
from reprise.core.files import dump_json, sha256_text

__all__ = ["Baseline", "all_reduce", "baseline_of"]

# Size of one all-reduce, with GPUs and without.
_MIB, _MIB_ON_CPU = 1024, 16
_PORT = 8272
_SECONDS = 150.0
_LEAST = 0.8
"""Least bandwidth, as a part of the recorded baseline."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """The file with the bandwidth of earlier checks of the same hosts, in Gbit/s."""

    path: Path

    def read(self) -> float | None:
        """The recorded figure; None without a readable one."""
        try:
            return float(orjson.loads(self.path.read_bytes())["gbit_per_s"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def write(self, value: float) -> None:
        """Record a figure."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        dump_json(self.path, {"gbit_per_s": value})


def baseline_of(context: Context) -> Baseline:
    """The baseline of these hosts with this kind of GPU, in the operator's state folder."""
    names = ",".join(sorted(host.name for host in context.hosts))
    key = sha256_text(f"{context.machine.vendor} {names}")[:16]
    return Baseline(user_state_path("reprise") / "baselines" / f"{key}.json")


def all_reduce(
    context: Context, ssh: Ssh, scripts: Scripts, marks: Marks, baseline: Baseline
) -> float | None:
    """Run one rank on every host; the slowest rank's bus bandwidth in Gbit/s, or None.

    A host that was not reached or has no address makes the check unknown: a smaller group would
    not test it.
    """
    head = context.head.name
    addresses = [context.address(host) for host in context.hosts]
    if len(addresses) < 2 or any(address is None for address in addresses):
        marks.blank("all-reduce.too-few-hosts", head)
        return None
    if context.site.container.image is not None:
        marks.blank("all-reduce.container", head)
        return None
    answers = ssh.run(_jobs(context, scripts), _SECONDS)
    figures = []
    for answer in answers:
        facts = parse_facts(answer.host, answer.output)
        figure = facts.one("bandwidth")
        if facts.one("sum") == "right" and figure is not None:
            figures.append(float(figure))
            marks.good("all-reduce", answer.host)
            continue
        if facts.one("sum") == "wrong":
            marks.bad("all-reduce.wrong-sum", answer.host)
        else:
            said = (answer.said.splitlines() or [answer.outcome.value])[-1]
            marks.bad("all-reduce.failed", answer.host, said=said)
    if len(figures) < len(answers):
        return None
    _compare(min(figures), head, baseline, marks)
    return min(figures)


def _jobs(context: Context, scripts: Scripts) -> list[Job]:
    accelerator = context.machine.accelerator
    head = context.address(context.head)
    jobs: list[Job] = []
    for rank, host in enumerate(context.hosts):
        address = context.address(host)
        interface = address.interface if address else ""
        exported = {
            **dict.fromkeys(accelerator.interface_variables, interface),
            **context.profile.ray_variables,
            **context.site.variables,
            "A_RANK": str(rank),
            "A_WORLD": str(len(context.hosts)),
            "A_ADDRESS": head.ip if head else "",
            "A_PORT": str(_PORT),
            "A_BACKEND": accelerator.backend,
            "A_DEVICE": accelerator.torch_device,
            "A_MIB": str(_MIB if accelerator.tool else _MIB_ON_CPU),
        }
        values = {"code": scripts.text("allreduce.py"), "python": context.site.paths.python}
        run = 'printf \'%s\' "$code" | timeout 140 "$python" -I -\n'
        jobs.append((host, assignments(values) + assignments(exported, export=True) + run))
    return jobs


def _compare(figure: float, head: str, baseline: Baseline, marks: Marks) -> None:
    known = baseline.read()
    if known is None:
        baseline.write(figure)
        marks.note("bandwidth.recorded", head, figure=figure)
    elif figure < _LEAST * known:
        marks.bad(
            "bandwidth.too-low",
            head,
            figure=figure,
            share=figure / known,
            known=known,
            least=_LEAST,
            baseline=shlex.quote(str(baseline.path)),
        )
    else:
        marks.good("bandwidth", head)
        if figure > known:
            baseline.write(figure)
