"""One name for one kind of machine, in every command and file."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from reprise.cli import app
from reprise.cli.commands.machines import one_of
from reprise.cluster.site import load_site
from reprise.core.errors import OperatorError
from reprise.images.files import KINDS, kind_named
from reprise.lock.model import MACHINES
from reprise.lock.read import LockError, machine_hash, parse_lock
from reprise.machines.registry import (
    accelerators,
    guess_machine,
    machine_named,
    machines,
    names_shown,
)

LOCK = """\
schema = 1
[tree.tool]
machines = [{names}]
want = "main"
url = "https://example.org/tool"
path = "third_party/tool"
"""


@pytest.mark.parametrize("machine", machines(), ids=lambda machine: machine.name)
def test_every_name_means_one_machine(machine: object) -> None:
    assert machine in machines()
    names = [name for item in machines() for name in (*item.names, item.lock)]
    for item in machines():
        assert all(machine_named(name) is item for name in item.names)
    assert len({(name, machine_named(name).name) for name in names}) == len(set(names))


def test_the_names_of_the_lock_and_of_the_images_are_names_of_machines() -> None:
    assert [machine_named(key).lock for key in MACHINES] == list(MACHINES)
    assert {machine_named(name).image for name in KINDS} == set(KINDS)
    assert kind_named("s5000") is kind_named("musa")
    assert kind_named("rehearsal") is kind_named("cpu")


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(OperatorError) as caught:
        machine_named("s500")
    assert "did you mean s5000" in caught.value.message
    assert names_shown() in caught.value.fix and "s5000 (musa)" in caught.value.fix


def test_a_machine_that_trains_nothing_has_neither_profile_nor_image() -> None:
    with pytest.raises(OperatorError) as caught:
        _ = machine_named("operator").profile
    assert "h20" in caught.value.fix and "operator" not in caught.value.fix
    with pytest.raises(OperatorError) as caught:
        kind_named("operator")
    assert "s5000 (musa)" in caught.value.fix and "operator" not in caught.value.fix


@pytest.mark.parametrize(
    ("device", "name"), [("mtgpu.0", "s5000"), ("nvidia3", "h20"), ("nvidiactl", "cpu")]
)
def test_device_files_suggest_a_machine(tmp_path: Path, device: str, name: str) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / device).touch()
    assert guess_machine(tmp_path)[0].name == name


def test_a_lock_takes_any_name_and_keeps_its_own() -> None:
    old, new = (parse_lock(LOCK.format(names=names)) for names in ('"musa"', '"s5000"'))
    assert new.tree["tool"].machines == ("musa",)
    assert machine_hash(old, "musa") == machine_hash(new, "musa")
    with pytest.raises(LockError) as caught:
        parse_lock(LOCK.format(names='"musta"'))
    assert "did you mean musa" in caught.value.message and "h20" in caught.value.message


def test_a_site_file_names_the_machine_under_both_keys(tmp_path: Path) -> None:
    path = tmp_path / "site.toml"
    for key in ("machine", "profile"):
        path.write_text(f'{key} = "musa"\n')
        assert load_site(path).machine == "musa"


@pytest.mark.parametrize(
    "words",
    [
        ["setup"],
        ["lock", "verify"],
        ["bundle", "create", "x.bundle"],
        ["doctor"],
        ["cluster", "up", "hosts"],
        ["train", "hy3", "hosts"],
        ["image", "verify"],
        ["image", "build"],
        ["image", "save", "x.tar"],
        ["init"],
    ],
    ids=" ".join,
)
def test_every_command_refuses_an_unknown_machine_alike(words: list[str], tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("nowhere.invalid slots=8\n")
    given = [str(tmp_path / word) if word == "hosts" else word for word in words]
    done = CliRunner().invoke(app, [*given, "--machine", "h2O"])
    assert done.exit_code == 1
    assert "unknown machine, did you mean h20" in " ".join(done.output.split())


def test_two_names_of_one_machine_are_one() -> None:
    assert one_of("s5000", "musa") == "s5000" and one_of(None, "cpu") == "cpu"
    assert one_of(None, None) is None
    with pytest.raises(OperatorError):
        one_of("s5000", "h20")


def test_the_old_option_is_still_taken(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("n1 slots=8\n")
    for words in (["doctor", str(hosts), "--profile", "toaster"], ["image", "verify", "toaster"]):
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 1 and "unknown machine" in done.output


@pytest.mark.parametrize("vendor", accelerators(), ids=lambda vendor: vendor.vendor)
def test_the_parts_of_a_vendor_agree(vendor: object) -> None:
    module = __import__(f"reprise.machines.{vendor.vendor}", fromlist=["ACCELERATOR"])  # type: ignore[attr-defined]
    assert module.ACCELERATOR is vendor
