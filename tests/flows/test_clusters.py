"""`reprise train` on hosts: a Ray that others started, the cluster of a hostfile, a lost node."""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reprise.metrics import read_run
from reprise.runs.ray.jobs import Jobs
from reprise.runs.ray.nodes import list_nodes
from tests.cluster.bed import Bed, BedHost, standing_bed
from tests.cluster.conftest import RAY_PYTHON, Operator
from tests.flows.command import MODEL, Command, assert_every_step_once, largest_difference, wait

pytestmark = pytest.mark.rehearsal

SETTINGS = (
    "trainer.save_freq=2",
    "trainer.test_freq=-1",
    "trainer.val_before_train=false",
    "trainer.total_training_steps=6",
)
SPREAD = 1e-3


@pytest.fixture(scope="module")
def bed() -> Iterator[Bed]:
    with standing_bed(2) as standing:
        yield standing


@pytest.fixture(scope="module")
def cluster(bed: Bed) -> Iterator[dict[str, Any]]:
    """Two hosts with Ray, as another team's launcher would have started it."""
    operator = Operator(bed)
    hostfile = str(bed.hostfile())
    up = operator.run("cluster", "up", hostfile)
    assert up.code == 0, (up.json["findings"], up.err)
    yield up.json["cluster"]
    assert operator.run("cluster", "down", hostfile).code == 0


@pytest.fixture
def runs(bed: Bed) -> Iterator[Path]:
    """Run folders on storage that the hosts share with this machine (they hide /tmp)."""
    folder = bed.folder / f"runs-{time.monotonic_ns()}"
    folder.mkdir()
    yield folder


def attached(cluster: dict[str, Any], token: str | None = None) -> dict[str, str]:
    return {
        "RAY_ADDRESS": cluster["address"],
        "RAY_AUTH_TOKEN_PATH": token or cluster["token_file"],
        "REPRISE_PYTHON": str(RAY_PYTHON),
        "SITE": "",
        "XDG_CONFIG_HOME": "/nonexistent",
    }


def of(report: dict[str, Any], rule: str) -> list[dict[str, Any]]:
    return [item for item in report["findings"] if item["rule"] == rule]


def raylets(bed: Bed) -> dict[str, list[str]]:
    return {
        host.name: [line.split()[0] for line in host.processes() if "raylet/raylet" in line]
        for host in bed.hosts
    }


def test_the_doctor_asks_every_node_by_a_task_and_leaves_nothing(
    bed: Bed, cluster: dict[str, Any], runs: Path
) -> None:
    before = raylets(bed)
    # A step that the check refuses: the nodes are asked, and no training is submitted.
    wrong = "actor_rollout_ref.actor.ppo_mini_batch_size=32"
    words = ["--", MODEL, *SETTINGS, wrong]
    code, report, err = Command(runs, words, attached(cluster)).run()
    assert code == 1, err
    probes = [item for item in report["checks"] if item["rule"] == "train-probe"]
    assert [item["state"] for item in probes] == ["passed"]
    assert [item["state"] for item in report["checks"] if item["rule"] == "train-storage"] == [
        "passed",
        "passed",
    ]
    assert {item["rule"] for item in report["checks"]} >= {"clock", "memory", "versions"}
    assert not of(report, "ports") and not of(report, "sessions")
    assert raylets(bed) == before
    assert list(runs.iterdir()) == []
    jobs = Jobs(cluster["address"], Path(cluster["token_file"]).read_text(encoding="utf-8"))
    states = {job.submission_id: str(job.status) for job in jobs._client.list_jobs()}
    assert all(name.startswith("reprise-probe-") for name in states)
    assert set(states.values()) == {"SUCCEEDED"}


def test_storage_that_the_nodes_do_not_see_is_told(
    bed: Bed, cluster: dict[str, Any], tmp_path: Path
) -> None:
    """Each host has a /tmp of its own, in which this machine's folder is not."""
    words = ["--", MODEL, *SETTINGS]
    code, report, _ = Command(tmp_path, words, attached(cluster)).run()
    assert code == 1
    findings = of(report, "train-storage")
    assert {item["where"] for item in findings} == {host.name for host in bed.hosts}
    assert all("--storage" in item["fix"] for item in findings)
    assert list(tmp_path.iterdir()) == []


def test_storage_that_the_nodes_do_not_share_is_told(
    bed: Bed, cluster: dict[str, Any], runs: Path
) -> None:
    """A folder of each host's own can be written everywhere, and holds a part on each."""
    words = ["--storage", f"/tmp/{runs.name}", "--", MODEL, *SETTINGS]
    code, report, _ = Command(runs, words, attached(cluster)).run()
    assert code == 1
    (finding,) = of(report, "train-storage")
    assert finding["where"] in {host.name for host in bed.hosts}
    assert "would be missing there" in finding["message"]
    assert list(runs.iterdir()) == []


def test_a_dry_run_does_not_ask_and_says_so(cluster: dict[str, Any], runs: Path) -> None:
    words = ["--dry-run", "--", MODEL, *SETTINGS]
    code, report, _ = Command(runs, words, attached(cluster)).run()
    assert code == 2
    assert of(report, "train-doctor")
    assert (
        Path(report["run"], "command.txt")
        .read_text(encoding="utf-8")
        .startswith(f"exec {RAY_PYTHON} ")
    )


def test_a_wrong_token_is_told_and_never_shown(
    cluster: dict[str, Any], runs: Path, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("0123456789abcdef0123456789abcdef")
    words = ["--", MODEL, *SETTINGS]
    code, report, err = Command(runs, words, attached(cluster, str(token))).run()
    assert code == 1
    (finding,) = of(report, "run-token")
    assert "rejected the one that was sent" in finding["message"]
    assert token.read_text(encoding="utf-8") not in err + json.dumps(report)
    token.write_text("")
    code, report, _ = Command(runs, words, attached(cluster, str(token))).run()
    assert code == 1 and "no token was sent" in of(report, "run-token")[0]["message"]


@pytest.mark.full
def test_the_rehearsal_in_a_ray_of_others(bed: Bed, cluster: dict[str, Any]) -> None:
    """The operator is taken not to see the storage: steps come from the job's log alone."""
    runs = bed.folder / "runs-of-the-operator"
    before = raylets(bed)
    storage = bed.folder / "storage-of-the-nodes"
    words = ["--storage", str(storage), "--stall", "240", "--", MODEL, *SETTINGS]
    code, report, err = Command(runs, words, attached(cluster)).run()
    assert code == 0, (report, err)
    folder = Command(runs, []).folder()
    assert_every_step_once(folder, 6)
    assert not (folder.path / "checkpoints").exists()
    there = storage / MODEL / folder.name
    assert (there / "checkpoints" / "global_step_6" / "data.pt").exists()
    written = read_run(there).series("critic/rewards/mean").values.tolist()
    # The console shows fewer digits than the metrics file.
    seen = read_run(folder.path).series("critic/rewards/mean").values.tolist()
    assert seen == pytest.approx(written, abs=1e-3)
    assert raylets(bed) == before


def occupy_head(cluster: dict[str, Any]) -> None:
    """Take the head's one GPU, so that the trainer is placed on another node."""
    jobs = Jobs(cluster["address"], Path(cluster["token_file"]).read_text(encoding="utf-8"))
    jobs._client.submit_job(
        entrypoint="sleep 3600",
        submission_id="occupies-the-head",
        entrypoint_num_gpus=1,
        entrypoint_resources={"node:__internal_head__": 0.01},
    )
    wait(lambda: jobs.state("occupies-the-head")[0] == "RUNNING", 60)


def holder(host: BedHost) -> bool:
    """Whether the trainer runs on this host."""
    return any("ray::WorkerDict" in line for line in host.processes())


@pytest.mark.full
def test_a_lost_node_is_replaced(uninterrupted: Path) -> None:
    """The trainer's node dies in the middle; the next attempt runs where there is room."""
    with standing_bed(4) as bed:
        operator = Operator(bed)
        hostfile = str(bed.hostfile())
        runs = bed.folder / "runs"
        environment = {
            name: text
            for name, text in operator.environment().items()
            if os.environ.get(name) != text
        }
        words = ["--stall", "240", "--", MODEL, hostfile, *SETTINGS]
        try:
            up = operator.run("cluster", "up", hostfile)
            assert up.code == 0, (up.json["findings"], up.err)
            occupy_head(up.json["cluster"])
            command = Command(runs, words, environment).start()
            folder = command.at_step(3, seconds=580)
            host = next(host for host in bed.hosts if holder(host))
            assert host is not bed.hosts[0]
            bed.stop(host)
            code, report, err = command.end()
            assert code == 0, (report, err)
            facts = folder.read()
            assert [item.resumed_from for item in facts.attempts] == [None, 2]
            assert_every_step_once(folder, 6)
            doctor = json.loads((folder.path / "doctor.json").read_text(encoding="utf-8"))
            assert set(doctor["hosts"]) == {h.name for h in bed.hosts}
            lost = [
                node
                for node in list_nodes(
                    facts.address, Path(facts.token_file).read_text(encoding="utf-8")
                )
                if not node.alive
            ]
            assert [node.ip for node in lost] == [host.ip]
            differences = largest_difference(folder.path, uninterrupted)
            print(json.dumps(differences))
            assert max(differences.values()) <= SPREAD
        finally:
            operator.run("cluster", "down", hostfile)
