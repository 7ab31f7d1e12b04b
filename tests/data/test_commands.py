"""The commands as an operator types them: exit codes, one JSON object, nothing else."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from reprise.cli import app
from reprise.core.nested import flatten
from reprise.data.check.settings import refuse_misspelt
from reprise.recipe.load import load

from .hub_server import REVISION, Behaviour, serving
from .inputs import repeated_problems, row, verl_tree, write_jsonl, write_parquet

ROOT = Path(__file__).resolve().parents[2]


class Site:
    """A project of its own with a lock of two data files, and a data folder beside it."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "project"
        (self.root / "recipes" / "m").mkdir(parents=True)
        (self.root / "recipes" / "m" / "recipe.yaml").write_text("{}\n")
        self.train = write_parquet(folder / "t.parquet", repeated_problems(4)).read_bytes()
        rows = [row(f"val {i}", str(i)) for _ in range(2) for i in range(3)]
        self.val = write_parquet(folder / "v.parquet", rows).read_bytes()
        self.data = folder / "DATA"
        self.verl = verl_tree(folder / "tree")
        # What verl_tree looks for in a checkout of verl.
        config = self.verl / "verl" / "trainer" / "config"
        config.mkdir(parents=True)
        (config / "ppo_trainer.yaml").write_text("{}\n")
        (self.root / "third_party").mkdir()
        (self.root / "third_party" / "verl").symlink_to(self.verl)
        (self.root / "recipes" / "m" / "card.toml").write_text(
            'title = "m"\nstatus = "not run"\ntrain = "train"\nvalidation = "val"\n'
            '[machine]\nprofile = "cpu"\n'
        )
        self.lock()

    def lock(self) -> None:
        text = "schema = 1\n"
        for name, data, rows in (("train", self.train, 12), ("val", self.val, 6)):
            text += (
                f'[data.{name}]\nmachines = ["h20"]\nrepo = "org/{name}"\n'
                f'revision = "{REVISION}"\nfile = "data/{name}.parquet"\n'
                f'path = "{name}/{name}.parquet"\nrows = {rows}\n'
                f'sha256 = "{hashlib.sha256(data).hexdigest()}"\nbytes = {len(data)}\n'
            )
        (self.root / "versions.lock").write_text(text)

    def files(self) -> dict[str, bytes]:
        return {"data/train.parquet": self.train, "data/val.parquet": self.val}

    def run(self, *arguments: str | Path, **environment: str) -> Result:
        """In this process: the commands import much, and a fresh interpreter for each is slow."""
        chosen = dict.fromkeys(("TRAIN_FILES", "VAL_FILES", "HF_ENDPOINT", "HF_TOKEN"))
        chosen |= {"DATA_DIR": str(self.data)} | environment
        return CliRunner().invoke(app, list(map(str, arguments)), env=chosen)

    def json(self, *arguments: str | Path, **environment: str) -> tuple[int, dict[str, Any]]:
        answer = self.run(*arguments, "--json", **environment)
        assert answer.exception is None or isinstance(answer.exception, SystemExit), answer
        value: dict[str, Any] = json.loads(answer.stdout)
        return answer.exit_code, value


@pytest.fixture()
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    made = Site(tmp_path)
    monkeypatch.chdir(made.root)
    return made


def test_as_a_process_of_its_own(site: Site) -> None:
    """Standard output holds the object and nothing else; progress goes elsewhere."""
    with serving(Behaviour(site.files())) as endpoint:
        answer = subprocess.run(
            [sys.executable, "-m", "reprise", "data", "fetch", "val", "--json"],
            cwd=site.root,
            capture_output=True,
            text=True,
            check=False,
            env=os.environ | {"DATA_DIR": str(site.data), "HF_ENDPOINT": endpoint},
        )
    assert answer.returncode == 0, answer.stderr
    assert json.loads(answer.stdout)["verdict"] == "ok"
    assert "fetch val" in answer.stderr and "Traceback" not in answer.stderr


def test_a_command_imports_only_what_it_needs(site: Site) -> None:
    """Nothing to do must be quick: SciPy, Ray and the charts alone import for seconds."""
    code = (
        "import sys; from reprise.cli import main; sys.argv[1:] = ['data', 'fetch', '--help']\n"
        "try: main()\n"
        "finally: print([m for m in ('scipy', 'ray', 'altair') if m in sys.modules])"
    )
    command = [sys.executable, "-c", code]
    answer = subprocess.run(command, cwd=site.root, capture_output=True, text=True, check=True)
    assert answer.stdout.endswith("[]\n")


def test_fetch_places_both_and_checks_them_once(site: Site) -> None:
    told = Behaviour(site.files())
    with serving(told) as endpoint:
        code, first = site.json("data", "fetch", HF_ENDPOINT=endpoint)
        asked = len(told.requests)
        again_code, again = site.json("data", "fetch", HF_ENDPOINT=endpoint)
        assert len(told.requests) == asked
    assert (code, again_code) == (0, 0)
    assert (site.data / "train" / "train.parquet").read_bytes() == site.train
    assert (site.data / "val" / "val.parquet").read_bytes() == site.val
    assert [item["how"] for item in first["files"]] == ["download", "download"]
    assert [item["unique_prompts"] for item in first["checked"]] == [3, 3]
    assert any(item["rule"] == "data-conflict" for item in first["findings"])
    assert [item["how"] for item in again["files"]] == ["present", "present"]
    assert "checked" not in again


def test_fetch_says_what_failed_and_goes_on(site: Site) -> None:
    with serving(Behaviour({"data/val.parquet": site.val})) as endpoint:
        code, told = site.json("data", "fetch", "--mirror", endpoint)
    assert code == 1
    assert [item["name"] for item in told["files"]] == ["val"]
    code, told = site.json("data", "fetch", "--mirror", "http://127.0.0.1:9")
    assert code == 2 and told["verdict"] == "unknown"


def test_own_files_take_the_place_of_locked_ones(site: Site, tmp_path: Path) -> None:
    own = write_jsonl(tmp_path / "own.jsonl", [row("mine", source="nobody")])
    with serving(Behaviour(site.files())) as endpoint:
        code, told = site.json("data", "fetch", HF_ENDPOINT=endpoint, TRAIN_FILES=str(own))
    assert [item["name"] for item in told["files"]] == ["val"]
    assert code == 1, "the own file is checked, and its data_source is not routed"
    assert any(item["rule"] == "data-source" for item in told["findings"])


def test_an_entry_without_its_digest_is_not_fetched(site: Site) -> None:
    lock = site.root / "versions.lock"
    lines = [
        line
        for line in lock.read_text(encoding="utf-8").splitlines()
        if not line.startswith("sha256")
    ]
    lock.write_text("\n".join([*lines, 'unpinned = "not known"']) + "\n")
    code, told = site.json("data", "fetch", "train")
    assert code == 1 and told["findings"][0]["rule"] == "data-unpinned"


def test_check_takes_files_and_settings_from_overrides(site: Site, tmp_path: Path) -> None:
    site.data.mkdir()
    (site.data / "val.parquet").write_bytes(site.val)
    overrides = tmp_path / "a.overrides"
    overrides.write_text("data.val_files=val.parquet\nactor_rollout_ref.rollout.val_kwargs.n=32\n")
    code, told = site.json("data", "check", "--overrides", overrides)
    assert code == 0
    assert any("validation is 32 times too large" in item["message"] for item in told["findings"])
    code, told = site.json(
        "data", "check", site.data / "val.parquet", "--set", "data.train_batch_size=7"
    )
    assert code == 1
    assert any("0 steps per epoch" in item["message"] for item in told["findings"])
    assert told["router"].startswith(str(site.root))


def test_check_of_a_recipe_takes_the_files_that_its_run_gets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The project's own Hy3 recipe on files of its names, of another shape."""
    for name in ("TRAIN_FILES", "VAL_FILES", "REPRISE_DATA_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(ROOT)
    for name, count in (("DAPO-Math-17k/dapo-math-17k", 300), ("AIME-2024/aime-2024", 3)):
        (tmp_path / name).parent.mkdir()
        rows = [row(f"{name} {i}", str(i)) for i in range(count)]
        write_parquet(tmp_path / f"{name}.parquet", rows)
    arguments = ["data", "check", "--model", "hy3", "--json"]
    answer = CliRunner().invoke(app, arguments, env={"DATA_DIR": str(tmp_path)})
    told = json.loads(answer.stdout)
    messages = " ".join(item["message"] for item in told["findings"])
    assert "2 steps/epoch (floor(300 / 128))" in messages
    assert "1 samples per problem" in messages
    assert answer.exit_code == 0, told["findings"]
    own = write_parquet(tmp_path / "own.parquet", [row(f"own {i}") for i in range(5)])
    environment = {"DATA_DIR": str(tmp_path), "TRAIN_FILES": str(own)}
    told = json.loads(CliRunner().invoke(app, arguments, env=environment).stdout)
    assert any("0 steps per epoch" in item["message"] for item in told["findings"])


def test_check_without_files_says_what_to_type(site: Site) -> None:
    code, told = site.json("data", "check")
    assert code == 1 and "reprise data check FILE" in told["findings"][0]["fix"]


def test_a_misspelt_override_is_refused_and_a_foreign_one_is_not(
    site: Site, tmp_path: Path
) -> None:
    check = ("data", "check", tmp_path / "t.parquet", "--set")
    code, told = site.json(*check, "data.train_batch_sise=4", "--set", "trainer.totl_epochs=3")
    assert code == 1
    (finding,) = told["findings"]
    assert finding["where"] == "data.train_batch_sise, trainer.totl_epochs"
    assert "data.train_batch_size, trainer.total_epochs" in finding["message"]
    foreign = ("actor_rollout_ref.rollout.name=vllm", "data.val_batch_size=4", "+my.own=1")
    for override in foreign:
        assert site.json(*check, override)[1]["findings"][:1] != told["findings"]
        assert "data-settings" not in {
            f["rule"] for f in site.json(*check, override)[1]["findings"]
        }


def test_no_setting_of_verl_is_taken_for_a_misspelt_one() -> None:
    config = load(ROOT, "hy3").composition.values
    refuse_misspelt(flatten(config))


def test_own_files_are_taken_from_where_the_command_is_typed(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_parquet(site.root / "mine.parquet", [row("a", "1", source="nobody")])
    _, told = site.json("data", "check", TRAIN_FILES="mine.parquet")
    assert {f["rule"] for f in told["findings"]} >= {"data-source"}, told
    _, told = site.json("data", "check", TRAIN_FILES="nope.parquet")
    assert [(f["where"], "make data" in f["fix"]) for f in told["findings"]] == [
        ("nope.parquet", False)
    ]


def test_describe_as_table_and_as_json(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A narrow terminal breaks the cells' texts.
    monkeypatch.setenv("COLUMNS", "120")
    answer = site.run("data", "describe", tmp_path / "t.parquet")
    assert answer.exit_code == 0
    assert "unique prompts" in answer.stdout and "What is 2+3?" in answer.stdout
    code, told = site.json("data", "describe", tmp_path / "t.parquet", "--samples", "1")
    assert code == 0
    (item,) = told["files"]
    assert (item["rows"], item["unique_prompts"], len(item["samples"])) == (12, 3, 1)


def test_convert_from_the_command_line(site: Site, tmp_path: Path) -> None:
    source = write_jsonl(tmp_path / "in.jsonl", [{"q": "1+1?", "a": "#### 2"}])
    arguments = ["data", "convert", source, tmp_path / "out.parquet", "--question", "q",
                 "--answer", "a", "--data-source", "openai/gsm8k"]  # fmt: skip
    code, told = site.json(*arguments)
    assert code == 0 and told["rows_written"] == 1
    code, told = site.json(*arguments)
    assert code == 1 and "--force" in told["findings"][0]["fix"]
    assert site.run(*arguments, "--force").exit_code == 0
    code, told = site.json("data", "convert", source, tmp_path / "o.parquet", "--role", "x")
    assert code == 1


def test_model_check_from_the_command_line(site: Site, tmp_path: Path) -> None:
    code, told = site.json("model", "check", tmp_path / "none")
    assert code == 1 and told["findings"][0]["rule"] == "model-folder"
    code, told = site.json("model", "fetch", "none", tmp_path / "x")
    assert code == 1 and "unknown model of the lock" in told["findings"][0]["message"]
