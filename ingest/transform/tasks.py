"""Decode tasks of a query on executors: read, decode, quarantine rejected rows, and pass accepted ones to Spark.

A task's report cannot come back as a row, for its rows are the query's input. It goes into an accumulator, which
Spark merges once for each task, from the attempt whose files it has committed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.accumulators import Accumulator, AccumulatorParam

from ingest.execution.spark.executors import this_attempt
from ingest.execution.task import FINAL_ERRORS, TASK_REPORT, OpenOutputs, TaskReport, TaskSpec, write_blocks
from timeline.epoch import OffsetRange, ShardCount
from timeline.failpoints import reach

Numbered = tuple[str, int, bytes]
"""A task's report in the accumulator: name of the write, number of the task, body."""


class Collected(AccumulatorParam[list[Numbered]]):
    """Accumulator of reports, as a list."""

    def zero(self, value: list[Numbered]) -> list[Numbered]:
        """See AccumulatorParam."""
        return []

    def addInPlace(self, value1: list[Numbered], value2: list[Numbered]) -> list[Numbered]:
        """See AccumulatorParam."""
        value1 += value2
        return value1


@dataclass(frozen=True)
class DecodeTask:
    """Decodes the tasks of one write, each by its number; picklable.

    Attributes:
        template: a task without its ranges; its only output is the quarantine.
        ranges: the ranges of each task.
        columns: columns that the query reads.
        write: name of the write, for its reports.
        reports: collects the report of each task.
    """

    template: TaskSpec
    ranges: Sequence[tuple[OffsetRange, ...]]
    columns: tuple[str, ...]
    write: str
    reports: Accumulator[list[Numbered]]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Rows of the tasks whose numbers are in the batches' only column; each partition has one number."""
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from self._rows_of(number)

    def _rows_of(self, number: int) -> Iterator[pa.RecordBatch]:
        """One task's rows. If they are not read to the end, there is no report, and quarantined rows are removed."""
        reach("task-started")
        counts: list[ShardCount] = []
        spec = replace(self.template, ranges=self.ranges[number])
        try:
            with OpenOutputs.open(spec.outputs, this_attempt()) as opened:
                for accepted in write_blocks(spec, opened, counts):
                    yield accepted.rows.select(list(self.columns))
                report = TaskReport(tuple(counts), opened.close())
            reach("task-written")
        except FINAL_ERRORS as error:
            # The rows end here as if complete: the driver checks the reports for failures before it uses any rows.
            report = TaskReport.failed(error)
        self.reports.add([(self.write, number, TASK_REPORT.dump(report))])
