"""Whose machine a recipe is checked for when the operator's own has no cards."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.flows.command import ROOT


def told(tmp_path: Path, site: str, *options: str) -> dict[str, Any]:
    """What `train --dry-run hy3` says of a host that does not exist."""
    (tmp_path / "site.toml").write_text(site)
    hosts = tmp_path / "hosts"
    hosts.write_text("host-that-is-not.invalid slots=8\n")
    words = ["train", "--dry-run", "--json", *options, "--", "hy3", str(hosts)]
    done = subprocess.run(
        [sys.executable, "-m", "reprise", *words],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "SITE": str(tmp_path / "site.toml"), "HOME": str(tmp_path)}
        | {"RUNS_DIR": str(tmp_path / "runs")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    assert not (tmp_path / "runs" / "hy3").exists()
    return report


def rules(report: dict[str, Any]) -> set[str]:
    return {check["rule"] for check in report["checks"]}


def test_without_a_profile_the_recipes_own_counts(tmp_path: Path) -> None:
    report = told(tmp_path, "")
    # What only the h20 machine of the lock has.
    assert {"tree.megatron-bridge", "lock-shipped-pythonpath"} <= rules(report)
    assert not [item for item in report["findings"] if item["rule"] == "train-machine"]


@pytest.mark.parametrize(
    ("site", "options"), [('profile = "s5000"\n', ()), ("", ("--machine", "s5000"))]
)
def test_another_profile_counts_and_is_told(
    tmp_path: Path, site: str, options: tuple[str, ...]
) -> None:
    report = told(tmp_path, site, *options)
    (finding,) = [item for item in report["findings"] if item["rule"] == "train-machine"]
    assert finding["severity"] == "warning" and "musa" in finding["message"]
    assert "tree.verl-hardware-plugin" in rules(report)


def test_another_image_than_one_with_a_digest_is_an_error_on_a_cluster(tmp_path: Path) -> None:
    report = told(tmp_path, '[container]\nengine = "docker"\nimage = "site/verl:tag"\n')
    found = [item for item in report["findings"] if item["rule"] == "image-unpinned"]
    assert {"versions.lock image.h20", "container.image of the site file"} <= {
        item["where"] for item in found
    }
    assert all(item["severity"] == "error" for item in found)
