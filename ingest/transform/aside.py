"""Rows of a query's result that cannot be in a folder that Spark makes for them: counted by Spark, set aside here.

::

    result ─┬─ observed: how many do not fit ── none, as a rule: the files stay
            └─ fit ──▶ Spark's files                some: the epoch is written again, through `SetAside`

Spark's folders are named by partition values, and it has no word for rows that it does not write. To have every row
pass through Python would cost an epoch its speed for rows that hardly any epoch has.
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
"""What stands for the shard of a row that a query made; its offset is its number among its task's rows."""


@dataclass(frozen=True)
class FolderRules:
    """Which partition values Spark can make folders of that mean the same, and that readers read back.

    Attributes:
        schema: the query's columns.
        partition_by: how the table is laid out.
        takes_empty: whether an empty text may become null.
        longest_bytes: of a folder's name; None where the store has no such bound.
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
            writer: how its files are laid out.
        """
        takes_empty = writer.on_empty_partition is EmptyPartition.TO_NULL
        return cls(schema, writer.partition_by, takes_empty, writer.store.traits.longest_name_bytes)

    def reasons(self, rows: pa.RecordBatch) -> dict[int, str]:
        """Index and reason of each row that is refused.

        Args:
            rows: in the query's columns.
        """
        reasons: dict[int, str] = {}
        for name in text_columns(self.schema, self.partition_by):
            for at, text in enumerate(rows.column(name).to_pylist()):
                reason = None if text is None else self.reason(name, text)
                if reason is not None:
                    reasons.setdefault(at, reason)
        return unfit_rows(rows, self.partition_by, takes_empty=True) | reasons

    def reason(self, column: str, text: str) -> str | None:
        """Why a row with this text as a partition's value is refused; None where it is not."""
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
        """`reasons` for Spark: whether a row is refused; None where no row can be."""
        from pyspark.sql import functions as F

        found = [self._refuses_text(name) for name in text_columns(self.schema, self.partition_by)]
        for name in fraction_columns(self.schema, self.partition_by):
            # The rest has the sign of what is divided. As a double: a decimal is rounded where it is compared with 0.
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
    """Takes refused rows out of a task's result and quarantines them; picklable.

    Attributes:
        rules: which rows are refused.
        schema: the query's columns.
        quarantine: where refused rows go.
        target: the table that refuses them.
        epoch: the epoch's number.
        write: tells this write's reports from those of another one.
        reports: gets the report of each task, by its number.
    """

    rules: FolderRules
    schema: pa.Schema
    quarantine: Outputs
    target: str
    epoch: int
    write: str
    reports: Accumulator[list[Numbered]]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows that stay."""
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
