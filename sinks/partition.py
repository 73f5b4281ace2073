"""How a lake target lays its files out: by columns, and by the date or hour of a timestamp."""

from __future__ import annotations

import enum
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from timeline.errors import ConfigError, DataError

NULL_SEGMENT = "__HIVE_DEFAULT_PARTITION__"
"""What stands for null in a folder's name, as in Hive."""

_ESCAPED = re.compile(r"[\x00-\x1f\x7f\"#%'*/:=?\\{}\[\]^]")
_LONGEST_SEGMENT_BYTES = 200


class Transform(enum.Enum):
    """How a partition value is made of its source column."""

    IDENTITY = "identity"
    DATE = "date"
    HOUR = "hour"


@dataclass(frozen=True)
class PartitionField:
    """One partition column.

    ``date(ts)`` adds a column ``ts_date`` (date), ``hour(ts)`` a column ``ts_hour`` (string
    ``yyyy-MM-dd-HH``, UTC); both are written into the table and its files like any other column.
    """

    source: str
    transform: Transform = Transform.IDENTITY

    @property
    def column(self) -> str:
        """Name of the partition column in the table."""
        return self.source if self.transform is Transform.IDENTITY else f"{self.source}_{self.transform.value}"

    @property
    def derived_type(self) -> pa.DataType | None:
        """Type of the added column; None where the source column itself is used."""
        match self.transform:
            case Transform.IDENTITY:
                return None
            case Transform.DATE:
                return pa.date32()
            case Transform.HOUR:
                return pa.string()

    def __str__(self) -> str:
        """As a job file writes it."""
        return self.source if self.transform is Transform.IDENTITY else f"{self.transform.value}({self.source})"


def parse_partition(text: str) -> PartitionField:
    """A partition field from a job file: ``col``, ``date(col)`` or ``hour(col)``.

    Raises:
        ValueError: the text is none of these.
    """
    called = re.fullmatch(r"\s*(\w+)\s*\(\s*(\S+)\s*\)\s*", text)
    if called is None:
        if not text.strip() or "(" in text or ")" in text:
            raise ValueError(f"{text!r}: allowed are a column, date(column), hour(column)")
        return PartitionField(text.strip())
    name, column = called.groups()
    if name not in ("date", "hour"):
        raise ValueError(f"{text!r}: allowed are a column, date(column), hour(column)")
    return PartitionField(column, Transform(name))


def partitioned_schema(schema: pa.Schema, partition_by: Sequence[PartitionField]) -> pa.Schema:
    """The table's schema: the rows' columns, and behind them those that the partitioning adds.

    Raises:
        ConfigError: a field names no column, a column of the wrong type, or leaves no data column.
    """
    table = schema
    for field in partition_by:
        if schema.get_field_index(field.source) < 0:
            raise ConfigError(f"partition_by: {field}: no column {field.source!r}; columns are {_names(schema)}")
        source = schema.field(field.source)
        if field.transform is Transform.IDENTITY:
            _check_identity(source)
            continue
        if not (pa.types.is_timestamp(source.type) or pa.types.is_date(source.type)):
            raise ConfigError(f"partition_by: {field}: {source.name!r} is {source.type}; allowed are timestamp, date")
        if field.transform is Transform.HOUR and pa.types.is_date(source.type):
            raise ConfigError(f"partition_by: {field}: {source.name!r} is a date; use date({source.name})")
        if table.get_field_index(field.column) >= 0:
            raise ConfigError(
                f"partition_by: {field} adds a column {field.column!r}, which is there already; "
                f"rename that column, or partition by it"
            )
        table = table.append(pa.field(field.column, field.derived_type, nullable=source.nullable))
    columns = [field.column for field in partition_by]
    if len(set(columns)) != len(columns):
        raise ConfigError(f"partition_by: {', '.join(map(str, partition_by))}: a column is named twice")
    if partition_by and len(columns) == len(table):
        raise ConfigError("partition_by: every column is a partition column; a table needs one that is not")
    return table


def _names(schema: pa.Schema) -> str:
    return ", ".join(schema.names)


def _check_identity(field: pa.Field) -> None:
    kind = field.type
    if pa.types.is_timestamp(kind):
        raise ConfigError(
            f"partition_by: {field.name!r} is a timestamp, which would make a folder for each microsecond; "
            f"use date({field.name}) or hour({field.name})"
        )
    if not (
        pa.types.is_string(kind)
        or pa.types.is_signed_integer(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_date32(kind)
        or pa.types.is_decimal(kind)
    ):
        raise ConfigError(
            f"partition_by: {field.name!r} is {kind}; allowed are string, integers, boolean, date, decimal, "
            f"and date(…) or hour(…) of a timestamp"
        )


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


def partition_folder(partition: Mapping[str, str | None]) -> str:
    """The folder of a partition below the table's root: ``col=value/…``, "" for an unpartitioned table.

    Escaped as Hive does, so that any value is one path segment on any store. Values too long for a
    file system's names are cut and made unique by a hash; the log entry holds them whole.
    """
    return "/".join(
        f"{_segment(name)}={NULL_SEGMENT if value is None else _segment(value)}" for name, value in partition.items()
    )


def _segment(text: str) -> str:
    escaped = _ESCAPED.sub(lambda found: f"%{ord(found.group()):02X}", text)
    encoded = escaped.encode()
    if len(encoded) <= _LONGEST_SEGMENT_BYTES // 2:
        return escaped
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return f"{encoded[: _LONGEST_SEGMENT_BYTES // 2].decode(errors='ignore')}~{digest}"
