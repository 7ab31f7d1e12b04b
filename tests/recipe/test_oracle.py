"""Real bash says what the reader must say: no argument wrong, nothing unknown without a reason."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.recipe.oracle import Agreement, Sandbox, agreement, available

SCRIPTS = Path(__file__).parent / "scripts" / "bash"


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Sandbox:
    if not available():
        pytest.skip("this machine makes no namespaces for a user")
    made = Sandbox(tmp_path_factory.mktemp("root"))
    for script in SCRIPTS.glob("*.sh"):
        shutil.copyfile(script, made.root / "w" / script.name)
    return made


@pytest.mark.parametrize("script", sorted(SCRIPTS.glob("*.sh")), ids=lambda path: path.stem)
def test_the_arguments_are_those_of_bash(sandbox: Sandbox, script: Path) -> None:
    # The copy: the checkout's own path may hold a blank, at which bash splits words.
    folder = sandbox.root / "w"
    found: Agreement = agreement(folder / script.name, script.name, sandbox, folder)
    assert found.commands > 0
    assert found.differences == []
    assert (found.wrong, found.known_to_bash) == (0, 0)


def test_the_oracle_sees_a_wrong_argument(sandbox: Sandbox, tmp_path: Path) -> None:
    place = sandbox.root / "w" / "other.sh"
    place.write_text("python3 -m verl.trainer.main_ppo a=1\n")
    script = tmp_path / "other.sh"
    script.write_text("python3 -m verl.trainer.main_ppo a=2\n")
    assert agreement(script, "other.sh", sandbox, tmp_path).wrong == 1


def test_a_script_reaches_nothing_outside(sandbox: Sandbox, tmp_path: Path) -> None:
    place = sandbox.root / "w" / "reach.sh"
    place.write_text(
        f"echo x > {tmp_path}/mark\n"
        "exec 3<>/dev/tcp/127.0.0.1/22 && python3 connected\n"
        f"[ -e {tmp_path} ] && python3 outside\n"
        "for pid in /proc/[0-9]*; do [ -d $pid ] && python3 process $pid; done\n"
        "python3 end\n"
    )
    assert sandbox.run("reach.sh") == [["python3", "end"]]
    assert not (tmp_path / "mark").exists()
