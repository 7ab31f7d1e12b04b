"""What stops a submission, and what a dry run leaves: all without a job."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from reprise.runs.state.folder import recent_runs
from tests.flows.command import MODEL, ROOT, Command
from tests.runs.saved import saved_step
from tests.states import change

pytestmark = pytest.mark.rehearsal

SECRET = "hush-5f1c0e9ab7"
SETTINGS = ("trainer.save_freq=2", "trainer.total_training_steps=4")


def dry(runs: Path, *words: str, **environment: str) -> tuple[int, dict, str]:
    split = words.index("--") if "--" in words else len(words)
    options, overrides = words[:split], words[split + 1 :]
    line = ["--dry-run", *options, "--", MODEL, *SETTINGS, *overrides]
    return Command(runs, line, environment).run()


def of(report: dict, rule: str) -> list[dict]:
    return [item for item in report["findings"] if item["rule"] == rule]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte. Needs root, as the bed of hosts does."""
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], check=True)
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_a_dry_run_writes_the_folder_and_submits_nothing(tmp_path: Path) -> None:
    code, report, err = dry(tmp_path, WANDB_API_KEY=SECRET)
    assert code == 0, (report, err)
    (run,) = recent_runs(tmp_path, MODEL)
    assert report["run"] == str(run.path)
    facts = run.read()
    assert facts.status == "dry-run"
    assert (facts.attempts, facts.address, facts.ray) == ([], None, None)
    assert facts.checkpoints == f"{run.path}/checkpoints"
    command = (run.path / "command.txt").read_text(encoding="utf-8")
    assert "reprise.runs.inside verl.trainer.main_ppo --config-name rehearsal/recipe" in command
    config = (run.path / "config.yaml").read_text(encoding="utf-8")
    assert f"default_local_dir: {run.path}/checkpoints" in config and "/<" not in config
    checks = json.loads((run.path / "checks.json").read_text(encoding="utf-8"))
    assert checks["package"]["files"] > 100 and checks["package"]["bytes"] < 100 * 2**20
    listed = (run.path / "package.txt").read_text(encoding="utf-8").splitlines()
    assert len(listed) == checks["package"]["files"]
    assert any(line.endswith("\treprise/runs/inside.py") for line in listed)
    lock = (run.path / "versions.lock").read_bytes()
    assert lock == (ROOT / "versions.lock").read_bytes()
    environment = json.loads((run.path / "runtime_env.json").read_text(encoding="utf-8"))
    variables = environment["env_vars"]
    assert variables["VERL_FILE_LOGGER_PATH"] == f"{run.path}/metrics/attempt-1.jsonl"
    assert environment["worker_process_setup_hook"] == "reprise.runs.inside.load_secrets"
    assert not Path(variables["REPRISE_SECRETS_FILE"]).exists(), "nothing will read it"
    for path in tmp_path.rglob("*"):
        assert path.is_dir() or SECRET not in path.read_text(errors="replace"), path


def test_a_wrong_recipe_is_not_submitted_unless_forced(tmp_path: Path) -> None:
    wrong = "actor_rollout_ref.actor.ppo_mini_batch_size=32"
    code, report, _ = dry(tmp_path, "--", wrong)
    assert code == 1
    rules = {item["rule"] for item in report["findings"] if item["severity"] == "error"}
    assert rules and all(rule.startswith("recipe-") for rule in rules)
    assert not list(tmp_path.glob("rehearsal/*"))
    forced = [word for rule in rules for word in ("--force", rule)]
    code, report, _ = dry(tmp_path, *forced, "--", wrong)
    assert code == 0
    (run,) = recent_runs(tmp_path, MODEL)
    assert sorted(run.read().forced) == sorted(rules)
    assert all("overridden by --force" in f["message"] for rule in rules for f in of(report, rule))


def test_a_rule_that_does_not_exist_cannot_be_forced(tmp_path: Path) -> None:
    code, report, _ = dry(tmp_path, "--force", "recipe-no-such-rule")
    assert code == 1
    assert of(report, "train-force")


def test_a_credential_in_an_override_is_refused(tmp_path: Path) -> None:
    code, report, _ = dry(tmp_path, "--", f"+trainer.api_key={SECRET}")
    assert code == 1
    (finding,) = of(report, "train-secret")
    assert finding["where"] == "+trainer.api_key"
    assert SECRET not in json.dumps(report)


def test_no_checkpoint_is_told(tmp_path: Path) -> None:
    code, report, _ = dry(tmp_path, "--", "trainer.save_freq=-1")
    assert code == 0
    assert "restarts from step 1" in of(report, "train-checkpoints")[0]["message"]


def test_a_checkpoint_to_begin_from_is_looked_at(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    mode = "trainer.resume_mode=resume_path"
    of_16 = saved_step(tmp_path / "a", 40, ranks=16)
    code, report, _ = dry(runs, "--", mode, f"trainer.resume_from_path={of_16}")
    assert code == 1
    (finding,) = of(report, "run-checkpoint-ranks")
    assert "saved by 16 ranks" in finding["message"] and "has 1" in finding["message"]
    whole = saved_step(tmp_path / "b", 2, ranks=1)
    code, report, _ = dry(runs, "--", mode, f"trainer.resume_from_path={whole}")
    assert code == 0, report
    (run,) = recent_runs(runs, MODEL)
    assert run.read().begins_after == 2


def test_a_full_disk_is_told(small_disk: Path) -> None:
    code, report, _ = dry(small_disk)
    assert code == 1
    (finding,) = of(report, "train-disk")
    assert "GiB are free" in finding["message"] and "RUNS_DIR" in finding["fix"]


def test_checkpoints_that_only_fit_at_first_are_told(small_disk: Path) -> None:
    # A checkpoint of the start model has 9.6 MiB (0.72 M parameters, 14 bytes each).
    subprocess.run(["mount", "-o", f"remount,size={1024 + 25}m", small_disk], check=True)
    code, report, _ = dry(small_disk, "--", "trainer.total_training_steps=20")
    assert code == 1
    (finding,) = of(report, "train-disk")
    assert "2 fit, the run keeps up to 10" in finding["message"]
    assert "step 6 could not save" in finding["message"]
    fix = finding["fix"].rpartition("-- ")[2]
    code, report, _ = dry(small_disk, "--", "trainer.total_training_steps=20", fix)
    assert code == 0, report


def test_read_only_storage_is_told(small_disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    code, report, _ = dry(small_disk)
    assert code == 1
    (finding,) = of(report, "train-storage")
    assert "Read-only file system" in finding["message"]


def test_where_it_runs_must_be_said_once(tmp_path: Path) -> None:
    hostfile = tmp_path / "hosts"
    hostfile.write_text("a slots=1\n")
    code, report, _ = Command(
        tmp_path, ["--address", "http://h:8265", "--", MODEL, str(hostfile)]
    ).run()
    assert code == 1 and of(report, "train-place")
    code, report, _ = Command(tmp_path, ["hy3"]).run()
    assert code == 1 and "needs a cluster" in of(report, "train-place")[0]["message"]


def test_an_address_where_nothing_answers(tmp_path: Path) -> None:
    words = ["--address", "http://127.0.0.1:9", "--", MODEL, *SETTINGS]
    code, report, _ = Command(tmp_path, words).run()
    assert code == 2
    assert of(report, "run-jobs")
    assert not list(tmp_path.glob("rehearsal/*"))


def test_a_finished_run_is_not_taken_up(tmp_path: Path) -> None:
    assert dry(tmp_path)[0] == 0
    (run,) = recent_runs(tmp_path, MODEL)
    change(run, state="finished")
    code, report, _ = Command(tmp_path, ["--resume", run.name]).run()
    assert code == 1 and "finished" in of(report, "train-resume")[0]["message"]
    code, report, _ = Command(tmp_path, ["--resume", run.name, "--seed", "3"]).run()
    assert code == 1 and of(report, "train-resume")[0]["where"] == "--seed"


def test_another_data_set_is_not_gone_on_with(tmp_path: Path) -> None:
    (toy,) = sorted((ROOT / ".cache" / "toy-data").rglob("train.parquet"))[:1]
    table = pq.read_table(toy)
    data = tmp_path / "train.parquet"
    pq.write_table(table, data)
    runs = tmp_path / "runs"
    code, report, err = dry(runs, "--", f"data.train_files={data}")
    assert code == 0, (report, err)
    (run,) = recent_runs(runs, MODEL)
    assert run.read().rows == table.num_rows
    pq.write_table(table.slice(0, table.num_rows - 8), data)
    code, report, _ = Command(runs, ["--resume", run.name]).run()
    assert code == 1
    finding, other = of(report, "train-changed")
    assert finding["where"] == str(data) and other["where"] == f"data/{data}"
    assert f"has {table.num_rows - 8} rows now, {table.num_rows} rows" in finding["message"]
    assert run.read().attempts == []
    # Refused: the run has not gone on with it.
    assert not [event for event in run.events() if event["event"] == "changed"]


def test_a_changed_setting_is_told_with_both_values(tmp_path: Path) -> None:
    assert dry(tmp_path)[0] == 0
    (run,) = recent_runs(tmp_path, MODEL)
    kept = run.path / "config.yaml"
    text = kept.read_text(encoding="utf-8")
    assert "\n  total_training_steps: 4\n" in text
    kept.write_text(text.replace("\n  total_training_steps: 4\n", "\n  total_training_steps: 9\n"))
    lock = run.path / "versions.lock"
    lock.write_text(lock.read_text(encoding="utf-8") + "# a remark of the operator\n")
    code, report, _ = Command(tmp_path, ["--resume", run.name]).run()
    assert code == 1
    (finding,) = of(report, "train-changed")
    assert finding["where"] == str(kept)
    assert finding["message"] == "trainer.total_training_steps: 4 now, 9 when the run started"
    kept.write_text("[")
    code, report, _ = Command(tmp_path, ["--resume", run.name]).run()
    assert code == 1 and "damaged" in of(report, "train-changed")[0]["message"]
