"""`reprise lock upgrade` between two commits of a repository with verl's real configs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from lock.servers import Upstream, run_git

from reprise.core.errors import OperatorError
from reprise.core.findings import Report
from reprise.core.project import Project, find_project
from reprise.curves.reference import load_reference
from reprise.flows.lock.compare_trees import literals
from reprise.flows.lock.rehearse import compare_runs
from reprise.flows.lock.upgrade import upgrade_tree
from reprise.flows.rehearsal import RehearsalOptions
from reprise.recipe.load import load
from reprise.runs.state.state import read_state

RECIPE = "qwen3-32b"
ACTOR = "verl/trainer/config/actor/actor.yaml"


@pytest.fixture(scope="module")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> Upstream:
    """A repository with the sources of the verl that the recipe is composed with."""
    package = load(find_project().root, RECIPE).tree.package
    return repository(tmp_path_factory.mktemp("upstream"), package)


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Upstream:
    """The same of the release that the rehearsal's environment has."""
    (package,) = find_project().root.glob(".venv-rehearsal/lib/python3*/site-packages/verl")
    return repository(tmp_path_factory.mktemp("released"), package)


def repository(base: Path, package: Path) -> Upstream:
    made = Upstream(base, "verl")
    ignored = shutil.ignore_patterns("__pycache__", "*.pyc")
    shutil.copytree(package, made.work / "verl", ignore=ignored)
    made.commit(1)
    return made


@pytest.fixture
def project(tmp_path: Path, upstream: Upstream) -> Project:
    """One recipe of the project, whose tree of verl comes from `upstream`."""
    return project_in(tmp_path, upstream)


def project_in(tmp_path: Path, upstream: Upstream) -> Project:
    own = find_project().root
    for name in ("common", "algorithms", RECIPE):
        shutil.copytree(own / "recipes" / name, tmp_path / "recipes" / name)
    shutil.copytree(own / "requirements", tmp_path / "requirements")
    shutil.copy(own / "runtime_env.yaml", tmp_path)
    run_git(upstream.work, "checkout", "-q", "main")
    commit = run_git(upstream.work, "rev-list", "--max-parents=0", "HEAD")
    lock = (own / "versions.lock").read_text(encoding="utf-8")
    before, _, rest = lock.partition("[tree.verl]")
    _, _, after = rest.partition("[tree.megatron-bridge]")
    tree = run_git(upstream.work, "rev-parse", f"{commit}^{{tree}}")
    entry = f'''[tree.verl]
machines = ["h20", "gpu", "gpu-sglang"]
want = "{commit[:10]}"
url = "file://{upstream.bare}"
path = "third_party/verl"
commit = "{commit}"
tree = "{tree}"
version = "0.9.0.dev"
import_root = "."
import_package = "verl"
distribution = "verl"
licence = "Apache-2.0"

'''
    (tmp_path / "versions.lock").write_text(before + entry + "[tree.megatron-bridge]" + after)
    return Project(tmp_path)


def changed(upstream: Upstream, value: int, *edits: tuple[str, str, str]) -> str:
    """A commit with `edits` (file, old text, new text) on top of the first one."""
    first = run_git(upstream.work, "rev-list", "--max-parents=0", "HEAD")
    run_git(upstream.work, "checkout", "-q", first, "--", "verl")
    for name, old, new in edits:
        path = upstream.work / name
        text = path.read_text(encoding="utf-8")
        assert old in text, (name, old)
        path.write_text(text.replace(old, new))
    return upstream.commit(value)


def texts(report: Report) -> str:
    return "\n".join(f"{item.severity.value} {item.message}" for item in report.findings)


def test_a_harmless_commit_is_ready_and_moves_the_lock_only_when_asked(
    project: Project, upstream: Upstream
) -> None:
    commit = changed(upstream, 2)
    before = project.lock.read_bytes()
    report = upgrade_tree(project, "verl", commit)
    assert report.exit_code == 0, texts(report)
    assert project.lock.read_bytes() == before and not report.data["applied"]
    assert not (project.root / "third_party").exists()
    assert report.data["recipes"][0] == {
        "recipe": RECIPE, "keys_gone": [], "defaults": [], "keys_added": 0, "metrics_gone": [],
    }  # fmt: skip
    assert "--rehearse --apply" in report.findings[-1].fix
    report = upgrade_tree(project, "tree.verl", commit, apply=True)
    assert report.data["applied"]
    assert f'commit = "{commit}"' in project.lock.read_text(encoding="utf-8")
    again = upgrade_tree(project, "verl", commit)
    assert (again.exit_code, again.data["moved"]) == (0, [])


def test_what_the_recipe_rests_on_is_named_and_the_lock_stays(
    project: Project, upstream: Upstream
) -> None:
    sources = upstream.work / "verl"
    (logged,) = [
        path for path in sources.rglob("*.py")
        if '"critic/rewards/mean"' in path.read_text(encoding="utf-8")
    ][:1]  # fmt: skip
    commit = changed(
        upstream,
        3,
        (ACTOR, "loss_agg_mode:", "loss_aggregation:"),
        (ACTOR, "ppo_epochs: 1", "ppo_epochs: 2"),
        (str(logged.relative_to(upstream.work)), "critic/rewards/mean", "critic/reward/average"),
    )
    before = project.lock.read_bytes()
    report = upgrade_tree(project, "verl", commit, apply=True)
    assert report.exit_code == 1
    (found,) = report.data["recipes"]
    assert "actor_rollout_ref.actor.loss_agg_mode" in found["keys_gone"]
    moved = {row["key"]: (row["old"], row["new"]) for row in found["defaults"]}
    assert moved["actor_rollout_ref.actor.ppo_epochs"] == ("1", "2")
    assert found["metrics_gone"] == ["critic/rewards/mean"]
    assert "critic/reward/average" in texts(report)
    assert "the lock was not changed" in texts(report)
    assert project.lock.read_bytes() == before and not report.data["applied"]


def test_what_is_no_tree_is_refused(project: Project) -> None:
    with pytest.raises(OperatorError, match="not a source tree"):
        upgrade_tree(project, "environment.operator", "1.0")


def test_names_of_metrics_are_read_from_the_sources(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(
        "x = {\"critic/rewards/mean\": 1, 'val-core/x': 2}\ny = f'a/{x}'\nz = 'text / more'\n"
    )
    assert literals(tmp_path) == {"critic/rewards/mean"}


CORE = "verl/trainer/ppo/core_algos.py"
RUN = RehearsalOptions(seed=1, steps=6, quiet=True)
RECORDED = find_project().root / "recipes/rehearsal/reference"


@pytest.fixture
def rehearsing(tmp_path: Path, released: Upstream) -> Project:
    """The project with what a rehearsal needs besides: its recipe, plug-ins and environment."""
    own, project = find_project().root, project_in(tmp_path, released)
    shutil.copytree(own / "recipes/rehearsal", project.recipes / "rehearsal")
    for name in (".venv-rehearsal", "plugins"):
        (project.root / name).symlink_to(own / name)
    return project


def metrics_file(folder: Path, steps: int, edit: Callable[[int, dict[str, float]], None]) -> Path:
    """The first steps of a recorded run, each changed by `edit`."""
    folder.mkdir(parents=True)
    path = folder / "metrics.jsonl"
    rows = [json.loads(line) for line in (RECORDED / "seed-103.jsonl").read_text().splitlines()]
    with path.open("w", encoding="utf-8") as file:
        for row in rows:
            if row["step"] <= steps:
                edit(row["step"], row["data"])
                file.write(json.dumps(row) + "\n")
    return path


def verdict(tmp_path: Path, steps: int, edit: Callable[[int, dict[str, float]], None]) -> Report:
    report = Report("lock upgrade")
    old = metrics_file(tmp_path / "old", steps, lambda _step, _data: None)
    new = metrics_file(tmp_path / "new", steps, edit)
    compare_runs(old, new, load_reference(RECORDED), report)
    return report


def test_times_alone_are_no_difference(tmp_path: Path) -> None:
    report = verdict(tmp_path, 6, lambda _step, data: data.update({"timing_s/step": 1.5}))
    assert (report.exit_code, report.data["rehearsal"]["outcome"]) == (0, "PASS"), texts(report)
    assert report.findings[0].rule == "lock-rehearsal" and "6 steps" in texts(report)


def test_a_falling_reward_fails_and_a_lost_metric_too(tmp_path: Path) -> None:
    def falls(step: int, data: dict[str, float]) -> None:
        if "critic/rewards/mean" in data and step > 1:
            data["critic/rewards/mean"] = 0.3 - 0.02 * step

    report = verdict(tmp_path / "falls", 10, falls)
    assert (report.exit_code, report.data["rehearsal"]["outcome"]) == (1, "FAIL"), texts(report)
    assert report.data["rehearsal"]["first_difference"]["step"] == 2

    def loses(_step: int, data: dict[str, float]) -> None:
        data.pop("critic/rewards/mean", None)

    report = verdict(tmp_path / "loses", 6, loses)
    assert (report.exit_code, report.data["rehearsal"]["outcome"]) == (1, "FAIL")


def test_another_curve_needs_enough_steps_to_pass(tmp_path: Path) -> None:
    def other(step: int, data: dict[str, float]) -> None:
        if "actor/grad_norm" in data and step > 2:
            data["actor/grad_norm"] *= 1.001

    report = verdict(tmp_path / "short", 6, other)
    assert report.exit_code == 2 and "--steps 40" in report.findings[-1].fix, texts(report)
    report = verdict(tmp_path / "whole", 40, other)
    assert (report.exit_code, report.data["rehearsal"]["outcome"]) == (0, "PASS"), texts(report)
    assert report.data["rehearsal"]["first_difference"]["metrics"].keys() == {"actor/grad_norm"}


def test_what_cannot_be_rehearsed_is_unknown_and_keeps_the_lock(
    project: Project, upstream: Upstream
) -> None:
    commit = changed(upstream, 4)
    before = project.lock.read_bytes()
    report = upgrade_tree(project, "verl", commit, apply=True, rehearsal=RUN)
    assert report.exit_code == 1, "applying was refused"
    assert "rehearsal-environment" in {item.rule for item in report.findings}
    assert project.lock.read_bytes() == before and not report.data["applied"]
    report = upgrade_tree(project, "verl", commit, rehearsal=RUN)
    assert report.exit_code == 2, texts(report)


@pytest.mark.rehearsal
def test_a_tree_that_the_plug_ins_do_not_fit_is_unknown(
    rehearsing: Project, released: Upstream
) -> None:
    place = "verl/utils/distributed.py"
    old = "def initialize_global_process_group_ray("
    commit = changed(released, 5, (place, old, f"# other\n{old}"), (place, "timeout_second", "t_s"))
    report = upgrade_tree(rehearsing, "verl", commit, rehearsal=RUN)
    assert report.exit_code == 2, texts(report)
    assert "(P1: " in texts(report) and commit[:10] in texts(report)
    assert "old" not in report.data["rehearsal"]


@pytest.mark.rehearsal
@pytest.mark.full
@pytest.mark.timeout(5400)
def test_a_harmless_commit_passes_the_real_rehearsal(
    rehearsing: Project, released: Upstream
) -> None:
    commit = changed(released, 6)
    report = upgrade_tree(rehearsing, "verl", commit, apply=True, rehearsal=replace(RUN, steps=2))
    assert report.exit_code == 0 and report.data["applied"], texts(report)
    assert report.data["rehearsal"]["outcome"] == "PASS"
    assert report.data["rehearsal"]["first_difference"] is None
    seen = read_state(Path(report.data["rehearsal"]["new"]) / "run.json")
    assert commit[:10] in str(seen.verl)


@pytest.mark.rehearsal
@pytest.mark.full
@pytest.mark.timeout(5400)
def test_a_broken_commit_fails_the_real_rehearsal(rehearsing: Project, released: Upstream) -> None:
    """The policy is pushed away from what was rewarded."""
    broken = changed(released, 7, (CORE, "-advantages * ratio", "advantages * ratio"))
    before = rehearsing.lock.read_bytes()
    options = replace(RUN, steps=8)
    report = upgrade_tree(rehearsing, "verl", broken, apply=True, rehearsal=options)
    assert report.exit_code == 1 and not report.data["applied"], texts(report)
    assert report.data["rehearsal"]["outcome"] == "FAIL", texts(report)
    assert rehearsing.lock.read_bytes() == before
