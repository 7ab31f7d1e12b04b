"""Sets of data files as users have them: sound ones, and one fault of each kind."""

from __future__ import annotations

import datetime
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

Row = dict[str, Any]
BATCH = 2
LIMIT = 64
_CHUNK = 10 << 20
SOURCES = ("math_dapo", "openai/gsm8k", "lighteval/MATH")


@dataclass
class FileSet:
    """The training files of one job. `truths` are the ground truths as they are meant."""

    files: list[Path]
    rows: int
    truths: list[Any] = field(default_factory=list)


class Draw:
    """Random rows below a folder."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.rng = random.Random(seed)
        folder.mkdir(parents=True)

    def row(self, index: int = 0, **more: Any) -> Row:
        first, second = self.rng.randrange(1, 99), self.rng.randrange(1, 99)
        words = self.rng.choice(("What is", "Compute", "请计算", "Évaluez"))
        messages = [{"role": "user", "content": f"{words} {first} + {second} ?"}]
        if self.rng.random() < 0.3:
            messages.insert(0, {"role": "system", "content": "Reason step by step ."})
        return {
            "data_source": self.rng.choice(SOURCES),
            "prompt": messages,
            "ability": "math",
            "reward_model": {"style": "rule", "ground_truth": str(first + second)},
            "extra_info": {"split": "train", "index": index},
        } | more

    def rows(self, least: int = 3, **more: Any) -> list[Row]:
        return [self.row(index, **more) for index in range(least + self.rng.randrange(4))]

    def parquet(self, rows: list[Row], name: str = "a.parquet", schema: Any = None) -> Path:
        pq.write_table(pa.Table.from_pylist(rows, schema=schema), self.folder / name)
        return self.folder / name

    def jsonl(self, rows: list[Row], name: str = "a.jsonl", start: str = "") -> Path:
        text = "".join(json.dumps(row, ensure_ascii=self.rng.random() < 0.5) + "\n" for row in rows)
        (self.folder / name).write_text(start + text, encoding="utf-8")
        return self.folder / name

    def either(self, rows: list[Row], name: str = "a") -> Path:
        if self.rng.random() < 0.5:
            return self.parquet(rows, f"{name}.parquet")
        return self.jsonl(rows, f"{name}.jsonl")


def plain(rows: list[Row], *files: Path) -> FileSet:
    return FileSet(list(files), len(rows), [row["reward_model"]["ground_truth"] for row in rows])


Kind = Callable[[Draw], FileSet]
KINDS: dict[str, Kind] = {}


def kind(name: str) -> Callable[[Kind], Kind]:
    def keep(function: Kind) -> Kind:
        KINDS[name] = function
        return function

    return keep


def each(name: str, change: Callable[[Draw, Row], None], ending: str = "") -> None:
    """A kind in which one row, or all of them, are changed."""

    def make(draw: Draw) -> FileSet:
        rows = draw.rows()
        chosen = rows if draw.rng.random() < 0.5 else [draw.rng.choice(rows)]
        for row in chosen:
            change(draw, row)
        for row in rows:  # PyArrow takes the columns of the first row
            for name in [key for other in rows for key in other]:
                row.setdefault(name, None)
        write = {"parquet": draw.parquet, "jsonl": draw.jsonl}.get(ending, draw.either)
        try:
            file = write(rows)
        except (pa.ArrowInvalid, pa.ArrowTypeError):  # parquet cannot hold it
            file = draw.jsonl(rows)
        return FileSet([file], len(rows))

    KINDS[name] = make


# --- Sound files ---------------------------------------------------------------------------------


@kind("sound: parquet")
def _parquet(draw: Draw) -> FileSet:
    rows = draw.rows()
    return plain(rows, draw.parquet(rows))


@kind("sound: JSON lines")
def _jsonl(draw: Draw) -> FileSet:
    rows = draw.rows()
    return plain(rows, draw.jsonl(rows))


@kind("sound: JSON array")
def _array(draw: Draw) -> FileSet:
    rows = draw.rows()
    (draw.folder / "a.json").write_text(json.dumps(rows))
    return plain(rows, draw.folder / "a.json")


@kind("sound: two files")
def _two(draw: Draw) -> FileSet:
    first, second = draw.rows(), draw.rows()
    return plain(first + second, draw.either(first), draw.either(second, "b"))


@kind("sound: byte order mark")
def _bom(draw: Draw) -> FileSet:
    rows = draw.rows()
    return plain(rows, draw.jsonl(rows, start="\ufeff"))


@kind("sound: NaN in extra_info")
def _nan(draw: Draw) -> FileSet:
    rows = draw.rows()
    for row in rows:
        row["extra_info"]["score"] = draw.rng.choice([float("nan"), 0.5])
    return plain(rows, draw.jsonl(rows))


@kind("sound: empty object")
def _empty_object(draw: Draw) -> FileSet:
    rows = draw.rows()
    for row in rows:
        row["extra_info"]["tools_kwargs"] = {}
    return plain(rows, draw.jsonl(rows))


@kind("sound: unsigned integers")
def _unsigned(draw: Draw) -> FileSet:
    rows = draw.rows()
    for row in rows:
        row["extra_info"]["index"] = 2**63 + draw.rng.randrange(9)
    extra = pa.struct([("split", pa.string()), ("index", pa.uint64())])
    schema = _typed(rows, "extra_info", extra)
    return plain(rows, draw.parquet(rows, schema=schema))


@kind("sound: no extra_info")
def _no_extra(draw: Draw) -> FileSet:
    rows = draw.rows()
    for row in rows:
        row.pop("extra_info")
        row.pop("ability")
    return plain(rows, draw.either(rows))


@kind("sound: null extra_info")
def _null_extra(draw: Draw) -> FileSet:
    rows = draw.rows()
    rows[-1]["extra_info"] = None
    return plain(rows, draw.either(rows))


@kind("sound: further columns")
def _further(draw: Draw) -> FileSet:
    rows = draw.rows(source_url="a", level=3, tags=["x", "y"])
    return plain(rows, draw.either(rows))


@kind("sound: large strings")
def _large(draw: Draw) -> FileSet:
    rows = draw.rows()
    schema = _typed(rows, "data_source", pa.large_string())
    return plain(rows, draw.parquet(rows, schema=schema))


@kind("sound: empty images")
def _no_images(draw: Draw) -> FileSet:
    rows = draw.rows()
    for row in rows:
        row["images"] = []
    schema = _typed(rows, "images", pa.list_(pa.struct([("bytes", pa.binary())])))
    return plain(rows, draw.parquet(rows, schema=schema))


@kind("sound: numbers as text")
def _texts(draw: Draw) -> FileSet:
    rows = draw.rows()
    for row in rows:
        row["reward_model"]["ground_truth"] = str(3 ** draw.rng.randrange(40, 60))
    return plain(rows, draw.either(rows))


@kind("sound: large JSON lines")
def _large_file(draw: Draw) -> FileSet:
    rows = _filled(draw) + draw.rows()
    return plain(rows, draw.jsonl(rows))


def _typed(rows: list[Row], column: str, type_: pa.DataType) -> pa.Schema:
    """The schema that PyArrow infers, with one column of another type."""
    plain_rows = [{key: value for key, value in row.items() if key != column} for row in rows]
    return pa.Table.from_pylist(plain_rows).schema.append(pa.field(column, type_))


def _filled(draw: Draw) -> list[Row]:
    """Rows of more than one chunk of the reader of JSON lines."""
    rows = draw.rows(200)
    for row in rows:
        row["extra_info"]["note"] = "x" * (_CHUNK // 190)
    return rows


# --- A second file -------------------------------------------------------------------------------


def _second(name: str, change: Callable[[Draw, list[Row]], pa.Schema | None]) -> None:
    def make(draw: Draw) -> FileSet:
        first, second = draw.rows(), draw.rows()
        schema = change(draw, second)
        files = [draw.parquet(first), draw.parquet(second, "b.parquet", schema)]
        if draw.rng.random() < 0.5:
            files.reverse()
            first, second = second, first
        return FileSet(files, len(first) + len(second))

    KINDS[name] = make


def _dictionary(_: Draw, rows: list[Row]) -> pa.Schema:
    return _typed(rows, "data_source", pa.dictionary(pa.int32(), pa.string()))


def _required(_: Draw, rows: list[Row]) -> pa.Schema:
    found = pa.Table.from_pylist(rows).schema
    return pa.schema([pa.field(item.name, item.type, nullable=False) for item in found])


def _order(_: Draw, rows: list[Row]) -> None:
    for row in rows:
        row["reward_model"] = dict(reversed(row["reward_model"].items()))
        row["extra_info"] = dict(reversed(row["extra_info"].items()))


def _extra_key(_: Draw, rows: list[Row]) -> None:
    for row in rows:
        row["extra_info"]["level"] = 3


def _null_key(_: Draw, rows: list[Row]) -> None:
    for row in rows:
        row["extra_info"]["split"] = None


def _extra_column(_: Draw, rows: list[Row]) -> None:
    for row in rows:
        row["level"] = 3


def _missing_column(_: Draw, rows: list[Row]) -> None:
    for row in rows:
        row.pop("ability")


def _other_type(draw: Draw, rows: list[Row]) -> None:
    change = draw.rng.choice([str, float])
    for row in rows:
        row["extra_info"]["index"] = change(row["extra_info"]["index"])


def _other_column_type(_: Draw, rows: list[Row]) -> None:
    for row in rows:
        row["ability"] = 3


def _extra_message_key(_: Draw, rows: list[Row]) -> None:
    for row in rows:
        for message in row["prompt"]:
            message["name"] = "n"


def _int32(_: Draw, rows: list[Row]) -> pa.Schema:
    return _typed(rows, "extra_info", pa.struct([("split", pa.string()), ("index", pa.int32())]))


def _large_text(_: Draw, rows: list[Row]) -> pa.Schema:
    return _typed(rows, "data_source", pa.large_string())


def _large_lists(_: Draw, rows: list[Row]) -> pa.Schema:
    message = pa.struct([("role", pa.string()), ("content", pa.string())])
    return _typed(rows, "prompt", pa.large_list(message))


for name_, change_ in {
    "second file: dictionary column": _dictionary,
    "second file: required fields": _required,
    "second file: order of keys": _order,
    "second file: extra key": _extra_key,
    "second file: null key": _null_key,
    "second file: extra column": _extra_column,
    "second file: missing column": _missing_column,
    "second file: other type of a key": _other_type,
    "second file: other type of a column": _other_column_type,
    "second file: extra key of messages": _extra_message_key,
    "second file: narrower integers": _int32,
    "second file: large strings": _large_text,
    "second file: large lists": _large_lists,
}.items():
    _second(name_, change_)

# --- Faults of rows ------------------------------------------------------------------------------


def _set(*path: str, to: Any) -> Callable[[Draw, Row], None]:
    def change(_: Draw, row: Row) -> None:
        place = row
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = to(place[path[-1]]) if callable(to) else to

    return change


def _message(key: str, to: Any) -> Callable[[Draw, Row], None]:
    def change(_: Draw, row: Row) -> None:
        message = row["prompt"][-1]
        message[key] = to(message[key]) if callable(to) else to

    return change


each("row: prompt is text", _set("prompt", to=lambda value: value[-1]["content"]))
each("row: prompt is empty", _set("prompt", to=[]))
each("row: prompt is null", _set("prompt", to=None))
each("row: content is null", _message("content", None))
each("row: content is blank", _message("content", "  "))
each("row: content is parts", _message("content", lambda text: [{"type": "text", "text": text}]))
each("row: role is null", _message("role", None))
each("row: unknown data_source", _set("data_source", to="my/own"))
each("row: data_source is null", _set("data_source", to=None))
each("row: ground truth is an integer", _set("reward_model", "ground_truth", to=7))
each("row: ground truth is null", _set("reward_model", "ground_truth", to=None))
each("row: ground truth is a list", _set("reward_model", "ground_truth", to=["7"]))
each("row: search target with another scorer",
     _set("reward_model", "ground_truth", to={"target": ["7"]}))  # fmt: skip
each("row: extra_info is text", _set("extra_info", to="train"))
each("row: reward_model is null", _set("reward_model", to=None))
each("row: message without content", lambda _, row: row["prompt"][-1].pop("content"))
IMAGE = {"bytes": b"\x89PNG", "path": None}
each("row: images of a text-only model", lambda _, row: row.update(images=[IMAGE]), "parquet")
each("row: image paths of a text-only model", lambda _, row: row.update(images=["a.png"]))
each("row: videos of a text-only model", lambda _, row: row.update(videos=["a.mp4"]))
each("row: mixed types of a key", _set("extra_info", "index", to="x"), "jsonl")
each(
    "row: search data with a target",
    lambda _, row: row.update(
        data_source="searchR1_nq", reward_model={"style": "rule", "ground_truth": {"target": ["7"]}}
    ),
)
each("row: search data without a target", lambda _, row: row.update(data_source="searchR1_nq"))

# --- Faults of files -----------------------------------------------------------------------------


@kind("file: column missing")
def _column_missing(draw: Draw) -> FileSet:
    rows = draw.rows()
    name = draw.rng.choice(["prompt", "data_source", "reward_model"])
    for row in rows:
        row.pop(name)
    return FileSet([draw.either(rows)], len(rows))


@kind("file: duplicate column")
def _duplicate(draw: Draw) -> FileSet:
    rows = draw.rows()
    table = pa.Table.from_pylist(rows)
    name = draw.rng.choice(["prompt", "ability", "extra_info"])
    pq.write_table(table.append_column(name, table.column(name)), draw.folder / "a.parquet")
    return FileSet([draw.folder / "a.parquet"], len(rows))


@kind("file: no rows")
def _no_rows(draw: Draw) -> FileSet:
    rows = draw.rows()
    path = draw.parquet(rows)
    pq.write_table(pq.read_table(path).slice(0, 0), path)
    return FileSet([path], 0)


@kind("file: empty")
def _empty(draw: Draw) -> FileSet:
    path = draw.folder / draw.rng.choice(["a.jsonl", "a.parquet"])
    path.write_bytes(b"")
    return FileSet([path], 0)


@kind("file: cut")
def _cut(draw: Draw) -> FileSet:
    rows = draw.rows()
    path = draw.either(rows)
    path.write_bytes(path.read_bytes()[:-30])
    return FileSet([path], len(rows))


@kind("file: not JSON")
def _not_json(draw: Draw) -> FileSet:
    rows = draw.rows()
    path = draw.jsonl(rows)
    path.write_text(path.read_text(encoding="utf-8") + "{'a': 1}\n")
    return FileSet([path], len(rows))


@kind("file: glob characters in the name")
def _glob(draw: Draw) -> FileSet:
    rows = draw.rows()
    name = draw.rng.choice(["a[1]", "a*", "a?b", "train[:100]"])
    return plain(rows, draw.either(rows, name))


@kind("file: dates as ground truth")
def _dates(draw: Draw) -> FileSet:
    rows = draw.rows()
    for place, row in enumerate(rows):
        date = datetime.date(2020, 1, 1) + datetime.timedelta(place)
        row["reward_model"]["ground_truth"] = date.isoformat()
    return plain(rows, draw.jsonl(rows))


@kind("file: fewer rows than a batch")
def _few(draw: Draw) -> FileSet:
    rows = draw.rows()[: BATCH - 1]
    return FileSet([draw.either(rows)], len(rows))


@kind("file: all prompts over-long")
def _overlong(draw: Draw) -> FileSet:
    rows = draw.rows()
    for row in rows:
        row["prompt"][-1]["content"] = "word " * 100
    return FileSet([draw.either(rows)], len(rows))


def _later(name: str, change: Callable[[Row], None]) -> None:
    """A kind of JSON lines in which rows after the first chunk differ."""

    def make(draw: Draw) -> FileSet:
        rows = _filled(draw)
        later = draw.rows()
        for row in later:
            row["extra_info"]["note"] = "y"
            change(row)
        return FileSet([draw.jsonl(rows + later)], len(rows) + len(later))

    KINDS[name] = make


_later("later chunk: integer becomes text", lambda row: row["extra_info"].update(index="x"))
_later("later chunk: integer becomes a fraction", lambda row: row["extra_info"].update(index=0.5))
_later("later chunk: further key", lambda row: row["extra_info"].update(level=3))
_later("later chunk: further column", lambda row: row.update(level=3))
_later("later chunk: key missing", lambda row: row["extra_info"].pop("split"))
_later("later chunk: column missing", lambda row: row.pop("ability"))
_later("later chunk: text becomes an integer", lambda row: row["extra_info"].update(split=3))
_later("later chunk: null", lambda row: row.update(ability=None))


def make_set(name: str, folder: Path, seed: int) -> FileSet:
    """The file set of a kind and a seed."""
    return KINDS[name](Draw(folder, seed))
