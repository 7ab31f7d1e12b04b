"""The builder itself, run by the rehearsal's Python: real classes, same bytes twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from reprise.rehearsal.model import ModelSettings, ensure_model
from reprise.rehearsal.toy import write_toy

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv-rehearsal" / "bin" / "python"
VERSIONS = {"torch": "any"}
SHORT = ModelSettings(steps=10, noisy_steps=4, batch=8, hidden=32, layers=2)

pytestmark = pytest.mark.rehearsal


@pytest.fixture(scope="module")
def train(tmp_path_factory):
    return write_toy(tmp_path_factory.mktemp("toy"), seed=0).train


@pytest.mark.parametrize(
    ("arch", "model_class"),
    [
        ("hy3", "HYV3ForCausalLM"),
        ("qwen3-moe", "Qwen3MoeForCausalLM"),
        ("qwen3", "Qwen3ForCausalLM"),
    ],
)
def test_two_builds_have_the_same_bytes_and_the_real_class(tmp_path, train, arch, model_class):
    settings = ModelSettings(**{**_fields(SHORT), "arch": arch})
    lines = []
    first = ensure_model(tmp_path / "a", PYTHON, train, VERSIONS, lines.append, settings)
    again = ensure_model(tmp_path / "b", PYTHON, train, VERSIONS, None, settings)
    assert first.sha256 == again.sha256
    assert lines == ["supervised step 14 of 14"]
    config = json.loads((first.path / "config.json").read_text(encoding="utf-8"))
    assert config["architectures"] == [model_class]
    provenance = json.loads((first.path / "provenance.json").read_text(encoding="utf-8"))
    assert provenance["settings"]["arch"] == arch
    assert 0 <= provenance["expected_reward"] <= 1
    assert [path.name for path in (tmp_path / "a").iterdir() if path.is_dir()] == [first.path.name]


def test_hy3_config_has_the_names_of_both_readers(tmp_path, train):
    model = ensure_model(tmp_path, PYTHON, train, VERSIONS, None, SHORT)
    config = json.loads((model.path / "config.json").read_text(encoding="utf-8"))
    assert config["moe_intermediate_size"] == config["expert_hidden_dim"] == 16
    dense = config["mlp_layer_types"].count("dense")
    assert dense == config["first_k_dense_replace"] == 1
    assert config["model_type"] == "hy_v3"


def test_the_chat_template_ends_with_the_assistant_and_text_survives_the_tokenizer(tmp_path, train):
    model = ensure_model(tmp_path, PYTHON, train, VERSIONS, None, SHORT)
    code = (
        "import sys, json; from transformers import AutoTokenizer as T;"
        "t = T.from_pretrained(sys.argv[1]);"
        "m = [{'role': 'user', 'content': '47+5=?'}];"
        "i = t.apply_chat_template(m, add_generation_prompt=True, return_dict=False);"
        "print(json.dumps([len(i), t.decode(i), t.eos_token_id, t.decode([*t('104')['input_ids'],"
        " 1], skip_special_tokens=True)]))"
    )
    out = subprocess.run(
        [PYTHON, "-c", code, model.path], check=True, capture_output=True, text=True
    )
    assert json.loads(out.stdout) == [8, "<user>47+5=?<assistant>", 1, "104"]


def test_a_killed_call_leaves_nothing_that_the_next_one_trips_over(tmp_path, train):
    cache = tmp_path / "cache"
    code = (
        "import sys; from pathlib import Path; from reprise.rehearsal.model import *;"
        "s = ModelSettings(steps=120, noisy_steps=4, batch=8, hidden=32, layers=2);"
        "a = [Path(p) for p in sys.argv[1:]];"
        "print(ensure_model(*a, {'torch': 'any'}, lambda l: print(l, flush=True), s).sha256)"
    )
    command = [sys.executable, "-c", code, cache, PYTHON, train]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert process.stdout.readline().startswith("supervised step")
    process.send_signal(signal.SIGKILL)
    process.communicate()
    # Two at once afterwards: both get the one model.
    pair = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) for _ in range(2)
    ]
    digests = {process.communicate()[0].splitlines()[-1] for process in pair}
    assert [process.returncode for process in pair] == [0, 0]
    assert len(digests) == 1
    assert len([path for path in cache.iterdir() if path.is_dir()]) == 1


def test_ctrl_c_ends_the_builder_too(tmp_path, train):
    settings = ModelSettings(**{**_fields(SHORT), "steps": 5000})
    seen = threading.Event()
    builder = []
    # Other tests of the session keep servers running.
    before = set(_children(os.getpid()))

    def on_line(line):
        if not seen.is_set():
            builder.extend(set(_children(os.getpid())) - before)
            seen.set()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ensure_model(tmp_path / "cache", PYTHON, train, VERSIONS, on_line, settings)
    assert builder
    deadline = time.monotonic() + 90
    while any(Path(f"/proc/{pid}").exists() for pid in builder) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(Path(f"/proc/{pid}").exists() for pid in builder)
    assert [path for path in (tmp_path / "cache").iterdir() if path.is_dir()] == []


def test_the_builder_refuses_an_existing_folder_and_a_missing_file(tmp_path, train):
    script = ROOT / "reprise" / "rehearsal" / "build_model.py"
    kept = tmp_path / "kept"
    kept.mkdir()
    run = subprocess.run(
        [PYTHON, script, kept, "--train", train], capture_output=True, text=True, check=False
    )
    assert (run.returncode, run.stdout) == (1, "")
    assert f"{kept}: exists already" in run.stderr
    run = subprocess.run(
        [PYTHON, script, tmp_path / "new", "--train", tmp_path / "none"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 1
    assert "no such file" in run.stderr


def _fields(settings):
    return {name: getattr(settings, name) for name in settings.__dataclass_fields__}


def _children(pid):
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8")
    return [int(child) for child in text.split()]
