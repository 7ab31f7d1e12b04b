#!/usr/bin/env python3
"""Make the rehearsal's start model of a shape for SGLang in the project's cache; link LINK to it.

    python start_models.py qwen3|qwen3-moe LINK

Run by the operator's Python. Runs of that shape find it in the cache.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from reprise.core.project import Project  # noqa: E402
from reprise.flows.rehearsal import Rehearsal, RehearsalOptions  # noqa: E402
from reprise.flows.target import Target  # noqa: E402


def main(arguments: list[str]) -> int:
    """Build or find it."""
    if len(arguments) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    place = Target("gpu", "megatron", rollout="sglang")
    options = RehearsalOptions(arch=arguments[0], place=place, quiet=True)
    model, _ = Rehearsal(Project(ROOT), options).prepare()
    link = Path(arguments[1])
    link.unlink(missing_ok=True)
    link.symlink_to(model.path)
    print(f"{model.path} {model.sha256}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
