"""Facts of made-up hosts, as the probe prints them, and what the rules say of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from reprise.cluster.answer import Answer, AnswerKind
from reprise.cluster.doctor.context import Context, Expected
from reprise.cluster.doctor.doctor import diagnose
from reprise.cluster.doctor.facts import parse_facts
from reprise.cluster.hosts.hostfile import Host
from reprise.cluster.record import Node, Record
from reprise.cluster.site import Site
from reprise.core.findings import Finding, Report
from reprise.machines.registry import machine_named

NOW = 1_800_000_000

BASE = f"""\
= clock.begin {NOW}
= hostname HOST
= kernel Linux 5.15.0-105-generic
= machine x86_64
= user bob
= os Ubuntu 22.04.4 LTS
= cpus 128
= memory MemTotal:       2147483648 kB
= memory MemAvailable:   2000000000 kB
= limit Max processes             8254000              8254000              processes
= limit Max open files            1048576              1048576              files
= limit Max locked memory         unlimited            unlimited            bytes
= address 1: lo    inet 127.0.0.1/8 scope host lo
= address 2: eth0    inet 10.8.0.N/24 brd 10.8.0.255 scope global eth0
= link 2: eth0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 qdisc mq state UP
= hostname-i 10.8.0.N
= route 10.8.0.11 dev eth0 src 10.8.0.N uid 0
= disk 9000000000 8000000000 w present /tmp
= shm 1073741824 1073741000
= package python 3.12.11
= package ray 2.49.2
= package torch 2.8.0+cu128
= pci.read yes
= fabricmanager active
= peermem yes
= xid.read yes
= bios X13DEG-OAD, 1.4
= rdma.firmware mlx5_0 MT_0000000838 28.39.1002
= rdma mlx5_0 1 4:_ACTIVE 400_Gb/sec_(4X_NDR) Ethernet
= gid mlx5_0 1 3 0000:0000:0000:0000:0000:ffff:0a08:000b RoCEv2
= clock.end {NOW + 1}
= complete yes
"""

GPU = """\
= gpu.nvidia {n}, NVIDIA H20, 97871, 0, 570.133.20, 00000000:{n}8:00.0, GPU-{n}
= gpu.state {n}, 00000000:{n}8:00.0, Enabled, Disabled, Enabled, 0, 5, 16, 16
= gpu.clocks {n}, 0x0000000000000001
= gpu.firmware {n}, NVIDIA H20, 96.00.B3.00.01
= gpu.nvlink GPU {n}: NVIDIA H20 (UUID: GPU-{n})
""" + "".join(f"= gpu.nvlink \t Link {link}: 26.562 GB/s\n" for link in range(18))


def record(profile: str, nodes: list[Node], **changed: str) -> Record:
    """The record of a cluster of `nodes`, as `cluster up` would keep it."""
    values: dict[str, str | None] = {
        "root": "/tmp/rp-c1",
        "python": "python3",
        "image": None,
        **changed,
    }
    return Record(
        id="c1",
        hostfile="/hosts",
        created=0.0,
        profile=profile,
        engine="docker",
        gcs_port=6379,
        dashboard_port=8265,
        nodes=nodes,
        **values,
    )


def base(name: str, gpus: int = 8) -> str:
    """A healthy H20 host; `name` ends in its number."""
    number = str(10 + int(name[-1]))
    gpu_lines = "".join(GPU.format(n=n) for n in range(gpus))
    return BASE.replace("HOST", name).replace(".N", f".{number}") + gpu_lines


def context(
    texts: Mapping[str, str],
    machine: str = "h20",
    site: Site | None = None,
    expected: Expected | None = None,
    seen: Mapping[str, Mapping[str, str]] | None = None,
) -> Context:
    """A look at hosts that printed `texts`; the first is the head at 10.8.0.11."""
    hosts = [Host(name, 8, n) for n, name in enumerate(texts, start=1)]
    answers = {
        name: Answer(name, AnswerKind.OK, 0, text, "", NOW - 1.0, NOW + 2.0)
        for name, text in texts.items()
    }
    facts = {name: parse_facts(name, text, NOW - 1.0, NOW + 2.0) for name, text in texts.items()}
    return Context(
        hosts,
        answers,
        facts,
        machine_named(machine),
        site or Site(),
        expected or Expected(),
        "10.8.0.11",
        "",
        seen or {},
    )


def judged(texts: Mapping[str, str], **options: object) -> Report:
    return diagnose(context(texts, **options))[0]  # type: ignore[arg-type]


def of(report: Report, rule: str) -> Sequence[Finding]:
    return [finding for finding in report.findings if finding.rule == rule]
