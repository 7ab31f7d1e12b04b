"""What a rehearsal needs is looked at before it begins."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from reprise.core.project import Project, find_project
from reprise.flows.baseline import BaselineOptions, check_baseline
from reprise.flows.preconditions import check_preconditions
from reprise.flows.rehearsal import RehearsalOptions
from reprise.flows.target import Target

ROOT = Path(__file__).resolve().parents[2]
NAMESPACE = ("unshare", "--mount", "--map-root-user", "sh", "-euc")


def rules(project: Project, options: RehearsalOptions) -> dict[str, str]:
    report = check_preconditions(project, options, "reproduce")
    return {finding.rule: finding.message for finding in report.findings}


def test_settings_without_a_reference_are_named_first() -> None:
    found = rules(find_project(), RehearsalOptions(arch="qwen3", algo="gspo"))
    assert "ARCH=qwen3 ALGO=gspo" in found["reference-missing"]
    assert "reference-missing" not in rules(find_project(), RehearsalOptions())


def test_an_environment_that_is_missing_is_unknown() -> None:
    options = RehearsalOptions(place=Target("gpu", "megatron"))
    report = check_preconditions(find_project(), options, "reproduce")
    assert report.exit_code == 2
    assert "rehearsal-environment" in {finding.rule for finding in report.findings}


def test_a_capped_reference_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "baseline-caps" not in {f.rule for f in check_baseline(PROJECT, OPTIONS).findings}
    monkeypatch.setenv("DNNL_MAX_CPU_ISA", "AVX2")
    report = check_baseline(PROJECT, OPTIONS)
    (finding,) = [f for f in report.findings if f.rule == "baseline-caps"]
    assert finding.where == "DNNL_MAX_CPU_ISA=AVX2"
    assert finding.fix == "unset DNNL_MAX_CPU_ISA"
    assert report.exit_code != 0


PROJECT, OPTIONS = find_project(), BaselineOptions(5, True)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts file systems (root)")
def test_a_full_and_a_small_file_system(tmp_path: Path) -> None:
    """Both are found in one pass, before any run folder is made."""
    small = tmp_path / "small"
    small.mkdir()
    script = (
        f"mount -t tmpfs -o size=8m none {small}; mount -t tmpfs -o size=64m none /dev/shm; "
        f'cd {ROOT}; TMPDIR={small} exec "$@"'
    )
    command = (sys.executable, "-m", "reprise", "reproduce", "--json")
    done = subprocess.run(
        [*NAMESPACE, script, "sh", *command], capture_output=True, text=True, check=False
    )
    report = json.loads(done.stdout)
    told = {f["where"]: f["message"] for f in report["findings"]}
    assert "8 MiB free, a run needs 100 MiB" in told[str(small)]
    assert "64 MiB free" in told["/dev/shm"]
    # 2 where the rehearsal's environment is missing as well.
    assert done.returncode in (1, 2)
