from __future__ import annotations

from pathlib import Path

import pytest

from reprise.lock import LockError, machine_hash, parse_lock, read_lock
from reprise.lock.lines import line_of, locate
from reprise.lock.requirements import pins_sha256, read_pins

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "versions.lock").read_text(encoding="utf-8")
COMMIT = "220e9039902c6db56860e2afd659803dc34ec005"


def faults(text: str) -> list[tuple[str, str, str, str]]:
    with pytest.raises(LockError) as caught:
        parse_lock(text)
    return caught.value.faults


def line_with(text: str, part: str) -> int:
    return next(n for n, line in enumerate(text.splitlines(), 1) if part in line)


def test_the_shipped_lock_is_sound() -> None:
    lock = read_lock(ROOT / "versions.lock")
    assert lock.tree["verl"].commit == COMMIT
    assert lock.image["h20"].digest is None
    assert lock.image["h20"].missing == ("digest",)


def test_the_hash_ignores_comments_notes_mirrors_and_other_machines() -> None:
    before = machine_hash(parse_lock(TEXT), "rehearsal")
    changed = "# another comment\n" + TEXT.replace(COMMIT, "1" * 40)
    changed = changed.replace(
        "[environment.rehearsal]",
        '[environment.rehearsal]\nnote = "x"\nmirrors = ["https://mirror.example/"]',
    )
    assert machine_hash(parse_lock(changed), "rehearsal") == before
    assert machine_hash(parse_lock(changed), "h20") != machine_hash(parse_lock(TEXT), "h20")


def test_the_hash_moves_with_a_wheel_of_the_environment() -> None:
    lock = parse_lock(TEXT)
    pins = lock.environment["rehearsal"].pins_sha256
    assert pins is not None
    moved = parse_lock(TEXT.replace(pins, "0" * 64))
    assert machine_hash(moved, "rehearsal") != machine_hash(lock, "rehearsal")


# The six ways of the field case "a branch is not a commit", in the lock's own form.
@pytest.mark.parametrize("value", ["df0852c", "main", "v0.1.8", "", COMMIT + "\\n", "-" * 40])
def test_a_commit_is_forty_hex_digits(value: str) -> None:
    text = TEXT.replace(COMMIT, value)
    ((rule, where, message, fix),) = faults(text)
    assert rule == "lock-schema"
    assert where == f"versions.lock:{line_with(text, 'commit = ')}"
    assert "tree.verl.commit" in message
    assert "reprise lock update" in fix


def test_an_upper_case_commit_is_taken_as_lower_case() -> None:
    assert parse_lock(TEXT.replace(COMMIT, COMMIT.upper())).tree["verl"].commit == COMMIT


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("digest", "sha256:a1b2c3d4e5f6"),
        ("digest", "md5:00000000000000000000000000000000"),
        ("digest", "a" * 64),
        ("repository", "verlai/verl:vllm023.dev1"),
        ("repository", "registry.local:5000/verl:5000/verl"),
        ("repository", "verlai/verl@sha256:" + "a" * 64),
        ("want", "vllm023.dev1@sha256:" + "a" * 64),
        ("want", "5000/verl"),
    ],
)
def test_an_image_is_a_name_a_tag_and_a_whole_digest(key: str, value: str) -> None:
    line = f'{key} = "{value}"'
    head = '[image.h20]\nmachines = ["h20"]\n'
    rest = {"repository": "verlai/verl", "want": "vllm023.dev1"} | {key: value}
    text = "schema = 1\n" + head + "".join(f'{k} = "{v}"\n' for k, v in rest.items())
    ((_, where, message, _),) = faults(text)
    assert where == f"versions.lock:{line_with(text, line)}"
    assert f"image.h20.{key}" in message


def test_a_registry_port_is_not_a_tag() -> None:
    text = 'schema = 1\n[image.a]\nmachines = ["h20"]\nwant = "t"\nrepository = "host:5000/verl"\n'
    assert parse_lock(text).image["a"].repository == "host:5000/verl"


def test_a_second_table_of_the_same_name_is_refused_with_its_line() -> None:
    text = TEXT + '\n[tree.verl]\nmachines = ["h20"]\n'
    ((rule, where, _, _),) = faults(text)
    assert rule == "lock-toml"
    assert where == f"versions.lock:{len(text.splitlines()) - 1}"


def test_all_faults_come_in_one_pass() -> None:
    text = TEXT.replace(COMMIT, "main").replace('platform = "linux/amd64"', 'platfrom = "x"')
    assert len(faults(text)) == 3


@pytest.mark.parametrize("path", ["/etc", "../up", "a/../../b", "a//b", ".", "a/./b", ""])
def test_a_path_cannot_leave_the_project(path: str) -> None:
    ((_, _, message, _),) = faults(TEXT.replace('"third_party/verl"', f'"{path}"', 1))
    assert "tree.verl.path" in message


def test_a_url_cannot_be_an_option_of_git() -> None:
    url = "https://github.com/verl-project/verl.git"
    assert len(faults(TEXT.replace(f'url = "{url}"', 'url = "--upload-pack=x"'))) == 2


def test_lines_inside_a_multi_line_string_are_not_keys() -> None:
    text = '[a]\nnote = """\nb = 1\n[c]\n"""\nd = 2\n'
    assert locate(text) == {("a",): 1, ("a", "note"): 2, ("a", "d"): 6}
    assert line_of(locate(text), ("a", "x", "y")) == 1


def test_pins_ignore_layout_and_comments(tmp_path: Path) -> None:
    one, two = tmp_path / "one.txt", tmp_path / "two.txt"
    one.write_text(f"a==1 --hash=sha256:{'0' * 64}\nB_c==2 --hash=sha256:{'1' * 64}\n")
    two.write_text(
        f"# c\n--index-url x\nb-c==2 \\\n    --hash=sha256:{'1' * 64}\n"
        f"a==1 \\\n    --hash=sha256:{'0' * 64}\n    # via b-c\n"
    )
    assert pins_sha256(read_pins(one)) == pins_sha256(read_pins(two))


def test_a_misspelt_kind_is_told_with_the_line_of_its_first_table() -> None:
    text = TEXT + '\n[tre.x]\nurl = "a"\n'
    assert faults(text) == [
        (
            "lock-schema",
            f"versions.lock:{line_with(text, '[tre.x]')}",
            "tre is not a key of the lock",
            "correct or remove it",
        )
    ]
