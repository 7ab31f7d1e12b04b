"""Load a model as a critic the way verl's worker does, through the engine or verl's own loader.

usage: critic.py MODEL [--stock]. MODEL is a checkpoint folder; --stock calls verl's own loader,
which is what a run without the plug-in does. Prints the class, its attention, one forward pass, the
loss before and after an update, and whether the base weights are those of the checkpoint.
"""

import json
import sys

import torch
import verl  # noqa: F401 - activates the plug-ins
from transformers import AutoConfig, AutoModelForCausalLM
from verl.utils.distributed import initialize_global_process_group_ray
from verl.utils.model import load_valuehead_model


def main(folder: str) -> None:
    if "--stock" in sys.argv:
        config = AutoConfig.from_pretrained(folder, attn_implementation="sdpa")
        config.num_labels = 1
        load_valuehead_model(folder, torch.float32, config, False)
        return
    initialize_global_process_group_ray()
    from reprise_plugins.critic import CriticModel
    from verl.trainer.config import CheckpointConfig
    from verl.workers.config import FSDPEngineConfig, FSDPOptimizerConfig
    from verl.workers.engine import EngineRegistry

    model = CriticModel(
        path=folder,
        load_tokenizer=False,
        model_type="value_model",
        override_config={"attn_implementation": "sdpa"},
        use_remove_padding=False,
        enable_gradient_checkpointing=False,
    )
    settings = FSDPEngineConfig(
        strategy="fsdp2",
        use_torch_compile=False,
        model_dtype="fp32",
        mixed_precision={"param_dtype": "fp32"},
    )
    optimizer = FSDPOptimizerConfig(lr=1e-4, total_training_steps=1)
    parts = (model, settings, optimizer, CheckpointConfig())
    names = ("model_config", "engine_config", "optimizer_config", "checkpoint_config")
    engine = EngineRegistry.new("value_model", "fsdp2", **dict(zip(names, parts, strict=True)))
    engine.initialize()
    tokens = torch.randint(2, 100, (3, 7), generator=torch.Generator().manual_seed(0))
    engine.module.train()
    losses = []
    for _ in range(2):
        values = engine.module(input_ids=tokens).logits
        loss = ((values - 1) ** 2).mean()
        losses.append(loss.item())
        loss.backward()
        engine.optimizer.step()
        engine.optimizer.zero_grad()
    answer = {
        "engine": type(engine).__name__,
        "module": type(engine.module).__mro__[2].__name__,
        "attention": engine.module.config._attn_implementation,
        "shape": list(values.shape),
        "losses": losses,
        "settings": [engine.model_config.model_type, model.hf_config.architectures],
        "same": same_base(folder, engine._build_module()),
    }
    print("RESULT " + json.dumps(answer))


def same_base(folder: str, critic: torch.nn.Module) -> bool:
    """Whether a newly loaded critic has the checkpoint's weights in all but its head."""
    mine = critic.state_dict()
    theirs = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).state_dict()
    theirs = {name: value for name, value in theirs.items() if name != "lm_head.weight"}
    assert set(mine) - set(theirs) == {"score.weight", "score.bias"}, set(mine) - set(theirs)
    return all(torch.equal(mine[name], value) for name, value in theirs.items())


if __name__ == "__main__":
    main(sys.argv[1])
