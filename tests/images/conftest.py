"""One engine, one registry and one Debian for all tests of images."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.images.bed import Engine, make_debian, standing_engine
from tests.lock.registry import registry


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    with standing_engine() as standing:
        yield standing


@pytest.fixture(scope="session")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The registry's host:port."""
    with registry(tmp_path_factory.mktemp("registry")) as served:
        yield served.host


@pytest.fixture(scope="session")
def debian(engine: Engine, host: str) -> str:
    """A Debian made of packages, by its digest."""
    return make_debian(engine, host)
