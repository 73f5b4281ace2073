"""Spark streaming queries through Tideline; Spark is imported when a query is created."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tideline.job import AnyJob, config_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from ingest.stream import StreamIngest


def stream(df: DataFrame, job: AnyJob) -> StreamIngest:
    """Ingest each micro-batch of a streaming query as one epoch; see `ingest.stream.stream`.

    Args:
        df: a streaming DataFrame.
        job: a job with ``source: {type: stream}``, or the path of its job file.

    Raises:
        ConfigError: the job is wrong, or `df` does not fit it.
    """
    from ingest.stream import stream as ingest

    return ingest(df, config_of(job))


def starting_offsets(job: AnyJob, *, default: str = "earliest", source: int = 0) -> str:
    """The value for Kafka's option ``startingOffsets`` with which a query continues the timeline.

    Args:
        job: a job with ``source: {type: stream}``, or the path of its job file.
        default: the value while no offsets are committed.
        source: index of the query's source, in Spark's order.

    Raises:
        ConfigError: the committed offsets can only be continued with their own checkpoint.
        WriterBusyError: a writer that may be alive has an open epoch.
    """
    from ingest.stream import starting_offsets as offsets

    return offsets(config_of(job), default=default, source=source)
