"""Partitioning of a lake target's files: by columns, and by the date or hour of a timestamp."""

from __future__ import annotations

import enum
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

import pyarrow as pa

from timeline.errors import ConfigError

NULL_SEGMENT = "__HIVE_DEFAULT_PARTITION__"
"""The value null in a folder's name, as in Hive."""

_ESCAPED = re.compile(r"[\x00-\x1f\x7f\"#%'*/:=?\\{}\[\]^]")
_LONGEST_SEGMENT_BYTES = 200
_DATE = re.compile(r"(?!0000)\d{4}-\d\d-\d\d")


class EmptyPartition(enum.Enum):
    """Treatment of a row with an empty text in a partition column.

    Delta's log has one form for an empty text and null (section "Partition Value Serialization"), and so has Hive's
    layout: readers get null.
    """

    QUARANTINE = "quarantine"
    TO_NULL = "to_null"


class Transform(enum.Enum):
    """How a partition value is derived from its source column."""

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
        """Type of the added column; None if the source column itself is used."""
        match self.transform:
            case Transform.IDENTITY:
                return None
            case Transform.DATE:
                return pa.date32()
            case Transform.HOUR:
                return pa.string()

    def __str__(self) -> str:
        """The spelling of a job file."""
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
    """The table's schema: the rows' columns, then the columns that the partitioning adds.

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


def text_columns(schema: pa.Schema, partition_by: Sequence[PartitionField]) -> list[str]:
    """Partition columns that are text columns of the rows.

    Args:
        schema: columns of the rows.
        partition_by: how the table is laid out.
    """
    own = [by.source for by in partition_by if by.transform is Transform.IDENTITY]
    return [name for name in own if pa.types.is_string(schema.field(name).type)]


def fraction_columns(schema: pa.Schema, partition_by: Sequence[PartitionField]) -> list[str]:
    """Partition columns that are decimals with digits behind the point.

    Args:
        schema: columns of the rows.
        partition_by: how the table is laid out.
    """
    own = [by.source for by in partition_by if by.transform is Transform.IDENTITY]
    return [name for name in own if pa.types.is_decimal(schema.field(name).type) and schema.field(name).type.scale > 0]


def date_columns(schema: pa.Schema, partition_by: Sequence[PartitionField]) -> list[str]:
    """Columns whose date is a partition's value: date columns, and the sources of ``date(…)``.

    Args:
        schema: columns of the rows.
        partition_by: how the table is laid out.
    """
    return [
        by.source
        for by in partition_by
        if by.transform is Transform.DATE
        or (by.transform is Transform.IDENTITY and pa.types.is_date(schema.field(by.source).type))
    ]


def unfit_partition(partition: Mapping[str, str | None], schema: pa.Schema) -> str:
    """Why a partition with these values is refused; "" if it is allowed.

    Args:
        partition: value of each partition column, as the log has it.
        schema: columns of the table.
    """
    for name, value in partition.items():
        kind = schema.field(name).type
        if value is None:
            continue
        if pa.types.is_decimal(kind) and (number := Decimal(value)) < 0 and number != number.to_integral_value():
            return fraction_reason(name, value)
        if pa.types.is_date(kind) and not _DATE.fullmatch(value):
            return date_reason(name, value)
    return ""


def fraction_reason(column: str, value: str) -> str:
    """The reason to refuse a row with a negative decimal with a fraction in a partition column."""
    return (
        f"{column}: {value} cannot be a partition's value: delta-rs (pandas, Arrow) could not read the table any more; "
        "partition by something without negative fractions"
    )


def date_reason(column: str, value: str) -> str:
    """The reason to refuse a row with a date outside the years 1 to 9999 in a partition column."""
    return f"{column}: {value} cannot be a partition's value: readers take dates of the years 1 to 9999 only"


def empty_reason(column: str) -> str:
    """The reason to refuse a row with an empty text in a partition column."""
    return (
        f"{column}: '' cannot be a partition's value, tables read it as null; on_empty_partition: to_null in the job "
        "file writes null"
    )


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


def partition_folder(partition: Mapping[str, str | None]) -> str:
    """The folder of a partition below the table's root: ``col=value/…``, "" for an unpartitioned table.

    Escaped as Hive does, so that any value is one path segment on any store. Values too long for a file system's names
    are cut and made unique by a hash; the log entry holds the full value.
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
