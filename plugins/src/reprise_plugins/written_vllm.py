"""Entry point ``vllm.general_plugins``: the guard on the first weight update, for vLLM.

verl's extension of vLLM's worker receives all buckets of an update in one call.
"""

import functools
from typing import Any

from reprise_plugins.bridge import BridgeMismatchError
from reprise_plugins.bridges import BY_NAME
from reprise_plugins.post_import import after_import
from reprise_plugins.switches import SwitchError
from reprise_plugins.written import Guard, mode

ENGINE = "vLLM"


def register() -> None:
    """Plug the guard into verl's worker extension where ``REPRISE_WRITTEN`` asks for it."""
    try:
        how = mode()
        if not how or not BY_NAME["written-vllm"].require():
            return
    except (BridgeMismatchError, SwitchError) as problem:
        raise SystemExit(f"reprise-plugins: {problem}") from None
    after_import("verl.workers.rollout.vllm_rollout.utils", lambda module: watch(module, how))


def watch(module: Any, how: str) -> None:
    """Wrap ``vLLMColocateWorkerExtension.update_weights_from_ipc``; adapters of LoRA pass."""
    extension = module.vLLMColocateWorkerExtension
    receive = extension.update_weights_from_ipc
    guards: dict[int, Guard] = {}

    @functools.wraps(receive)
    def update_weights_from_ipc(
        self: Any, peft_config: Any = None, base_sync_done: bool = False, **kwargs: Any
    ) -> Any:
        if peft_config:
            return receive(self, peft_config, base_sync_done, **kwargs)
        guard = guards.setdefault(id(self), Guard(ENGINE, how))
        guard.rank = int(getattr(self, "rank", 0) or 0)
        guard.begin(self.model_runner.model.named_parameters())
        result = receive(self, peft_config, base_sync_done, **kwargs)
        guard.end(self.model_runner.model.named_parameters())
        return result

    extension.update_weights_from_ipc = update_weights_from_ipc
