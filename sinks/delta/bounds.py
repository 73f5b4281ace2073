"""File statistics in a form by which no reader of Delta skips a matching row.

delta-rs converts a file's bounds to an Arrow expression, and takes a missing bound as null. Nothing is equal to null,
so a filter on that column finds no row of the file, and its negation finds too many. delta-rs expects the bounds of
each top-level column that the table indexes. Only if `minValues` and `maxValues` themselves are missing does it make no
expression.

Source: delta-rs 1.6, `filestats_to_expression_next`; Delta Transaction Log Protocol, section "Per-file Statistics".
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from sinks.parquet.table_files import INDEXED_LEAVES
from timeline.epoch import Json

_INDEXED_COUNT = "delta.dataSkippingNumIndexedCols"
_INDEXED_NAMES = "delta.dataSkippingStatsColumns"
_WITHOUT_BOUNDS = frozenset({"binary"})


def indexed_columns(
    schema_json: str, partition_columns: Sequence[str], configuration: Mapping[str, str | None]
) -> dict[str, bool]:
    """Top-level columns whose bounds readers may expect, and for each whether it is a struct.

    Args:
        schema_json: the table's schema, as in the log.
        partition_columns: columns without statistics.
        configuration: the table's properties, which may set the number or the names of columns with statistics.
    """
    fields = [field for field in json.loads(schema_json)["fields"] if field["name"] not in partition_columns]
    left = _indexed_leaves(configuration)
    found: dict[str, bool] = {}
    for field in fields:
        if left is not None and left <= 0:
            break
        below = list(_leaves(field["type"]))
        if any(isinstance(kind, str) and kind not in _WITHOUT_BOUNDS for kind in below):
            found[field["name"]] = not isinstance(field["type"], str)
        left = None if left is None else left - len(below)
    return found


def _indexed_leaves(configuration: Mapping[str, str | None]) -> int | None:
    """Number of leaf columns, from the left, that may have statistics; None for all."""
    if configuration.get(_INDEXED_NAMES):
        return None
    given = configuration.get(_INDEXED_COUNT) or str(INDEXED_LEAVES)
    return int(given) if given.isdecimal() else None


def _leaves(kind: Any) -> Iterator[Any]:
    """Types of the leaf columns of one type; a list or map is one leaf."""
    if isinstance(kind, dict) and kind.get("type") == "struct":
        for field in kind["fields"]:
            yield from _leaves(field["type"])
    else:
        yield kind


def with_all_bounds_or_none(
    stats: Mapping[str, Json], indexed: Mapping[str, bool], written: Collection[str]
) -> dict[str, Json]:
    """A file's statistics, without any bounds if those of one column are missing.

    Args:
        stats: statistics from the file's writer.
        indexed: see `indexed_columns`.
        written: columns that the file has; other columns are null in all rows.
    """
    least, greatest, nulls = (_object(stats, key) for key in ("minValues", "maxValues", "nullCount"))
    rows = stats.get("numRecords")
    for name, is_struct in indexed.items():
        if is_struct:
            # A struct needs no bounds: an empty object bounds nothing, but a missing one would be null.
            least.setdefault(name, {})
            greatest.setdefault(name, {})
        elif name not in written:
            nulls[name] = rows
    is_told = all(
        is_struct or (name in least and name in greatest) or (rows is not None and nulls.get(name) == rows)
        for name, is_struct in indexed.items()
    )
    bounds: dict[str, Json] = {"minValues": least, "maxValues": greatest} if is_told else {}
    kept = {key: value for key, value in stats.items() if key not in ("minValues", "maxValues", "nullCount")}
    return {**kept, **bounds, "nullCount": nulls}


def _object(stats: Mapping[str, Json], key: str) -> dict[str, Json]:
    found = stats.get(key)
    return dict(found) if isinstance(found, dict) else {}
