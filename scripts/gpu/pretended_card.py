"""The inner half of check_without_card.py: import modules as if there were a GPU.

    python pretended_card.py JOB.json      writes answer.json beside it: what does not hold, a list

Run by the environment's own interpreter. The card is an H200 as far as torch is asked about it;
nothing can be computed on it.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.abc
import importlib.machinery
import json
import sys
import time
import traceback
import types
import typing
from pathlib import Path

# Only a machine with a GPU builds it; torch's own are real.
UNBUILT = "transformer_engine_torch"
MIB = 1 << 20
MEMORY_MIB = 143771


class Pretended(types.ModuleType):
    """A module in which every name is a class without anything in it."""

    __path__: typing.ClassVar[list[str]] = []

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)

        class Anything(type):
            def __getattr__(cls, attribute: str) -> int:
                if attribute.startswith("__"):
                    raise AttributeError(attribute)
                return 0

        return Anything(name, (), {"__init__": lambda *_, **__: None})


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the extension that is not built here."""

    def find_spec(self, name: str, *_: object) -> importlib.machinery.ModuleSpec | None:
        """A pretended module for UNBUILT and what is below it."""
        if name.partition(".")[0] != UNBUILT:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        """The module itself."""
        return Pretended(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """There is nothing to run."""


def pretend() -> None:
    """Let torch answer for one H200."""
    import torch

    card = types.SimpleNamespace(
        major=9,
        minor=0,
        name="NVIDIA H200",
        total_memory=MEMORY_MIB * MIB,
        multi_processor_count=132,
    )
    torch.cuda.is_available = lambda: True
    torch.cuda.device_count = lambda: 1
    torch.cuda.current_device = lambda: 0
    torch.cuda.get_device_capability = lambda *_: (card.major, card.minor)
    torch.cuda.get_device_properties = lambda *_: card
    torch.cuda.get_device_name = lambda *_: card.name
    torch.cuda.mem_get_info = lambda *_: (card.total_memory, card.total_memory)
    sys.meta_path.append(Finder())
    try:
        import transformer_engine.common as te
    except ImportError:
        return
    te.load_framework_extension = lambda *_, **__: None


def imported(name: str) -> str:
    """Import a module; what went wrong, or ''."""
    began = time.monotonic()
    try:
        importlib.import_module(name)
    except BaseException as error:
        frames = [f for f in traceback.extract_tb(error.__traceback__) if "importlib" not in f[0]]
        where = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "?"
        said = (str(error).splitlines() or [""])[0][:300]
        return f"import {name}: {type(error).__name__}: {said} ({where})"
    print(f"import {name}: {time.monotonic() - began:.1f} s", flush=True)
    return ""


class Reached(BaseException):
    """The engine's arguments are complete; what follows needs the card."""


def sglang_arguments(config: dict, model: str) -> str:
    """Let verl start SGLang with `config` up to its first process; what went wrong, or ''."""
    from omegaconf import OmegaConf
    from sglang.srt import server_args
    from verl.utils.config import omega_conf_to_dataclass
    from verl.workers.rollout.replica import RolloutMode
    from verl.workers.rollout.sglang_rollout import async_sglang_server as module

    for name in ("get_device_memory_capacity",):
        for holder in (server_args, importlib.import_module("sglang.srt.utils.common")):
            if hasattr(holder, name):
                setattr(holder, name, lambda *_, **__: MEMORY_MIB)
    taken: dict[str, object] = {}
    real = module.ServerArgs

    class Arguments(real):  # type: ignore[misc, valid-type]
        def __init__(self, **given: object) -> None:
            real.__init__(self, **given)
            taken.update(given)
            raise Reached

    module.ServerArgs = Arguments
    actor = config["actor_rollout_ref"]
    server = module.SGLangHttpServer.__new__(module.SGLangHttpServer)
    server.config = omega_conf_to_dataclass(OmegaConf.create(actor["rollout"]))
    server.model_config = types.SimpleNamespace(
        local_path=model or actor["model"]["path"],
        trust_remote_code=bool(actor["model"].get("trust_remote_code")),
        lora_rank=0,
    )
    server.rollout_mode = RolloutMode.HYBRID
    server.nnodes, server.node_rank, server.base_gpu_id = 1, 0, 0
    server._disaggregation_role = "null"
    try:
        asyncio.run(server.launch_server())
    except Reached:
        shown = {
            k: v for k, v in taken.items() if k not in ("model_path", "json_model_override_args")
        }
        print(f"SGLang takes {json.dumps(shown, default=str, sort_keys=True)}", flush=True)
        return ""
    except Exception as error:
        return f"SGLang refuses its arguments: {type(error).__name__}: {error}"
    finally:
        module.ServerArgs = real
    return "verl started SGLang without arguments"


def main() -> None:
    """Do the job, write the answer."""
    file = Path(sys.argv[1])
    job = json.loads(file.read_text(encoding="utf-8"))
    pretend()
    wrong = [text for name in job["modules"] if (text := imported(name))]
    for name in job["configs"]:
        config = json.loads(Path(name).read_text(encoding="utf-8"))
        if config["actor_rollout_ref"]["rollout"]["name"] == "sglang":
            try:
                text = sglang_arguments(config, job["model"])
            except BaseException as error:
                text = f"{type(error).__name__}: {error}"
            wrong += [f"{name}: {text}"] if text else []
    file.with_name("answer.json").write_text(json.dumps(wrong))


if __name__ == "__main__":
    main()
