"""Entry point ``sglang.srt.plugins``: SGLang calls ``register`` in each of its processes.

The scheduler holds the model. The guard begins with the first tensors that reach its model runner
and ends with the first batch after them: verl sends all buckets of an update before it generates.
SGLang logs an ``Exception`` of a plug-in and goes on, so a mismatch leaves as ``SystemExit``.
"""

import functools
import importlib
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

from reprise_plugins.bridge import BridgeMismatchError
from reprise_plugins.bridges import BY_NAME
from reprise_plugins.switches import SwitchError
from reprise_plugins.written import DIGESTS, FAIL, Guard, UnwrittenError, digests, keep, mode

ENGINE = "SGLang"


def register() -> None:
    """Plug the guard into the scheduler where ``REPRISE_WRITTEN`` asks for it."""
    try:
        how = mode()
        if not how or not BY_NAME["written-sglang"].require():
            return
    except (BridgeMismatchError, SwitchError) as problem:
        raise SystemExit(f"reprise-plugins: {problem}") from None
    runner = importlib.import_module("sglang.srt.model_executor.model_runner")
    scheduler = importlib.import_module("sglang.srt.managers.scheduler")
    watch(runner.ModelRunner, scheduler.Scheduler, how)


def loaded(scheduler: Any) -> None:
    """Record, once, the digests of weights that the engine has read from a checkpoint itself."""
    if getattr(scheduler, "reprise_loaded", False):
        return
    scheduler.reprise_loaded = True
    named = list(scheduler.tp_worker.model_runner.model.named_parameters())
    rank = int(getattr(scheduler, "tp_rank", 0) or 0)
    record = {"engine": ENGINE, "rank": rank, "pid": os.getpid(), "loaded": True}
    keep({**record, "parameters": len(named), "digests": digests(named)})


def end_server() -> None:
    """End the Ray actor that started this scheduler, so that the job fails now.

    SGLang sends its parent SIGQUIT, which does not end verl's server actor: on an H200 the driver
    waited for its 256 answers for ever.
    """
    pid = os.getppid()
    while pid > 1:
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
            status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return
        if command.startswith(b"ray::"):
            os.kill(pid, signal.SIGKILL)
            return
        pid = int(status.partition("\nPPid:")[2].split()[0])


def watch(runner: Any, scheduler: Any, how: str) -> None:
    """Wrap ``ModelRunner.update_weights_from_tensor`` and ``Scheduler.run_batch``."""
    guards: dict[int, tuple[Guard, Any]] = {}
    load, run = runner.update_weights_from_tensor, scheduler.run_batch

    @functools.wraps(load)
    def update_weights_from_tensor(self: Any, *args: Any, **kwargs: Any) -> Any:
        if id(self) not in guards:
            guard = Guard(ENGINE, how)
            guard.rank = int(getattr(self, "tp_rank", 0) or 0)
            guards[id(self)] = (guard, self.model)
        guard, model = guards[id(self)]
        guard.begin(model.named_parameters())
        return load(self, *args, **kwargs)

    @functools.wraps(run)
    def run_batch(self: Any, *args: Any, **kwargs: Any) -> Any:
        arguments = getattr(self, "server_args", None)
        try:
            if not guards and getattr(arguments, "load_format", None) == "dummy" and how == FAIL:
                raise UnwrittenError(
                    "a batch came before any weight update, and the weights are random "
                    "(load_format=dummy)"
                )
            if not guards and os.environ.get(DIGESTS, "").strip() == "1":
                loaded(self)
            for guard, model in guards.values():
                guard.end(model.named_parameters())
        except UnwrittenError:
            traceback.print_exc()
            sys.stderr.flush()
            end_server()
            raise
        return run(self, *args, **kwargs)

    runner.update_weights_from_tensor = update_weights_from_tensor
    scheduler.run_batch = run_batch
