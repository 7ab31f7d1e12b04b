"""Where the project is found when a command is typed somewhere else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_outside_of_a_checkout_the_package_s_own_counts(tmp_path: Path) -> None:
    code = "from reprise.core.project import find_project; print(find_project().root)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    assert done.stdout.strip() == str(ROOT)
