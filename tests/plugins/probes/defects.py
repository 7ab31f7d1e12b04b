"""Each defect around the advantages, on a batch of four answers; prints what became of it."""

import json
import sys

import torch

sys.path.insert(0, sys.argv[1])
import defects


class Data:
    """What verl hands over, as far as the defects read it."""

    def __init__(self) -> None:
        mask = [[1, 1, 1, 0], [1, 1, 0, 0], [1, 0, 0, 0], [1, 1, 1, 1]]
        rewards = [[0, 0, 1, 0], [0, 0, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0]]
        self.batch = {
            "response_mask": torch.tensor(mask),
            "token_level_rewards": torch.tensor(rewards, dtype=torch.float32),
        }


def advantages(data: Data) -> Data:
    scores = data.batch["token_level_rewards"].sum(-1)
    scores = scores - torch.tensor([0.25, 0.5, 0.75, 1.0])
    data.batch["advantages"] = scores.unsqueeze(-1) * data.batch["response_mask"]
    return data


class Node(dict):
    """A node of the configuration: keys as attributes, as OmegaConf has them."""

    __getattr__ = dict.__getitem__
    __setattr__ = dict.__setitem__


class Trainer:
    def __init__(self) -> None:
        actor = Node(optim=Node(lr=2e-4))
        self.config = Node(actor_rollout_ref=Node(actor=actor, rollout=Node(temperature=1.0)))
        self.global_steps = 0
        self.sent = []

    def on_step_end(self) -> None:
        self.sent.append(self.global_steps)

    def on_train_begin(self) -> None:
        pass


found = {}
around = ("advantage-sign", "advantage-of-next", "reward-noise", "reward-tenfold", "mask-late")
for name in ("none", *around):
    defects.trainer_base.compute_advantage_for_multi_trajectories = advantages
    defects.DEFECTS[name](None)
    seen = [defects.trainer_base.compute_advantage_for_multi_trajectories(Data()) for _ in range(9)]
    found[name] = {key: value.tolist() for key, value in seen[0].batch.items()}
    found[name]["rewards"] = [data.batch["token_level_rewards"].sum(-1).tolist() for data in seen]

trainer = Trainer()
for name in ("rate-half", "stale-weights", "temperature"):
    defects.DEFECTS[name](trainer)
for trainer.global_steps in range(1, 15):
    trainer.on_step_end()
found["before"] = trainer.config.actor_rollout_ref.rollout.temperature
trainer.on_train_begin()
found["after"] = trainer.config.actor_rollout_ref.rollout.temperature
found["rate"] = trainer.config.actor_rollout_ref.actor.optim.lr
found["sent"] = trainer.sent
print("RESULT " + json.dumps(found))
