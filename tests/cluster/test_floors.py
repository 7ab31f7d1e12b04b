"""Bandwidths against the floors of profile and site, and against nothing."""

from __future__ import annotations

import pytest

from reprise.cluster.answer import Answer, AnswerKind
from reprise.cluster.doctor.active import Figures, _judge_inter, _judge_intra, check_active
from reprise.cluster.doctor.doctor import Scripts
from reprise.cluster.doctor.marks import Marks
from reprise.cluster.site import Site
from reprise.core.findings import State
from reprise.core.project import find_project
from reprise.machines.profile import Floors
from tests.cluster.make import base, context

NAMES = ("node1", "node2", "node3", "node4")
SCRIPTS = Scripts(find_project().root / "scripts")


def judged(
    intra: dict[str, float], inter: float | None, floors: Floors | None = None
) -> list[tuple[str, str, State]]:
    it = context({name: base(name) for name in NAMES}, site=Site(floors=floors or Floors()))
    marks = Marks()
    _judge_intra(it, marks, intra)
    _judge_inter(it, marks, inter)
    return [(mark.rule.removeprefix("bandwidth-"), mark.host, mark.state) for mark in marks.marks]


def test_without_a_floor_nothing_is_fine() -> None:
    assert judged({"node1": 400.0}, 80.0) == [
        ("intra", "node1", State.UNKNOWN),
        ("inter", "node1", State.UNKNOWN),
    ]
    assert judged({}, None) == []


@pytest.mark.parametrize(
    ("figure", "state"),
    [(349.9, State.FAILED), (350.0, State.PASSED), (900.0, State.PASSED)],
)
def test_the_floor_of_the_site(figure: float, state: State) -> None:
    floors = Floors(intra_host=350, inter_host=350)
    assert judged({"node2": figure}, figure, floors) == [
        ("intra", "node2", state),
        ("inter", "node1", state),
    ]


def test_a_host_that_is_slower_than_the_others() -> None:
    floors = Floors(intra_host=100)
    figures = {"node1": 400.0, "node2": 402.0, "node3": 200.0, "node4": 399.0}
    found = judged(figures, None, floors)
    assert [host for rule, host, _ in found].count("node3") == 2
    # Two hosts do not show which of them is slow.
    assert len(judged({"node1": 400.0, "node2": 200.0}, None, floors)) == 2


def test_a_site_sets_one_floor_and_leaves_the_others() -> None:
    own = Floors(intra_host=300, storage_read=2)
    assert own.under(Floors(intra_host=350)) == Floors(intra_host=350, storage_read=2)
    assert own.under(Floors()) == own


def answer(name: str, text: str, code: int | None = 0) -> Answer:
    kind = AnswerKind.OK if code == 0 else AnswerKind.FAILED
    return Answer(name, kind, code, text, "", 0.0, 1.0)


def test_busy_gpus_are_left_alone() -> None:
    """The tests would slow a job, and the job would slow the tests."""
    busy = base("node2") + "= gpu.app GPU-0, 4102, 60000\n= owner 4102 bob\n"
    it = context({"node1": base("node1"), "node2": busy})
    asked: list[list[str]] = []

    def run(jobs: object, limit: float) -> list[Answer]:
        names = [host.name for host, _ in jobs]  # type: ignore[attr-defined]
        asked.append(names)
        return [answer(name, "= active yes\n") for name in names]

    marks = Marks()
    figures = check_active(it, run, SCRIPTS, marks)
    # Its own tests on the idle host, and no all-reduce.
    assert asked == [["node1"]]
    assert figures == Figures()
    texts = {mark.rule: mark.message for mark in marks.marks if mark.state is State.UNKNOWN}
    assert "bob (pid 4102)" in texts["active"] and "not run" in texts["all-reduce"]


def test_a_host_without_a_figure_leaves_no_figure_of_all() -> None:
    it = context({name: base(name) for name in NAMES[:2]})
    good = "= sum right\n= intra 400.0\n= inter 80.0\n"

    def run(jobs: object, limit: float) -> list[Answer]:
        names = [host.name for host, _ in jobs]  # type: ignore[attr-defined]
        texts = {"node1": (good, 0), "node2": ("= sum wrong\n" + good, 0)}
        return [answer(name, *texts[name]) for name in names]

    marks = Marks()
    figures = check_active(it, run, SCRIPTS, marks)
    assert figures.inter == {} and figures.intra == {"node1": 400.0}
    assert figures.to_json()["inter_host"] is None
    failed = {mark.host for mark in marks.marks if mark.state is State.FAILED}
    assert failed == {"node2"}
