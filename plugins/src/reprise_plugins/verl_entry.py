"""Entry point ``verl.plugins``: importing this module prepares a verl process.

verl imports it at the end of ``import verl``, in the driver and in every Ray worker. Nothing is
done unless the environment asks (``reprise_plugins.switches``). verl hides an ``Exception`` of a
plug-in in its debug log and goes on, and the run then hangs or fails far from the cause; so a
mismatch leaves as ``SystemExit``, which ends the driver at once with the message.
"""

import importlib
import os

from reprise_plugins import replacements, switches, vllm_name
from reprise_plugins.bridge import BridgeMismatchError
from reprise_plugins.bridges import BRIDGES, BY_NAME

#: What to do for each bridge that is not plugged in by verl's configuration or by vLLM.
ACTIONS = {
    "vllm-name": vllm_name.install,
    "platform": lambda: importlib.import_module("reprise_plugins.platform_cpu"),
    "process-group": replacements.process_group,
    "padding": replacements.padding,
    "fused-moe-name": replacements.fused_moe_name,
}


def activate() -> None:
    """Check every bridge that is asked for, then build those that apply.

    Raises ``SwitchError`` or ``BridgeMismatchError``.
    """
    asked = switches.asked()
    applying = {
        bridge.name: bridge.require() for bridge in BRIDGES if asked.intersection(bridge.switch)
    }
    for name, action in ACTIONS.items():
        if applying.get(name):
            action()
    if switches.HY_V3_NAMES in asked and switches.CPU not in asked:
        # On a GPU verl has an engine of its own; its variable for vendors selects ours.
        os.environ.setdefault("VERL_ENGINE_VENDOR", "reprise")
        importlib.import_module("reprise_plugins.engine")


try:
    activate()
except (BridgeMismatchError, switches.SwitchError) as problem:
    raise SystemExit(f"reprise-plugins: {problem}") from None

__all__ = ["ACTIONS", "BY_NAME", "activate"]
