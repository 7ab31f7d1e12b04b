"""The bed of four hosts, once a module, and the command line against it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.cluster.bed import Bed, standing_bed

ROOT = Path(__file__).resolve().parents[2]
RAY_PYTHON = ROOT / ".venv-rehearsal" / "bin" / "python"


@pytest.fixture(scope="module")
def bed() -> Iterator[Bed]:
    if os.geteuid() != 0:
        pytest.skip("hosts of network namespaces need root")
    with standing_bed() as standing:
        yield standing


@dataclass
class Done:
    """What a command did: its exit code and its JSON object."""

    code: int
    json: dict[str, Any]
    err: str

    def of(self, rule: str) -> list[tuple[str, str]]:
        """Host and message of each finding of a rule."""
        return [(f["where"], f["message"]) for f in self.json["findings"] if f["rule"] == rule]


@dataclass
class Operator:
    """The command line with a site file for the bed and a state folder of its own."""

    bed: Bed
    profile: str = "cpu"
    extra: str = ""
    home: str = "state"

    @property
    def state(self) -> Path:
        return self.bed.folder / self.home

    def environment(self) -> dict[str, str]:
        site = self.bed.folder / "site.toml"
        site.write_text(
            f'profile = "{self.profile}"\n[ssh]\nconfig = "{self.bed.config}"\n'
            f'connect_timeout = 8\n[paths]\npython = "{RAY_PYTHON}"\n{self.extra}'
        )
        return {**os.environ, "SITE": str(site), "XDG_STATE_HOME": str(self.state)}

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "reprise", *words, "--json"],
            env=self.environment(),
            cwd=ROOT,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def run(self, *words: str) -> Done:
        process = self.start(*words)
        out, err = process.communicate()
        assert "Traceback" not in err, err
        return Done(process.returncode, orjson.loads(out), err)


@pytest.fixture
def operator(bed: Bed) -> Iterator[Operator]:
    """Whatever a test leaves running is stopped by the command itself."""
    operator = Operator(bed)
    yield operator
    if operator.state.exists() and any(operator.state.rglob("cluster.json")):
        operator.extra = ""
        operator.run("cluster", "down", str(bed.folder / "hostfile"))
