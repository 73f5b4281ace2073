"""Builds `Decoded`, the result of a decoder, from columns and rejections."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from ingest.sources.base import Decoded
from ingest.sources.decode.records import RawRecords
from sinks.base import REJECTED_SCHEMA
from timeline.errors import DataError

HEADER = "header"
"""Key of a context: the header line."""

HEADER_FAULT = "header_fault"
"""Key of a context, in place of `HEADER`: why the header is unusable, as the reason for rejecting every line."""


def decoded(
    rows: int, schema: pa.Schema, columns: Sequence[pa.Array], offsets: pa.Array | None, rejected: pa.RecordBatch
) -> Decoded:
    """Accepted and rejected rows as the result of a decoder.

    Args:
        rows: number of accepted rows.
        schema: schema of the accepted rows.
        columns: the accepted rows' columns.
        offsets: int64, the accepted rows' offsets; None without lineage.
        rejected: the rejected rows.
    """
    struct = (
        pa.StructArray.from_arrays(columns, fields=list(schema)) if columns else pa.array([{}] * rows, pa.struct([]))
    )
    return Decoded(pa.RecordBatch.from_struct_array(struct).cast(schema), offsets, rejected)


def select(
    records: RawRecords,
    schema: pa.Schema,
    columns: Sequence[pa.Array],
    bad: Mapping[int, str],
    *,
    lineage: bool,
) -> Decoded:
    """Split whole columns into the accepted and the rejected rows.

    Args:
        records: the records of the rows.
        schema: schema of the accepted rows.
        columns: one value a row, rejected rows included.
        bad: index and reason of each rejected row.
        lineage: whether the offsets of accepted rows are wanted.
    """
    if not bad:
        return decoded(records.rows, schema, columns, records.offsets if lineage else None, no_rejects())
    at = pa.array(sorted(bad), pa.int64())
    keep = pc.invert(pc.is_in(pa.arange(0, records.rows), value_set=at))
    reasons = [bad[index] for index in at.to_pylist()]
    rejected = rejects(records.shard, records.offsets.take(at), reasons, records.texts.take(at), _context(records))
    kept = [column.filter(keep) for column in columns]
    offsets = records.offsets.filter(keep) if lineage else None
    return decoded(records.rows - len(bad), schema, kept, offsets, rejected)


def refuse_all(records: RawRecords, schema: pa.Schema, reason: str, *, lineage: bool) -> Decoded:
    """All records rejected for one reason.

    Args:
        records: the records.
        schema: schema of accepted rows.
        reason: the reason.
        lineage: whether the offsets of accepted rows are wanted.
    """
    columns = [pa.nulls(records.rows, field.type) for field in schema]
    return select(records, schema, columns, dict.fromkeys(range(records.rows), reason), lineage=lineage)


def unreadable(
    shard: str, offset: int, reason: str, schema: pa.Schema, *, lineage: bool, raw: bytes | None = None
) -> Decoded:
    """One rejected row for data that cannot be read.

    Args:
        shard: the shard.
        offset: start of the unreadable data.
        reason: why the data cannot be read.
        schema: schema of accepted rows.
        lineage: whether the offsets of accepted rows are wanted.
        raw: the record's bytes; None where the source has none.
    """
    rejected = rejects(shard, pa.array([offset], pa.int64()), [reason], pa.array([raw], pa.binary()))
    return Decoded(_empty(schema), _no_offsets(lineage), rejected)


def rejects(
    shard: str,
    offsets: pa.Array,
    reasons: Sequence[str],
    raw: pa.Array,
    context: pa.Array | str | None = None,
) -> pa.RecordBatch:
    """Rejected rows of one shard.

    Args:
        shard: the records' shard.
        offsets: int64, offset of each record.
        reasons: reason for each rejection.
        raw: binary, each record's bytes.
        context: see `sinks.base.REJECTED_SCHEMA`; one for all, or one for each; None where the bytes are enough.
    """
    contexts = context if isinstance(context, pa.Array) else pa.repeat(pa.scalar(context, pa.string()), len(offsets))
    columns = [pa.repeat(pa.scalar(shard), len(offsets)), offsets, pa.array(reasons, pa.string()), raw, contexts]
    return pa.RecordBatch.from_arrays(columns, schema=REJECTED_SCHEMA)


def _context(records: RawRecords) -> str | None:
    return None if records.header is None else json.dumps({HEADER: records.header}, ensure_ascii=False)


def no_rejects() -> pa.RecordBatch:
    """No rejected row."""
    return _empty(REJECTED_SCHEMA)


def unknown_field_error(shard: str, offset: int, field: str) -> DataError:
    """The error that stops a job with ``on_unknown_field: fail``.

    Args:
        shard: the record's shard.
        offset: the record's offset.
        field: path of the unknown field.
    """
    return DataError(
        f"shard {shard}, offset {offset}: the schema has no field {field!r} and the job says "
        "on_unknown_field: fail; add the field to schema, or say drop or quarantine"
    )


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)


def _no_offsets(lineage: bool) -> pa.Array | None:
    return pa.nulls(0, pa.int64()) if lineage else None
