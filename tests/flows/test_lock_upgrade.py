"""`reprise lock upgrade` between two commits of a repository with verl's real configs."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from lock.servers import Upstream, run_git

from reprise.core.errors import OperatorError
from reprise.core.findings import Report
from reprise.core.project import Project, find_project
from reprise.flows.lock.compare_trees import literals
from reprise.flows.lock.upgrade import upgrade_tree
from reprise.recipe.load import load

RECIPE = "qwen3-32b"
ACTOR = "verl/trainer/config/actor/actor.yaml"


@pytest.fixture(scope="module")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> Upstream:
    """A repository with the sources of the verl that the recipe is composed with."""
    made = Upstream(tmp_path_factory.mktemp("upstream"), "verl")
    package = load(find_project().root, RECIPE).tree.package
    ignored = shutil.ignore_patterns("__pycache__", "*.pyc")
    shutil.copytree(package, made.work / "verl", ignore=ignored)
    made.commit(1)
    return made


@pytest.fixture
def project(tmp_path: Path, upstream: Upstream) -> Project:
    """One recipe of the project, whose tree of verl comes from `upstream`."""
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
    assert "--apply" in report.findings[-1].fix
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
