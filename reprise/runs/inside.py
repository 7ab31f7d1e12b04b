"""Entry point inside a job: secrets, the imported versions, then the trainer's own module.

    python -m reprise.runs.inside verl.trainer.main_ppo --config-name hy3/recipe ...

It runs under the image's interpreter (3.8 or later) from the unpacked package, with the standard
library alone. REPRISE_RUN_DIR is the run folder as the job sees it, REPRISE_ATTEMPT the attempt,
REPRISE_RUN_ID the run, REPRISE_SECRETS_FILE a file of variables that only its owner can read.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import importlib.util
import json
import os
import runpy
import socket
import sys
import time
from pathlib import Path
from typing import Any

__all__ = ["load_secrets", "main"]

# Exit code for a run folder or a secrets file that cannot be used.
_UNUSABLE = 3
# What verl's entry point imports itself: no import is added by looking at them first.
_IMPORTED = ("ray", "torch", "transformers", "tensordict", "verl")
# Distribution by module, for those that only the job's workers import.
_OTHERS = {
    "flash_attn": "flash-attn",
    "mbridge": "mbridge",
    "megatron.bridge": "megatron-bridge",
    "megatron.core": "megatron-core",
    "numpy": "numpy",
    "sglang": "sglang",
    "torch_musa": "torch-musa",
    "transfer_queue": "TransferQueue",
    "transformer_engine": "transformer-engine",
    "vllm": "vllm",
}


def load_secrets() -> None:
    """Put the variables of REPRISE_SECRETS_FILE into this process's environment.

    Ray calls it at the start of every worker (worker_process_setup_hook): the runtime environment,
    which every user of the dashboard sees, names the file only. A worker without the file
    continues: a tracker reports a missing key itself.
    """
    name = os.environ.get("REPRISE_SECRETS_FILE")
    if not name:
        return
    try:
        values = json.loads(Path(name).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        sys.stderr.write(f"reprise: {name}: {type(error).__name__}, secrets were not read\n")
        return
    for key, value in values.items():
        os.environ.setdefault(key, value)


def _fail(message: str) -> None:
    sys.stderr.write(f"reprise: {message}\n")
    raise SystemExit(_UNUSABLE)


def _run_folder() -> Path:
    """The run folder, made if the operator's machine does not share it; proved to be the run's."""
    folder = Path(os.environ["REPRISE_RUN_DIR"])
    expected = os.environ.get("REPRISE_RUN_ID", "")
    host = socket.gethostname()
    try:
        if os.environ.get("REPRISE_RUN_VISIBLE") == "yes":
            found = json.loads((folder / "run.json").read_text(encoding="utf-8")).get("id")
            if found != expected:
                _fail(f"{folder} on {host} is run {found}, not {expected}: storage is not shared")
        for name in ("metrics", "versions"):
            (folder / name).mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        _fail(f"the run folder {folder} cannot be used on {host}: {error}")
    return folder


def _version(module: str, distribution: str) -> dict[str, Any]:
    """Version and place of one module; what is not there has neither."""
    loaded = sys.modules.get(module)
    place = getattr(loaded, "__file__", None)
    if loaded is None:
        with contextlib.suppress(Exception):
            spec = importlib.util.find_spec(module)
            if spec is not None:
                place = spec.origin or ", ".join(spec.submodule_search_locations or [])
    version = getattr(loaded, "__version__", None)
    if version is None:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            version = importlib.metadata.version(distribution)
    return {"version": version, "file": place, "imported": loaded is not None}


def versions(trainer: str) -> dict[str, Any]:
    """What this process imports, and from where; with verl as the trainer, imported first."""
    if trainer.startswith("verl."):
        for name in _IMPORTED:
            # The trainer's own import repeats the failure, with its own traceback.
            with contextlib.suppress(Exception):
                importlib.import_module(name)
    names = {**{name: name for name in _IMPORTED}, **_OTHERS}
    found = {name: _version(name, distribution) for name, distribution in names.items()}
    return {
        "host": socket.gethostname(),
        "python": sys.version.split()[0],
        "executable": sys.executable,
        "directory": str(Path.cwd()),
        "written": time.time(),
        "modules": {name: item for name, item in found.items() if item["file"]},
    }


def _write(path: Path, value: Any) -> None:
    part = path.with_name(f".{path.name}.part")
    with part.open("w", encoding="utf-8") as file:
        json.dump(value, file, indent=2)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def main() -> None:
    """Prepare, then become the module that the first argument names."""
    trainer, arguments = sys.argv[1], sys.argv[2:]
    folder = _run_folder()
    load_secrets()
    number = os.environ.get("REPRISE_ATTEMPT", "1")
    try:
        _write(folder / "versions" / f"attempt-{number}.json", versions(trainer))
    except OSError as error:
        _fail(f"{folder} cannot be written on {socket.gethostname()}: {error}")
    sys.argv = [trainer, *arguments]
    try:
        runpy.run_module(trainer, run_name="__main__", alter_sys=True)
    finally:
        # Every worker that will ever read it has started.
        name = os.environ.get("REPRISE_SECRETS_FILE")
        if name:
            with contextlib.suppress(OSError):
                Path(name).unlink()


if __name__ == "__main__":
    main()
