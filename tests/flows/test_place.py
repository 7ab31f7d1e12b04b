"""The place of a job: enough nodes, the address that is typed, the Ray of a run's own."""

from pathlib import Path

import pytest

from reprise.core.errors import CannotTell, OperatorError
from reprise.core.project import find_project
from reprise.flows.train.place import Need, Private, address_of, wait_for_nodes
from reprise.runs.ray.nodes import list_nodes
from reprise.runs.ray.processes import marked
from reprise.runs.state.folder import RunFolder
from tests.flows.command import wait

pytestmark = pytest.mark.rehearsal


def test_a_private_ray_is_made_anew_and_leaves_nothing(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path, "rehearsal", {})
    said: list[str] = []
    place = Private(find_project().rehearsal_python, said.append)
    try:
        place.ready(run, Need(1, 2))
        facts = run.read()
        address, token_file = facts.address, facts.token_file
        # The list is filled some seconds after the Jobs API answers.
        token = Path(token_file).read_text(encoding="utf-8")
        (node,) = wait(lambda: list_nodes(address, token), 30)
        assert node.alive and node.gpus == 2

        wait_for_nodes(address, token_file, Need(1, 2), 0, said.append)
        with pytest.raises(CannotTell) as caught:
            wait_for_nodes(address, token_file, Need(2, 2), 0, said.append)
        assert "1 of 2 nodes with 2 GPUs are alive" in caught.value.message
        with pytest.raises(OperatorError) as refused:
            list_nodes(address, "0" * 64)
        assert refused.value.rule == "run-token"

        # What a killed command left is replaced, not added to.
        Private(place.python, said.append).ready(run, Need(1, 1))
        assert run.read().address != address
        with pytest.raises(CannotTell):
            list_nodes(address, Path(run.read().token_file).read_text(encoding="utf-8"))
    finally:
        place.release(run)
    assert marked(run.name) == []
    facts = run.read()
    assert (facts.address, facts.token_file, facts.ray) == (None, None, None)
    place.release(run)


def test_the_token_of_an_address(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("RAY_AUTH_TOKEN_PATH", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert address_of("head:8265") == ("http://head:8265", None, "http:// was added")
    usual = tmp_path / ".ray" / "auth_token"
    usual.parent.mkdir()
    usual.write_text("x")
    assert address_of("http://head:8265")[1] == str(usual)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", "/elsewhere")
    assert address_of("http://127.0.0.1:8265")[1] == "/elsewhere"
    with pytest.raises(OperatorError):
        address_of("head:6379")
