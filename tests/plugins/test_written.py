"""The guard on the first weight update, and the unpacking of experts, on real tensors."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import PLUGINS, REPOSITORY

pytestmark = pytest.mark.rehearsal

PYTHON = REPOSITORY / ".venv-rehearsal/bin/python"
HEAD = """
import asyncio, os, sys, types
import torch
from reprise_plugins import experts, written, written_sglang, written_vllm
E, H, I = 4, 6, 5
def model():
    m = torch.nn.Module()
    m.norm = torch.nn.Parameter(torch.ones(H, dtype=torch.bfloat16))
    m.w13 = torch.nn.Parameter(torch.ones(E, 2 * I, H, dtype=torch.bfloat16))
    m.w2 = torch.nn.Parameter(torch.ones(E, H, I))
    m.scale = torch.nn.Parameter(torch.ones(3, dtype=torch.int32), requires_grad=False)
    return m
class Runner:
    tp_rank = 1
    def __init__(self): self.model = model(); self.seen = []
    def update_weights_from_tensor(self, named, load_format=None):
        own = dict(self.model.named_parameters())
        for name, value in named:
            self.seen.append(name)
            # As SGLang's load_weights: a name that it does not know is passed over.
            if name == "norm":
                own["norm"].data.copy_(value)
            elif name.endswith(".gate_proj.weight"):
                own["w13"].data[int(name.split(".")[3]), :I].copy_(value)
            elif name.endswith(".up_proj.weight"):
                own["w13"].data[int(name.split(".")[3]), I:].copy_(value)
            elif name.endswith(".down_proj.weight"):
                own["w2"].data[int(name.split(".")[3])].copy_(value)
        return True, "Success"
class Scheduler:
    server_args = types.SimpleNamespace(load_format="dummy")
    def run_batch(self, batch): return batch
SENT = [("norm", torch.full((H,), 2.)), ("l.mlp.experts.gate_up_proj", torch.randn(E, 2 * I, H)),
        ("l.mlp.experts.down_proj", torch.randn(E, H, I))]
async def all_of(them): return [pair async for pair in them]
def unpacked(weights): return asyncio.run(all_of(experts.unpacked(weights)))
"""


def run(code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(PLUGINS / "src"), **variables}
    return subprocess.run(
        [str(PYTHON), "-c", HEAD + code],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
        timeout=120,
    )


STEP = """
written_sglang.watch(Runner, Scheduler, written.mode())
runner, scheduler = Runner(), Scheduler()
sent = [(n, v) for n, v in SENT] if os.environ.get("AS_SENT") else unpacked(SENT)
half = len(sent) // 2
runner.update_weights_from_tensor(sent[:half]); runner.update_weights_from_tensor(sent[half:])
scheduler.run_batch(1)
floats = [p for p in runner.model.parameters() if p.dtype != torch.int32]
print("finite", all(bool(p.isfinite().all()) for p in floats))
runner.update_weights_from_tensor(sent[:1]); scheduler.run_batch(2)
print("alive")
"""


def record(folder: Path) -> dict[str, object]:
    (one,) = (folder / "written").glob("*.json")
    found: dict[str, object] = json.loads(one.read_text(encoding="utf-8"))
    return found


def test_packed_experts_end_the_run_and_their_parameters_are_named(tmp_path: Path) -> None:
    variables = {"REPRISE_WRITTEN": "fail", "AS_SENT": "1", "REPRISE_RUN_DIR": str(tmp_path)}
    done = run(STEP, **variables)
    assert done.returncode != 0
    assert "left 2 of 4 parameters of SGLang unwritten, 1 cannot be checked: w13 (240 of 240" in (
        done.stderr
    )
    found = record(tmp_path)
    assert (found["parameters"], found["written"], found["rank"]) == (4, 1, 1)
    assert found["unchecked"] == ["scale"]


def test_the_server_of_the_scheduler_ends_too_and_nothing_else(tmp_path: Path) -> None:
    code = "from reprise_plugins.written_sglang import end_server; end_server()"
    child = shlex.join([sys.executable, "-c", code])
    outer = f"exec -a ray::Server bash -c {shlex.quote(f'bash -c {shlex.quote(child)}; sleep 60')}"
    environment = {**os.environ, "PYTHONPATH": str(PLUGINS / "src")}
    done = subprocess.run(
        ["bash", "-c", f"({outer}); echo $?; exec sleep 0"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )
    assert done.stdout.split() == ["137"], done.stderr


def test_unpacked_experts_reach_every_parameter(tmp_path: Path) -> None:
    done = run(STEP, REPRISE_WRITTEN="fail", REPRISE_RUN_DIR=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "wrote 3 of 4 parameters of SGLang, 1 cannot be checked" in done.stdout
    assert done.stdout.splitlines()[-2:] == ["finite True", "alive"]
    found = record(tmp_path)
    assert (found["written"], found["unwritten"]) == (3, [])


def test_a_single_expert_that_is_missing_is_seen(tmp_path: Path) -> None:
    code = STEP.replace("half = ", "sent = [p for p in sent if '.2.up_proj' not in p[0]]\nhalf = ")
    done = run(code, REPRISE_WRITTEN="fail", REPRISE_RUN_DIR=str(tmp_path))
    assert "w13 (30 of 240 elements)" in done.stderr


def test_counting_lets_the_run_go_on_with_small_random_weights(tmp_path: Path) -> None:
    done = run(STEP, AS_SENT="1", REPRISE_RUN_DIR=str(tmp_path), REPRISE_WRITTEN="count")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-2:] == ["finite True", "alive"]
    assert len(record(tmp_path)["unwritten"]) == 2  # type: ignore[arg-type]


def test_a_batch_before_any_update_of_random_weights_ends_the_run() -> None:
    code = "written_sglang.watch(Runner, Scheduler, 'fail')\nScheduler().run_batch(1)"
    assert "before any weight update" in run(code).stderr
    code = code.replace("'fail'", "'count'")
    assert run(code).returncode == 0
    assert run("Scheduler.server_args.load_format = 'auto'\n" + code).returncode == 0


def test_the_guard_of_vllm_looks_after_the_whole_update(tmp_path: Path) -> None:
    code = """
class Extension(Runner):
    def __init__(self, sent): super().__init__(); self.sent = sent; self.model_runner = self
    def update_weights_from_ipc(self, peft_config=None, base_sync_done=False, use_shm=False):
        return self.update_weights_from_tensor(self.sent)
module = types.SimpleNamespace(vLLMColocateWorkerExtension=Extension)
written_vllm.watch(module, "fail")
print(Extension(unpacked(SENT)).update_weights_from_ipc(use_shm=True))
Extension(SENT).update_weights_from_ipc(peft_config={"r": 1})
print("lora passes")
Extension(SENT).update_weights_from_ipc()
"""
    done = run(code, REPRISE_RUN_DIR=str(tmp_path))
    assert done.stdout.splitlines()[-1] == "lora passes"
    assert "left 2 of 4 parameters of vLLM unwritten" in done.stderr


def test_experts_are_cut_as_a_checkpoint_has_them() -> None:
    code = """
made = dict(unpacked(iter(SENT)))
assert list(made)[0] == "norm" and len(made) == 1 + 3 * E
for e in range(E):
    assert torch.equal(made[f"l.mlp.experts.{e}.gate_proj.weight"], SENT[1][1][e, :I])
    assert torch.equal(made[f"l.mlp.experts.{e}.up_proj.weight"], SENT[1][1][e, I:])
    assert torch.equal(made[f"l.mlp.experts.{e}.down_proj.weight"], SENT[2][1][e])
async def them():
    for pair in SENT: yield pair
assert list(dict(unpacked(them()))) == list(made)
# Megatron's names are a checkpoint's already; a router keeps its name.
plain = [("l.mlp.gate.weight", torch.ones(2)), ("l.mlp.experts.0.up_proj.weight", torch.ones(2, 2))]
assert unpacked(plain) == plain
print("same")
"""
    done = run(code)
    assert done.stdout == "same\n", done.stderr


@pytest.mark.parametrize(
    ("module", "name", "value"),
    [("experts", "REPRISE_EXPERTS", "unpacked"), ("written", "REPRISE_WRITTEN", "yes")],
)
def test_a_misspelt_switch_is_refused(module: str, name: str, value: str) -> None:
    from reprise_plugins import experts, written
    from reprise_plugins.switches import SwitchError

    ask = {"experts": experts.asked, "written": written.mode}[module]
    with pytest.raises(SwitchError, match=value):
        ask({name: value})
    assert not ask({})


def test_each_value_of_a_switch() -> None:
    from reprise_plugins import experts, written

    assert experts.asked({"REPRISE_EXPERTS": "unpack"})
    assert not experts.asked({"REPRISE_EXPERTS": "packed"})
    assert [written.mode({"REPRISE_WRITTEN": value}) for value in ("fail", " Count ")] == [
        "fail",
        "count",
    ]


def test_digests_tell_an_update_from_what_the_engine_loaded(tmp_path: Path) -> None:
    code = """
import json, pathlib
def kept(run):
    (one,) = (pathlib.Path(run) / "written").glob("*.json")
    return json.loads(one.read_text())["digests"]
written_sglang.watch(Runner, Scheduler, "count")
here = sys.argv[1:]
updated, itself = Runner(), Runner()
os.environ["REPRISE_RUN_DIR"] = here[0]
one = Scheduler(); one.tp_worker = types.SimpleNamespace(model_runner=itself)
itself.model.load_state_dict({**itself.model.state_dict(), "norm": torch.full((H,), 2.)})
one.run_batch(1); one.run_batch(2)
os.environ["REPRISE_RUN_DIR"] = here[1]
updated.update_weights_from_tensor([("norm", torch.full((H,), 2.))])
Scheduler().run_batch(1)
a, b = kept(here[0]), kept(here[1])
print(sorted(a) == sorted(b), [name for name in a if a[name] == b[name]])
"""
    folders = [tmp_path / name for name in ("loaded", "updated")]
    for folder in folders:
        folder.mkdir()
    code = f"sys.argv = ['', {str(folders[0])!r}, {str(folders[1])!r}]\n" + code
    done = run(code, REPRISE_WRITTEN_DIGESTS="1")
    # Of what was sent nothing but the norm; of the numbers without NaN the scale.
    assert done.stdout.splitlines()[-1] == "True ['norm', 'scale']", done.stderr
