"""The example for KubeRay against the schema of its CRD, and the page that uses it."""

from __future__ import annotations

import copy
import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import typer
import yaml

from reprise.cli import app
from reprise.cluster.site import Site
from reprise.core.project import find_project
from reprise.flows.train.checks import need_of
from reprise.flows.train.job import TrainOptions, prepare_task
from reprise.machines.registry import machine_named

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "kuberay" / "rayjob.yaml"
PAGE = ROOT / "docs" / "kubernetes.md"
SCHEMA: dict[str, Any] = json.loads(
    (Path(__file__).parent / "kuberay" / "rayjob.schema.json").read_text(encoding="utf-8")
)


@pytest.fixture
def example() -> dict[str, Any]:
    value: dict[str, Any] = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))
    return copy.deepcopy(value)


def wrong(value: object) -> list[str]:
    found = jsonschema.Draft202012Validator(SCHEMA).iter_errors(value)
    return [f"{error.json_path}: {error.message}" for error in found]


def pods(value: dict[str, Any]) -> list[dict[str, Any]]:
    cluster = value["spec"]["rayClusterSpec"]
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    return [group["template"]["spec"] for group in groups]


def test_the_example_has_the_form_of_the_crd(example: dict[str, Any]) -> None:
    assert wrong(example) == []


def deep(value: Any, path: str) -> Any:
    """What is at `path` but its last key."""
    for part in path.split(".")[:-1]:
        value = value[int(part)] if part.isdigit() else value[part]
    return value


CONTAINER = "spec.rayClusterSpec.headGroupSpec.template.spec.containers.0"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("spec.submissionModes", "HTTPMode"),
        ("spec.backoffLimit", "0"),
        ("spec.rayClusterSpec.rayVersion", 2.55),
        ("spec.rayClusterSpec.authOptions.mode", "password"),
        ("spec.rayClusterSpec.headGroupSpec.rayStartParams.num-gpus", 8),
        ("spec.rayClusterSpec.workerGroupSpecs.0.replicas", "3"),
        ("spec.rayClusterSpec.workerGroupSpecs.0.name", "hosts"),
        (f"{CONTAINER}.resource", {}),
        (f"{CONTAINER}.resources.limits.memory", "1500 Gi"),
        (f"{CONTAINER}.env.0.valu", "eth0"),
        (f"{CONTAINER}.ports.0.containerPort", "6379"),
        ("spec.rayClusterSpec.headGroupSpec.template.spec.volumes.1.emptyDir.medium", 1),
    ],
)
def test_the_schema_finds_what_kubernetes_would_refuse(
    example: dict[str, Any], path: str, value: object
) -> None:
    deep(example, path)[path.rpartition(".")[2]] = value
    assert wrong(example) != []


@pytest.mark.parametrize(
    "path", [f"{CONTAINER}.name", "spec.rayClusterSpec.headGroupSpec.template"]
)
def test_the_schema_finds_what_is_missing(example: dict[str, Any], path: str) -> None:
    del deep(example, path)[path.rpartition(".")[2]]
    assert wrong(example) != []


def test_what_the_operator_itself_requires(example: dict[str, Any]) -> None:
    """Rules of ray-operator/controllers/ray/utils/validation.go that no schema states."""
    spec = example["spec"]
    assert spec["submissionMode"] == "InteractiveMode" and spec["backoffLimit"] == 0
    version = tuple(int(part) for part in spec["rayClusterSpec"]["rayVersion"].split("."))
    assert version >= (2, 52)
    for pod in pods(example):
        mounted = {mount["name"] for item in pod["containers"] for mount in item["volumeMounts"]}
        assert mounted == {volume["name"] for volume in pod["volumes"]}
        for container in pod["containers"]:
            assert container["resources"]["limits"] == container["resources"]["requests"]
            assert re.search(r"@sha256:[0-9a-f]{64}$", container["image"])


def test_the_example_has_the_hosts_that_its_recipe_needs(
    example: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("MODEL", "DATA"):
        monkeypatch.setenv(f"REPRISE_{name}_DIR", f"/mnt/share/{name.lower()}")
    recipe = re.findall(r"reprise train (\S+)", PAGE.read_text(encoding="utf-8"))[0]
    task = prepare_task(
        find_project(), TrainOptions(recipe), Site(), machine_named("h20"), "python3"
    )
    need = need_of(task)
    cluster = example["spec"]["rayClusterSpec"]
    hosts = 1 + sum(group["replicas"] for group in cluster["workerGroupSpecs"])
    gpus = {
        int(item["resources"]["limits"]["nvidia.com/gpu"])
        for pod in pods(example)
        for item in pod["containers"]
    }
    assert (hosts, gpus) == (need.nodes, {need.gpus})
    starts = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    assert {group["rayStartParams"]["num-gpus"] for group in starts} == {str(need.gpus)}


def commands() -> list[str]:
    text = PAGE.read_text(encoding="utf-8")
    return [
        line.strip().split("  #")[0].strip()
        for line in text.splitlines()
        if line.startswith("    ")
    ]


def test_the_commands_of_the_page_are_those_of_the_command_line() -> None:
    checked = 0
    for line in commands():
        if not (match := re.search(r"\breprise (?!=)([a-z].*)", line)) or "kubectl" in line:
            continue
        words = shlex.split(match[1])
        found: Any = typer.main.get_command(app)
        context = found.make_context("reprise", [*words], resilient_parsing=True)
        while hasattr(found, "commands"):
            name, found, words = found.resolve_command(context, words)
        found.make_context(name, [*words], parent=context, resilient_parsing=True)
        checked += 1
    assert checked >= 3


def status_at(path: str) -> dict[str, Any]:
    """The schema of a field that a jsonpath of kubectl names."""
    value: Any = SCHEMA
    for part in path.strip("{}.").split("."):
        value = value["properties"][part]
    found: dict[str, Any] = value
    return found


def test_the_fields_that_the_page_asks_kubectl_for_are_in_the_crd() -> None:
    rayjob: Callable[[str], bool] = lambda line: "rayjob" in line and "jsonpath" in line  # noqa: E731
    lines = [line for line in commands() if rayjob(line)]
    paths = [path for line in lines for path in re.findall(r"jsonpath='?(\{[^}]*\})", line)]
    assert {"{.status.jobDeploymentStatus}", "{.status.rayClusterName}"} <= set(paths)
    for path in paths:
        assert status_at(path)["type"] == "string", path
    assert any(f"kubectl apply -f {EXAMPLE.relative_to(ROOT)}" in line for line in commands())
    patch = next(line for line in commands() if "kubectl patch" in line)
    merged = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))
    merged["spec"] |= json.loads(shlex.split(patch)[-1])["spec"]
    assert wrong(merged) == []
