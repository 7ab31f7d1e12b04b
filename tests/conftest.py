"""Which tests share a worker, and which of them begin first, where several run side by side.

`make test` runs pytest with `-n`. A file's tests stay together in one worker, so that a fixture of
the module is made once; what more than one file shares is named here. Without `-n` nothing changes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

if TYPE_CHECKING:
    from reprise.runs.ray.local_ray import LocalRay

# `make test` asks the same questions each time, so that a change is judged by what it changed;
# `make test-full` asks new ones (--hypothesis-profile=searching).
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("searching", deadline=None)
settings.load_profile("repeatable")

# Beginnings of test ids, and the one worker's queue that they belong to.
TOGETHER = (
    # One container engine, one registry and one Debian.
    ("tests/images/", "engine"),
    # One Ray for all that only need some Ray (`ray` below).
    ("tests/runs/test_supervise.py", "ray"),
    ("tests/runs/test_bad_network.py", "ray"),
    ("tests/runs/test_secrets.py", "ray"),
    ("tests/flows/test_session.py", "ray"),
    # The rehearsal takes turns on a machine: a second one would only wait in its worker.
    ("tests/rehearsal/test_real_run.py", "rehearsal"),
    ("tests/rehearsal/test_interrupted.py", "rehearsal"),
    ("tests/runs/test_real_checkpoint.py", "rehearsal"),
    ("tests/recipe/test_shapes.py", "rehearsal"),
    ("tests/flows/test_survive.py", "rehearsal"),
    ("tests/flows/test_extra_folders.py", "rehearsal"),
    ("tests/flows/test_clusters.py", "rehearsal"),
    ("tests/flows/test_evict.py", "rehearsal"),
    ("tests/cluster/test_slurm.py", "rehearsal"),
    ("tests/cluster/test_tutorial.py", "rehearsal"),
    ("tests/flows/test_looked_at.py", "rehearsal"),
    ("tests/flows/test_seeds.py::test_two_real", "rehearsal"),
    ("tests/flows/test_lock_upgrade.py::test_a_harmless_commit_passes", "rehearsal"),
    ("tests/flows/test_lock_upgrade.py::test_a_broken_commit", "rehearsal"),
)
# The longest queues, longest first: the short ones fill what is left.
FIRST = ("engine", "rehearsal", "ray")


def queue_of(nodeid: str) -> str:
    """The queue that a test belongs to: one that is named above, else its file's."""
    for beginning, queue in TOGETHER:
        if nodeid.startswith(beginning):
            return queue
    return nodeid.partition("::")[0]


class Queues(LoadScopeScheduling):
    """Gives a worker a whole queue at a time, in the order of the collection."""

    def _split_scope(self, nodeid: str) -> str:
        return queue_of(nodeid)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("queues")
    group.addoption("--but", type=Path, metavar="FILE", help="leave out the tests that FILE lists")


def pytest_xdist_auto_num_workers() -> int:
    """For `-n auto`: a real run also waits, and one worker more fills the gaps.

    With two more on two cores (load 15), a private Ray lost its dashboard before its first job.
    """
    return min(len(os.sched_getaffinity(0)) + 1, 16)


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> Queues:
    config.option.loadscopereorder = False
    return Queues(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    listed = config.getoption("--but")
    if listed is not None:
        left_out = set(listed.read_text(encoding="utf-8").splitlines())
        config.hook.pytest_deselected(items=[i for i in items if i.nodeid in left_out])
        items[:] = [item for item in items if item.nodeid not in left_out]
    if "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=_place)


def _place(item: pytest.Item) -> int:
    queue = queue_of(item.nodeid)
    return FIRST.index(queue) if queue in FIRST else len(FIRST)


@pytest.fixture(scope="session")
def ray(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalRay]:
    """A private Ray with one GPU's slot; who uses it leaves no job and no node there."""
    from reprise.core.project import find_project
    from reprise.runs.ray.local_ray import new_temp_dir, start_local_ray
    from tests.saying import unique

    log = tmp_path_factory.mktemp("ray") / "ray.log"
    python = find_project().rehearsal_python
    # Its processes are ended by this name, which no other test run on this machine may have.
    started = start_local_ray(python, unique("shared"), 1, new_temp_dir(), log)
    yield started
    assert started.stop() == []
