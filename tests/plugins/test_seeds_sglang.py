"""A sample's seed reaches SGLang under its own name, through verl's real worker classes."""

from __future__ import annotations

import json
import subprocess

import pytest

from .conftest import PLUGINS, REPOSITORY

pytestmark = pytest.mark.rehearsal

CODE = """
import asyncio, json, os
from reprise_plugins.bridges import BY_NAME
type(BY_NAME["seeds-sglang"]).require = lambda self: True  # SGLang is not installed here
from reprise_plugins import rollout, sglang_rollout
got = []
async def asked(self, sampling_params, trajectory, **kwargs): got.append(sampling_params)
rollout._PlainWorker._run_agent_loop = asked
trajectory = {"step": 3, "sample_index": 4, "validate": False}
for module in (rollout, sglang_rollout):
    worker = object.__new__(module.SeededWorker)
    for seed in ("7", ""):
        os.environ["REPRISE_SEED"] = seed
        asyncio.run(worker._run_agent_loop({"temperature": 1.0}, trajectory, session_id=2))
print(json.dumps(got))
"""


def test_the_seed_is_that_of_vllm_under_the_name_of_sglang() -> None:
    done = subprocess.run(
        [str(REPOSITORY / ".venv-rehearsal/bin/python"), "-c", CODE],
        capture_output=True,
        text=True,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(PLUGINS / "src")},
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    seeded, unseeded, renamed, untouched = json.loads(done.stdout.splitlines()[-1])
    assert seeded.pop("seed") == renamed.pop("sampling_seed")
    assert seeded == unseeded == renamed == untouched == {"temperature": 1.0}
