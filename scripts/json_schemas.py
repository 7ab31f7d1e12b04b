"""Write docs/schemas from the models; with --check only compare (exit code 1)."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode

from reprise.cluster.diagnosis import Diagnosis
from reprise.cluster.record import Record
from reprise.curves.reference import ReferenceFile
from reprise.curves.verdict import Verdict
from reprise.runs.state.state import RunState

TARGET = Path(__file__).resolve().parent.parent / "docs" / "schemas"
# By file name: the model, and whether people write the file (then defaults may be left out).
DOCUMENTS: dict[str, tuple[type[BaseModel], bool]] = {
    "cluster": (Record, False),
    "doctor": (Diagnosis, False),
    "reference": (ReferenceFile, True),
    "run": (RunState, False),
    "verdict": (Verdict, False),
}


def schemas() -> dict[str, str]:
    """The text of each file of docs/schemas, by its name."""
    texts = {}
    for name, (model, by_people) in DOCUMENTS.items():
        mode: JsonSchemaMode = "validation" if by_people else "serialization"
        schema = model.model_json_schema(mode=mode)
        head = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
        texts[f"{name}.json"] = json.dumps(head | schema, indent=2, sort_keys=True) + "\n"
    return texts


def main() -> None:
    """Write the files, or compare them."""
    wanted = schemas()
    found = {path.name: path.read_text(encoding="utf-8") for path in TARGET.glob("*.json")}
    if sys.argv[1:] == ["--check"]:
        stale = sorted(
            name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name)
        )
        if stale:
            names = ", ".join(f"docs/schemas/{name}" for name in stale)
            sys.exit(f"{names}: out of date: run `make docs` and commit it")
        return
    TARGET.mkdir(exist_ok=True)
    for name, text in wanted.items():
        (TARGET / name).write_text(text)
    for name in found.keys() - wanted.keys():
        (TARGET / name).unlink()


if __name__ == "__main__":
    main()
