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
from typing import TYPE_CHECKING, Self

import pyarrow as pa
from pyspark.accumulators import Accumulator

from ingest.executors import this_attempt
from ingest.stream.rows import conform
from ingest.task import TASK_REPORT, OpenOutputs, Outputs, TaskReport, quarantined
from ingest.transform.layout import quoted
from ingest.transform.tasks import Numbered
from sinks.parquet import ParquetPartitionWriter
from sinks.partition import NULL_SEGMENT, EmptyPartition, empty_reason, text_columns
from sinks.refused import refused_rows
from sinks.spark_files import ESCAPED_BY_SPARK, escaped_by_spark
from timeline.epoch import WriteReport
from timeline.local_store import LocalStore

if TYPE_CHECKING:
    from pyspark.sql import Column

SHARD = "transform"
"""What stands for the shard of a row that a query made; its offset is its number among its task's rows."""
_LONGEST_NAME_BYTES = 255
"""Of one file or folder on the file systems of Linux (NAME_MAX)."""


@dataclass(frozen=True)
class FolderRules:
    """Which partition values Spark can make folders of that mean the same.

    Attributes:
        columns: partition columns that are texts.
        takes_empty: whether an empty text may become null.
        longest_bytes: of a folder's name; None where the store has no such bound.
    """

    columns: tuple[str, ...]
    takes_empty: bool
    longest_bytes: int | None

    @classmethod
    def of(cls, schema: pa.Schema, writer: ParquetPartitionWriter) -> Self:
        """The rules of a table.

        Args:
            schema: the query's columns.
            writer: how its files are laid out.
        """
        columns = tuple(text_columns(schema, writer.partition_by))
        longest = _LONGEST_NAME_BYTES if isinstance(writer.store, LocalStore) else None
        return cls(columns, writer.on_empty_partition is EmptyPartition.TO_NULL, longest)

    def reason(self, column: str, text: str) -> str | None:
        """Why a row with this partition value is refused; None where it is not."""
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
        """`reason` for Spark: whether a row is refused; None where no row can be."""
        from pyspark.sql import functions as F

        condition: Column | None = None
        for name in self.columns:
            column = F.col(quoted(name))
            found = column.isin(NULL_SEGMENT) | column.contains("\0")
            if not self.takes_empty:
                found = found | (column == "")
            if self.longest_bytes is not None:
                plain = "".join(f"\\x{ord(each):02x}" for each in sorted(ESCAPED_BY_SPARK))
                size = F.octet_length(column) + 2 * F.length(F.regexp_replace(column, f"[^{plain}]", ""))
                found = found | (size > self.longest_bytes - len(f"{escaped_by_spark(name)}=".encode()))
            condition = found if condition is None else condition | found
        return None if condition is None else F.coalesce(condition, F.lit(False))


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
                reasons = self._reasons(batch)
                if reasons:
                    rows = conform(batch, self.schema, range(len(self.schema)))
                    offsets = pa.arange(first, first + batch.num_rows)
                    found = refused_rows(rows, reasons, SHARD, offsets)
                    opened.reject(quarantined(found, self.epoch, self.target))
                    refused += len(reasons)
                first += batch.num_rows
                kept = pa.array([at for at in range(batch.num_rows) if at not in reasons], pa.int64())
                yield batch.take(kept) if reasons else batch
            written = {**opened.close(), self.target: WriteReport(0, 0, rejected=refused)}
        self.reports.add([(self.write, attempt.task, TASK_REPORT.dump(TaskReport(reports=written)))])

    def _reasons(self, batch: pa.RecordBatch) -> dict[int, str]:
        reasons: dict[int, str] = {}
        for name in self.rules.columns:
            for at, text in enumerate(batch.column(self.schema.get_field_index(name)).to_pylist()):
                reason = None if text is None else self.rules.reason(name, text)
                if reason is not None:
                    reasons.setdefault(at, reason)
        return reasons
