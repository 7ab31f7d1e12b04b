"""Entry point ``vllm.general_plugins``: vLLM calls ``register`` in each of its processes."""

from reprise_plugins import switches
from reprise_plugins.bridges import BY_NAME


def register() -> None:
    """Plug live layers into vLLM when ``VERL_PLATFORM=cpu`` asks for them.

    Raises ``BridgeMismatchError``, which ends the vLLM process with its message.
    """
    if switches.CPU not in switches.asked():
        return
    if BY_NAME["live-weights"].require():
        from reprise_plugins import live_layers

        live_layers.register()
