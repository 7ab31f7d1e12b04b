"""One real run of six steps for all tests that compare theirs with an uninterrupted one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.flows.command import MODEL, Command


@pytest.fixture(scope="session")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its run folder: seed 1, a checkpoint every two steps, no validation."""
    settings = (
        "trainer.save_freq=2",
        "trainer.test_freq=-1",
        "trainer.val_before_train=false",
        "trainer.total_training_steps=6",
    )
    command = Command(tmp_path_factory.mktemp("uninterrupted"), ["--", MODEL, *settings])
    code, report, err = command.run()
    assert code == 0, (report, err)
    return command.folder().path
