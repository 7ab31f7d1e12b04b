"""verl's training worker in a process of its own, on one GPU, without Ray and without rollout.

Run by the GPU environment's Python, alone or as one rank of several (ranks.py). The worker is the
class that a run uses, built from the same resolved config; only who calls it differs.
"""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any

MODEL_PLACE = "/<REPRISE_MODEL_DIR>"


def prepare() -> None:
    """Be rank 0 of 1, or what ranks.py says: what Ray's worker group would set."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    for name, value in (
        ("RANK", "0"),
        ("LOCAL_RANK", "0"),
        ("WORLD_SIZE", "1"),
        ("LOCAL_WORLD_SIZE", "1"),
        ("MASTER_ADDR", "127.0.0.1"),
        ("MASTER_PORT", str(port)),
        ("CUDA_DEVICE_MAX_CONNECTIONS", "1"),
    ):
        os.environ.setdefault(name, value)


def rank() -> int:
    """The number of this rank, after `prepare`."""
    return int(os.environ["RANK"])


def own_file(path: Path) -> Path:
    """Where this rank writes: `path` itself for rank 0, else beside it with the rank's number."""
    return path if rank() == 0 else path.with_name(f"{path.stem}-rank{rank()}{path.suffix}")


def save(path: Path, found: Any) -> None:
    """Write `found` as JSON, whole or not at all."""
    half = path.with_name(path.name + ".half")
    half.write_text(json.dumps(found, indent=1) + "\n")
    half.replace(path)


def weights(worker: Any) -> dict[str, Any]:
    """What the worker sends to the rollout, by name, on the host. Every rank must call it."""
    sent, _ = worker.engine.get_per_tensor_param()
    return {name: tensor.float().cpu() for name, tensor in sent}


def read_config(path: Path, model: Path) -> dict[str, Any]:
    """A resolved config with the model's folder in it."""
    text = path.read_text(encoding="utf-8").replace(MODEL_PLACE, str(model))
    return dict(json.loads(text))


def training_worker(config: dict[str, Any], steps: int = 10) -> Any:
    """verl's TrainingWorker of the actor, initialised, as ActorRolloutRefWorker would build it."""
    from omegaconf import OmegaConf
    from verl.utils.config import omega_conf_to_dataclass
    from verl.workers.config import TrainingWorkerConfig
    from verl.workers.engine_workers import TrainingWorker

    role = OmegaConf.create(config["actor_rollout_ref"])
    role.actor.optim.total_training_steps = steps
    model = omega_conf_to_dataclass(role.model)
    actor = omega_conf_to_dataclass(role.actor)
    engine = actor.engine
    engine.use_dynamic_bsz = role.actor.use_dynamic_bsz
    engine.infer_max_token_len_per_gpu = role.rollout.log_prob_max_token_len_per_gpu
    engine.infer_micro_batch_size_per_gpu = role.rollout.log_prob_micro_batch_size_per_gpu
    engine.max_token_len_per_gpu = role.actor.ppo_max_token_len_per_gpu
    engine.micro_batch_size_per_gpu = role.actor.ppo_micro_batch_size_per_gpu
    engine.use_remove_padding = model.get("use_remove_padding", False)
    worker = TrainingWorker(
        TrainingWorkerConfig(
            model_type="language_model",
            model_config=model,
            engine_config=engine,
            optimizer_config=actor.optim,
            checkpoint_config=actor.checkpoint,
        )
    )
    worker.reset()
    return worker


def batch(prompts: list[list[int]], responses: list[list[int]], pad: int) -> Any:
    """Token lists as the TensorDict of verl's engines: prompts left-, answers right-padded."""
    import torch
    from verl import DataProto
    from verl.utils.model import compute_position_id_with_mask
    from verl.workers.utils.padding import left_right_2_no_padding

    before, after = max(map(len, prompts)), max(map(len, responses))
    ids = torch.full((len(prompts), before + after), pad)
    mask = torch.zeros_like(ids)
    for row, (prompt, response) in enumerate(zip(prompts, responses, strict=True)):
        first, last = before - len(prompt), before + len(response)
        ids[row, first:last] = torch.tensor(prompt + response)
        mask[row, first:last] = 1
    fields = {
        "input_ids": ids,
        "prompts": ids[:, :before],
        "responses": ids[:, before:],
        "attention_mask": mask,
        "position_ids": compute_position_id_with_mask(mask),
        "response_mask": mask[:, before:],
    }
    meta = {
        "temperature": 1.0,
        "global_token_num": mask.sum(-1).tolist(),
        "compute_loss": False,
    }
    return left_right_2_no_padding(
        DataProto.from_single_dict(fields, meta_info=meta).to_tensordict()
    )
