"""Rows of a query's result for a target that takes no files of Spark's: tasks pass them to the target's own writer.

::

    result ── mapInArrow ──▶ each task: batches in the query's columns ──▶ the target's writer ──▶ one report
                                                                   └ rows that it refuses ──▶ quarantine

A query treats each row by itself, so its result has the tasks of the decoder. Spark's count of the result must equal
the rows that the target took; with the rows that the query left out, it must equal the rows that the tasks accepted.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
from pyspark.accumulators import Accumulator
from pyspark.sql import Observation
from pyspark.sql import functions as F

from ingest.execution.spark.executors import this_attempt
from ingest.execution.spark.rows import conform
from ingest.execution.task import (
    TASK_REPORT,
    AcceptedRows,
    OpenOutputs,
    Outputs,
    TaskReport,
    TaskSpec,
    attempt_task,
    merge_counts,
)
from ingest.transform.analysis import spark_schema
from ingest.transform.aside import SHARD
from ingest.transform.query import SparkQuery, observed, reports_of, result_of
from ingest.transform.tasks import DecodeTask, Numbered
from timeline.epoch import OffsetRange, Plan, ShardCount
from timeline.errors import InvariantError

_KEPT = "kept"


@dataclass(frozen=True)
class WrittenRows:
    """Reports and row count of a write by `write_rows`.

    Attributes:
        reports: reports of decode tasks and of `WriteRowsTask`.
        kept: rows of the query's result, as counted by Spark; None where the query leaves no row out.
    """

    reports: Sequence[Numbered]
    kept: int | None


@dataclass(frozen=True)
class WriterWrite:
    """One epoch's write.

    Attributes:
        query: the job's query.
        template: a decode task without its ranges.
        ranges: the ranges of each task.
        outputs: the target's writer, and the quarantine's for rows that the target refuses.
        name: identifies the reports of this write's decode tasks.
    """

    query: SparkQuery
    template: TaskSpec
    ranges: Sequence[tuple[OffsetRange, ...]]
    outputs: Outputs
    name: str = field(default_factory=lambda: uuid.uuid4().hex)

    def __post_init__(self) -> None:
        """Refuse a target whose rows would have to be shuffled to the task of their key.

        Raises:
            InvariantError: the target is keyed, and its options do not say `QueryRows.REFUSED`.
        """
        if self.outputs.keyed:
            raise InvariantError(
                f"{self.outputs.keyed[0][0]}: rows of a query are not brought to the task of their key, so its options "
                "have to say QueryRows.REFUSED: this is a mistake in the sink"
            )

    @property
    def given(self) -> str:
        """Name of the reports of `WriteRowsTask`."""
        return f"{self.name}-given"

    def task_reports(self, plan: Plan, given: WrittenRows) -> list[TaskReport]:
        """A report for each task; the first report of rows counts all that the query left out as dropped.

        Raises:
            InvariantError: a task has no report, or several.
        """
        decoded = reports_of(plan, given.reports, self.name, len(self.ranges))
        if any(report.failure is not None for report in decoded):
            return decoded
        first, *others = written = reports_of(plan, given.reports, self.given, len(self.ranges))
        if given.kept is None or any(report.failure is not None for report in written):
            return [*decoded, *written]
        dropped = sum(count.accepted for count in merge_counts(decoded)) - given.kept
        quarantine = self.outputs.quarantine[0]
        reports = {
            target: report if target == quarantine else replace(report, dropped=report.dropped + dropped)
            for target, report in (first.reports or {}).items()
        }
        return [*decoded, replace(first, reports=reports), *others]


@dataclass(frozen=True)
class WriteRowsTask:
    """Passes a task's rows of the result to the target's writer; picklable.

    Attributes:
        schema: the query's columns.
        outputs: see `WriterWrite`.
        epoch: the epoch's number.
        write: name of the write, for its reports.
        reports: collects the report of each task, by its number.
    """

    schema: pa.Schema
    outputs: Outputs
    epoch: int
    write: str
    reports: Accumulator[list[Numbered]]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the rows to the outputs; yields none."""
        attempt = this_attempt()

        def write(opened: OpenOutputs) -> Sequence[ShardCount]:
            first = 0
            for batch in batches:
                if batch.num_rows:
                    rows = conform(batch, self.schema, range(len(self.schema)))
                    offsets = pa.arange(first, first + batch.num_rows)
                    opened.accept(AcceptedRows(rows, SHARD, offsets), self.epoch)
                first += batch.num_rows
            return ()

        report = attempt_task(self.outputs, attempt, write)
        self.reports.add([(self.write, attempt.task, TASK_REPORT.dump(report))])
        yield from ()


def write_rows(write: WriterWrite) -> WrittenRows:
    """Run the query over the decoded rows, and have each task write its rows; on the thread that speaks to Spark.

    Raises:
        SparkJobError: a task failed more often than Spark retries it, or Spark has not reported its counts.
    """
    query = write.query
    query.reports.value = []
    decode = DecodeTask(write.template, write.ranges, query.analysis.columns, write.name, query.reports)
    frame = result_of(query, decode)
    observation = Observation() if query.analysis.leaves_out else None
    if observation is not None:
        frame = frame.observe(observation, F.count(F.lit(1)).alias(_KEPT))
    give = WriteRowsTask(query.analysis.schema, write.outputs, write.template.epoch, write.given, query.reports)
    frame.mapInArrow(give, spark_schema(query.analysis.schema)).write.format("noop").mode("overwrite").save()
    kept = None if observation is None else observed(observation)[_KEPT]
    return WrittenRows(query.reports.value, kept)
