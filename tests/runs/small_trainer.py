"""What verl does on disk, in a second: steps, checkpoints, metrics after them; and faults.

FAULT is "kind:step" and strikes in the first attempt only, unless ALWAYS is set.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

from saved import saved_step

TOTAL = int(os.environ.get("TOTAL", "6"))
FREQ = int(os.environ.get("FREQ", "2"))
FOLDER = Path(os.environ["CHECKPOINTS"])
KIND, _, AT = os.environ.get("FAULT", ":0").partition(":")
STRIKES = os.environ["REPRISE_ATTEMPT"] == "1" or os.environ.get("ALWAYS")


def strike(kind: str, step: int) -> bool:
    return bool(STRIKES) and kind == KIND and step == int(AT)


def die() -> None:
    sys.stdout.flush()
    os.kill(os.getpid(), signal.SIGKILL)


def save(step: int) -> None:
    if strike("die-in-save", step):
        path = saved_step(FOLDER, step, ranks=1)
        (path / "data.pt").unlink()
        die()
    saved_step(FOLDER, step, ranks=1)
    (FOLDER / "latest_checkpointed_iteration.txt").write_text(str(step))
    if strike("die-after-save", step):
        die()


def main() -> None:
    given = dict(word.split("=", 1) for word in sys.argv[1:] if "=" in word)
    print("arguments", sys.argv[1:], flush=True)
    resume = given.get("trainer.resume_from_path", "global_step_0").strip("'")
    step = int(resume.rsplit("_", 1)[1])
    with Path(os.environ["VERL_FILE_LOGGER_PATH"]).open("w", buffering=1) as log:
        while step < TOTAL:
            step += 1
            time.sleep(float(os.environ.get("SECONDS_A_STEP", "0.1")))
            if strike("error", step):
                raise ValueError(os.environ.get("TEXT", "the value is not allowed"))
            if strike("full", step):
                raise OSError(28, "No space left on device", "/shared/x")
            if strike("die", step):
                die()
            if strike("stop", step):
                os.kill(os.getpid(), signal.SIGSTOP)
            while strike("hang", step):
                time.sleep(1)
            if step % FREQ == 0 or step == TOTAL:
                save(step)
            data = {"critic/rewards/mean": step / 10, "timing_s/step": 0.1}
            log.write(json.dumps({"step": step, "data": data}) + "\n")
            print(f"step:{step} - critic/rewards/mean:{step / 10} - timing_s/step:0.1", flush=True)


main()
