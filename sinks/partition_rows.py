"""Rows by partition: the columns that a layout adds, and a batch cut into one piece for each partition."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from sinks.partition import PartitionField, Transform, empty_reason
from timeline.errors import DataError


def with_partition_columns(batch: pa.RecordBatch, partition_by: Sequence[PartitionField]) -> pa.RecordBatch:
    """The rows with the columns that the partitioning adds, and no empty string in a partition column.

    Delta's log cannot tell an empty string from null in a partition value, and its readers differ;
    Delta's own writer stores null, so that file and log agree.

    Raises:
        DataError: an empty string in a partition column that is declared not null.
    """
    for field in partition_by:
        source = batch.column(field.source)
        added = pa.field(field.column, field.derived_type or source.type, batch.schema.field(field.source).nullable)
        match field.transform:
            case Transform.IDENTITY:
                batch = _without_empty_strings(batch, field.source)
            case Transform.DATE:
                batch = batch.append_column(added, _utc(source).cast(pa.date32()))
            case Transform.HOUR:
                batch = batch.append_column(added, _hours(source))
    return batch


def unfit_rows(batch: pa.RecordBatch, columns: Sequence[str]) -> dict[int, str]:
    """Index and reason of each row with an empty text in one of these columns."""
    unfit: dict[int, str] = {}
    for name in columns:
        lengths = pc.binary_length(batch.column(name))
        # By lengths: to compare with a text Arrow loads pandas, which takes a new worker 0.4 s.
        if pc.min(lengths).as_py() == 0:
            is_empty = pc.fill_null(pc.invert(pc.cast(lengths, pa.bool_())), False)
            unfit = dict.fromkeys(pc.indices_nonzero(is_empty).to_pylist(), empty_reason(name)) | unfit
    return unfit


def _without_empty_strings(batch: pa.RecordBatch, name: str) -> pa.RecordBatch:
    index = batch.schema.get_field_index(name)
    column, field = batch.column(index), batch.schema.field(index)
    if not pa.types.is_string(field.type):
        return batch
    # By lengths: to compare with a text Arrow loads pandas, which takes a new worker 0.4 s.
    if pc.min(pc.binary_length(column)).as_py() != 0:
        return batch
    if not field.nullable:
        raise DataError(
            f"partition column {name!r} is not null, but a row holds an empty string, which a Delta partition "
            f"stores as null; allow null in the schema, or do not partition by it"
        )
    return batch.set_column(index, field, pc.if_else(pc.equal(column, ""), pa.scalar(None, pa.string()), column))


def _utc(column: pa.Array) -> pa.Array:
    return column.cast(pa.timestamp(column.type.unit)) if pa.types.is_timestamp(column.type) else column


def _hours(column: pa.Array) -> pa.Array:
    # Formatting is the slow part, so it is done once for each hour and not once for each row.
    hours = pc.dictionary_encode(pc.floor_temporal(_utc(column), unit="hour"))
    texts = pc.strftime(hours.dictionary.cast(pa.timestamp("s")), format="%Y-%m-%d-%H")
    return texts.take(hours.indices)


def split(batch: pa.RecordBatch, columns: Sequence[str]) -> Iterator[tuple[tuple[str | None, ...], pa.RecordBatch]]:
    """The batch's rows by partition, in their order, each with its values as Delta's log writes them.

    A piece never shares memory with its batch unless it is the whole batch: what waits in one
    partition must not hold the rows of all others.
    """
    if batch.num_rows == 0:
        return
    if not columns:
        yield (), batch
        return
    encoded = [pc.dictionary_encode(batch.column(name), null_encoding="encode") for name in columns]
    keys = encoded[0].indices.cast(pa.int64())
    for column in encoded[1:]:
        keys = pc.add(pc.multiply(keys, len(column.dictionary)), column.indices.cast(pa.int64()))
        # Renumbered after each column: products of cardinalities would overflow.
        keys = pc.dictionary_encode(keys).indices.cast(pa.int64())
    order = pc.array_sort_indices(keys)
    ends = pc.run_end_encode(keys.take(order), run_end_type=pa.int64()).run_ends.to_pylist()
    start = 0
    for end in ends:
        rows = order.slice(start, end - start)
        first = rows[0].as_py()
        values = tuple(partition_value(column.dictionary[column.indices[first].as_py()]) for column in encoded)
        yield values, (batch if len(ends) == 1 else batch.take(rows))
        start = end


def partition_value(value: pa.Scalar) -> str | None:
    """A value as Delta's log writes it (section "Partition Value Serialization"); None for null."""
    plain = value.as_py()
    match plain:
        case None | "":
            return None
        case bool():
            return "true" if plain else "false"
        case str():
            return plain
        case _ if pa.types.is_decimal(value.type):
            return f"{plain:f}"
        case _ if pa.types.is_date32(value.type):
            return str(value.cast(pa.string()).as_py())
        case _:
            return str(plain)
