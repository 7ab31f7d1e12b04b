"""The matcher with and without its fast library."""

from __future__ import annotations

from itertools import product

import pytest

from reprise.triage.patterns import load_library
from reprise.triage.read import matcher
from reprise.triage.read.matcher import Matcher

LINES = (
    b"Traceback (most recent call last):\n",
    b'  File "a.py", line 3, in main\n',
    b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n",
    b"step:3 - actor/loss:0.1\n",
    b"ValueError: No space left on device\n",
)


def test_without_the_library_it_finds_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    patterns = load_library().patterns
    fast = Matcher(patterns)
    assert fast._database is not None
    monkeypatch.setattr(matcher, "hyperscan", None)
    slow = Matcher(patterns)
    for pair in product(LINES, repeat=2):
        block = b"".join(pair)
        assert slow.find(block) == fast.find(block) != []
