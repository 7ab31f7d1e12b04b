"""Packed experts for SGLang: cut apart before verl's FSDP engine sends them.

transformers 5 keeps the experts of a layer as two tensors of three dimensions, ``gate_up_proj`` and
``down_proj``. verl 220e903 cuts them apart for vLLM alone. SGLang's ``load_weights`` passes over
both names without a word, so that with ``load_format=dummy`` the rollout's experts stay random.

``REPRISE_EXPERTS=unpack`` asks for it, ``packed`` or nothing leaves verl as it is.
``reprise_plugins.experts_entry`` is the entry point.
"""

import functools
import os
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from reprise_plugins import hy_v3
from reprise_plugins.bridges import BY_NAME
from reprise_plugins.post_import import after_import
from reprise_plugins.switches import SwitchError

if TYPE_CHECKING:
    import torch

VARIABLE = "REPRISE_EXPERTS"
UNPACK, PACKED = "unpack", "packed"
_SENDER = "verl.workers.rollout.sglang_rollout.sglang_rollout"
_PACKED = (".mlp.experts.gate_up_proj", ".mlp.experts.down_proj")


def asked(environ: Mapping[str, str] | None = None) -> bool:
    """Return whether the environment asks for it. Raises ``SwitchError`` for another value."""
    environ = os.environ if environ is None else environ
    text = environ.get(VARIABLE, "").strip().lower()
    if text not in ("", UNPACK, PACKED):
        raise SwitchError(f"{VARIABLE} is {text!r}; expected {UNPACK} or {PACKED}")
    return text == UNPACK


def pieces(name: str, tensor: "torch.Tensor") -> "Iterator[tuple[str, torch.Tensor]]":
    """Yield one weight as a checkpoint has it: packed experts one matrix each, others unchanged."""
    if name.endswith(_PACKED):
        yield from hy_v3.checkpoint_weights([(name, tensor)])
    else:
        yield name, tensor


async def unpacked(weights: Any) -> "AsyncIterator[tuple[str, torch.Tensor]]":
    """Yield the weights of a synchronous or asynchronous iterator with the experts cut apart."""
    if hasattr(weights, "__aiter__"):
        async for name, tensor in weights:
            for piece in pieces(name, tensor):
                yield piece
    else:
        for name, tensor in weights:
            for piece in pieces(name, tensor):
                yield piece


def wrap(module: Any) -> None:
    """Let SGLang's adapter in verl send what ``unpacked`` makes of the weights."""
    original = module.ServerAdapter.update_weights

    @functools.wraps(original)
    async def update_weights(self: Any, weights: Any, *args: Any, **kwargs: Any) -> Any:
        return await original(self, unpacked(weights), *args, **kwargs)

    module.ServerAdapter.update_weights = update_weights


def activate() -> None:
    """Wait for verl's adapter to be imported, where the environment asks and verl needs it.

    Raises ``SwitchError`` or ``BridgeMismatchError``.
    """
    if asked() and BY_NAME["packed-experts"].require():
        after_import(_SENDER, wrap)
