"""Rows that a target refuses, in the form of the quarantine."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from sinks.base import REJECTED_SCHEMA
from sinks.json_text import to_json


def refused_rows(rows: pa.RecordBatch, reasons: Mapping[int, str], shard: str, offsets: pa.Array) -> pa.RecordBatch:
    """Some rows of a batch in `REJECTED_SCHEMA`, each as JSON, in the order of the batch.

    Args:
        rows: the batch.
        reasons: index of each refused row, and the reason.
        shard: the shard of the rows' records.
        offsets: offset of each row of the batch.
    """
    if not reasons:
        return pa.RecordBatch.from_pylist([], REJECTED_SCHEMA)
    places = pa.array(sorted(reasons), pa.int64())
    return pa.RecordBatch.from_arrays(
        [
            pa.array([shard] * len(places), pa.string()),
            offsets.take(places),
            pa.array([reasons[index] for index in sorted(reasons)], pa.string()),
            as_json_lines(rows.take(places)),
            pa.nulls(len(places), pa.string()),
        ],
        schema=REJECTED_SCHEMA,
    )


def as_json_lines(rows: pa.RecordBatch) -> pa.Array:
    """Each row as one line of JSON (`binary`, no line end), the form of refused rows in the quarantine."""
    return pa.array(to_json(rows.to_struct_array()), pa.string()).cast(pa.binary())
