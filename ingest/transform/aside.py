"""Rows of a query's result that no partition folder of Spark's can hold: counted by Spark, set aside here.

::

    result ─┬─ observed: how many do not fit ── none, as a rule: the files stay
            └─ fit ──▶ Spark's files                some: the epoch is written again, through `SetAside`

Spark names folders by partition values, and cannot report rows that it does not write. To pass every row through
Python would slow down every epoch for rows that hardly any epoch has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Self

import pyarrow as pa
from pyspark.accumulators import Accumulator

from ingest.execution.spark.executors import this_attempt
from ingest.execution.spark.rows import conform
from ingest.execution.task import TASK_REPORT, OpenOutputs, Outputs, TaskReport, quarantined
from ingest.transform.layout import date_expression, quoted
from ingest.transform.tasks import Numbered
from sinks.delta.spark_files import ESCAPED_BY_SPARK, escaped_by_spark
from sinks.parquet.partition_rows import FIRST_DAY, LAST_DAY, unfit_rows
from sinks.parquet.partition_writer import ParquetPartitionWriter
from sinks.partition import (
    NULL_SEGMENT,
    EmptyPartition,
    PartitionField,
    date_columns,
    empty_reason,
    fraction_columns,
    text_columns,
)
from sinks.refused import refused_rows
from timeline.epoch import WriteReport

if TYPE_CHECKING:
    from pyspark.sql import Column

SHARD = "transform"
"""Shard name of a row of a query's result; the row's offset is its number among its task's rows."""


@dataclass(frozen=True)
class FolderRules:
    """Rules for partition values: which ones readers read back unchanged from a folder's name made by Spark.

    Attributes:
        schema: the query's columns.
        partition_by: the table's partition fields.
        takes_empty: whether an empty text may become null.
        longest_bytes: maximum bytes of a folder's name; None where the store has no such limit.
    """

    schema: pa.Schema
    partition_by: tuple[PartitionField, ...]
    takes_empty: bool
    longest_bytes: int | None

    @classmethod
    def of(cls, schema: pa.Schema, writer: ParquetPartitionWriter) -> Self:
        """The rules of a table.

        Args:
            schema: the query's columns.
            writer: writer of its files.
        """
        takes_empty = writer.on_empty_partition is EmptyPartition.TO_NULL
        return cls(schema, writer.partition_by, takes_empty, writer.store.traits.longest_name_bytes)

    def reasons(self, rows: pa.RecordBatch) -> dict[int, str]:
        """Index and reason of each refused row.

        Args:
            rows: rows in the query's columns.
        """
        reasons: dict[int, str] = {}
        for name in text_columns(self.schema, self.partition_by):
            for at, text in enumerate(rows.column(name).to_pylist()):
                reason = None if text is None else self.reason(name, text)
                if reason is not None:
                    reasons.setdefault(at, reason)
        return unfit_rows(rows, self.partition_by, takes_empty=True) | reasons

    def reason(self, column: str, text: str) -> str | None:
        """Reason to refuse a row with this text as a partition's value; None where it is accepted."""
        if not text:
            return None if self.takes_empty else empty_reason(column)
        if text == NULL_SEGMENT:
            return f"{column}: {text!r} cannot be a partition's value where Spark writes: null's folder has this name"
        if "\0" in text:
            return f"{column}: a text with the character U+0000 cannot be a partition's value where Spark writes"
        size = len(f"{escaped_by_spark(column)}={escaped_by_spark(text)}".encode())
        if self.longest_bytes is not None and size > self.longest_bytes:
            return (
                f"{column}: its folder's name would have {size} bytes, at most {self.longest_bytes} are allowed; "
                "partition by something shorter"
            )
        return None

    def refuses(self) -> Column | None:
        """`reasons` as a Spark condition: whether a row is refused; None where no row can be refused."""
        from pyspark.sql import functions as F

        found = [self._refuses_text(name) for name in text_columns(self.schema, self.partition_by)]
        for name in fraction_columns(self.schema, self.partition_by):
            # The remainder has the dividend's sign. As a double: a decimal is rounded in a comparison with 0.
            found.append((F.col(quoted(name)) % F.lit(1)).cast("double") < 0)
        for name in date_columns(self.schema, self.partition_by):
            days = F.unix_date(F.expr(date_expression(self.schema.field(name))))
            found.append(~days.between(FIRST_DAY, LAST_DAY))
        return F.coalesce(reduce(or_, found), F.lit(False)) if found else None

    def _refuses_text(self, name: str) -> Column:
        from pyspark.sql import functions as F

        column = F.col(quoted(name))
        found = column.isin(NULL_SEGMENT) | column.contains("\0")
        if not self.takes_empty:
            found = found | (column == "")
        if self.longest_bytes is not None:
            plain = "".join(f"\\x{ord(each):02x}" for each in sorted(ESCAPED_BY_SPARK))
            size = F.octet_length(column) + 2 * F.length(F.regexp_replace(column, f"[^{plain}]", ""))
            found = found | (size > self.longest_bytes - len(f"{escaped_by_spark(name)}=".encode()))
        return found


@dataclass(frozen=True)
class SetAside:
    """Removes refused rows from a task's result and quarantines them; picklable.

    Attributes:
        rules: rules that refuse rows.
        schema: the query's columns.
        quarantine: outputs for refused rows.
        target: the table that refuses the rows.
        epoch: the epoch's number.
        write: name of the write, for its reports.
        reports: collects the report of each task, by its number.
    """

    rules: FolderRules
    schema: pa.Schema
    quarantine: Outputs
    target: str
    epoch: int
    write: str
    reports: Accumulator[list[Numbered]]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The accepted rows."""
        attempt = this_attempt()
        first = refused = 0
        with OpenOutputs.open(self.quarantine, attempt) as opened:
            for batch in batches:
                rows = conform(batch, self.schema, range(len(self.schema)))
                reasons = self.rules.reasons(rows)
                if reasons:
                    offsets = pa.arange(first, first + batch.num_rows)
                    found = refused_rows(rows, reasons, SHARD, offsets)
                    opened.reject(quarantined(found, self.epoch, self.target))
                    refused += len(reasons)
                first += batch.num_rows
                kept = pa.array([at for at in range(batch.num_rows) if at not in reasons], pa.int64())
                yield batch.take(kept) if reasons else batch
            written = {**opened.close(), self.target: WriteReport(0, 0, rejected=refused)}
        self.reports.add([(self.write, attempt.task, TASK_REPORT.dump(TaskReport(reports=written)))])
