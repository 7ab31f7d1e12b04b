"""Names of Hy3 weights: how transformers calls them at run time, how checkpoints and vLLM do.

transformers' ``hy_v3`` keeps other names in memory than in a checkpoint and converts on load and
save (``transformers/conversion_mapping.py``, 5.6.0). verl sends the names in memory; vLLM's
``HYV3ForCausalLM.load_weights`` knows those of the checkpoint.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

MODEL_TYPE = "hy_v3"

#: (name in memory, name in the checkpoint), as parts of a full weight name.
RENAMED = (
    (".mlp.gate.weight", ".mlp.router.gate.weight"),
    (".mlp.e_score_correction_bias", ".mlp.expert_bias"),
    (".mlp.shared_experts.", ".mlp.shared_mlp."),
)

_PACKED_UP = ".mlp.experts.gate_up_proj"
_PACKED_DOWN = ".mlp.experts.down_proj"


def checkpoint_name(name: str) -> str:
    """Return the checkpoint's name of a weight; a name that is one already stays."""
    for runtime, checkpoint in RENAMED:
        name = name.replace(runtime, checkpoint)
    return name


def checkpoint_weights(
    weights: "Iterable[tuple[str, torch.Tensor]]",
) -> "Iterator[tuple[str, torch.Tensor]]":
    """Yield Hy3 weights under the names, and cut into the pieces, that a checkpoint has.

    Packed experts ``gate_up_proj`` [experts, 2 x intermediate, hidden] and ``down_proj``
    [experts, hidden, intermediate] become one matrix an expert; what verl has cut already passes.
    """
    for name, tensor in weights:
        if name.endswith(_PACKED_UP) and tensor.dim() == 3:
            base = name.removesuffix(".gate_up_proj")
            gate, up = tensor.chunk(2, dim=1)
            for expert in range(tensor.size(0)):
                yield f"{base}.{expert}.gate_proj.weight", gate[expert].contiguous()
                yield f"{base}.{expert}.up_proj.weight", up[expert].contiguous()
        elif name.endswith(_PACKED_DOWN) and tensor.dim() == 3:
            base = name.removesuffix(".down_proj")
            for expert in range(tensor.size(0)):
                yield f"{base}.{expert}.down_proj.weight", tensor[expert].contiguous()
        else:
            yield checkpoint_name(name), tensor
