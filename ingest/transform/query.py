"""A job's query in its session: the rows of its result, their count, and the reports of its tasks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.accumulators import Accumulator
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from ingest.execution.task import TASK_REPORT, TaskReport
from ingest.transform.analysis import VIEW, Analysis, spark_schema
from ingest.transform.layout import quoted
from ingest.transform.tasks import DecodeTask, Numbered
from timeline.epoch import Plan
from timeline.errors import InvariantError, SparkJobError
from timeline.units import count


@dataclass(frozen=True)
class SparkQuery:
    """A job's query in its session, for all epochs of one run.

    Attributes:
        text: the query.
        source: columns of the decoded rows.
        analysis: Spark's analysis of the query.
        session: the session that runs it.
        reports: collects the reports of decode tasks.
        read_footer: reads a file's metadata, by its path below the table; None where Spark writes no files, and tasks
            pass their rows to the target's writer.
    """

    text: str
    source: pa.Schema
    analysis: Analysis
    session: SparkSession
    reports: Accumulator[list[Numbered]]
    read_footer: Callable[[str], pq.FileMetaData] | None


def result_of(query: SparkQuery, decode: DecodeTask) -> DataFrame:
    """The query's result, over a view with all columns of the source; columns that the query does not read are null."""
    tasks = len(decode.ranges)
    read = pa.schema([query.source.field(name) for name in decode.columns])
    schema = spark_schema(query.source)
    rows = query.session.range(0, tasks, 1, tasks).mapInArrow(decode, spark_schema(read))
    if len(read) < len(schema):
        rows = rows.select(
            *(
                F.col(quoted(field.name))
                if field.name in decode.columns
                else F.lit(None).cast(field.dataType).alias(field.name)
                for field in schema
            )
        )
    rows.createOrReplaceTempView(VIEW)
    return query.session.sql(query.text)


def observed(observation: Observation, wait_s: float = 60.0) -> dict[str, int]:
    """Row counts after the query, as observed by Spark.

    Args:
        observation: the observation of a write that has ended.
        wait_s: timeout in seconds: Spark reports by an event queue, which may be long, and drops events once full.

    Raises:
        SparkJobError: Spark has not reported the counts in time.
    """
    told: Future[dict[str, int]] = Future()

    def ask() -> None:
        try:
            told.set_result({name: int(rows) for name, rows in observation.get.items()})
        except BaseException as error:  # raised below
            told.set_exception(error)

    # In a thread: Spark's own wait has no timeout.
    threading.Thread(target=ask, name="tideline-kept-rows", daemon=True).start()
    try:
        return told.result(wait_s)
    except TimeoutError:
        raise SparkJobError(
            f"Spark has not told within {wait_s:.0f} s how many rows the query gave: its queue of events was full. "
            "Raise spark.conf: spark.scheduler.listenerbus.eventqueue.capacity"
        ) from None


def reports_of(plan: Plan, numbered: Sequence[Numbered], write: str, tasks: int) -> list[TaskReport]:
    """The report of each task of a write, in the order of the task numbers.

    Args:
        plan: the epoch.
        numbered: collected reports, those of other writes included.
        write: name of the write.
        tasks: the write's number of tasks.

    Raises:
        InvariantError: a task has no report, or several: its rows were not read to the end, or read twice.
    """
    found = {number: TASK_REPORT.load("task report", body) for of, number, body in numbered if of == write}
    if sorted(number for of, number, _ in numbered if of == write) != list(range(tasks)):
        raise InvariantError(
            f"{plan.ref}: {count(tasks, 'task')} decoded rows, and reports came of {sorted(found)}. "
            "Nothing of it was committed"
        )
    return [found[number] for number in range(tasks)]
