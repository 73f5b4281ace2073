"""A job's query in its session: the rows of its result, how many there are, and the reports of its tasks."""

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
        analysis: what Spark says about it.
        session: where it runs.
        reports: gets the reports of decode tasks.
        read_footer: reads a file's metadata, by its path below the table; None where Spark writes no files, and tasks
            give their rows to the target's writer.
    """

    text: str
    source: pa.Schema
    analysis: Analysis
    session: SparkSession
    reports: Accumulator[list[Numbered]]
    read_footer: Callable[[str], pq.FileMetaData] | None


def result_of(query: SparkQuery, decode: DecodeTask) -> DataFrame:
    """The query's result, over a view that has all columns of the source but brings only those that it reads."""
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
    """Rows behind the query, as Spark has counted them.

    Args:
        observation: of a write that has ended.
        wait_s: Spark tells it by a queue of events that may be long, and that drops events once it is full.

    Raises:
        SparkJobError: Spark has not told it.
    """
    told: Future[dict[str, int]] = Future()

    def ask() -> None:
        try:
            told.set_result({name: int(rows) for name, rows in observation.get.items()})
        except BaseException as error:  # whatever it is, it is raised below
            told.set_exception(error)

    # Nobody can end the wait itself.
    threading.Thread(target=ask, name="tideline-kept-rows", daemon=True).start()
    try:
        return told.result(wait_s)
    except TimeoutError:
        raise SparkJobError(
            f"Spark has not told within {wait_s:.0f} s how many rows the query gave: its queue of events was full. "
            "Raise spark.conf: spark.scheduler.listenerbus.eventqueue.capacity"
        ) from None


def reports_of(plan: Plan, numbered: Sequence[Numbered], write: str, tasks: int) -> list[TaskReport]:
    """The report of each task, in the order of their numbers.

    Args:
        plan: the epoch.
        numbered: what came back, also of other writes.
        write: which one is meant.
        tasks: how many tasks it has.

    Raises:
        InvariantError: a task gave none, or several: its rows were not taken to their end, or taken twice.
    """
    found = {number: TASK_REPORT.load("task report", body) for of, number, body in numbered if of == write}
    if sorted(number for of, number, _ in numbered if of == write) != list(range(tasks)):
        raise InvariantError(
            f"{plan.ref}: {count(tasks, 'task')} decoded rows, and reports came of {sorted(found)}. "
            "Nothing of it was committed"
        )
    return [found[number] for number in range(tasks)]
