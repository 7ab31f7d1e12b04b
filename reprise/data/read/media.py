"""Rows with images, videos or audios, found without reading them."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from reprise.data.read.arrow import Column, pc
from reprise.data.read.batches import BATCH_ROWS
from reprise.data.read.parquet import open_parquet
from reprise.data.read.reading import Source

__all__ = ["MEDIA", "media_rows"]

# The default keys of verl's data set (rl_dataset.py in 0.9.1).
MEDIA = ("images", "videos", "audios")


def media_rows(source: Source) -> Iterator[tuple[str, int]]:
    """The media columns of a parquet file, each with the numbers of rows that are not empty.

    Of a nested column only its smallest leaf is read: bytes of images are not.
    """
    for name in MEDIA if source.parquet else ():
        if name not in source.columns():
            continue
        leaf = _leaf(source, name)
        first = 1
        for batch in open_parquet(source.path).iter_batches(batch_size=BATCH_ROWS, columns=[leaf]):
            for place in pc.indices_nonzero(_filled(batch.column(0))).to_pylist():
                yield name, first + place
            first += batch.num_rows


def _leaf(source: Source, name: str) -> str:
    """The path of the leaf below `name` with the fewest bytes in the first row group."""
    meta = open_parquet(source.path).metadata
    if not meta.num_row_groups:
        return name
    group = meta.row_group(0)
    leaves = [group.column(place) for place in range(group.num_columns)]
    below = [leaf for leaf in leaves if leaf.path_in_schema.split(".")[0] == name]
    return str(min(below, key=lambda leaf: leaf.total_uncompressed_size).path_in_schema)


def _filled(column: Column) -> Column:
    """Which rows verl would take for media: not null and not empty."""
    kind = column.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pc.greater(pc.list_value_length(column), 0).fill_null(False)
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return pc.greater(pc.binary_length(column), 0).fill_null(False)
    return column.is_valid()
