"""Launch scripts are read, never run; what they pass is what bash would pass."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from reprise.core.errors import CannotTell, OperatorError
from reprise.core.findings import Report
from reprise.core.project import find_project
from reprise.flows.script import ScriptInputs, check_script, split_set
from reprise.recipe.config.compose import compose
from reprise.recipe.config.verltree import VerlTree
from reprise.recipe.load import Loaded
from reprise.recipe.script import Script, read_script
from reprise.recipe.script.judge import judge_launch
from reprise.recipe.script.reading import read_text

SCRIPTS = Path(__file__).parent / "scripts"


def words_of(text: str) -> list[list[str]]:
    """What the reader says of every program that a script starts."""
    reading = read_text(text, Path("run.sh"))
    return [[reading.shown(word) for word in run.argv] for run in reading.runs]


def written(tmp_path: Path, text: str, **supplied: str) -> Script:
    path = tmp_path / "run.sh"
    path.write_text(text)
    return read_script(path, supplied)


def shown(script: Script) -> list[str]:
    return [line.shown for line in script.lines(script.launches[0])]


def report_of(root: Path, script: Script, **inputs: Any) -> Report:
    return check_script(find_project(), script, ScriptInputs(**inputs))


def test_nothing_is_executed(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    script = written(
        tmp_path,
        f"A=$(touch {mark})\nB=`touch {mark}`\ntouch {mark}\neval touch {mark}\n"
        f"bash -c 'touch {mark}'\n"
        f"python3 -m verl.trainer.main_ppo a.b=$(touch {mark}) c.d=$A\n",
    )
    assert not mark.exists()
    assert shown(script) == [f"a.b=<touch {mark}>", f"c.d=<touch {mark}>"]


@pytest.mark.parametrize(
    ("launch", "lines"),
    [
        ("python3 -u -m verl.trainer.main_ppo a=1 b=2", ["a=1", "b=2"]),
        ("X=1 python -m verl.trainer.main_ppo --config-name n a=1", ["a=1"]),
        ("ray job submit --runtime-env=r.yaml -- python3 -m verl.trainer.main_ppo a=1", ["a=1"]),
        ("ray job submit -- bash -c 'python3 -m verl.trainer.main_ppo a=1 \"b=x y\"'",
         ["a=1", "b=x y"]),
        ("python3 verl/trainer/main_ppo.py a=1", ["a=1"]),
        ("f() { python3 -m verl.trainer.main_ppo a=$1; }\nf 7", ["a=7"]),
        ("for i in 1 2; do python3 -m verl.trainer.main_ppo a=$i; done", ["a=1"]),
        ("eval \"python3 -m verl.trainer.main_ppo a=1 'b=x y'\"", ["a=1", "b=x y"]),
        ("docker exec -it c bash -lc 'cd /w && python3 -m verl.trainer.main_ppo a=1'", ["a=1"]),
        ("srun --nodes=2 python3 -m verl.trainer.main_ppo a=1", ["a=1"]),
        ("srun -N 1 bash -c 'python3 -m verl.trainer.main_ppo a=1'", ["a=1"]),
        ("ssh -p 22 head 'python3 -m verl.trainer.main_ppo a=1'", ["a=1"]),
        ("sbatch <<'E'\n#!/bin/bash\nsrun python3 -m verl.trainer.main_ppo a=1\nE", ["a=1"]),
        ("nohup python3 -m verl.trainer.main_ppo a=1 > log 2>&1 &", ["a=1"]),
        ("cat > x.sh <<E\npython3 -m verl.trainer.main_ppo a=1\nE\nbash x.sh", ["a=1"]),
        ("torchrun --nproc-per-node 8 -m verl.trainer.main_ppo a=1", ["a=1"]),
        ("python3 \u2013m verl.trainer.main_ppo a=1", ["a=1"]),
    ],
)  # fmt: skip
def test_the_launch_is_found(tmp_path: Path, launch: str, lines: list[str]) -> None:
    assert shown(written(tmp_path, launch + "\n")) == lines


def test_every_launch_is_given(tmp_path: Path) -> None:
    text = "python3 -m verl.trainer.main_ppo a=1\npython3 -m verl.trainer.main_ppo a=2\n"
    script = written(tmp_path, text)
    assert [[word.text for word in launch.overrides] for launch in script.launches] == [
        ["a=1"],
        ["a=2"],
    ]


def test_a_branch_that_is_not_decided_leaves_values_open(tmp_path: Path) -> None:
    script = written(
        tmp_path,
        "if [ -d /data ]; then T=4; E=(+x.y=1); else T=8; E=(+x.y=2); fi\n"
        'python3 -m verl.trainer.main_ppo a.b=$T "${E[@]}" c.d=1\n',
    )
    launch = script.launches[0]
    assert [line.text for line in script.lines(launch)][1] == "c.d=1"
    value = script.lines(launch)[0].unknowns[0][1]
    assert value.decided_by == "the branch `[ -d /data ]`, which depends on the file /data"
    assert value.where.endswith("run.sh:1")
    assert [line.text.partition("=")[0] for line in script.open_lines(launch)] == ["+x.y"]


def test_what_the_caller_decides_is_unknown_by_name(tmp_path: Path) -> None:
    text = (
        "N=$(nvidia-smi -L | wc -l)\n"
        "python3 -m verl.trainer.main_ppo a=$N b=$SLURM_NNODES c=${SLURM_NNODES:-1} d=${X:-5} "
        "e=$HOME/f g=$((N * 2)) h=$1\n"
    )
    assert shown(written(tmp_path, text)) == [
        "a=<nvidia-smi -L | wc -l>", "b=<SLURM_NNODES>", "c=<SLURM_NNODES>", "d=5",
        "e=/<HOME>/f", "g=<nvidia-smi -L | wc -l>", "h=<1>",
    ]  # fmt: skip
    supplied = written(tmp_path, text, N="8", SLURM_NNODES="2", X="6")
    assert shown(supplied) == ["a=8", "b=2", "c=2", "d=6", "e=/<HOME>/f", "g=16", "h=<1>"]


def test_a_script_that_needs_arguments(tmp_path: Path) -> None:
    script = written(
        tmp_path,
        "if [ $# -lt 1 ]; then echo usage; exit 1; fi\n"
        'python3 -m verl.trainer.main_ppo a=$1 "$@"\n',
    )
    assert script.strict
    assert shown(script) == ["a=<1>"]


def test_deep_and_long_scripts(tmp_path: Path) -> None:
    deep = "if true; then\n" * 1500 + "A=1\n" + "fi\n" * 1500
    assert words_of(deep + "python3 x $A") == [["python3", "x", "1"]]
    unknown = "if [ -d /x ]; then\n" * 300 + "A=1\n" + "fi\n" * 300
    assert len(words_of(unknown + "python3 x")) == 1
    many = " ".join(f"a.k{number}=1" for number in range(20_000))
    script = written(tmp_path, f"python3 -m verl.trainer.main_ppo {many}\n")
    assert len(script.lines(script.launches[0])) == 20_000
    array = "A=()\nfor i in {1..5000}; do A+=(a.k$i=1); done\n"
    assert len(words_of(array + 'python3 x "${A[@]}"')[0]) == 5002


def test_a_script_without_a_launch(tmp_path: Path) -> None:
    with pytest.raises(CannotTell, match="found none"):
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
    assert [line.text for line in script.dropped(script.launches[0])] == dropped
    report = Report("x")
    judge_launch(report, script, script.launches[0], tree)
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
    judge_launch(report, script, script.launches[0], tree)
    found = [f.severity.value for f in report.findings if f.rule == "recipe-script-quoting"]
    assert found == ([severity] if severity else [])


MEANT = (
    "python3 -m verl.trainer.main_ppo data.filter_overlong_prompts=True "
    "actor_rollout_ref.actor.use_dynamic_bsz=True actor_rollout_ref.rollout.n=8 "
    "data.train_files=/d/a.parquet data.val_files=/d/b.parquet trainer.default_local_dir=/s/c "
    "data.train_batch_size=64 actor_rollout_ref.actor.ppo_mini_batch_size=64 "
    "algorithm.adv_estimator=grpo actor_rollout_ref.rollout.name=vllm trainer.nnodes=1 "
    "actor_rollout_ref.model.path=/m trainer.n_gpus_per_node=8 trainer.logger=console"
)


@pytest.mark.parametrize(
    ("text", "rule", "severity"),
    [
        (MEANT.replace("name=vllm", "name=vlm"), "recipe-rollout-name", "error"),
        (MEANT + " trainer.save_freq=5O", "recipe-config-value", "error"),
        (MEANT + " actor_rollout_ref.actor.use_kl_loss=Ture", "recipe-config-value", "error"),
        (MEANT.replace(" ", " \\\r\n"), "recipe-script-line-ends", "error"),
        (MEANT.replace("-m", "\u2013m"), "recipe-script-dash", "error"),
        ("export WANDB_API_KEY=0123456789abcdef0123\n" + MEANT, "recipe-script-secret", "error"),
        ("export WANDB_API_KEY=YOUR_KEY\n" + MEANT, "recipe-script-secret", None),
        ("export HF_TOKEN=$MY_TOKEN\n" + MEANT, "recipe-script-secret", None),
        (f"HOSTFILE=hosts\nup --hostfile $HOSTFILE\n{MEANT.replace('trainer.nnodes=1', '')}",
         "recipe-script-nodes", "warning"),
        ("ray job submit -- " + MEANT.replace("trainer.nnodes=1", ""), "recipe-script-nodes",
         "warning"),
        ("ray job submit -- " + MEANT, "recipe-script-nodes", None),
        (MEANT + " actor_rollout_ref.actor.use_kl_loss=True algorithm.use_kl_in_reward=True",
         "recipe-algorithm-idle-reference", "warning"),
        (MEANT.replace("/s/c", "ckpt"), "recipe-paths-writes", "warning"),
        ("ray job submit --working-dir . -- " + MEANT.replace("/s/c", "ckpt"),
         "recipe-paths-writes", "error"),
        (MEANT.replace("/s/c", "$HOME/c").replace("/d/a", "$PWD/a"), "recipe-paths-writes", None),
    ],
)  # fmt: skip
def test_what_was_missed_before(
    tmp_path: Path, root: Path, text: str, rule: str, severity: str | None
) -> None:
    path = tmp_path / "run.sh"
    path.write_bytes((text + "\n").encode())
    report = report_of(root, read_script(path))
    found = {f.severity.value for f in report.findings if f.rule == rule}
    assert found == ({severity} if severity else set())
    assert {f.rule for f in report.errors()} <= {rule}


def test_an_unknown_value_stops_only_the_rules_that_need_it(tmp_path: Path, root: Path) -> None:
    text = "N=$(nvidia-smi -L | wc -l)\n" + MEANT.replace("per_node=8", "per_node=$N")
    report = report_of(root, written(tmp_path, text + "\n"))
    assert list(report.errors()) == []
    said = [f for f in report.findings if "nvidia-smi" in f.message]
    assert len(said) == 1
    assert said[0].fix == "--set trainer.n_gpus_per_node=VALUE"
    states = {check.rule: check.state.value for check in report.checks}
    assert states["recipe-batch-divisible"] == "unknown"
    assert states["recipe-algorithm-estimator"] == "passed"
    again = report_of(root, written(tmp_path, text), values={"trainer.n_gpus_per_node": "8"})
    assert not [f for f in again.findings if "nvidia-smi" in f.message]
    assert report_of(root, written(tmp_path, text, N="8")).data["overrides"][-2:] == [
        "trainer.n_gpus_per_node=8",
        "trainer.logger=console",
    ]


def test_set_is_a_variable_where_the_script_uses_the_name() -> None:
    text = "A=$N python3 -m x trainer.nnodes=$N"
    assert split_set(["N=8", "trainer.nnodes=2", "model_engine=megatron"], text) == (
        {"N": "8"},
        {"trainer.nnodes": "2", "model_engine": "megatron"},
    )
    with pytest.raises(OperatorError):
        split_set(["N"], text)


def test_the_config_of_the_module_that_is_started(tmp_path: Path, root: Path) -> None:
    (tmp_path / "mine" / "config").mkdir(parents=True)
    (tmp_path / "mine" / "main_mine.py").write_text(
        'import hydra\n@hydra.main(config_path="config", config_name="my_trainer")\n'
        "def main(config): ...\n"
    )
    (tmp_path / "mine" / "config" / "my_trainer.yaml").write_text(
        "hydra:\n  searchpath:\n    - pkg://verl.trainer.config\n"
        "defaults:\n  - ppo_trainer\n  - _self_\nmine:\n  knob: 1\n"
    )
    module = "python3 -m mine.main_mine mine.knob=2 data.train_batch_size=64\n"
    report = report_of(root, written(tmp_path, module))
    assert report.data["launches"][0]["config"] == "my_trainer"
    assert "recipe-override-unknown-key" not in {f.rule for f in report.errors()}
    gone = report_of(root, written(tmp_path, module.replace("mine.main_mine", "recipe.x.main_x")))
    assert gone.exit_code == 2
    assert "the source of recipe.x.main_x is not in" in gone.findings[0].message


def test_the_faults_of_the_published_four_node_page(root: Path) -> None:
    script = read_script(SCRIPTS / "published_8b.sh")
    report = report_of(root, script, model="qwen3-8b")
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
    lines = script.lines(script.launches[0])
    theirs = compose("ppo_trainer", tree, lines)
    ours = compose("hy3/recipe", tree, [], recipes)
    assert theirs.faults == []
    keys = [line.text.lstrip("+").split("=")[0] for line in lines]
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
    launch = script.launches[0]
    assert len(script.lines(launch)) == 66
    assert launch.environment == {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}
    assert disagreements(script, tree, recipes) == []
    report = report_of(root, script, model="hy3")
    failed = {f.rule: f.where for f in report.errors()}
    assert set(failed) == {"recipe-reward-legacy-keys"}
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
    assert len(script.lines(script.launches[0])) == 112
    assert disagreements(script, hy3.tree, recipes) == []


def test_what_a_script_of_another_recipe_lacks_for_hy3(tmp_path: Path, root: Path) -> None:
    script = written(
        tmp_path,
        "python3 -m verl.trainer.main_ppo model_engine=megatron "
        "actor_rollout_ref.model.path=/m data.trust_remote_code=True\n",
    )
    report = report_of(root, script, model="hy3")
    missing = [f for f in report.errors() if f.rule == "recipe-family-required"]
    # use_mbridge and vanilla_mbridge are right by verl's own defaults.
    assert len(missing) == 5
    assert sum(f.fix.startswith("+") for f in missing) == 4


@pytest.mark.parametrize(
    "text",
    [
        "X=ab; for i in {1..9999}; do X=$X$X; done",
        "echo {1..9999}{1..9999}{1..9999}",
        "while :; do A+=(x); done",
        "for ((;;)); do B=1; done",
        "f() { f; }; f; g() { g | g; }; g",
        f"A=$(({'9' * 9000})); [ {'9' * 9000} -gt 1 ]; shift {'9' * 9000}",
        "shift \u00b2",
        'eval \'eval "eval x"\'; X=\'eval "$X"\'; eval "$X"',
        "printf '%999999999d' 1; printf '%s' {1..9999}",
        "(" * 3000 + ")" * 3000,
        "$(" * 400 + ")" * 400,
    ],
)
def test_scripts_without_an_end_are_left(text: str) -> None:
    reading = read_text(text + "\npython3 end\n", Path("run.sh"))
    assert reading.too_much or reading.broken or reading.runs


@settings(max_examples=150, deadline=None)
@given(st.text(alphabet="a=1.$(){}[]\"'\\ \n#&|;@:-+<>`", max_size=60))
@example("1()")
@example('`<"[elif (]=|=;(<[.`\n\\:')
@example("`<1#.+$( -`else $( )} ")
def test_no_text_makes_a_traceback(text: str) -> None:
    read_text(text, Path("run.sh"))
    read_text(text, Path("run.sh"), strict=True)
