"""Statistics of a file in the form in which none of Delta's readers passes over a row by them.

delta-rs makes an expression for Arrow of a file's bounds, and takes a bound that the statistics lack for null. Nothing
is equal to null, so a filter on such a column finds no row of the file, and its opposite finds too many. It looks
for the bounds of each top-level column that the table indexes, and finds all of them missing only where `minValues` and
`maxValues` are missing themselves; then it makes no expression.

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
    """The top-level columns whose bounds readers may look for, and for each whether it is a struct.

    Args:
        schema_json: the table's schema, as the log has it.
        partition_columns: they have no statistics.
        configuration: the table's properties, which may say how many columns have statistics, or which.
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
    """How many leaf columns may have statistics, from the left; None where any of them may."""
    if configuration.get(_INDEXED_NAMES):
        return None
    given = configuration.get(_INDEXED_COUNT) or str(INDEXED_LEAVES)
    return int(given) if given.isdecimal() else None


def _leaves(kind: Any) -> Iterator[Any]:
    """Types of the leaf columns of one type; a list or map is one of them."""
    if isinstance(kind, dict) and kind.get("type") == "struct":
        for field in kind["fields"]:
            yield from _leaves(field["type"])
    else:
        yield kind


def with_all_bounds_or_none(
    stats: Mapping[str, Json], indexed: Mapping[str, bool], written: Collection[str]
) -> dict[str, Json]:
    """A file's statistics, without any bounds where they lack those of one column.

    Args:
        stats: what the file's writer found.
        indexed: see `indexed_columns`.
        written: the columns that the file has; all rows are null in others.
    """
    least, greatest, nulls = (_object(stats, key) for key in ("minValues", "maxValues", "nullCount"))
    rows = stats.get("numRecords")
    for name, is_struct in indexed.items():
        if is_struct:
            # A struct needs none: an empty one says nothing, where a missing one would be null.
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
