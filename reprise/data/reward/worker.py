"""Run by an environment that has verl: call a recipe's scorer on answers, and time each call.

Reads JSON lines from standard input, the first being {"path", "name", "kwargs"} of a custom
function (path null: verl's built-in one), then {"id", "data_source", "ground_truth", "extra_info",
"answers": {label: text}}. Writes {"ready": ...}, then {"id", "scores": {label: number}, "errors":
{label: text}, "ms": {label: milliseconds}} for each item. Imports nothing of the operator's
package.
"""

from __future__ import annotations

import asyncio
import importlib.util
import inspect
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any


def load(path: str | None, name: str) -> Callable[..., Any]:
    """The custom function `name` of the file `path`, or verl's default_compute_score."""
    if path is None:
        from verl.utils.reward_score import (  # type: ignore[import-not-found]
            default_compute_score,
        )

        return default_compute_score  # type: ignore[no-any-return]
    spec = importlib.util.spec_from_file_location("custom_reward", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules["custom_reward"] = module
    spec.loader.exec_module(module)
    return getattr(module, name)  # type: ignore[no-any-return]


def number(result: object) -> float:
    """The score in a scorer's answer, as verl's reward managers take it."""
    return float(result["score"] if isinstance(result, dict) else result)  # type: ignore[arg-type]


def score(function: Callable[..., Any], item: dict[str, Any], kwargs: dict[str, Any]) -> Any:
    """All answers of one item scored; an exception is kept as text."""
    told: dict[str, Any] = {"id": item["id"], "scores": {}, "errors": {}, "ms": {}}
    for label, text in item["answers"].items():
        start = time.perf_counter()
        try:
            result = function(
                data_source=item["data_source"],
                solution_str=text,
                ground_truth=item["ground_truth"],
                extra_info=dict(item["extra_info"] or {}),
                **kwargs,
            )
            if inspect.isawaitable(result):
                result = asyncio.run(_wait(result))
            told["scores"][label] = number(result)
        except Exception as error:
            told["errors"][label] = f"{type(error).__name__}: {error}"[:300]
        told["ms"][label] = 1000 * (time.perf_counter() - start)
    return told


async def _wait(result: Any) -> Any:
    return await result


def main() -> None:
    """Serve standard input until it ends."""
    # Scorers and libraries print: what is ours goes out by a descriptor of its own.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    first = json.loads(sys.stdin.readline())
    try:
        function = load(first["path"], first["name"])
    except Exception as error:
        answers.write(json.dumps({"failed": f"{type(error).__name__}: {error}"[:500]}) + "\n")
        return
    where = inspect.getsourcefile(inspect.unwrap(function)) or "?"
    answers.write(json.dumps({"ready": where}) + "\n")
    for line in sys.stdin:
        answers.write(json.dumps(score(function, json.loads(line), first["kwargs"])) + "\n")


if __name__ == "__main__":
    main()
