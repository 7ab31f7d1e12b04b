"""The way to a machine without a network, whole: real wheels, and no network at the other end."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from reprise.findings import Verdict
from reprise.lock.bundle import create

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.full
def test_the_operators_environment_on_a_machine_without_network(tmp_path: Path) -> None:
    target = tmp_path / "op.bundle"
    names = ["environment.operator"]
    report = create(ROOT / "versions.lock", target, names, "operator", 60 * 2**20)
    assert report.verdict is Verdict.OK, [item.message for item in report.errors()]
    parts = [row["file"] for row in report.data["parts"]]
    assert len(parts) > 1
    commands = f"""set -eu
        tar xOf {parts[0]} files/unbundle.sh > unbundle.sh
        sh unbundle.sh opened {" ".join(parts)}
        git clone -q opened/git/project.bundle reprise
        cd reprise
        REPRISE_WHEELS=$PWD/../opened/wheels scripts/venv.sh operator
        .venv/bin/reprise bundle verify {target}
        .venv/bin/reprise setup --bundle {target}
        make check MODEL=hy3
    """
    env = {key: value for key, value in os.environ.items() if not key.startswith("PIP_")}
    # A new network namespace has no card but its own loopback, and that one is down.
    subprocess.run(["unshare", "-n", "sh", "-c", commands], cwd=tmp_path, env=env, check=True)
