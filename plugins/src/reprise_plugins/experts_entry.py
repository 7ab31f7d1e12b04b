"""Entry point ``verl.plugins``: importing this module plugs in ``reprise_plugins.experts``.

verl hides an ``Exception`` of a plug-in and goes on; a mismatch leaves as ``SystemExit``.
"""

from reprise_plugins.bridge import BridgeMismatchError
from reprise_plugins.experts import activate
from reprise_plugins.switches import SwitchError

try:
    activate()
except (BridgeMismatchError, SwitchError) as problem:
    raise SystemExit(f"reprise-plugins: {problem}") from None
