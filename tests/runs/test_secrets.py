"""A secret reaches every worker of a job on a real Ray, and is to be seen nowhere."""

import json
import shutil
import time
from pathlib import Path

import httpx2
import pytest

from reprise.core.files import write_text
from reprise.core.project import find_project
from reprise.runs.ray.jobs import ENDED, Jobs
from reprise.runs.ray.local_ray import LocalRay
from reprise.runs.ray.processes import marked
from tests.saying import command_lines

pytestmark = pytest.mark.rehearsal

ROOT = Path(__file__).resolve().parents[2]
SECRET = "hush-3c9d71f0aa52b8"
TRAINER = """
import os, ray
ray.init()
@ray.remote
class Tracker:
    def length(self):
        return len(os.environ.get("WANDB_API_KEY", ""))
print("ACTOR", ray.get(Tracker.remote().length.remote()))
print("TASK", ray.get(ray.remote(lambda: len(os.environ.get("WANDB_API_KEY", ""))).remote()))
import time; time.sleep(4)
"""
PLACES = (
    "/api/jobs/",
    "/api/v0/runtime_envs",
    "/api/v0/workers?detail=1",
    "/api/v0/actors?detail=1",
    "/api/v0/tasks?detail=1",
    "/api/v0/jobs?detail=1",
    "/nodes?view=summary",
)


def test_a_secret_is_in_the_workers_and_nowhere_else(tmp_path: Path, ray: LocalRay) -> None:
    package = tmp_path / "package"
    shutil.copytree(ROOT / "reprise" / "runs", package / "reprise" / "runs")
    shutil.copy(ROOT / "reprise" / "__init__.py", package / "reprise")
    (package / "tracked_trainer.py").write_text(TRAINER)
    secrets = tmp_path / "secrets.json"
    write_text(secrets, json.dumps({"WANDB_API_KEY": SECRET}), mode=0o600)
    run = tmp_path / "run"
    jobs = Jobs(ray.address, ray.token_file.read_text(encoding="utf-8"))
    environment = {
        "working_dir": str(package),
        "worker_process_setup_hook": "reprise.runs.inside.load_secrets",
        "env_vars": {"REPRISE_RUN_DIR": str(run), "REPRISE_SECRETS_FILE": str(secrets)},
    }
    python = find_project().rehearsal_python
    command = f"exec {python} -m reprise.runs.inside tracked_trainer"
    jobs.submit("tracked", command, environment, {})
    deadline = time.monotonic() + 300
    shown = ""
    while (state := jobs.state("tracked")[0]) not in ENDED:
        assert time.monotonic() < deadline, jobs.log("tracked")
        if "TASK" in jobs.log("tracked") and not shown:
            headers = {"Authorization": f"Bearer {ray.token_file.read_text(encoding='utf-8')}"}
            with httpx2.Client(trust_env=False, headers=headers, base_url=ray.address) as client:
                answers = {place: client.get(place) for place in PLACES}
            states = {place: answer.status_code for place, answer in answers.items()}
            refused = {place: state for place, state in states.items() if state != 200}
            assert not refused, refused
            shown = "".join(answer.text for answer in answers.values())
            shown += command_lines(marked(ray.run_id))
        time.sleep(0.3)
    log = jobs.log("tracked")
    assert state == "SUCCEEDED", log
    assert f"ACTOR {len(SECRET)}" in log and f"TASK {len(SECRET)}" in log
    assert "REPRISE_SECRETS_FILE" in shown, "the places that were looked at show the environment"
    assert SECRET not in shown + log
    assert not secrets.exists(), "it goes with the job"
    for folder in (run, ray.temp_dir):
        for path in folder.rglob("*"):
            if path.is_file() and path != ray.token_file:
                assert SECRET.encode() not in path.read_bytes(), path
