"""Launch scripts are read, never run; what they pass is what bash would pass."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reprise.core.errors import CannotTell, OperatorError
from reprise.core.findings import Report
from reprise.recipe.check import check
from reprise.recipe.config.compose import compose
from reprise.recipe.config.verltree import VerlTree
from reprise.recipe.load import Inputs, Loaded, load
from reprise.recipe.script import Script, judge_script, read_script
from reprise.recipe.shell import read_shell

SCRIPTS = Path(__file__).parent / "scripts"


def words_of(text: str) -> list[str]:
    return [word.text for word in read_shell(text).commands[-1].words]


def written(tmp_path: Path, text: str) -> Script:
    path = tmp_path / "run.sh"
    path.write_text(text)
    return read_script(path)


CONSTRUCTS = [
    "A=1; echo x=$A y=${A} z=\"$A\" w='$A'",
    "A=${NONE:-${OTHER:-8}}; echo n=$A",
    "A=; echo n=${A:-d} m=${A-d}",
    "A=5; echo n=$((A * 2 + 1)) m=$(( (A - 1) / 2 )) k=$((A % 3))",
    'L=(a=1 \'b=2 3\' "c=$HOME_NONE"); L+=(d=4); echo "${L[@]}"',
    'A=2; [ "$A" -gt 1 ] && B=yes || B=no; echo $B',
    'A=1; [ "$A" -gt 1 ] && B=yes || B=no; echo $B',
    'A=x; if [ "$A" = x ]; then B=1; else B=2; fi; echo b=$B',
    'A=x; if [ -z "$A" ]; then B=1; elif [ "$A" != y ]; then B=3; else B=2; fi; echo b=$B',
    "echo a=b\\ c \"d\\\"e\" 'f\"g' $'h\\ti'",
    "echo a=1 \\\n  b=2 \\\n  c=3",
    'echo l=\'["a","b"]\' m=["a","b"]',
    "export A=7; B=${A:=9}; C=${D:=9}; echo $B $C $D",
    "A=1; A+=2; echo n=$A",
]


@pytest.mark.parametrize("text", CONSTRUCTS)
def test_the_words_are_those_of_bash(text: str, tmp_path: Path) -> None:
    asked = f"unset NONE OTHER HOME_NONE D; {text}"
    # bash itself says what the words are; these lines do nothing but echo.
    listing = asked.replace("echo ", "printf '%s\\0' ")
    answer = subprocess.run(
        ["bash", "-c", listing], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    ours = [word.replace("$HOME_NONE", "") for word in words_of(text)[1:]]
    assert ours == answer.stdout.split("\0")[:-1]


def test_nothing_is_executed(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    script = written(
        tmp_path,
        f"A=$(touch {mark})\nB=`touch {mark}`\ntouch {mark}\n"
        f"python3 -m verl.trainer.main_ppo a.b=$(touch {mark}) c.d=$A\n",
    )
    assert not mark.exists()
    assert [line.text for line in script.lines] == ["a.b=$SUBSTITUTION", "c.d=$SUBSTITUTION"]


@pytest.mark.parametrize(
    ("launch", "lines"),
    [
        ("python3 -u -m verl.trainer.main_ppo a=1 b=2", ["a=1", "b=2"]),
        ("X=1 python -m verl.trainer.main_ppo --config-name n a=1", ["a=1"]),
        ("ray job submit --runtime-env=r.yaml -- python3 -m verl.trainer.main_ppo a=1", ["a=1"]),
        ("ray job submit -- bash -c 'python3 -m verl.trainer.main_ppo a=1 \"b=x y\"'",
         ["a=1", "b=x y"]),
        ("python3 verl/trainer/main_ppo.py a=1", ["a=1"]),
    ],
)  # fmt: skip
def test_the_launch_is_found(tmp_path: Path, launch: str, lines: list[str]) -> None:
    assert [line.text for line in written(tmp_path, launch + "\n").lines] == lines


def test_a_script_without_a_launch(tmp_path: Path) -> None:
    with pytest.raises(CannotTell):
        written(tmp_path, "echo hello\n")
    with pytest.raises(OperatorError):
        read_script(tmp_path / "none.sh")


@pytest.mark.parametrize(
    ("body", "dropped", "part"),
    [
        ("a.b=1 \\\n  # note \\\n  c.d=2 \\\n  e.f=3\n", ["c.d=2", "e.f=3"], "comment in line 2"),
        ("a.b=1\n  c.d=2\n", ["c.d=2"], "ends in line 1"),
        ("a.b=1 \\\n\n  c.d=2\n", ["c.d=2"], "ends in line"),
        ("a.b=1 \\\n  c.d=2\necho done.now=1\n", [], ""),
    ],
)
def test_options_that_bash_drops(
    tmp_path: Path, tree: VerlTree, body: str, dropped: list[str], part: str
) -> None:
    script = written(tmp_path, f"python3 -m verl.trainer.main_ppo {body}")
    assert [line.text for line in script.dropped] == dropped
    report = Report("x")
    judge_script(report, script, tree)
    found = [f.message for f in report.findings if f.rule == "recipe-script-continuation"]
    assert len(found) == (1 if dropped else 0)
    assert all(part in message for message in found)


@pytest.mark.parametrize(
    ("word", "severity"),
    [
        ("trainer.logger=[console, wandb]", "error"),
        ("trainer.logger=[console,wandb]", "warning"),
        ("trainer.logger={a,b}", "error"),
        ("'trainer.logger=[console, wandb]'", None),
        ("trainer.logger='[\"console\"]'", None),
        ("a.b=${NONE:-1}", None),
    ],
)
def test_unquoted_lists(tmp_path: Path, tree: VerlTree, word: str, severity: str | None) -> None:
    script = written(tmp_path, f"python3 -m verl.trainer.main_ppo {word}\n")
    report = Report("x")
    judge_script(report, script, tree)
    found = [f.severity.value for f in report.findings if f.rule == "recipe-script-quoting"]
    assert found == ([severity] if severity else [])


def report_of(root: Path, name: str, script: Script) -> tuple[Report, Loaded]:
    lines = [*script.engine_line(), *script.lines, *script.dropped]
    config = (script.config_name or "ppo_trainer").removesuffix(".yaml")
    inputs = Inputs(config=config, environment=script.environment)
    loaded = load(root, name, lines, inputs)
    report = check(loaded.composition, loaded.known, loaded.model, root / "recipes")
    judge_script(report, script, loaded.tree)
    return report, loaded


def test_the_faults_of_the_published_four_node_page(root: Path) -> None:
    script = read_script(SCRIPTS / "published_8b.sh")
    report, _ = report_of(root, "qwen3-8b", script)
    found = {(finding.rule, finding.where.split(" ")[0]) for finding in report.findings}
    path = SCRIPTS / "published_8b.sh"
    wanted = {
        ("recipe-script-continuation", f"{path}:34"),  # a comment ends the command
        ("recipe-parallel-dense", f"{path}:36"),  # experts for the reference of a dense model
        ("recipe-parallel-layers", f"{path}:26"),  # PP 8 for 36 layers
        ("recipe-parallel-recompute", f"{path}:32"),  # 48 layers of 36
        ("recipe-rollout-replicas", f"{path}:39"),  # one server of 32 cards
        ("recipe-engine-bridge", f"{path}:27"),  # use_mbridge=False
        ("recipe-script-config-name", f"{path}:13"),  # no such config
        ("recipe-script-missing-source", f"{path}:6"),  # an edit of a file that is gone
        ("recipe-script-variable", f"{path}:4"),  # GLOBAL_PROFILER_TOOL
        ("recipe-rollout-validation-sampling", "verl's"),  # do_sample False beside a temperature
    }
    assert wanted - found == set()


def value(values: dict[str, Any], key: str) -> Any:
    node: Any = values
    for part in key.split("."):
        node = node.get(part) if isinstance(node, dict) else None
    return node


DIFFERENT = {"data.train_files", "data.val_files", "actor_rollout_ref.model.path",
             "trainer.logger", "trainer.project_name", "trainer.experiment_name"}  # fmt: skip


def disagreements(script: Script, tree: VerlTree, recipes: Path) -> list[str]:
    theirs = compose("ppo_trainer", tree, script.lines)
    ours = compose("hy3/recipe", tree, [], recipes)
    assert theirs.faults == []
    keys = [line.text.lstrip("+").split("=")[0] for line in script.lines]
    return [
        f"{key}: {value(theirs.values, key)} != {value(ours.values, key)}"
        for key in keys
        if key not in DIFFERENT
        and not key.startswith("reward_model.")
        and value(theirs.values, key) != value(ours.values, key)
    ]


def test_the_hy3_recipe_agrees_with_a_script_of_its_values(
    root: Path, recipes: Path, tree: VerlTree
) -> None:
    script = read_script(SCRIPTS / "hy3.sh")
    assert len(script.lines) == 66
    assert script.environment == {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}
    assert disagreements(script, tree, recipes) == []
    report, _ = report_of(root, "hy3", script)
    failed = {f.rule: f.where for f in report.errors()}
    assert set(failed) == {"recipe-reward-legacy-keys", "recipe-paths-writes"}
    warned = {f.rule for f in report.findings if f.severity.value == "warning"}
    assert "recipe-algorithm-idle-reference" in warned
    legacy = [f for f in report.errors() if f.rule == "recipe-reward-legacy-keys"]
    assert [f.where.rsplit(":", 1)[1].split(" ")[0] for f in legacy] == ["25", "26", "27", "28"]


def test_the_pinned_launch_script_agrees(root: Path, recipes: Path, hy3: Loaded) -> None:
    """The published script itself, where the pinned tree is checked out."""
    path = root / "third_party/verl/examples/grpo_trainer/run_hy_v3_megatron.sh"
    if hy3.tree.commit is None or not path.is_file():
        assert hy3.tree.commit is None  # composed with a release: there is no script to compare
        return
    script = read_script(path)
    assert len(script.lines) == 112
    assert disagreements(script, hy3.tree, recipes) == []


def test_what_a_script_of_another_recipe_lacks_for_hy3(tmp_path: Path, root: Path) -> None:
    script = written(
        tmp_path,
        "python3 -m verl.trainer.main_ppo model_engine=megatron "
        "actor_rollout_ref.model.path=/m data.trust_remote_code=True\n",
    )
    report, _ = report_of(root, "hy3", script)
    missing = [f for f in report.errors() if f.rule == "recipe-hy3-required"]
    # use_mbridge and vanilla_mbridge are right by verl's own defaults.
    assert len(missing) == 5
    assert sum(f.fix.startswith("+") for f in missing) == 4


@settings(max_examples=150, deadline=None)
@given(st.text(alphabet="a=1.$(){}[]\"'\\ \n#&|;@:-+<>`", max_size=60))
def test_no_text_makes_a_traceback(text: str) -> None:
    read_shell(text)
