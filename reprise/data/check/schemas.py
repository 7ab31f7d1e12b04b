"""The types of several files, as concatenate_datasets compares them.

datasets 5.2, features/features.py, _check_if_features_can_be_aligned: columns and keys that files
share must have the same type, or null in one of them. Order, further columns, further keys of
objects, dictionary encoding and required fields make no difference; keys inside lists do.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from reprise.core.findings import Report
from reprise.data.read.scan import FileScan

__all__ = ["judge_schemas"]


def judge_schemas(report: Report, scans: list[FileScan]) -> None:
    """Report columns and keys whose type differs between the files of a set."""
    if len(scans) < 2:
        return
    known: dict[str, tuple[Any, FileScan]] = {}
    for scan in scans:
        for name, kind in scan.types().items():
            feature = _feature(kind)
            if name not in known or _is_null(known[name][0]):
                known[name] = (feature, scan)
                continue
            other, first = known[name]
            for path, mine, theirs in _unequal(name, other, feature):
                report.failed(
                    "data-schema.types-differ",
                    str(scan.source.path),
                    column=path,
                    kind=theirs,
                    other=mine,
                    file=first.source.path,
                )
    report.settle("data-schema")


def _feature(kind: pa.DataType) -> Any:
    """The type as datasets sees it: a dict for an object, ("list", element), else its name."""
    if pa.types.is_struct(kind):
        return {item.name: _feature(item.type) for item in kind}
    if pa.types.is_list(kind):
        return ("list", _feature(kind.value_type))
    if pa.types.is_large_list(kind):
        return ("large_list", _feature(kind.value_type))
    if pa.types.is_dictionary(kind):
        return _feature(kind.value_type)
    return str(kind)


def _is_null(feature: Any) -> bool:
    while isinstance(feature, tuple):
        feature = feature[1]
    return bool(feature == "null")


def _unequal(path: str, one: Any, two: Any) -> Iterator[tuple[str, str, str]]:
    """The paths that cannot be aligned, with both types."""
    if isinstance(one, dict) and isinstance(two, dict):
        for key in one.keys() & two.keys():
            yield from _unequal(f"{path}.{key}", one[key], two[key])
    elif one != two and not _is_null(one) and not _is_null(two):
        yield path, _shown(one), _shown(two)


def _shown(feature: Any) -> str:
    if isinstance(feature, dict):
        return f"struct<{', '.join(f'{key}: {_shown(item)}' for key, item in feature.items())}>"
    if isinstance(feature, tuple):
        return f"{feature[0]}<{_shown(feature[1])}>"
    return str(feature)
