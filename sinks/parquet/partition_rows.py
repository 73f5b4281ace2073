"""Rows by partition: the columns that the partitioning adds, and a batch split into one piece for each partition."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from sinks.partition import (
    PartitionField,
    Transform,
    date_columns,
    date_reason,
    empty_reason,
    fraction_columns,
    fraction_reason,
    text_columns,
)
from timeline.errors import DataError

_EPOCH = datetime.date(1970, 1, 1)
FIRST_DAY = (datetime.date.min - _EPOCH).days
"""Days since 1970 of the first date that readers accept as a partition's value."""

LAST_DAY = (datetime.date.max - _EPOCH).days
"""Days since 1970 of the last date that readers accept as a partition's value."""


def with_partition_columns(batch: pa.RecordBatch, partition_by: Sequence[PartitionField]) -> pa.RecordBatch:
    """The rows with the columns that the partitioning adds, and with null for empty strings in partition columns.

    Delta's log cannot distinguish an empty string from null in a partition value, and its readers differ; Delta's own
    writer stores null, so that file and log agree.

    Raises:
        DataError: an empty string in a partition column that is declared not null, or a date that readers do not
            accept.
    """
    for field in partition_by:
        source = batch.column(field.source)
        added = pa.field(field.column, field.derived_type or source.type, batch.schema.field(field.source).nullable)
        match field.transform:
            case Transform.IDENTITY:
                batch = _without_empty_strings(batch, field.source)
                if pa.types.is_date(source.type):
                    _readable(source, field.source)
            case Transform.DATE:
                batch = batch.append_column(added, _readable(_utc(source).cast(pa.date32()), field.source))
            case Transform.HOUR:
                batch = batch.append_column(added, _hours(source))
    return batch


def unfit_rows(batch: pa.RecordBatch, partition_by: Sequence[PartitionField], *, takes_empty: bool) -> dict[int, str]:
    """Index and reason of each row with a partition value that readers cannot read back.

    Args:
        batch: the rows.
        partition_by: how the table is laid out.
        takes_empty: whether an empty text may become null.
    """
    unfit: dict[int, str] = {}
    for name in [] if takes_empty else text_columns(batch.schema, partition_by):
        unfit = dict.fromkeys(_places(_empty(batch.column(name))), empty_reason(name)) | unfit
    for name in fraction_columns(batch.schema, partition_by):
        column = batch.column(name)
        unfit = {at: fraction_reason(name, f"{column[at].as_py():f}") for at in _places(_broken(column))} | unfit
    for name in date_columns(batch.schema, partition_by):
        column = _utc(batch.column(name)).cast(pa.date32())
        unfit = {at: date_reason(name, _text(column[at])) for at in _places(_beyond(column))} | unfit
    return unfit


def _places(condition: pa.Array | None) -> list[int]:
    found: list[int] = pc.indices_nonzero(pc.fill_null(condition, False)).to_pylist() if condition is not None else []
    return found


def _empty(texts: pa.Array) -> pa.Array | None:
    """Mask of the empty texts; None if there are none."""
    # By lengths: for a comparison with a text Arrow loads pandas, which takes a new worker 0.4 s.
    lengths = pc.binary_length(texts)
    return pc.invert(pc.cast(lengths, pa.bool_())) if pc.min(lengths).as_py() == 0 else None


def _broken(decimals: pa.Array) -> pa.Array | None:
    """Mask of negative decimals with a fraction, which delta-rs 1.6 passes to Arrow as "-1.-5"; None if none is."""
    least = pc.min(decimals).as_py()
    if least is None or least >= 0:
        return None
    wide = decimals.cast(pa.decimal256(76, decimals.type.scale))  # Arrow rounds none without digits before the point
    return pc.and_(pc.less(wide, pa.scalar(0, wide.type)), pc.not_equal(pc.trunc(wide), wide))


def _beyond(dates: pa.Array) -> pa.Array | None:
    """Mask of dates outside the years 1 to 9999; None if there are none."""
    days = dates.cast(pa.int32())
    found = pc.min_max(days)
    least, greatest = found["min"].as_py(), found["max"].as_py()
    if least is None or (least >= FIRST_DAY and greatest <= LAST_DAY):
        return None
    return pc.or_(pc.less(days, FIRST_DAY), pc.greater(days, LAST_DAY))


def _readable(dates: pa.Array, name: str) -> pa.Array:
    """The dates, all of years that readers accept.

    Raises:
        DataError: a date is not; tasks that know the offsets of their rows have refused its row before.
    """
    for at in _places(_beyond(dates)):
        raise DataError(date_reason(name, _text(dates[at])))
    return dates


def _text(date: pa.Scalar) -> str:
    return str(date.cast(pa.string()).as_py())


def _without_empty_strings(batch: pa.RecordBatch, name: str) -> pa.RecordBatch:
    index = batch.schema.get_field_index(name)
    column, field = batch.column(index), batch.schema.field(index)
    if not pa.types.is_string(field.type):
        return batch
    # By lengths: for a comparison with a text Arrow loads pandas, which takes a new worker 0.4 s.
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
    """The batch's rows by partition, in their order, each piece with its partition values as Delta's log writes them.

    A piece never shares memory with its batch unless it is the whole batch: waiting rows of one partition must not keep
    the rows of all others in memory.
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
