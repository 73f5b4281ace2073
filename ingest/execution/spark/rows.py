"""Writes the rows of a micro-batch to the targets: Spark computes the rows, its Python tasks write them.

::

    batch ── mapInArrow ──▶ each task: Arrow batches → the job's types → writers of every target ──▶ one report
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from ingest.execution.spark.failure import task_failure
from ingest.execution.task import TASK_REPORT, AcceptedRows, OpenOutputs, Outputs, TaskReport, attempt_task
from sinks.base import TaskAttempt
from timeline.epoch import Plan, ShardCount, WriteReport
from timeline.errors import StoppedError

SHARD = "stream"
"""The one shard of a stream's timeline; its offset counts committed batches."""


@dataclass(frozen=True)
class BatchRows:
    """Writes the rows of one micro-batch, which is evaluated once. See EpochWriter.

    Attributes:
        batch: the micro-batch.
        schema: the job's columns; the batch has the same, in any order.
    """

    batch: DataFrame
    schema: pa.Schema

    def write(self, plan: Plan, outputs: Outputs, stop: threading.Event) -> Sequence[TaskReport]:
        """See EpochWriter.

        Raises:
            SparkJobError: a task failed more often than Spark retries it, or Spark has cancelled the batch.
        """
        order = [self.batch.columns.index(name) for name in self.schema.names]
        # By number: Spark would take names with dots for fields of structs.
        numbered = self.batch.toDF(*(f"c{number}" for number in range(len(order))))
        write = partial(
            write_rows,
            outputs=outputs,
            schema=self.schema,
            order=order,
            epoch=plan.ref.epoch,
            offset=plan.ranges[0].start,
        )
        with _spark_errors(stop):
            bodies = [row[0] for row in numbered.mapInArrow(write, "report binary").collect()]
        reports = [TASK_REPORT.load("task report", bytes(body)) for body in bodies]
        return reports or [_no_tasks(outputs)]


def make_rows(batch: DataFrame, stop: threading.Event) -> None:
    """Evaluate a batch without writing its rows, so that the state of the query advances.

    Raises:
        SparkJobError: see `BatchRows.write`.
        StoppedError: `stop` was set.
    """
    with _spark_errors(stop):
        batch.write.format("noop").mode("overwrite").save()


@contextlib.contextmanager
def _spark_errors(stop: threading.Event) -> Iterator[None]:
    try:
        yield
    except (PySparkException, Py4JError, OSError) as error:
        if stop.is_set():
            raise StoppedError("stopped while the batch was worked on; its tasks were cancelled") from error
        next_step = "Start the query again once the cause is mended"
        raise task_failure(error, "the batch failed on Spark", next_step) from error


def write_rows(
    batches: Iterable[pa.RecordBatch],
    *,
    outputs: Outputs,
    schema: pa.Schema,
    order: Sequence[int],
    epoch: int,
    offset: int,
) -> Iterator[pa.RecordBatch]:
    """Write the rows of a Spark task to every target as this attempt, and yield the task's report.

    Args:
        batches: the rows as Spark passes them.
        outputs: writers for the rows.
        schema: the job's columns.
        order: for each column of the job, its index in a batch.
        epoch: the epoch's number.
        offset: offset of the micro-batch, the only one that a refused row has.
    """
    context = TaskContext.get()
    assert context is not None
    attempt = TaskAttempt(context.partitionId(), context.stageId(), context.taskAttemptId())

    def write(opened: OpenOutputs) -> Sequence[ShardCount]:
        rows = 0
        for batch in batches:
            if batch.num_rows:
                offsets = pa.repeat(pa.scalar(offset, pa.int64()), batch.num_rows)
                opened.accept(AcceptedRows(conform(batch, schema, order), SHARD, offsets), epoch)
            rows += batch.num_rows
        return [ShardCount(SHARD, rows, rows, 0)]

    report = TASK_REPORT.dump(attempt_task(outputs, attempt, write))
    yield pa.RecordBatch.from_pydict({"report": [report]})


def conform(batch: pa.RecordBatch, schema: pa.Schema, order: Sequence[int]) -> pa.RecordBatch:
    """The batch in the job's columns. Spark's Arrow types differ only in zone names, nullability and width.

    Args:
        batch: rows as Spark passes them.
        schema: the job's columns.
        order: for each column of the job, its index in the batch.
    """
    columns = [batch.column(number).cast(field.type) for number, field in zip(order, schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _no_tasks(outputs: Outputs) -> TaskReport:
    """The report of an empty batch for which Spark ran no task."""
    targets = [*(name for name, _ in outputs.accepting), outputs.quarantine[0]]
    return TaskReport((ShardCount(SHARD, 0, 0, 0),), {name: WriteReport(0, 0) for name in targets})
