"""docs/tutorial.md, section 5: its commands and no others, from a login node to a trained step."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from reprise.runs.state.folder import recent_runs
from reprise.runs.state.state import RunStatus
from tests.cluster.bed import Bed, standing_bed
from tests.cluster.conftest import ROOT
from tests.cluster.test_cluster import leftovers
from tests.flows.command import assert_every_step_once

pytestmark = [pytest.mark.rehearsal, pytest.mark.full]

PAGE = (ROOT / "docs/tutorial.md").read_text(encoding="utf-8")
(COMMANDS,) = re.findall(r"```sh\n(.*?)```", PAGE.partition("## 5. ")[2], re.S)


@pytest.fixture
def bed() -> Iterator[Bed]:
    """Four hosts and a login node, on which plain `ssh node1` works, as at a site."""
    if os.geteuid() != 0:
        pytest.skip("hosts of network namespaces need root")
    with standing_bed(5) as standing:
        standing.hosts[4].run("mount", "--bind", str(standing.config), "/etc/ssh/ssh_config")
        yield standing


def test_a_stranger_with_four_hosts_and_this_page(bed: Bed) -> None:
    """Nothing is set but what a login sets; the runs are in a folder of this test's."""
    login, folder = bed.hosts[4], bed.folder / "checkout"
    folder.mkdir()
    (folder / ".venv").symlink_to(ROOT / ".venv")
    environment = {
        **{"PATH": f"{login.bin}:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(folder / "home")},
        **{"RUNS_DIR": str(folder / "runs")},
    }
    inside = ["nsenter", "-t", str(login.pid()), "-n", "-m", "-p", "-u", "--"]
    done = subprocess.run(
        [*inside, "sh", "-exc", f"cd {shlex.quote(str(folder))}\n{COMMANDS}"],
        env=environment, capture_output=True, text=True, check=False, timeout=1500,
    )  # fmt: skip
    said = done.stdout + done.stderr
    print(said)
    assert done.returncode == 0 and "Traceback" not in said, said
    assert "node[1-4]: ok" in said and "cluster status: ok" in said and "cluster down: ok" in said
    (run,) = recent_runs(folder / "runs", "rehearsal")
    assert run.read().status is RunStatus.FINISHED
    assert_every_step_once(run, 2)
    assert _used(run.path) == 2
    assert not any(leftovers(host) for host in bed.hosts[:4])
    assert not list((folder / "home").rglob("cluster.json"))


def _used(run: Path) -> int:
    """Hosts on which the job's workers said something."""
    log = (run / "logs" / "attempt-1.log").read_text(encoding="utf-8")
    return len(set(re.findall(r"\(WorkerDict pid=\d+(?:, ip=([\d.]+))?\)", log)))
