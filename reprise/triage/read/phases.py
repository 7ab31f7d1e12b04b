"""The phase of training that a text speaks of: calls, frames and log lines of verl and engines."""

from __future__ import annotations

import re

__all__ = ["PHASES", "last_phase", "phase_in"]

PHASES = (
    "init",
    "rollout",
    "log_prob",
    "update",
    "weight_sync",
    "checkpoint",
    "validation",
    "reward",
)
# verl's worker methods and the frames below them; the first that is found names the phase.
_PHASES = (
    ("weight_sync", r"update_weights|sync_rollout_weights|receive_weights|resume_memory|wake_up"),
    ("checkpoint", r"save_checkpoint|load_checkpoint|dist_checkpointing|save_torch_dist"),
    ("log_prob", r"compute_(?:ref_)?log_prob|compute_old_log_prob"),
    (
        "update",
        r"update_actor|update_policy|update_critic|forward_backward_batch|train_batch\b|"
        r"train_mini_batch|optimizer_step",
    ),
    ("reward", r"compute_score|reward_manager|RewardLoop|compute_reward"),
    (
        "rollout",
        r"generate_sequences|agent_loop|AgentLoop|execute_model|run_engine_core|"
        r"event_loop_(?:overlap|normal)",
    ),
    (
        "init",
        r"init_model|init_workers|init_device|load_model|launch_server|init_cuda_graphs|"
        r"initialize_model_parallel|__init__",
    ),
)
_COMPILED = tuple((name, re.compile(pattern)) for name, pattern in _PHASES)


def phase_in(text: str) -> str:
    """The phase that `text` names, or an empty text."""
    if not text:
        return ""
    return next((name for name, pattern in _COMPILED if pattern.search(text)), "")


def last_phase(text: str) -> str:
    """The phase that the end of `text` speaks of: what a process reported just before."""
    found = [
        (match.end(), name)
        for name, pattern in _COMPILED
        if name != "init"
        for match in pattern.finditer(text)
    ]
    return max(found)[1] if found else ""
