"""The tiny model, built once and cached under a name derived from its inputs."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from reprise.core.errors import OperatorError
from reprise.core.files import hold_lock, sha256_file, sha256_text
from reprise.rehearsal.shapes import ARCHITECTURES, DEFAULT_ARCH

__all__ = [
    "BUILDER",
    "ModelSettings",
    "TinyModel",
    "ensure_model",
    "locked_versions",
    "model_key",
]

BUILDER = Path(__file__).with_name("build_model.py")
COMPUTING = ("torch", "transformers", "tokenizers")
GRACE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """Inputs of the weights; each field is the option of the same name of build_model.py.

    `arch` is one of ARCHITECTURES; `steps` and `noisy_steps` count supervised steps of `batch`
    rows; `wrong` is the share of wrong answers in the noisy ones; `lr` the highest learning rate.
    `head_dim` 0 is a quarter of `hidden`.
    """

    arch: str = DEFAULT_ARCH
    model_seed: int = 0
    steps: int = 500
    noisy_steps: int = 100
    batch: int = 64
    lr: float = 2e-3
    wrong: float = 0.5
    hidden: int = 128
    layers: int = 3
    head_dim: int = 0

    def arguments(self) -> list[str]:
        """The settings as command line options."""
        return [f"--{name.replace('_', '-')}={value}" for name, value in asdict(self).items()]


@dataclass(frozen=True, slots=True)
class TinyModel:
    """A built model: its folder and the SHA-256 of its weights (64 hex digits)."""

    path: Path
    sha256: str


def locked_versions(requirements: Path) -> dict[str, str]:
    """The versions of the packages that compute the weights, as a requirements file pins them.

    Raises OperatorError when one of them is not pinned there, OSError when it cannot be read.
    """
    pins = dict(
        re.findall(
            r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", requirements.read_text(encoding="utf-8"), re.M
        )
    )
    missing = [name for name in COMPUTING if name not in pins]
    if missing:
        raise OperatorError(
            "rehearsal-versions.unpinned",
            str(requirements),
            packages=", ".join(missing),
        )
    return {name: pins[name] for name in COMPUTING}


def model_key(settings: ModelSettings, train_sha256: str, versions: Mapping[str, str]) -> str:
    """The name of a built model: architecture and 16 hex digits over all its inputs.

    These are the builder's source, the shape, the settings, the training file and the locked
    versions of the packages that compute. The processor is not part of it: another kind may round
    otherwise, so provenance.json records the digest of the resulting weights.
    """
    content = {
        "builder": sha256_file(BUILDER),
        "shape": asdict(ARCHITECTURES[settings.arch]),
        "settings": asdict(settings),
        "train": train_sha256,
        "versions": dict(versions),
    }
    return f"{settings.arch}-{sha256_text(json.dumps(content, sort_keys=True))[:16]}"


def ensure_model(
    cache: Path,
    python: Path,
    train: Path,
    versions: Mapping[str, str],
    on_line: Callable[[str], None] | None = None,
    settings: ModelSettings | None = None,
    again: bool = False,
) -> TinyModel:
    """Return the model in the folder `cache`; build it with the interpreter `python` if missing.

    `python` is the rehearsal environment's, `train` the toy training file, `versions` what
    `locked_versions` gives; `on_line` gets lines of progress. After an interrupted build
    the next call starts from the beginning. Two calls at once build
    once. A kept model whose weights no longer have the recorded digest is built again, and any
    with `again`.

    Raises OperatorError when the interpreter or the training file is missing or the build fails.
    """
    if not python.is_file():
        raise OperatorError("rehearsal-python.missing", str(python))
    if not train.is_file():
        raise OperatorError("toy-data.missing", str(train))
    chosen = settings or ModelSettings()
    cache.mkdir(parents=True, exist_ok=True)
    key = model_key(chosen, sha256_file(train), versions)
    folder = cache / key
    with _alone(cache / f".{key}.lock") as lock:
        digest = None if again else _sound(folder)
        if digest is None:
            _clear(cache, key)
            command = _command(folder, python, train, chosen)
            _build(folder, command, on_line or (lambda line: None), lock)
            digest = _sound(folder)
    if digest is None:
        raise OperatorError("rehearsal-model.weights", str(folder))
    return TinyModel(folder, digest)


@contextlib.contextmanager
def _alone(lock: Path) -> Iterator[int]:
    """Hold an exclusive lock, waiting for another process that builds the same model.

    Gives the lock's file descriptor: whoever inherits it holds the lock too.
    """
    with lock.open("a") as file:
        hold_lock(file.fileno(), lambda: None)
        yield file.fileno()


def _sound(folder: Path) -> str | None:
    """The digest of the weights when it is the one that provenance.json records, else None."""
    try:
        record = json.loads((folder / "provenance.json").read_bytes())
        digest = sha256_file(folder / "model.safetensors")
    except (OSError, ValueError):
        return None
    recorded = record.get("weights_sha256") if isinstance(record, dict) else None
    return digest if digest == recorded else None


def _clear(cache: Path, key: str) -> None:
    """Remove the remains of a killed build of this model, and the model if it is damaged."""
    for left in (cache / key, *cache.glob(f".{key}.*.part")):
        if left.exists():
            shutil.rmtree(left)


def _command(folder: Path, python: Path, train: Path, settings: ModelSettings) -> list[str]:
    return [str(python), str(BUILDER), str(folder), f"--train={train}", *settings.arguments()]


def _build(folder: Path, command: list[str], on_line: Callable[[str], None], lock: int) -> None:
    log = folder.parent / f".{folder.name}.log"
    environment = os.environ | {
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "PYTHONUNBUFFERED": "1",
    }
    with log.open("wb") as errors:
        # A session of its own: Ctrl-C reaches us alone, and we end the builder ourselves. Should
        # we be killed, the builder keeps the lock until it ends: a second call waits for it.
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=environment,
            start_new_session=True,
            pass_fds=(lock,),
        )
        with _ended(process):
            assert process.stdout is not None
            for event in _events(process.stdout):
                if "loss" in event:
                    on_line(f"supervised step {event['step']} of {event['of']}")
            code = process.wait()
    if code != 0:
        raise OperatorError(
            "rehearsal-model.builder-failed", str(log), code=code, reason=_last_line(log)
        )
    log.unlink()


@contextlib.contextmanager
def _ended(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Stop the builder, however the block ends."""
    try:
        yield
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if process.stdout is not None:
            process.stdout.close()


def _events(stream: IO[bytes]) -> Iterator[dict[str, Any]]:
    """The builder's JSON lines; other lines, which libraries print, are skipped."""
    for line in stream:
        with contextlib.suppress(ValueError):
            event = json.loads(line)
            if isinstance(event, dict):
                yield event


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1].strip() if lines else "no output"
