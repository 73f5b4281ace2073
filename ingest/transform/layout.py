"""A table's layout in Spark: the columns that partitioning adds, as Spark expressions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from sinks.partition import PartitionField, Transform

if TYPE_CHECKING:
    from pyspark.sql import Column

_DAY_US = 86_400_000_000
_HOUR_US = 3_600_000_000


def added_columns(schema: pa.Schema, partition_by: Sequence[PartitionField]) -> list[Column]:
    """The columns that the partitioning adds to rows, each with its name.

    The values equal those of `sinks.parquet.partition_rows.with_partition_columns`, whatever the session's time zone.

    Args:
        schema: columns of the rows.
        partition_by: the table's partition fields.
    """
    from pyspark.sql.functions import expr

    return [
        expr(_expression(schema.field(by.source), by.transform)).alias(by.column)
        for by in partition_by
        if by.transform is not Transform.IDENTITY
    ]


def quoted(name: str) -> str:
    """A column's name, quoted for Spark SQL."""
    return "`" + name.replace("`", "``") + "`"


def date_expression(field: pa.Field) -> str:
    """The date (UTC) of a column of timestamps or dates, as Spark SQL."""
    return _expression(field, Transform.DATE)


def _expression(field: pa.Field, transform: Transform) -> str:
    column = quoted(field.name)
    if pa.types.is_timestamp(field.type) and field.type.tz is not None:
        micros = f"unix_micros({column})"
        date = f"date_from_unix_date(CAST(({micros} - pmod({micros}, {_DAY_US})) div {_DAY_US} AS INT))"
        hour = f"(pmod({micros}, {_DAY_US}) div {_HOUR_US})"
    else:
        date, hour = f"CAST({column} AS DATE)", f"hour({column})"
    if transform is Transform.DATE:
        return date
    return f"concat(CAST({date} AS STRING), '-', lpad(CAST({hour} AS STRING), 2, '0'))"
