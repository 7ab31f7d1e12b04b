"""`lock add`: entries from folders, files, checkouts and a hub; the lock keeps its other bytes."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from data.hub_server import REVISION, Behaviour, serving
from models.weights import shard, tensor

from reprise.core.errors import CannotTell, OperatorError
from reprise.core.findings import Verdict
from reprise.core.project import Project
from reprise.flows.lock.add import Added, add_data, add_image, add_model, add_tree
from reprise.flows.lock.verify import verify_entries
from reprise.flows.models import ModelRequest, fetch_locked_model
from reprise.lock.read import parse_lock, read_lock
from reprise.lock.rewrite import add_entry
from reprise.lock.rows import ThisMachine
from reprise.models.tables import expected_tensors

LOCK = """# kept
schema = 1

[model.a]  # the first
machines = ["musa"]
repo = "o/a"
revision = "1111111111111111111111111111111111111111"

# --- the next part ---
[data.d]
machines = ["h20"]
repo = "o/d"
revision = "1111111111111111111111111111111111111111"
file = "d.parquet"
path = "d.parquet"
sha256 = "2222222222222222222222222222222222222222222222222222222222222222"
"""
H20 = ("h20",)
CONFIG = {
    "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "vocab_size": 8,
    "hidden_size": 4, "intermediate_size": 6, "num_hidden_layers": 1,
    "num_attention_heads": 2, "num_key_value_heads": 1, "tie_word_embeddings": True,
}  # fmt: skip


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def project(tmp_path: Path) -> Project:
    root = tmp_path / "project"
    (root / "recipes").mkdir(parents=True)
    (root / "versions.lock").write_text(LOCK)
    return Project(root)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A qwen2 of one layer, whole."""
    made = tmp_path / "mine"
    made.mkdir()
    wanted = expected_tensors(CONFIG)
    assert wanted is not None
    names = set(wanted.wanted) - wanted.optional
    shard(made / "model.safetensors", {name: tensor(*wanted.wanted[name]) for name in names})
    (made / "config.json").write_text(json.dumps(CONFIG))
    (made / "tokenizer.json").write_text("{}")
    return made


def kept(project: Project) -> bool:
    """Whether the new lock is the old one with lines put in at one place."""
    new = project.lock.read_text()
    start = next(i for i, (a, b) in enumerate(zip(new, LOCK, strict=False)) if a != b) if (
        not new.startswith(LOCK)
    ) else len(LOCK)  # fmt: skip
    return new.endswith(LOCK[start:])


def test_a_folder_becomes_an_entry_that_verifies(project: Project, folder: Path) -> None:
    report = add_model(project, Added("mine", H20), str(folder))
    assert report.verdict is Verdict.OK
    model = read_lock(project.lock).model["mine"]
    assert (model.repo, model.missing, model.tensors) == (None, (), 14)
    assert set(model.files) == {"config.json", "tokenizer.json", "model.safetensors"}
    assert model.files["tokenizer.json"] == digest(b"{}")
    assert report.data["machines"] == ["h20"]
    assert kept(project)
    text = project.lock.read_text()
    assert text.index("[model.a]") < text.index("[model.mine]") < text.index("# --- the next part")
    here = ThisMachine(project.root)
    _, (row,) = verify_entries(read_lock(project.lock), ["model.mine"], here)
    assert row.state == "ok", row.message
    (folder / "tokenizer.json").write_text("[]")
    _, (row,) = verify_entries(read_lock(project.lock), ["model.mine"], here)
    assert (row.state, row.found) == ("drift", digest(b"[]"))


def test_a_folder_of_ones_own_is_copied_from_a_folder_alone(
    project: Project, folder: Path, tmp_path: Path
) -> None:
    add_model(project, Added("mine", H20), str(folder))
    with pytest.raises(OperatorError, match="no repository"):
        fetch_locked_model(project, ModelRequest("mine", tmp_path / "copy"))
    request = ModelRequest("mine", tmp_path / "copy", local=folder)
    assert fetch_locked_model(project, request).verdict is Verdict.OK
    (folder / "tokenizer.json").write_text("[]")
    request = ModelRequest("mine", tmp_path / "other", local=folder)
    with pytest.raises(OperatorError):
        fetch_locked_model(project, request)


def test_a_damaged_folder_is_not_added(project: Project, folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    report = add_model(project, Added("mine", H20), str(folder))
    assert report.verdict is Verdict.PROBLEM
    assert project.lock.read_text() == LOCK


def test_a_file_is_hashed_and_counted(project: Project, tmp_path: Path) -> None:
    prompts = [[{"role": "user", "content": text}] for text in ("a", "b", "a")]
    rewards = [{"style": "rule", "ground_truth": "1"}] * 3
    table = pa.table({"data_source": ["x"] * 3, "prompt": prompts, "reward_model": rewards})
    pq.write_table(table, tmp_path / "train.parquet")
    assert add_data(project, Added("mine", H20), str(tmp_path / "train.parquet")).exit_code == 0
    data = read_lock(project.lock).data["mine"]
    assert (data.rows, data.unique_prompts, data.path) == (3, 2, "mine/train.parquet")
    assert data.sha256 == digest((tmp_path / "train.parquet").read_bytes())
    assert (data.missing, data.revision, kept(project)) == ((), None, True)


def git(folder: Path, *words: str) -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    done = subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)
    return done.stdout.decode().strip()


def test_a_checkout_gives_its_commit(project: Project, tmp_path: Path) -> None:
    tree = tmp_path / "tool"
    tree.mkdir()
    git(tree, "init", "-q")
    (tree / "x.py").write_text("x = 1\n")
    git(tree, "add", "."), git(tree, "commit", "-qm", "one")
    git(tree, "remote", "add", "origin", "https://github.com/o/tool.git")
    (tree / "x.py").write_text("x = 2\n")
    with pytest.raises(OperatorError, match="1 files differ"):
        add_tree(project, Added("tool", H20), str(tree), {})
    git(tree, "checkout", "-q", "x.py")
    add_tree(project, Added("tool", H20), str(tree), {"import_root": "."})
    entry = read_lock(project.lock).tree["tool"]
    assert (entry.commit, entry.url) == (
        git(tree, "rev-parse", "HEAD"),
        "https://github.com/o/tool.git",
    )
    assert (entry.path, entry.import_root, kept(project)) == ("third_party/tool", ".", True)


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("https://mei:ghp_secret@git.example/x/y.git", 1),
        ("https://ghp_secret@git.example/x/y.git", 1),
        ("https://git.example/x/y.git?private_token=ghp_secret", 1),
        ("ssh://git@git.example/x/y.git", 0),
        ("git@git.example:x/y.git", 0),
    ],
)
def test_a_login_in_a_url_never_reaches_the_lock(
    project: Project, tmp_path: Path, url: str, code: int
) -> None:
    checkout = tmp_path / "mine"
    checkout.mkdir()
    git(checkout, "init", "-q")
    git(checkout, "commit", "-q", "--allow-empty", "-m", "one")
    git(checkout, "remote", "add", "origin", url)
    added = Added("mine", H20)
    if code:
        with pytest.raises(OperatorError) as caught:
            add_tree(project, added, str(checkout), {})
        assert caught.value.rule == "lock-add" and "ghp_secret" not in str(caught.value)
    else:
        add_tree(project, added, str(checkout), {})
    assert ("mine" in project.lock.read_text(encoding="utf-8")) == (code == 0)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    files = {"config.json": b"{}", "data/t.parquet": b"PAR1"}
    behaviour = Behaviour(files, {"main": REVISION, REVISION: REVISION}, large={"data/t.parquet"})
    with serving(behaviour) as endpoint:
        monkeypatch.setenv("HF_ENDPOINT", endpoint)
        monkeypatch.delenv("HF_TOKEN", raising=False)
        yield


@pytest.mark.usefixtures("hub")
def test_the_hub_gives_revision_and_hashes(project: Project) -> None:
    add_model(project, Added("tiny", ("h20", "s5000")), "org/tiny")
    model = read_lock(project.lock).model["tiny"]
    assert (model.revision, model.config_sha256) == (REVISION, digest(b"{}"))
    assert model.machines == ("h20", "musa")
    add_data(project, Added("math", H20), "org/math", "data/t.parquet")
    data = read_lock(project.lock).data["math"]
    assert (data.revision, data.sha256) == (REVISION, digest(b"PAR1"))
    assert data.path == "math/t.parquet"


def test_a_server_that_does_not_answer_writes_nothing(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(CannotTell):
        add_model(project, Added("tiny", H20), "org/tiny")
    assert project.lock.read_text() == LOCK
    report = add_model(project, Added("tiny", H20, unpinned="no network here"), "org/tiny")
    assert report.findings[0].fix.startswith("`reprise lock update model.tiny`")
    assert read_lock(project.lock).model["tiny"].missing == ("revision",)
    add_image(project, Added("mine", H20, unpinned="no registry"), "h:5000/a/b:t", "linux/amd64")
    assert read_lock(project.lock).image["mine"].repository == "h:5000/a/b"


@pytest.mark.parametrize(
    ("name", "source", "machines"),
    [
        ("a", "org/tiny", H20),
        ("Mine", "org/tiny", H20),
        ("mine", "org/tiny", ()),
        ("mine", "org/tiny", ("toaster",)),
        ("mine", "no-owner", H20),
        ("mine", "a/b/c", H20),
        ("mine", "./nowhere", H20),
        ("mine", "/nowhere/model", H20),
        ("x.y", "org/tiny", H20),
        ("mine", "org/ti ny", H20),
    ],
)
def test_what_an_operator_can_get_wrong(
    project: Project, name: str, source: str, machines: tuple[str, ...]
) -> None:
    with pytest.raises(OperatorError) as raised:
        add_model(project, Added(name, machines), source)
    assert raised.value.exit_code == 1 and raised.value.fix
    assert project.lock.read_text() == LOCK


@pytest.mark.parametrize("text", [LOCK, LOCK.replace("\n", "\r\n"), LOCK.rstrip("\n")])
def test_the_writer_keeps_every_other_byte(text: str) -> None:
    for kind in ("model", "data", "image"):
        values = {"machines": ["h20"], "note": 'a "quoted" one', "repo": "", "bytes": None}
        new = add_entry(text, (kind, "new"), values, {"files": {"a b.json": "0" * 64}})
        at = next((i for i, (a, b) in enumerate(zip(new, text, strict=False)) if a != b), len(text))
        assert new.endswith(text[at:])
        assert ("\r\n" in new) is ("\r\n" in text)
    assert parse_lock(LOCK)
