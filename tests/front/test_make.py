"""The Makefile: its help, and variables that stay data."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


def make(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["make", "--no-print-directory", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def test_bare_make_prints_every_target() -> None:
    said = make(ROOT).stdout
    targets = set(re.findall(r"^([a-z][a-z0-9-]*):", MAKEFILE, re.M))
    listed = set(re.findall(r"^  ([a-z][a-z0-9-]*) ", said, re.M))
    assert targets == listed
    assert {"reproduce", "test", "lint", "help"} <= listed


def test_every_target_is_phony() -> None:
    # A folder of a target's name (docs, data) must not make it "up to date".
    phony = set(" ".join(re.findall(r"^\.PHONY: (.*)$", MAKEFILE, re.M)).split())
    assert set(re.findall(r"^([a-z][a-z0-9-]*):", MAKEFILE, re.M)) <= phony


@pytest.fixture
def stage(tmp_path: Path) -> Path:
    """The real Makefile over stand-ins that write down their arguments, one a line."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "variables.awk", tmp_path / "scripts")
    for name in ("scripts/venv.sh", ".venv/bin/reprise"):
        script = tmp_path / name
        script.parent.mkdir(parents=True, exist_ok=True)
        script.write_text(f'#!/bin/sh\nprintf "%s\\n" "{name}" "$@" >>said\n')
        script.chmod(0o755)
    return tmp_path


def said(stage: Path) -> list[str]:
    return (stage / "said").read_text(encoding="utf-8").splitlines()


def test_reproduce_sets_up_and_runs(stage: Path) -> None:
    assert make(stage, "reproduce").returncode == 0
    assert said(stage) == [
        *["scripts/venv.sh", "operator", "scripts/venv.sh", "rehearsal"],
        *[".venv/bin/reprise", "reproduce", "--", "rehearsal"],
    ]


def test_judging_a_finished_run_needs_no_rehearsal(stage: Path) -> None:
    assert make(stage, "reproduce", "MODEL=hy3", "RUN=/runs/a b", "SEED=3").returncode == 0
    assert said(stage)[2:] == [
        *[".venv/bin/reprise", "reproduce", "--seed", "3", "--run", "/runs/a b", "--", "hy3"]
    ]


def test_a_run_in_a_container_needs_no_rehearsal_here(stage: Path) -> None:
    assert (
        make(stage, "reproduce", "CONTAINER=1", "BASE=debian@sha256:0", "STEPS=3").returncode == 0
    )
    assert said(stage) == [
        *["scripts/venv.sh", "operator", ".venv/bin/reprise", "image", "run"],
        *["--base", "debian@sha256:0", "--", "reproduce", "--steps", "3", "--", "rehearsal"],
    ]


NASTY = "$(shell touch made); touch made `touch made` ' \" $$(touch made) -rf *"


@pytest.mark.parametrize("how", ["command line", "environment"])
def test_a_variable_stays_data(stage: Path, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if how == "environment":
        monkeypatch.setenv("RUN", NASTY)
        make(stage, "reproduce", "MODEL=hy3")
    else:
        make(stage, "reproduce", "MODEL=hy3", f"RUN={NASTY}")
    assert not (stage / "made").exists()
    assert said(stage)[2:] == [".venv/bin/reprise", "reproduce", "--run", NASTY, "--", "hy3"]


def record_environment(stage: Path) -> None:
    script = stage / ".venv/bin/reprise"
    script.write_text("#!/bin/sh\nenv -0 >environment\n")


def environment(stage: Path) -> dict[str, str]:
    pairs = (stage / "environment").read_text(encoding="utf-8").split("\0")
    return dict(pair.split("=", 1) for pair in pairs if pair)


PASSED_ON = ["DATA_DIR", "HF_TOKEN", "RUNS_DIR", "https_proxy", "SITE", "APT_SOURCES", "RAY_X"]


@pytest.mark.parametrize("value", [NASTY, "hf_a$b$$c$(HOME)${HOME}", "#x \\", "$(error stop)"])
def test_what_is_meant_for_the_environment_stays_data_too(stage: Path, value: str) -> None:
    record_environment(stage)
    given = dict.fromkeys(PASSED_ON, value)
    done = make(stage, "runs", *(f"{name}={value}" for name in given))
    assert (done.returncode, done.stderr) == (0, "")
    found = environment(stage)
    assert {name: found.get(name) for name in given} == given
    assert not (stage / "made").exists()


@pytest.mark.parametrize("goal", ["runs", "help", "nope"])
@pytest.mark.parametrize(
    "name",
    [
        *["GIVEN", "READS", "UNREAD", "VARIABLES", "SWITCHES", "ENVIRONMENT", "REPRISE", "SHELL"],
        *[".SHELLFLAGS", ".VARIABLES", ".name", "name", "goal", "MAKEOVERRIDES", "MAKECMDGOALS"],
    ],
)
def test_no_variable_of_the_command_line_runs_anything(stage: Path, name: str, goal: str) -> None:
    make(stage, goal, f"{name}=$(shell touch made)")
    assert not (stage / "made").exists()


def test_no_recipe_line_takes_a_variable_from_make() -> None:
    names = re.search(r"^VARIABLES := (.*)$", MAKEFILE, re.M)
    assert names is not None
    for name in names[1].split():
        assert f"$({name})" not in MAKEFILE
        assert f"${{{name}}}" not in MAKEFILE


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["check", "MODLE=hy3"], "`make check` does not read MODLE; it reads ALGO EXPLAIN MODEL"),
        (["train", "MODEL=hy3", "STEPS=3"], "`make train` does not read STEPS"),
        (["MODEL=hy3"], "`make help` does not read MODEL; it reads no variable"),
        (["reproduce", "BASE=debian@sha256:0"], "and BASE with CONTAINER=1"),
        (["runs", "A;touch${IFS}made;=1"], ""),
    ],
)
def test_a_variable_that_is_not_read_is_refused(
    stage: Path, arguments: list[str], told: str
) -> None:
    done = make(stage, *arguments)
    assert done.returncode == 2
    assert told in done.stderr
    assert not (stage / "said").exists()
    assert not (stage / "made").exists()


def test_a_variable_of_the_environment_may_be_given(stage: Path) -> None:
    for given in ("RUNS_DIR=/x y", "REPRISE_INDEX_URL=https://a", "https_proxy=b", "SITE=c"):
        assert make(stage, "runs", given).returncode == 0


def variables() -> list[str]:
    """`target:VARIABLE` for all that the targets read, as the Makefile itself finds out."""
    command = ["awk", "-f", "scripts/variables.awk", "Makefile"]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()


def test_each_variable_is_known_and_read() -> None:
    listed = variables()
    read = {word.partition(":")[2] for word in listed} - {"", "RAY_ADDRESS"}
    names = re.search(r"^VARIABLES := (.*)$", MAKEFILE, re.M)
    assert names is not None
    assert set(names[1].split()) == read


NAMED = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "reprise").rglob("*.py")]


def test_every_named_command_is_one_that_make_takes() -> None:
    listed = variables()
    commands = [
        (target, variable)
        for path in NAMED
        for target, rest in re.findall(
            r"\bmake ([a-z][a-z-]*)((?: \[?[A-Z_]+=[^\s`]*)+)", path.read_text(encoding="utf-8")
        )
        for variable in re.findall(r"([A-Z_]+)=", rest)
    ]
    assert len(commands) > 40
    assert [pair for pair in commands if ":".join(pair) not in listed] == []


def test_a_run_is_taken_up_without_the_rehearsal(stage: Path) -> None:
    assert make(stage, "train", "RESUME=x").returncode == 0
    assert said(stage) == [
        *["scripts/venv.sh", "operator", ".venv/bin/reprise", "train", "--resume", "x", "--"]
    ]


def test_what_a_resumed_run_cannot_take_reaches_the_command(stage: Path) -> None:
    make(stage, "train", "RESUME=x", "MODEL=hy3", "SEED=3")
    assert said(stage)[3:] == ["train", "--resume", "x", "--seed", "3", "--", "hy3"]


def test_a_ray_of_others_needs_no_rehearsal_here(
    stage: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "http://head:8265")
    make(stage, "train")
    assert said(stage)[2:] == [".venv/bin/reprise", "train", "--", "rehearsal"]


@pytest.mark.parametrize("name", ["nope", "data/nope", "../tests/conftest", "data", NASTY])
def test_a_benchmark_that_is_none_is_told_with_those_that_are(name: str, stage: Path) -> None:
    (stage / "benchmarks" / "data").mkdir(parents=True)
    (stage / "benchmarks" / "data" / "files.py").write_text('"""What files cost."""\n')
    done = make(stage, "bench", f"BENCH={name}")
    assert done.returncode == 2
    assert f"BENCH={name}: unknown benchmark" in done.stderr
    assert done.stdout.split(maxsplit=1) == ["data/files", "What files cost.\n"]
    assert said(stage) == ["scripts/venv.sh", "dev"]


@pytest.mark.parametrize("target", ["reproduce", "baseline"])
def test_no_environment_is_made_for_a_platform_that_is_none(target: str, stage: Path) -> None:
    make(stage, target, "PLATFORM=gpuu")
    assert said(stage)[:4] == ["scripts/venv.sh", "operator", ".venv/bin/reprise", target]


@pytest.mark.parametrize("off", ["0", "no", "false", ""])
@pytest.mark.parametrize(
    ("target", "switch", "option"),
    [
        ("train", "DRY_RUN", "--dry-run"),
        ("reproduce", "CONTAINER", "image"),
        ("status", "WATCH", "--watch"),
        ("logs", "FOLLOW", "--follow"),
        ("check", "EXPLAIN", "--explain"),
    ],
)
def test_a_switch_is_off_by_zero(
    stage: Path, target: str, switch: str, option: str, off: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert make(stage, target, f"{switch}={off}").returncode == 0
    assert option not in said(stage)
    monkeypatch.setenv(switch, off)
    make(stage, target)
    assert option not in said(stage)
    make(stage, target, f"{switch}=1")
    assert option in said(stage)


def test_every_switch_is_known_as_one() -> None:
    switches = re.search(r"^SWITCHES := (.*)$", MAKEFILE, re.M)
    assert switches is not None
    # "${NAME:+--option}" alone is what a switch looks like in a recipe.
    used = set(re.findall(r"\$\${([A-Z_]+):\+--[a-z-]+}", MAKEFILE)) | {"CONTAINER"}
    assert used == set(switches[1].split())
