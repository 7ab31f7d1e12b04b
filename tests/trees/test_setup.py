from __future__ import annotations

import contextlib
import fcntl
import multiprocessing
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from lock.servers import Upstream, git_daemon, run_git, smart_http

from reprise.core.errors import OperatorError
from reprise.core.findings import Verdict
from reprise.lock.model import Tree
from reprise.trees.checkout import LOCKED_REF, Standing, inspect
from reprise.trees.setup import Placed, place_tree, setup_trees
from reprise.trees.sources import Mirror, mirrors_from
from tests.saying import started, until_said


@pytest.fixture
def upstream(tmp_path: Path) -> Upstream:
    return Upstream(tmp_path)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    # The project is itself a git repository, which must never be taken for a checkout in it.
    run_git(folder, "init", "-q", ".")
    return folder


def files(root: Path) -> set[str]:
    third = root / "third_party"
    found = (path.relative_to(third) for path in third.rglob("*") if ".git" not in path.parts)
    return {str(path) for path in found if not path.name.endswith(".lock")} - {".setup"}


def exact(placed: Placed, tree: Tree) -> None:
    """The checkout is the locked commit, without history, marked, and clean."""
    assert tree.commit is not None
    found = inspect(placed.path, tree.commit, tree.tree)
    assert found.standing is Standing.OK
    assert run_git(placed.path, "rev-parse", LOCKED_REF) == tree.commit


def test_a_commit_that_is_no_branch_tip_comes_without_history(
    upstream: Upstream, root: Path
) -> None:
    first = upstream.commit(1)
    upstream.commit(2)
    tree = upstream.tree(first)
    placed = place_tree(root, "tool", tree)
    exact(placed, tree)
    assert run_git(placed.path, "rev-list", "--count", "--all") == "1"
    assert not (placed.path / "file2.txt").exists()


def test_a_second_setup_changes_nothing(upstream: Upstream, root: Path) -> None:
    tree = upstream.tree(upstream.commit(1))
    place_tree(root, "tool", tree)
    before = {p: p.stat().st_mtime_ns for p in (root / "third_party/tool").rglob("*")}
    again = place_tree(root, "tool", upstream.tree(tree.commit or "", url="file:///nowhere"))
    assert again.state == "already"
    after = {p: p.stat().st_mtime_ns for p in (root / "third_party/tool").rglob("*")}
    assert after == before


def test_over_git_daemon_and_smart_http(upstream: Upstream, root: Path) -> None:
    first = upstream.commit(1)
    upstream.commit(2)
    with git_daemon(upstream.bare.parent) as url:
        tree = upstream.tree(first, url=f"{url}tool.git")
        exact(place_tree(root, "tool", tree), tree)
    with smart_http(upstream.bare.parent) as (url, _):
        tree = upstream.tree(first, url=f"{url}tool.git", path="third_party/other")
        exact(place_tree(root, "tool", tree), tree)


def test_a_server_that_refuses_commits_is_asked_by_name(upstream: Upstream, root: Path) -> None:
    upstream.commit(1)
    run_git(upstream.work, "tag", "-am", "one", "v1")
    run_git(upstream.work, "push", "-q", "origin", "v1")
    first = run_git(upstream.work, "rev-parse", "HEAD")
    upstream.commit(2)
    with smart_http(upstream.bare.parent, speaks_v2=False) as (url, _):
        tree = upstream.tree(first, url=f"{url}tool.git")
        placed = place_tree(root, "tool", tree)
    exact(placed, tree)
    assert "fetched by its name refs/tags/v1" in placed.notes[0]
    assert run_git(placed.path, "rev-list", "--count", "--all") == "1"


def test_a_server_that_refuses_commits_gives_its_whole_history(
    upstream: Upstream, root: Path
) -> None:
    first = upstream.commit(1)
    upstream.commit(2)
    with smart_http(upstream.bare.parent, speaks_v2=False) as (url, _):
        tree = upstream.tree(first, url=f"{url}tool.git")
        placed = place_tree(root, "tool", tree)
    exact(placed, tree)
    assert "fetched its whole history" in placed.notes[0]


def test_a_moved_tag_does_not_move_the_checkout(upstream: Upstream, root: Path) -> None:
    first = upstream.commit(1)
    run_git(upstream.work, "tag", "v1")
    run_git(upstream.work, "push", "-q", "origin", "v1")
    upstream.commit(2)
    run_git(upstream.work, "tag", "-f", "v1")
    run_git(upstream.work, "push", "-qf", "origin", "v1")
    tree = upstream.tree(first, want="v1")
    exact(place_tree(root, "tool", tree), tree)


def test_a_commit_lost_to_a_force_push_is_named(upstream: Upstream, root: Path) -> None:
    upstream.commit(1)
    lost = upstream.commit(2)
    tree = upstream.tree(lost)
    run_git(upstream.work, "reset", "-q", "--hard", "HEAD~1")
    upstream.commit(3)
    run_git(upstream.bare, "reflog", "expire", "--expire=now", "--all")
    run_git(upstream.bare, "gc", "-q", "--prune=now")
    with pytest.raises(OperatorError, match=lost) as caught:
        place_tree(root, "tool", tree)
    assert "does not have this commit" in caught.value.message
    assert "bundle" in caught.value.fix
    assert files(root) == set()


def test_a_force_push_that_kept_the_commit_does_no_harm(upstream: Upstream, root: Path) -> None:
    upstream.commit(1)
    kept = upstream.commit(2)
    tree = upstream.tree(kept)
    run_git(upstream.work, "reset", "-q", "--hard", "HEAD~1")
    upstream.commit(3)
    exact(place_tree(root, "tool", tree), tree)


def test_a_connection_cut_at_half_leaves_nothing_and_can_be_repeated(
    upstream: Upstream, root: Path
) -> None:
    commit = upstream.big(200_000)
    with smart_http(upstream.bare.parent, cuts=[100_000]) as (url, _):
        tree = upstream.tree(commit, url=f"{url}tool.git")
        with pytest.raises(OperatorError, match="connection failed"):
            place_tree(root, "tool", tree)
        assert files(root) == set()
        exact(place_tree(root, "tool", tree), tree)


def test_a_mirror_that_fails_is_noted_and_the_next_is_asked(upstream: Upstream, root: Path) -> None:
    tree = upstream.tree(upstream.commit(1), mirrors=("file:///nowhere/tool.git",))
    placed = place_tree(root, "tool", tree)
    exact(placed, tree)
    assert placed.url == tree.url
    assert placed.notes[0].startswith("not from file:///nowhere/tool.git")


@pytest.mark.parametrize("speaks_v2", [True, False])
def test_a_mirror_with_another_tree_under_the_same_name_is_not_taken(
    tmp_path: Path, upstream: Upstream, root: Path, speaks_v2: bool
) -> None:
    commit = upstream.commit(1)
    other = Upstream(tmp_path / "elsewhere")
    other.commit(7)
    for each in (upstream, other):
        run_git(each.work, "tag", "v1")
        run_git(each.work, "push", "-q", "origin", "v1")
    with smart_http(other.bare.parent, speaks_v2=speaks_v2) as (url, _):
        tree = upstream.tree(commit, want="v1")
        mirror = Mirror(f"file://{upstream.bare.parent}/", url)
        placed = place_tree(root, "tool", tree, [mirror])
        assert placed.url == tree.url
        alone = upstream.tree(commit, url=f"{url}tool.git", path="third_party/alone")
        with pytest.raises(OperatorError):
            place_tree(root, "alone", alone)
    assert (placed.path / "file1.txt").exists()
    assert not (root / "third_party/alone").exists()


def test_a_tree_hash_that_differs_is_refused(upstream: Upstream, root: Path) -> None:
    tree = upstream.tree(upstream.commit(1), **{"tree": "1" * 40})
    with pytest.raises(OperatorError) as caught:
        place_tree(root, "tool", tree)
    assert caught.value.rule == "tree-hash"
    assert files(root) == set()


def test_a_dirty_checkout_is_not_touched(upstream: Upstream, root: Path) -> None:
    tree = upstream.tree(upstream.commit(1))
    path = place_tree(root, "tool", tree).path
    module = path / "tool/__init__.py"
    stat = module.stat()
    # Same size and same times: only reading the file shows the change.
    module.write_text("VALUE = 9\n")
    os.utime(module, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    (path / "mine.py").write_text("x\n")
    with pytest.raises(OperatorError) as caught:
        place_tree(root, "tool", tree)
    assert caught.value.rule == "checkout-dirty"
    assert "tool/__init__.py" in caught.value.message and "mine.py" in caught.value.message
    assert module.read_text(encoding="utf-8") == "VALUE = 9\n"


def test_a_moved_checkout_is_not_touched(upstream: Upstream, root: Path) -> None:
    tree = upstream.tree(upstream.commit(1))
    path = place_tree(root, "tool", tree).path
    run_git(path, "commit", "-q", "--allow-empty", "-m", "mine")
    mine = run_git(path, "rev-parse", "HEAD")
    with pytest.raises(OperatorError) as caught:
        place_tree(root, "tool", tree)
    assert caught.value.rule == "checkout-moved"
    assert mine in caught.value.fix
    assert run_git(path, "rev-parse", "HEAD") == mine


def test_a_folder_of_something_else_is_not_touched(upstream: Upstream, root: Path) -> None:
    folder = root / "third_party/tool"
    folder.mkdir(parents=True)
    (folder / "notes.txt").write_text("mine\n")
    with pytest.raises(OperatorError) as caught:
        place_tree(root, "tool", upstream.tree(upstream.commit(1)))
    assert caught.value.rule == "checkout-foreign"
    assert (folder / "notes.txt").read_text(encoding="utf-8") == "mine\n"


def test_a_lock_that_moved_on_keeps_the_earlier_checkout(upstream: Upstream, root: Path) -> None:
    first = upstream.tree(upstream.commit(1))
    place_tree(root, "tool", first)
    second = upstream.tree(upstream.commit(2))
    placed = place_tree(root, "tool", second)
    assert placed.state == "replaced"
    exact(placed, second)
    (kept,) = (root / "third_party/.replaced").iterdir()
    assert inspect(kept, first.commit or "", first.tree).standing is Standing.OK


def test_only_the_named_submodules_come(tmp_path: Path, upstream: Upstream, root: Path) -> None:
    part, unused = Upstream(tmp_path, "part"), Upstream(tmp_path, "unused")
    old = part.commit(1)
    part.commit(2)
    subs = {
        "ext/part": upstream.submodule("ext/part", part, old, fetch=True),
        "ext/unused": upstream.submodule("ext/unused", unused, unused.commit(5), fetch=False),
    }
    tree = upstream.tree(upstream.commit(1), submodule=subs)
    placed = place_tree(root, "tool", tree)
    assert run_git(placed.path / "ext/part", "rev-parse", "HEAD") == old
    assert not list((placed.path / "ext/unused").iterdir())
    assert place_tree(root, "tool", tree).state == "already"
    wrong = subs["ext/part"].model_copy(update={"commit": "2" * 40})
    tree = tree.model_copy(update={"submodule": {"ext/part": wrong}, "path": "third_party/b"})
    with pytest.raises(OperatorError, match="submodule ext/part"):
        place_tree(root, "tool", tree)


def test_the_operators_own_settings_do_not_reach_the_checkout(
    upstream: Upstream, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hooks = tmp_path / "template/hooks"
    hooks.mkdir(parents=True)
    (hooks / "post-checkout").write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    (hooks / "post-checkout").chmod(0o755)
    config = tmp_path / "gitconfig"
    config.write_text(
        f"[core]\nautocrlf = true\nhooksPath = {hooks}\n[init]\ntemplateDir = {hooks.parent}\n"
    )
    tree = upstream.tree(upstream.commit(1))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    monkeypatch.setenv("GIT_DIR", str(root / ".git"))
    placed = place_tree(root, "tool", tree)
    assert b"\r" not in (placed.path / "file1.txt").read_bytes()
    assert not (tmp_path / "ran").exists()


def _place(root: Path, tree: Tree, queue: multiprocessing.Queue[str]) -> None:
    queue.put(place_tree(root, "tool", tree).state)


def test_two_setups_at_once_fetch_once(upstream: Upstream, root: Path) -> None:
    tree = upstream.tree(upstream.big(3_000_000))
    context = multiprocessing.get_context("fork")
    queue: multiprocessing.Queue[str] = context.Queue()
    both = [context.Process(target=_place, args=(root, tree, queue)) for _ in range(2)]
    for process in both:
        process.start()
    states = sorted(queue.get(timeout=60) for _ in both)
    for process in both:
        process.join(60)
    assert states == ["already", "fetched"]


def works_below(folder: Path) -> list[str]:
    """The processes that work in `folder`."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if Path(process.cwd()).is_relative_to(folder):
                found.append(process.name())
    return found


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_setup_leaves_no_half_tree(
    upstream: Upstream, root: Path, kind: signal.Signals
) -> None:
    tree = upstream.tree(upstream.big(4_000_000))
    code = (
        "import sys; from pathlib import Path; from reprise.lock.model import Tree\n"
        "from reprise.trees.setup import place_tree\n"
        "tree = Tree.model_validate_json(sys.argv[2])\n"
        "place_tree(Path(sys.argv[1]), 'tool', tree, "
        "on_phase=lambda phase, done: print(phase, flush=True))\n"
    )
    with started([sys.executable, "-c", code, root, tree.model_dump_json()]) as process:
        until_said(process.stdout, b"fetching")
        process.send_signal(kind)
        process.communicate(timeout=60)
    assert not (root / "third_party/tool").exists()
    # A killed setup cannot stop its git, which may write for a moment more.
    deadline = time.monotonic() + 60
    while works_below(root):
        assert time.monotonic() < deadline, works_below(root)
        time.sleep(0.05)
    exact(place_tree(root, "tool", tree), tree)
    assert not (root / "third_party/.setup/tool").exists()


def setting_up(
    root: Path, trees: list[Tree]
) -> contextlib.AbstractContextManager[subprocess.Popen[bytes]]:
    """`setup_trees` as a process of its own that tells each phase."""
    code = (
        "import sys; from pathlib import Path; from reprise.lock.model import Tree\n"
        "from reprise.trees.setup import setup_trees\n"
        "trees = {str(n): Tree.model_validate_json(t) for n, t in enumerate(sys.argv[2:])}\n"
        "setup_trees(Path(sys.argv[1]), trees, on_tree=lambda *a: print(*a, flush=True))\n"
    )
    return started([sys.executable, "-c", code, root, *(t.model_dump_json() for t in trees)])


def test_an_interrupt_ends_every_fetch_at_once(upstream: Upstream, root: Path) -> None:
    commit = upstream.commit(1)
    with socket.socket() as silent:
        # A server that takes connections and never answers: without help the fetches hang.
        silent.bind(("127.0.0.1", 0))
        silent.listen(8)
        url = f"git://127.0.0.1:{silent.getsockname()[1]}/x"
        trees = [upstream.tree(commit, url=url, path=f"third_party/t{n}") for n in range(6)]
        with setting_up(root, trees) as process:
            until_said(process.stdout, b"fetching", 4)
            process.send_signal(signal.SIGINT)
            _, stderr = process.communicate(timeout=60)
    assert b"KeyboardInterrupt" in stderr
    assert files(root) == set()


def test_a_git_that_does_not_end_when_it_is_asked_to_is_killed(
    upstream: Upstream, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    deaf = 'case " $* " in *" fetch "*) trap "" TERM; sleep 100;; esac'
    (own / "git").write_text(f'#!/bin/sh\n{deaf}\nexec {shutil.which("git")} "$@"\n')
    (own / "git").chmod(0o755)
    trees = [upstream.tree(upstream.commit(1))]
    monkeypatch.setenv("PATH", f"{own}:{os.environ['PATH']}")
    with setting_up(root, trees) as process:
        until_said(process.stdout, b"fetching")
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=60)
    assert b"KeyboardInterrupt" in stderr
    assert files(root) == set()


def test_an_interrupt_is_heard_while_another_setup_is_waited_for(
    upstream: Upstream, root: Path
) -> None:
    commit = upstream.commit(1)
    trees = [upstream.tree(commit, path=f"third_party/t{n}") for n in range(2)]
    work = root / "third_party/.setup"
    work.mkdir(parents=True)
    with (work / "t0.lock").open("w") as first, (work / "t1.lock").open("w") as second:
        for other in (first, second):
            fcntl.flock(other, fcntl.LOCK_EX)
        with setting_up(root, trees) as process:
            until_said(process.stdout, b"waiting for another setup")
            process.send_signal(signal.SIGINT)
            _, stderr = process.communicate(timeout=60)
    assert b"KeyboardInterrupt" in stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
def test_a_full_disk_is_named_and_left_as_it_was(upstream: Upstream, root: Path) -> None:
    tree = upstream.tree(upstream.big(6_000_000))
    (root / "third_party").mkdir()
    options = ["-t", "tmpfs", "-o", "size=4m", "tmpfs", str(root / "third_party")]
    subprocess.run(["mount", *options], check=True)
    try:
        with pytest.raises(OperatorError) as caught:
            place_tree(root, "tool", tree)
        assert caught.value.rule == "disk-space"
        assert files(root) == set()
    finally:
        subprocess.run(["umount", str(root / "third_party")], check=True)
    exact(place_tree(root, "tool", tree), tree)


def test_one_tree_that_fails_stops_no_other(upstream: Upstream, root: Path) -> None:
    commit = upstream.commit(1)
    trees = {
        "gone": upstream.tree(commit, url="file:///nowhere", path="third_party/gone"),
        "good": upstream.tree(commit),
        "in-image": upstream.tree(commit, path=None, from_image="the image"),
    }
    seen: list[tuple[str, str]] = []
    report = setup_trees(root, trees, on_tree=lambda name, phase, _: seen.append((name, phase)))
    assert report.verdict is Verdict.PROBLEM
    assert [check.rule for check in report.checks] == ["tree.gone", "tree.good"]
    assert [row["name"] for row in report.data["trees"]] == ["good"]
    assert ("good", "fetched") in seen and ("gone", "failed") in seen


def test_nothing_is_fetched_while_a_checkout_is_in_the_way(upstream: Upstream, root: Path) -> None:
    commit = upstream.commit(1)
    trees = {
        name: upstream.tree(commit, path=f"third_party/{name}")
        for name in ("kept", "wanted", "changed", "foreign")
    }
    for name in ("kept", "changed"):
        place_tree(root, name, trees[name])
    (root / "third_party/changed/mine.py").write_text("x\n")
    (root / "third_party/foreign").mkdir()
    (root / "third_party/foreign/file").write_text("x\n")
    seen: list[tuple[str, str]] = []
    report = setup_trees(root, trees, on_tree=lambda name, phase, _: seen.append((name, phase)))
    assert {check.rule: check.state for check in report.checks} == {
        "tree.kept": "passed",
        "tree.wanted": "unknown",
        "tree.changed": "failed",
        "tree.foreign": "failed",
    }
    assert {phase for _, phase in seen} == {"checking", "already", "failed"}
    assert not (root / "third_party/wanted").exists()
    (root / "third_party/changed/mine.py").unlink()
    (root / "third_party/foreign/file").unlink()
    assert setup_trees(root, trees).verdict is Verdict.OK


def test_mirrors_rewrite_as_gits_insteadof(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPRISE_MIRROR", "https://b.example/=https://c.example/x/")
    one, two = mirrors_from(["https://m.example/github"])
    assert one.rewrite("https://github.com/a/b.git") == "https://m.example/github/a/b.git"
    assert two.rewrite("https://b.example/a.git") == "https://c.example/x/a.git"
    assert two.rewrite("https://github.com/a/b.git") is None
    with pytest.raises(OperatorError):
        mirrors_from(["--upload-pack=x"])


def test_credentials_in_a_url_are_not_shown(upstream: Upstream, root: Path) -> None:
    url = "http://me:secret@127.0.0.1:1/tool.git"
    with pytest.raises(OperatorError) as caught:
        place_tree(root, "tool", upstream.tree(upstream.commit(1), url=url))
    assert "secret" not in str(caught.value)
