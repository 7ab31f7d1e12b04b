"""Change a run's state in a test: typed, as the code does it, or past its checks."""

from __future__ import annotations

from typing import Any

import orjson

from reprise.core.files import dump_json
from reprise.runs.state.folder import RunFolder
from reprise.runs.state.state import RunState


def change(folder: RunFolder, **facts: Any) -> None:
    """Set keys of run.json (`state`, `address` …) to JSON values."""
    with folder.edit() as state:
        values = orjson.dumps(state.to_json() | facts, default=lambda part: part.to_json())
        changed = RunState.model_validate_json(values)
        for name in facts:
            field = "status" if name == "state" else name
            setattr(state, field, getattr(changed, field))


def write_raw(folder: RunFolder, **facts: Any) -> None:
    """Put `facts` into run.json whatever they are."""
    dump_json(folder.state_file, orjson.loads(folder.state_file.read_bytes()) | facts)
