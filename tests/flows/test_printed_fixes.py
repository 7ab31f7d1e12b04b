"""Each command that lock, setup and bundle print as a fix, typed as printed: the fault is gone."""

from __future__ import annotations

import io
import json
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from lock.servers import Upstream, run_git
from typer.testing import CliRunner

from reprise.cli import app
from reprise.core.rules import known_rules
from reprise.lock import parse_lock
from reprise.lock.requirements import pins_sha256, read_pins
from reprise.trees.setup import place_tree
from tests.data.hub_server import REVISION, Behaviour, serving
from tests.data.inputs import row
from tests.fixes import commands, is_text, run


def data_file() -> bytes:
    """A small training file, as its server has it."""
    target = io.BytesIO()
    pq.write_table(pa.Table.from_pylist([row(f"{i}+1?", str(i + 1)) for i in range(5)]), target)
    return target.getvalue()


DATA = data_file()


@dataclass
class Project:
    """A project under git with one of each kind of entry, and the servers of its entries."""

    root: Path
    upstream: Upstream
    environment: dict[str, str] = field(default_factory=dict)

    def reprise(self, *words: str) -> dict[str, Any]:
        before = self.environment
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(self.root)
            done = CliRunner().invoke(app, [*words, "--json"], env=before)
        assert done.exception is None or isinstance(done.exception, SystemExit), done
        value: dict[str, Any] = json.loads(done.stdout)
        return value

    def type(self, command: str) -> int:
        return run(command, self.root, self.environment)

    def edit_lock(self, change: Callable[[str], str]) -> None:
        path = self.root / "versions.lock"
        text = change(path.read_text(encoding="utf-8"))
        assert text != path.read_text(encoding="utf-8")
        path.write_text(text)

    @property
    def tree(self) -> Path:
        return self.root / "third_party/tool"

    def place(self) -> None:
        lock = parse_lock((self.root / "versions.lock").read_text(encoding="utf-8"))
        place_tree(self.root, "tool", lock.tree["tool"])
        (self.root / "data").mkdir(exist_ok=True)
        (self.root / "data/d.parquet").write_bytes(DATA)


REQUIREMENT = "one==1.0 \\\n    --hash=sha256:" + "a" * 64 + "\n"


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    """Everything is in a folder whose name has a space: a path in a command must be quoted."""
    root = tmp_path / "my project"
    upstream = Upstream(tmp_path)
    commit = upstream.commit(1)
    tree = run_git(upstream.work, "rev-parse", "HEAD^{tree}")
    for folder in ("requirements", "recipes", "model"):
        (root / folder).mkdir(parents=True)
    requirements = root / "requirements/own.txt"
    requirements.write_text(REQUIREMENT)
    for name in ("weights.bin", "config.json"):
        (root / "model" / name).write_text(name)
    (root / "recipes/README.md").write_text("recipes\n")
    (root / "versions.lock").write_text(
        f"""schema = 1
[tree.tool]
machines = ["h20"]
url = "file://{upstream.bare}"
path = "third_party/tool"
commit = "{commit}"
tree = "{tree}"
[data.d]
machines = ["h20"]
repo = "org/d"
revision = "{REVISION}"
file = "d.parquet"
path = "data/d.parquet"
bytes = {len(DATA)}
sha256 = "{sha256(DATA).hexdigest()}"
[environment.own]
machines = ["h20"]
requirements = "requirements/own.txt"
python = "3.11 or 3.12"
folder = ".venv-own"
sha256 = "{sha256(REQUIREMENT.encode()).hexdigest()}"
pins_sha256 = "{pins_sha256(read_pins(requirements))}"
pins = 1
[shipped.start]
machines = ["h20"]
path = "model/weights.bin"
sha256 = "{sha256(b"weights.bin").hexdigest()}"
bytes = 11
made_by = "hand"
made_on = "here"
[shipped.start.files]
"config.json" = "{sha256(b"config.json").hexdigest()}"
"""
    )
    run_git(root, "init", "-q", ".")
    run_git(root, "add", ".")
    run_git(root, "commit", "-qm", "project")
    with serving(Behaviour({"d.parquet": DATA}, large={"d.parquet"})) as endpoint:
        environment = {"HF_ENDPOINT": endpoint, "DATA_DIR": str(root), "HF_TOKEN": ""}
        yield Project(root, upstream, environment)


def messages(told: dict[str, Any]) -> list[dict[str, str]]:
    return [item for item in told["findings"] if item["severity"] in ("error", "warning")]


def fix_of(told: dict[str, Any], name: str) -> str:
    """The fix of the one finding whose text is `name`, or whose rule is the entry `name`."""
    found = [
        item["fix"]
        for item in messages(told)
        if item["rule"] == name or ("." in name and is_known(name, item))
    ]
    assert found, (name, told["findings"])
    return found[0]


def is_known(name: str, item: dict[str, str]) -> bool:
    try:
        return is_text(name, item["message"])
    except KeyError:
        return False


@dataclass(frozen=True)
class Case:
    """A fault, the command that reports it, and the printed commands that are typed then."""

    text: str
    break_it: Callable[[Project], Any]
    words: tuple[str, ...]
    # Which of the fix's commands, in the order of typing; the check is repeated after them.
    typed: tuple[int, ...] = (0,)


def remove(name: str) -> Callable[[Project], None]:
    def change(project: Project) -> None:
        path = project.root / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()

    return change


def write(name: str, text: str) -> Callable[[Project], None]:
    return lambda project: (project.root / name).write_text(text) and None


def line_out(pattern: str) -> Callable[[Project], None]:
    """A line of the lock is not there."""
    return lambda project: project.edit_lock(lambda text: re.sub(pattern, "", text, flags=re.M))


def foreign(project: Project) -> None:
    shutil.rmtree(project.tree / ".git")


def moved(project: Project) -> None:
    (project.tree / "mine.txt").write_text("mine")
    run_git(project.tree, "add", ".")
    run_git(project.tree, "commit", "-qm", "mine")


def published(project: Project) -> None:
    """A commit of the operator's own that the entry's server has."""
    moved(project)
    run_git(project.tree, "push", "-q", str(project.upstream.bare), "HEAD:refs/heads/mine")


def other_tree(project: Project) -> None:
    """The lock names a tree that its commit does not have."""
    project.edit_lock(lambda text: re.sub(r'^tree = ".', 'tree = "0', text, flags=re.M))


OTHER = "one==1.1 \\\n    --hash=sha256:" + "b" * 64 + "\n"
SETUP = ("setup", "tree.tool", "--machine", "h20")
BUNDLE = ("bundle", "create", "out.bundle", "tree.tool", "data.d", "shipped.start",
          "--machine", "h20")  # fmt: skip
VERIFY = ("lock", "verify", "--machine", "h20")
CHECK = ("lock", "check")
TOOL = "third_party/tool"
CHANGED = write(f"{TOOL}/tool/__init__.py", "X = 1")
CASES = [
    Case("tree.tool", remove(TOOL), (*VERIFY, "tree.tool")),
    Case("data.d", remove("data/d.parquet"), (*VERIFY, "data.d")),
    Case("checkout-foreign.folder", foreign, SETUP),
    Case("checkout-dirty.files", CHANGED, SETUP, (0, 1)),
    Case("checkout-moved.commit", published, SETUP, (0,)),
    Case("checkout-moved.commit", moved, SETUP, (1,)),
    Case("tree-hash.checkout", other_tree, SETUP),
    Case("lock-environment.missing", remove("requirements/own.txt"), CHECK),
    Case("lock-environment.sha256", write("requirements/own.txt", OTHER), CHECK, (0,)),
    Case("lock-environment.pins", write("requirements/own.txt", OTHER), CHECK, (1,)),
    Case("lock-pinned.missing", line_out(r"^(pins_)?sha256 = .*\n(?=pins)"), CHECK),
    Case("lock-pinned.missing", line_out(r"^sha256 = .*\n(?=\[environment)"), CHECK),
    Case("lock-shipped.missing", remove("model/config.json"), CHECK),
    Case("lock-shipped.sha256", write("model/weights.bin", "weights.xin"), CHECK),
    Case("lock-shipped.bytes", write("model/weights.bin", "short"), CHECK),
    Case("bundle-tree.absent", remove(TOOL), BUNDLE),
    Case("bundle-tree.standing", CHANGED, BUNDLE, (0, 1)),
    Case("bundle-tree.standing", moved, BUNDLE, (0, 1)),
    Case("bundle-data.missing", remove("data/d.parquet"), BUNDLE),
    Case("bundle-data.no-sha256", line_out(r"^sha256 = .*\n(?=\[environment)"), BUNDLE),
    Case("bundle-file.missing", remove("model/config.json"), BUNDLE),
    Case("bundle-file.sha256", write("model/weights.bin", "weights.xin"), BUNDLE),
]
PRINTED = re.compile(r"(?:reprise|git|make|sh|mv) |\{command\}$")
NOT_RUN = {
    # Text: why its command is not run here.
    "bundle-complete.lacks": "run below: on two machines",
    "bundle-data.differs": "run below: on two machines",
    "bundle-data.sha256": "run below: a file is moved away by hand",
    "bundle-image.no-digest": "make image-lock asks a registry (tests/lock/registry.py)",
    "bundle-tree.no-commit": "as bundle-tree.standing, for machine gpu with all its wheels",
    "bundle-tree.tree-hash": "as tree-hash.checkout, for machine gpu with all its wheels",
    "environment.file-missing": "as lock-environment.missing",
    "lock-add.changed": "git status only shows; the operator decides on the files",
    "lock-add.exists": "run in test_lock_update.py, for every kind of entry",
    "lock-add.login": "URL is the operator's own",
    "lock-pinned.in-image": "COMMIT is read in the operator's own image",
    "lock-add.no-file": "OWNER/NAME and the file are the operator's own",
    "lock-add.unpinned": "asks the server that could not be reached (test_lock_update.py)",
    "lock-pinned.no-commit": "REF is the operator's choice",
    "lock-pinned.no-digest": "as lock-pinned.missing",
    "python.cannot-run": "make setup installs an environment from an index",
    "python.no-packages": "as python.cannot-run",
    "requirements-pinned.lines": "make lock-requirements asks an index",
    "setup-not-begun.refused": "beside checkout-dirty.files, whose command ends it",
}


def test_each_printed_command_is_run_or_has_a_reason() -> None:
    """A new text with a command belongs in CASES, or in NOT_RUN."""
    printed = {
        f"{rule.id}.{name}"
        for rule in known_rules().values()
        if rule.layer in ("lock", "bundle", "trees", "hub")
        for name, text in rule.texts.items()
        if any(PRINTED.match(command) for command in commands(text.fix))
    }
    printed -= {"lock-pinned.reason-given"}  # The command of lock-pinned.missing.
    assert printed - {case.text for case in CASES} == set(NOT_RUN)


@pytest.mark.parametrize("case", CASES, ids=[f"{case.text}-{i}" for i, case in enumerate(CASES)])
def test_the_command_works_as_printed(project: Project, case: Case) -> None:
    project.place()
    before = project.reprise(*case.words)
    assert messages(before) == [], before["findings"]
    remove_bundle(project)
    case.break_it(project)
    told = project.reprise(*case.words)
    assert told["verdict"] != "ok"
    printed = commands(fix_of(told, case.text))
    for number in case.typed:
        assert project.type(printed[number]) == 0, printed
    remove_bundle(project)
    again = project.reprise(*case.words)
    assert again["verdict"] == "ok", again["findings"]
    assert not [item for item in messages(again) if item["rule"] == case.text.partition(".")[0]]


def remove_bundle(project: Project) -> None:
    for path in project.root.glob("out.bundle*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def test_a_locked_file_that_is_moved_away_is_fetched_anew(project: Project) -> None:
    project.place()
    path = project.root / "data/d.parquet"
    path.write_bytes(DATA[:-1] + b"?")
    for words, name in (((*VERIFY, "data.d"), "data.d"), (BUNDLE, "bundle-data.sha256")):
        fix = fix_of(project.reprise(*words), name)
        assert f"move {path} away" in fix
        path.rename(path.with_name("away"))
        assert project.type(commands(fix)[0]) == 0
        assert path.read_bytes() == DATA
        assert project.reprise(*words)["verdict"] == "ok"
        path.write_bytes(b"other")
        remove_bundle(project)


def test_a_bundle_that_lacks_what_was_asked_for_is_made_again(
    project: Project, tmp_path: Path
) -> None:
    """Here with the network, there without: both commands as printed."""
    project.place()
    assert project.type("reprise bundle create a.bundle tree.tool --machine h20") == 0
    offline = tmp_path / "off line"
    shutil.copytree(project.root, offline, ignore=shutil.ignore_patterns("third_party", "data"))
    there = Project(offline, project.upstream, {"DATA_DIR": str(offline), "HF_ENDPOINT": ""})
    words = ("setup", "data.d", "tree.tool", "--machine", "h20", "--bundle")
    told = there.reprise(*words, "a.bundle")
    fix = fix_of(told, "bundle-complete.lacks")
    command = commands(fix)[0].replace("FILE", "b.bundle")
    assert "data.d" in command and "tree.tool" not in command
    assert project.type(f"{command} --machine h20") == 0
    shutil.copy(project.root / "b.bundle", offline)
    assert (
        there.reprise("setup", "data.d", "--machine", "h20", "--bundle", "b.bundle")["verdict"]
        == "ok"
    )
    # A file of another content is never written over: it is moved away as printed.
    (offline / "data/d.parquet").write_bytes(b"mine")
    again = ("setup", "data.d", "--machine", "h20", "--bundle", "b.bundle")
    fix = fix_of(there.reprise(*again), "bundle-data.differs")
    assert there.type(commands(fix)[0]) == 0
    assert there.reprise(*again)["verdict"] == "ok"
    assert (offline / "data/d.parquet.mine").read_bytes() == b"mine"
