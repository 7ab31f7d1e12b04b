"""The bed of four hosts, once a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.bed import Bed, standing_bed


@pytest.fixture(scope="module")
def bed() -> Iterator[Bed]:
    with standing_bed() as standing:
        yield standing
