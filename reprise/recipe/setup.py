"""A composed recipe as the rules and the plan use it: sizes, parallel groups, known facts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from reprise.recipe.config.verltree import VerlTree
from reprise.recipe.model import Model
from reprise.recipe.names import Names
from reprise.recipe.unknowns import any_unknown, guarded

__all__ = ["Known", "Setup"]

_ACTOR = "actor_rollout_ref.actor"
_ROLLOUT = "actor_rollout_ref.rollout"


@dataclass(frozen=True, slots=True)
class Known:
    """Facts known besides the config. None means unknown, and no rule guesses it.

    `rows` and `prompts` are those of the training file, `val_rows` and `val_prompts` of the
    validation file; `gpu_memory` is the memory of a GPU in GiB, `bf16_tflops` its dense peak;
    `runtime_env` is the job's own
    (`runtime_env_file` names it); `shared` are the folders that all nodes share.
    `algorithm` is the chosen file of recipes/algorithms, '' without one.
    `locked_verl` names the locked verl where another one is used instead, `locked_entry` its
    entry of the lock.
    `packaged`: Ray ships the folder that the job is submitted from, so that a relative path is
    inside the unpacked package. `entry` is the module that a script starts, '' for a recipe.
    `foreign`: no recipe is named, so that the lock's machine, images and packages are not those
    of the job.
    """

    rows: int | None = None
    prompts: int | None = None
    val_rows: int | None = None
    val_prompts: int | None = None
    gpu_memory: float | None = None
    bf16_tflops: float | None = None
    runtime_env: Mapping[str, Any] | None = None
    runtime_env_file: str = "runtime_env.yaml"
    shared: tuple[str, ...] | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    names: Mapping[str, Names] = field(default_factory=dict)
    algorithm: str = ""
    locked_verl: str = ""
    locked_entry: str = ""
    packaged: bool = True
    entry: str = ""
    foreign: bool = False


class Setup:
    """The resolved values of a config, and the sizes that follow from them."""

    def __init__(
        self,
        values: Mapping[str, Any],
        tree: VerlTree | None = None,
        model: Model | None = None,
        known: Known | None = None,
    ) -> None:
        self.values = guarded(values) if any_unknown(values) else values
        self.tree = tree
        self.model = model
        self.known = known or Known()

    def get(self, key: str, default: Any = None) -> Any:
        """The value at a dotted key; `default` where the key is missing or null.

        Raises ValueUnknown where the value is not known.
        """
        node: Any = self.values
        for part in key.split("."):
            if not isinstance(node, Mapping) or part not in node:
                return default
            node = node[part]
        return default if node is None else node

    def has(self, key: str) -> bool:
        """Whether the config has the key at all, be its value null."""
        head, _, last = key.rpartition(".")
        node = self.get(head) if head else self.values
        return isinstance(node, Mapping) and last in node

    def integer(self, key: str, default: int = 0) -> int:
        """The integer at `key`; `default` where it is missing or not an integer."""
        value = self.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) else default

    # The machine

    @property
    def gpus_per_node(self) -> int:
        """trainer.n_gpus_per_node."""
        return self.integer("trainer.n_gpus_per_node", 1)

    @property
    def nodes(self) -> int:
        """trainer.nnodes."""
        return self.integer("trainer.nnodes", 1)

    @property
    def world(self) -> int:
        """All GPUs of the trainer's pool."""
        return self.nodes * self.gpus_per_node

    @property
    def rollout_world(self) -> int:
        """GPUs of the rollout: the trainer's, or a pool of its own where they are separate."""
        if self.get("trainer.v1.trainer_mode") != "separate_async":
            return self.world
        each = self.integer(f"{_ROLLOUT}.n_gpus_per_node", self.gpus_per_node)
        return self.integer(f"{_ROLLOUT}.nnodes") * each

    @property
    def all_gpus(self) -> int:
        """GPUs that the job takes at once."""
        apart = self.get("trainer.v1.trainer_mode") == "separate_async"
        return self.world + (self.rollout_world if apart else 0)

    # Training

    @property
    def megatron(self) -> bool:
        """Whether the actor trains with the Megatron engine."""
        return str(self.get(f"{_ACTOR}.strategy")) == "megatron"

    def size(self, name: str, role: str = "actor") -> int:
        """A Megatron parallel size of `role`: tensor, pipeline, context, expert_model, …."""
        return self.integer(f"actor_rollout_ref.{role}.megatron.{name}_parallel_size", 1)

    @property
    def tp(self) -> int:
        """Tensor parallel size of training (1 without Megatron)."""
        return self.size("tensor_model") if self.megatron else 1

    @property
    def pp(self) -> int:
        """Pipeline parallel size of training (1 without Megatron)."""
        return self.size("pipeline_model") if self.megatron else 1

    @property
    def cp(self) -> int:
        """Ranks that share one sequence: context parallel, or Ulysses for FSDP."""
        if self.megatron:
            return self.size("context")
        engine = self.integer(f"{_ACTOR}.fsdp_config.ulysses_sequence_parallel_size", 1)
        return max(engine, self.integer(f"{_ACTOR}.ulysses_sequence_parallel_size", 1))

    @property
    def ep(self) -> int:
        """Expert parallel size."""
        return self.size("expert_model") if self.megatron else 1

    @property
    def etp(self) -> int:
        """Expert tensor parallel size; Megatron uses TP when it is not set."""
        key = f"{_ACTOR}.megatron.expert_tensor_parallel_size"
        return self.integer(key, self.tp) if self.megatron else 1

    @property
    def dp(self) -> int | None:
        """Data parallel size, or None when the world does not divide."""
        group = self.tp * self.pp * self.cp
        return self.world // group if group and self.world % group == 0 else None

    @cached_property
    def override(self) -> Mapping[str, Any]:
        """override_transformer_config of the actor."""
        value = self.get(f"{_ACTOR}.megatron.override_transformer_config", {})
        return value if isinstance(value, Mapping) else {}

    # Batches and lengths

    @property
    def train_batch(self) -> int:
        """Prompts of a step."""
        return self.integer("data.train_batch_size")

    @property
    def mini_batch(self) -> int:
        """Prompts of one optimizer update (verl multiplies it by rollout.n)."""
        return self.integer(f"{_ACTOR}.ppo_mini_batch_size")

    @property
    def n(self) -> int:
        """Responses for each prompt."""
        return self.integer(f"{_ROLLOUT}.n", 1)

    @property
    def dynamic(self) -> bool:
        """Whether micro batches are packed by tokens."""
        return bool(self.get(f"{_ACTOR}.use_dynamic_bsz", False))

    @property
    def prompt(self) -> int:
        """data.max_prompt_length, in tokens."""
        return self.integer("data.max_prompt_length")

    @property
    def response(self) -> int:
        """data.max_response_length, in tokens."""
        return self.integer("data.max_response_length")

    @property
    def length(self) -> int:
        """The longest sequence: prompt and response."""
        return self.prompt + self.response

    @property
    def reference(self) -> bool:
        """Whether verl loads and runs the reference model (ppo/utils.py: need_reference_policy)."""
        return bool(self.get("algorithm.use_kl_in_reward")) or bool(
            self.get(f"{_ACTOR}.use_kl_loss")
        )

    @property
    def critic(self) -> bool:
        """Whether verl trains a critic (ppo/utils.py: need_critic)."""
        stated = self.get("critic.enable")
        if stated is not None:
            return bool(stated)
        return str(self.get("algorithm.adv_estimator")) == "gae"

    # Rollout

    @property
    def engine(self) -> str:
        """The rollout engine: vllm, sglang, …."""
        return str(self.get(f"{_ROLLOUT}.name", ""))

    @property
    def rollout_tp(self) -> int:
        """Tensor parallel size of one rollout server."""
        return self.integer(f"{_ROLLOUT}.tensor_model_parallel_size", 1)

    @property
    def rollout_group(self) -> int:
        """GPUs of one rollout replica: TP x DP x PP."""
        return (
            self.rollout_tp
            * self.integer(f"{_ROLLOUT}.data_parallel_size", 1)
            * self.integer(f"{_ROLLOUT}.pipeline_model_parallel_size", 1)
        )

    # Steps

    @property
    def epoch_steps(self) -> int | None:
        """Steps of an epoch, or None when the number of rows is unknown."""
        if self.known.rows is None or not self.train_batch:
            return None
        most = self.integer("data.train_max_samples", -1)
        rows = min(self.known.rows, most) if most > 0 else self.known.rows
        return rows // self.train_batch

    @property
    def epochs_end(self) -> int | None:
        """Steps after which the epochs end, or None when the number of rows is unknown."""
        steps = self.epoch_steps
        return None if steps is None else steps * self.integer("trainer.total_epochs", 1)

    @property
    def steps(self) -> int | None:
        """Training steps of the run, or None when the number of rows is unknown.

        Training ends at total_training_steps or with the last epoch, whichever comes first
        (verl 0.9.1, trainer_base.py: fit).
        """
        ends = self.epochs_end
        return ends if ends is None else min(ends, self.stated_steps or ends)

    @property
    def stated_steps(self) -> int | None:
        """trainer.total_training_steps, where it is set."""
        return self.integer("trainer.total_training_steps") or None

    @property
    def steps_at_most(self) -> int | None:
        """The steps, or the most that there can be when the number of rows is unknown."""
        return self.stated_steps if self.steps is None else self.steps

    @property
    def last_step(self) -> bool | None:
        """Whether verl reaches the step that it takes for the last one; None if not known.

        With more total_training_steps than the epochs have, is_last_step never comes true: no
        last checkpoint, no last validation.
        """
        if self.stated_steps is None:
            return True
        ends = self.epochs_end
        return None if ends is None else self.stated_steps <= ends
