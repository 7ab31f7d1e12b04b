"""Run the doctor's probe as Ray tasks, one a node; a job of a Ray that somebody else started.

Stands alone. task.json beside it: {"script", "first_script", "seconds", "folders", "storage",
"seen", "nonce"}. Nothing is started or stopped; files that it writes to see who sees them are
removed. Each node's answer is one line: a mark, then JSON.
"""

import contextlib
import json
import shlex
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

MARK = "@@reprise-probe "
TASK: dict[str, Any] = json.loads(Path("task.json").read_text(encoding="utf-8"))


def mark_of(folder: str, nonce: str) -> Path:
    """The file by which nodes prove to see the same folder."""
    return Path(folder) / f".reprise-{nonce}"


def storage_mark(task: dict[str, Any]) -> Path:
    """The file that all must see in the folder for the runs: the operator's, else this job's."""
    return Path(task["storage"]) / (task["seen"] or f".reprise-{task['nonce']}-job")


def storage_of(task: dict[str, Any]) -> dict[str, str]:
    """What this node says of the folder for the runs: `seen` (the common mark), `error`."""
    found = {"seen": "", "error": ""}
    folder = Path(task["storage"])
    try:
        found["seen"] = "yes" if storage_mark(task).is_file() else "no"
        if found["seen"] != "no":
            test = folder / f".reprise-{task['nonce']}-{socket.gethostname()}"
            test.write_text("x")
            test.unlink()
    except OSError as error:
        found["error"] = str(error)
    return found


def probe(task: dict[str, Any], node: dict[str, Any], first: bool) -> dict[str, Any]:
    """Run the shell probe on the node that this task was sent to."""
    assigned = f"P_PYTHON={shlex.quote(sys.executable)}\n"
    script = assigned + task["first_script" if first else "script"]
    began = time.time()
    done = None
    with contextlib.suppress(subprocess.TimeoutExpired):
        done = subprocess.run(
            ["sh", "-s"],
            input=script,
            encoding="utf-8",
            errors="replace",
            capture_output=True,
            timeout=task["seconds"],
            check=False,
        )
    return {
        **node,
        "host": socket.gethostname(),
        "code": None if done is None else done.returncode,
        "output": "" if done is None else done.stdout,
        "said": f"no answer within {task['seconds']} s" if done is None else done.stderr[-2000:],
        "began": began,
        "ended": time.time(),
        "shared": {
            name: "yes" if mark_of(path, task["nonce"]).is_file() else "no"
            for name, path in task["folders"].items()
        },
        "storage": storage_of(task),
    }


def main() -> None:
    """Send one task to every living node and print what comes back in time."""
    ray.init(logging_level="ERROR")
    written = []
    if not TASK["seen"]:
        # What cannot be written here, the node's own answer tells.
        with contextlib.suppress(OSError):
            storage_mark(TASK).parent.mkdir(parents=True, exist_ok=True)
            storage_mark(TASK).write_text("x")
    for name, path in TASK["folders"].items():
        with contextlib.suppress(OSError):
            mark_of(path, TASK["nonce"]).write_text("x")
            written.append(name)
    nodes = [node for node in ray.nodes() if node["Alive"]]
    nodes.sort(key=lambda node: "node:__internal_head__" not in node["Resources"])
    remote = ray.remote(num_cpus=0, max_retries=0)(probe)
    asked = {}
    for number, node in enumerate(nodes):
        facts = {
            "node": node["NodeID"],
            "ip": node["NodeManagerAddress"],
            "gpus": node["Resources"].get("GPU", 0),
        }
        where = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        asked[remote.options(scheduling_strategy=where).remote(TASK, facts, not number)] = facts
    ready, _ = ray.wait(list(asked), num_returns=len(asked), timeout=TASK["seconds"] + 60)
    for reference, facts in asked.items():
        answer = {**facts, "written": written}
        try:
            if reference in ready:
                answer.update(ray.get(reference))
        except ray.exceptions.RayError as error:
            answer["said"] = str(error)[-2000:]
        print(MARK + json.dumps(answer), flush=True)
    if not TASK["seen"]:
        with contextlib.suppress(OSError):
            storage_mark(TASK).unlink()
    for name, path in TASK["folders"].items():
        if name in written:
            with contextlib.suppress(OSError):
                mark_of(path, TASK["nonce"]).unlink()


if __name__ == "__main__":
    main()
