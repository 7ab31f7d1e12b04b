from __future__ import annotations

import re
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest
import tomlkit
from hypothesis import given, settings
from hypothesis import strategies as st
from lock.servers import Upstream, run_git

from reprise.core.errors import CannotTell, OperatorError
from reprise.flows.lock.update import update_entry
from reprise.lock import machine_hash, parse_lock, read_lock
from reprise.lock.lines import split_lines
from reprise.lock.rewrite import rewrite

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "versions.lock").read_text(encoding="utf-8")


@pytest.fixture
def upstream(tmp_path: Path) -> Upstream:
    return Upstream(tmp_path)


def lock_for(folder: Path, upstream: Upstream, commit: str) -> Path:
    path = folder / "versions.lock"
    path.write_text(
        f"""# A comment that stays.
schema = 1

[tree.tool]   # and this
machines = ["h20"]
want = "main"      # what a human wants
url = "file://{upstream.bare}"
path = "third_party/tool"
commit = '{commit}'	# a tab before this
version = "0"

[package.other]
machines = ["musa"]
name = "other"
version = "1"
"""
    )
    return path


def test_a_branch_a_tag_a_short_and_a_full_hash(tmp_path: Path, upstream: Upstream) -> None:
    first = upstream.commit(1)
    path = lock_for(tmp_path, upstream, first)
    second = upstream.commit(2)
    run_git(upstream.work, "tag", "-am", "two", "v2")
    run_git(upstream.work, "push", "-q", "origin", "v2")
    for ref, expected in {"v2": second, first[:9]: first, "main": second, first: first}.items():
        report = update_entry(path, "tool", ref)
        tree = read_lock(path).tree["tool"]
        assert (tree.want, tree.commit) == (ref, expected)
        assert tree.tree == run_git(upstream.work, "rev-parse", f"{expected}^{{tree}}")
        assert report.data["machines"] == ["h20"]
    text = path.read_text(encoding="utf-8")
    assert text.startswith("# A comment that stays.\nschema = 1\n\n[tree.tool]   # and this\n")
    assert re.search(r'want = "[0-9a-f]{40}"      # what a human wants\n', text)
    assert re.search(r'commit = "[0-9a-f]{40}"\t# a tab before this\ntree = ', text)
    assert text.endswith('\n[package.other]\nmachines = ["musa"]\nname = "other"\nversion = "1"\n')
    assert '\nversion = "0"' not in text


def test_nothing_moves_nothing_is_written(tmp_path: Path, upstream: Upstream) -> None:
    path = lock_for(tmp_path, upstream, upstream.commit(1))
    update_entry(path, "tool")
    before = path.read_bytes(), path.stat().st_ino
    report = update_entry(path, "tool")
    assert report.data["moved"] == [] and report.data["machines"] == []
    assert (path.read_bytes(), path.stat().st_ino) == before


def test_what_does_not_exist_or_is_not_clear(tmp_path: Path, upstream: Upstream) -> None:
    first = upstream.commit(1)
    path = lock_for(tmp_path, upstream, first)
    before = path.read_bytes()
    for ref in ("nothing", "abcdef0", "2" * 40):
        with pytest.raises(OperatorError) as caught:
            update_entry(path, "tool", ref)
        assert not isinstance(caught.value, CannotTell)
    run_git(upstream.work, "tag", "main")
    run_git(upstream.work, "push", "-q", "origin", "refs/tags/main")
    (upstream.work / "more").write_text("x")
    run_git(upstream.work, "add", "more")
    run_git(upstream.work, "commit", "-qm", "more")
    run_git(upstream.work, "push", "-q", "origin", "HEAD:refs/heads/main")
    with pytest.raises(OperatorError, match="both a tag and a branch"):
        update_entry(path, "tool", "main")
    update_entry(path, "tool", "refs/tags/main")
    assert read_lock(path).tree["tool"].commit == first
    path.write_bytes(before.replace(str(upstream.bare).encode(), b"/nowhere"))
    with pytest.raises(CannotTell):
        update_entry(path, "tool", "main")


def test_a_submodule_moves_with_its_tree(tmp_path: Path, upstream: Upstream) -> None:
    part = Upstream(tmp_path, "part")
    old = part.commit(1)
    sub = upstream.submodule("ext/part", part, old, fetch=True)
    path = lock_for(tmp_path, upstream, upstream.commit(1))
    path.write_text(
        path.read_text(encoding="utf-8")
        + f'\n[tree.tool.submodule."ext/part"]\nurl = "{sub.url}"\ncommit = "{old}"\n'
        f'tree = "{sub.tree}"\nfetch = true\n'
    )
    new = part.commit(2)
    run_git(upstream.work / "ext/part", "fetch", "-q", "origin")
    run_git(upstream.work / "ext/part", "checkout", "-q", new)
    upstream.commit(3)
    report = update_entry(path, "tool", "main")
    moved = {row["key"]: row["new"] for row in report.data["moved"]}
    assert moved["submodule.ext/part.commit"] == new
    found = read_lock(path).tree["tool"].submodule["ext/part"]
    assert (found.commit, found.tree, found.fetch) == (new, None, True)


def test_an_environment_follows_its_file(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "requirements", tmp_path / "requirements")
    path = tmp_path / "versions.lock"
    path.write_text(TEXT)
    for file in ("rehearsal.txt", "rehearsal-cuda.txt"):
        name = tmp_path / "requirements" / file
        name.write_text(name.read_text(encoding="utf-8") + "# changed\n")
    report = update_entry(path, "environment.rehearsal")
    keys = {row["key"] for row in report.data["moved"]}
    assert keys == {"sha256", "extra.requirements/rehearsal-cuda.txt"}
    assert report.data["machines"] == []
    with pytest.raises(OperatorError, match="follows its requirements file"):
        update_entry(path, "environment.rehearsal", "1")


# --- properties -------------------------------------------------------------------------------

TABLES = [tuple(m.split(".")) for m in re.findall(r"^\[([a-z0-9.-]+)\]$", TEXT, re.MULTILINE)]
VALUES = st.one_of(
    st.text(max_size=20),
    st.integers(0, 10**9),
    st.lists(st.text(max_size=8), max_size=3),
    st.none(),
)
KEYS = st.sampled_from(["want", "note", "licence", "commit", "version", "fresh-key"])


def at(data: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    for part in path:
        data = data[part]
    return data


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(TABLES), KEYS, VALUES, st.sampled_from(["\n", "\r\n"]))
def test_a_rewrite_changes_one_value_and_no_other_byte(
    table: tuple[str, ...], key: str, value: str | int | list[str] | None, ending: str
) -> None:
    text = TEXT.replace("\n", ending)
    new = rewrite(text, table, {key: value})
    before, after = tomllib.loads(text), tomllib.loads(new)
    if value is None:
        at(before, table).pop(key, None)
    else:
        at(before, table)[key] = value
    assert after == before
    old_lines, new_lines = split_lines(text), split_lines(new)
    changed = [line for line in new_lines if line not in set(old_lines)]
    assert len(changed) <= 1
    assert abs(len(new_lines) - len(old_lines)) <= 1


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_valid_lock_survives_the_update_of_one_entry(data: st.DataObject) -> None:
    """Entries, comments and layout drawn at random: only the entry's own lines differ."""
    name = st.from_regex(r"[a-z][a-z0-9-]{0,8}", fullmatch=True)
    text = st.text(st.characters(min_codepoint=32, max_codepoint=0x2FF), max_size=20)
    names = data.draw(st.lists(name, min_size=1, max_size=5, unique=True))
    parts = ["schema = 1\n"]
    for item in names:
        gap = data.draw(st.sampled_from(["", "\n", "\n\n# a comment\n", "  # indented\n"]))
        keys = {"machines": ["h20"], "url": "https://e.example/x.git", "path": f"p/{item}"}
        keys |= {"want": data.draw(text), "note": data.draw(text), "commit": "a" * 40}
        order = data.draw(st.permutations(sorted(keys)))
        tail = data.draw(st.sampled_from(["", "  # why", "\t"]))
        lines = [f"{key} = {tomlkit.item(keys[key]).as_string()}{tail}\n" for key in order]
        parts.append(f"{gap}[tree.{item}]\n{''.join(lines)}")
    original = "".join(parts)
    chosen = data.draw(st.sampled_from(names))
    new = rewrite(original, ("tree", chosen), {"commit": "b" * 40, "tree": "c" * 40})
    back = rewrite(new, ("tree", chosen), {"commit": "a" * 40, "tree": None})
    assert back == original
    lock, moved = parse_lock(original), parse_lock(new)
    assert moved.tree[chosen].commit == "b" * 40
    assert {n: t for n, t in moved.tree.items() if n != chosen} == {
        n: t for n, t in lock.tree.items() if n != chosen
    }
    assert machine_hash(moved, "h20") != machine_hash(lock, "h20")
