"""Which host a failure is blamed on, and whether another can take its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from reprise.cluster.doctor.context import Context
from reprise.cluster.record import Node, Record
from reprise.flows.cluster.evict import faulty
from reprise.flows.train.place import Need
from reprise.flows.train.spare import _room, blame
from reprise.runs.supervise.retry import Triaged
from tests.cluster.make import base, context
from tests.cluster.make import record as made_record

NAMES = ("node1", "node2", "node3", "node4")
ECC = Triaged("uncorrectable GPU memory error (ECC)", "exclude_host")


def record(spares: tuple[str, ...] = ()) -> Record:
    nodes = [
        Node(name=name, slots=8, ip=f"10.8.0.1{name[-1]}", interface="eth0", spare=name in spares)
        for name in NAMES
    ]
    return made_record("h20", nodes)


def hosts(**changed: str) -> Context:
    """Four healthy H20 hosts, some with another output of the probe."""
    return context({name: changed.get(name, base(name)) for name in NAMES})


def blamed(host: str) -> Triaged:
    return Triaged(ECC.title, ECC.retry, host)


@pytest.mark.parametrize("text", ["node3", "NODE3", "10.8.0.13", "node3"])
def test_a_log_names_a_host_by_its_name_or_its_address(text: str) -> None:
    assert blame(record(), hosts(), blamed(text), []) == ({"node3": ECC.title}, None)


def test_a_log_names_a_host_by_the_name_that_the_host_gives_itself() -> None:
    own = base("node3").replace("= hostname node3", "= hostname gpu-x7.local")
    assert blame(record(), hosts(node3=own), blamed("gpu-x7.local"), [])[0] == {"node3": ECC.title}


@pytest.mark.parametrize("text", ["", "10.9.9.9", "elsewhere"])
def test_a_host_that_nothing_names_is_not_guessed(text: str) -> None:
    bad, unnamed = blame(record(), hosts(), blamed(text), [])
    assert bad == {}
    assert unnamed is not None and "--active" in unnamed.obstacle


def test_the_probe_names_a_host_where_the_log_does_not() -> None:
    lost = "\n".join(line for line in base("node2").splitlines() if "GPU-7" not in line)
    broken = hosts(node2=lost)
    for triaged in (None, Triaged("a worker died", "again"), blamed("")):
        bad, unnamed = blame(record(), broken, triaged, [])
        assert list(bad) == ["node2"] and "gpu-count" in bad["node2"]
        assert unnamed is None
    # A rule that the operator forced does not evict, and neither does a warning or a setting.
    assert blame(record(), broken, None, ["gpu-count"]) == ({}, None)


def test_settings_and_load_are_not_a_broken_host() -> None:
    other = base("node2").replace("torch 2.8.0", "torch 2.7.0").replace("ray 2.49.2", "ray 2.48.0")
    assert faulty(hosts(node2=other + "= disk 9000 0 r present /tmp\n"), []) == {}


def test_a_host_that_failed_to_answer_is_not_blamed_and_not_counted() -> None:
    seen = hosts()
    del seen.facts["node4"]  # type: ignore[attr-defined]
    assert faulty(seen, []) == {}
    spares, obstacle = _room(record(), seen, {"node3": "x"}, Need(3, 8))
    assert spares == [] and "2 healthy hosts and 0 spares" in obstacle


def test_hosts_beyond_the_need_come_before_marked_spares() -> None:
    assert _room(record(), hosts(), {"node3": "x"}, Need(3, 8)) == ([], "")
    assert _room(record(("node4",)), hosts(), {"node3": "x"}, Need(3, 8)) == (["node4"], "")
    assert _room(record(("node3", "node4")), hosts(), {"node2": "x"}, Need(2, 8)) == (["node3"], "")


def test_no_room() -> None:
    _, obstacle = _room(record(), hosts(), {"node3": "x"}, Need(4, 8))
    assert "needs 4 hosts with 8 GPUs, and 3 healthy hosts" in obstacle
    _, obstacle = _room(record(), hosts(), {"node3": "x"}, Need(3, 16))
    assert "0 healthy hosts" in obstacle
    _, obstacle = _room(record(), hosts(), {"node1": "x"}, Need(2, 8))
    assert "node1 is the head" in obstacle


def test_an_evicted_host_is_neither_active_nor_a_spare(tmp_path: Path) -> None:
    it = record(("node4",))
    it.nodes[2].evicted = "x"
    assert [node.name for node in it.active] == ["node1", "node2"]
    assert [node.name for node in it.to_stop] == ["node1", "node2", "node3"]
    it.nodes[2].clear = True
    assert [node.name for node in it.to_stop] == ["node1", "node2"]
    assert _room(it, hosts(), {"node2": "x"}, Need(3, 8))[1]
    # A record of an older version has none of these keys.
    value = it.to_json()
    for node in value["nodes"]:
        for key in ("spare", "evicted", "clear"):
            del node[key]
    assert len(Record.model_validate(value, strict=False).active) == 4
