"""Which bridges the environment asks for.

``VERL_PLATFORM=cpu`` (verl's own variable) asks for every part that a CPU needs. On any other
platform ``REPRISE_BRIDGES`` asks for single ones: a comma-separated list of ``hy_v3_names`` and
``padding``. ``REPRISE_SEED=<n>`` is read by ``reprise_plugins.rollout`` alone.
"""

import os
from collections.abc import Mapping

CPU = "cpu"
HY_V3_NAMES = "hy_v3_names"
PADDING = "padding"

#: The switches that ``REPRISE_BRIDGES`` knows.
SELECTABLE = (HY_V3_NAMES, PADDING)


class SwitchError(Exception):
    """An environment variable of ours has a value that means nothing."""


def asked(environ: Mapping[str, str] | None = None) -> frozenset[str]:
    """Return the switches that the environment turns on.

    Raises ``SwitchError`` for an unknown name in ``REPRISE_BRIDGES``: a misspelt bridge that is
    silently left out shows up hours later as a hang.
    """
    environ = os.environ if environ is None else environ
    names = {name.strip() for name in environ.get("REPRISE_BRIDGES", "").split(",")} - {""}
    unknown = sorted(names - set(SELECTABLE))
    if unknown:
        raise SwitchError(
            f"REPRISE_BRIDGES names {', '.join(unknown)}; known are {', '.join(SELECTABLE)}. "
            "The parts for a CPU are asked for with VERL_PLATFORM=cpu."
        )
    if environ.get("VERL_PLATFORM", "").strip().lower() == CPU:
        names |= {CPU, *SELECTABLE}
    return frozenset(names)
