"""A small job with one rank on each of NODES hosts: steps, checkpoints, metrics of the driver.

A rank whose host has the file /tmp/bad does what that file says: "hang", "path" (it opens a file
that its host lacks), or anything else: it reports what CUDA reports of a GPU with a memory error.
"""

import json
import os
import socket
import sys
import time
from pathlib import Path

import ray
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy
from saved import saved_step

TOTAL, FREQ = 6, 2
NODES = int(os.environ["NODES"])
FOLDER = Path(os.environ["CHECKPOINTS"])


@ray.remote(num_gpus=1)
class Rank:
    def host(self) -> str:
        return socket.gethostname()

    def step(self) -> float:
        what = bad.read_text(encoding="utf-8") if (bad := Path("/tmp/bad")).exists() else ""
        if what == "hang":
            time.sleep(3600)
        if what == "path":
            Path("/mnt/share/data/train.parquet").read_bytes()
        if what:
            raise RuntimeError("CUDA error: uncorrectable ECC error encountered")
        return 0.1


def main() -> None:
    given = dict(word.split("=", 1) for word in sys.argv[1:] if "=" in word)
    resume = given.get("trainer.resume_from_path", "global_step_0").strip("'")
    step = int(resume.rsplit("_", 1)[1])
    ray.init()
    group = placement_group([{"GPU": 1, "CPU": 1}] * NODES, strategy="STRICT_SPREAD")
    strategy = PlacementGroupSchedulingStrategy(placement_group=group)
    ranks = [Rank.options(scheduling_strategy=strategy).remote() for _ in range(NODES)]
    print("hosts", sorted(ray.get([rank.host.remote() for rank in ranks])), flush=True)
    with Path(os.environ["VERL_FILE_LOGGER_PATH"]).open("w", buffering=1) as log:
        while step < TOTAL:
            step += 1
            time.sleep(float(os.environ.get("SECONDS_A_STEP", "0.5")))
            ray.get([rank.step.remote() for rank in ranks])
            if step % FREQ == 0:
                saved_step(FOLDER, step, ranks=1)
                (FOLDER / "latest_checkpointed_iteration.txt").write_text(str(step))
            data = {"critic/rewards/mean": step / 10, "timing_s/step": 0.1}
            log.write(json.dumps({"step": step, "data": data}) + "\n")
            print(f"step:{step} - critic/rewards/mean:{step / 10} - timing_s/step:0.1", flush=True)


main()
