"""The table of bridges and its assertions, read without torch, vLLM or verl."""

import json
import tomllib
from importlib import import_module
from pathlib import Path

import pytest
from reprise_plugins import bridge as states
from reprise_plugins import source, switches
from reprise_plugins.__main__ import exit_code, main, rows
from reprise_plugins.bridge import Bridge, BridgeMismatchError, Known, Target
from reprise_plugins.bridges import BRIDGES, BY_NAME

from .conftest import PLUGINS

FUNCTION = "def answer():\n    return 42\n"


def tree(folder: Path, text: str, version: str = "1.2.3") -> Path:
    package = folder / "somelib"
    (package / "version").mkdir(parents=True)
    (package / "version" / "version").write_text(version + "\n")
    (package / "__init__.py").write_text("")
    (package / "part.py").write_text(text)
    return folder


def bridge_for(digest: str, **more: str) -> Bridge:
    target = Target("somelib.part", "answer", (Known(digest, "somelib 1.0"),), **more)
    return Bridge("X", "x", (), "none", True, (target,), "why", "proof", "somelib==1.0")


def test_entry_points_name_modules_that_exist() -> None:
    project = tomllib.loads((PLUGINS / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    points = project["entry-points"]
    assert set(points) == {"verl.plugins", "vllm.general_plugins", "sglang.srt.plugins"}
    for group in points.values():
        for value in group.values():
            module, _, attribute = value.partition(":")
            assert (PLUGINS / "src" / Path(*module.split("."))).with_suffix(".py").is_file()
            assert not attribute or callable(getattr(import_module(module), attribute))
    assert project["dependencies"] == []


def test_every_bridge_says_what_it_is_for() -> None:
    assert len({bridge.id for bridge in BRIDGES}) == len(BRIDGES) == len(BY_NAME)
    for bridge in BRIDGES:
        assert bridge.targets and bridge.why and bridge.proof and bridge.means, bridge.id
        assert "==" in bridge.install, bridge.id
        for target in bridge.targets:
            for known in target.known:
                assert known.digest == source.ABSENT or len(known.digest) == 64


def test_only_the_listed_symbols_are_replaced() -> None:
    assert [bridge.name for bridge in BRIDGES if bridge.replaces] == [
        "process-group",
        "padding",
        "fused-moe-name",
        "packed-experts",
        "written-sglang",
        "written-vllm",
    ]


def test_a_known_symbol_applies(tmp_path: Path) -> None:
    found = source.symbol_digest("somelib.part", "answer", tree(tmp_path, FUNCTION))
    assert found is not None
    assert bridge_for(found).check(tmp_path)[0] == states.APPLIES


@pytest.mark.parametrize(
    "changed", [FUNCTION.replace("42", "43"), "@cache\n" + FUNCTION, "x = 1\n"]
)
def test_a_changed_symbol_is_a_mismatch(tmp_path: Path, changed: str) -> None:
    known = source.symbol_digest("somelib.part", "answer", tree(tmp_path / "old", FUNCTION))
    assert known is not None
    state, notes = bridge_for(known).check(tree(tmp_path / "new", changed))
    assert state == states.MISMATCH
    assert "somelib 1.2.3" in notes[0] and "somelib 1.0" in notes[0]


def test_what_stands_around_a_symbol_does_not_matter(tmp_path: Path) -> None:
    one = source.symbol_digest("somelib.part", "answer", tree(tmp_path / "a", FUNCTION))
    two = source.symbol_digest(
        "somelib.part",
        "answer",
        tree(tmp_path / "b", "import os\n\n\n# why\n" + FUNCTION + "b=1\n"),
    )
    assert one == two != source.ABSENT


def test_a_guarded_import_counts_as_a_definition(tmp_path: Path) -> None:
    text = "try:\n    from a import answer\nexcept ImportError:\n    raise\n"
    folder = tree(tmp_path, text)
    assert source.symbol_digest("somelib.part", "answer", folder) != source.ABSENT
    assert source.symbol_digest("somelib.part", "question", folder) == source.ABSENT


def test_the_error_names_what_was_found_and_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tree(tmp_path, FUNCTION)))
    with pytest.raises(BridgeMismatchError) as caught:
        bridge_for("0" * 64).require()
    message = str(caught.value)
    assert "somelib 1.2.3" in message and "somelib==1.0" in message
    assert str(tmp_path / "somelib" / "part.py") in message


def test_a_missing_package_is_not_reported_as_fine() -> None:
    state, notes = Bridge(
        "X", "x", (), "", False, (Target("no_such_lib.part", "f", ()),), "", "", "no_such_lib==1"
    ).check()
    assert (state, notes) == (states.NOT_INSTALLED, ["no_such_lib is not installed"])


def test_a_missing_module_is_a_mismatch_unless_stated(tmp_path: Path) -> None:
    folder = tree(tmp_path, FUNCTION)
    gone = Target("somelib.other", "f", (), gone=states.NOT_NEEDED)
    assert gone.check(folder)[0] == states.NOT_NEEDED
    assert Target("somelib.other", "f", ()).check(folder)[0] == states.MISMATCH


def test_exit_codes() -> None:
    assert exit_code([{"state": states.APPLIES, "asked": True}]) == 0
    assert exit_code([{"state": states.MISMATCH, "asked": False}]) == 0
    assert exit_code([{"state": states.MISMATCH, "asked": None}]) == 1
    assert exit_code([{"state": states.NOT_INSTALLED, "asked": True}]) == 2


def test_the_command_prints_one_json_object(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["--json", "--tree", str(tmp_path)])
    answer = json.loads(capsys.readouterr().out)
    assert [record["id"] for record in answer["bridges"]] == [bridge.id for bridge in BRIDGES]
    assert code == exit_code(answer["bridges"])


def test_the_table_has_a_line_a_bridge(capsys: pytest.CaptureFixture[str]) -> None:
    main([])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["id", "bridge", "state", "asked", "means"]
    assert [line.split()[0] for line in lines[1 : len(BRIDGES) + 1]] == [b.id for b in BRIDGES]


def test_switches() -> None:
    assert switches.asked({}) == frozenset()
    assert switches.asked({"REPRISE_BRIDGES": " padding,"}) == {"padding"}
    assert switches.asked({"VERL_PLATFORM": "CPU"}) == {"cpu", "hy_v3_names", "padding"}
    with pytest.raises(switches.SwitchError, match="pading"):
        switches.asked({"REPRISE_BRIDGES": "pading"})
    asked = {record["name"] for record in rows(None, frozenset({"padding"})) if record["asked"]}
    assert asked == {"padding"}
