"""Streaming queries in a separate driver, which has the jars that a test needs and can be killed.

``python -m tests.spark.stream_process [JAR...]`` starts a session, runs one query to its end for each line on stdin,
and answers each with a line on stdout. ``TIDELINE_CRASH_AT`` kills the driver at a crash point of the protocol.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from ingest.stream import starting_offsets, stream
from timeline import failpoints
from timeline.errors import TidelineError

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Query:
    """A query that reads all available data and ends.

    Attributes:
        conf: the job file.
        checkpoint: its checkpoint location.
        source: Spark's name of the source.
        options: the source's options.
        columns: SQL expressions of its columns.
        schema: of the records, where the source needs one.
        begins_at_timeline: whether `starting_offsets` supplies Kafka's ``startingOffsets``.
    """

    conf: str
    checkpoint: str
    source: str
    options: Mapping[str, str]
    columns: Sequence[str]
    schema: str | None = None
    begins_at_timeline: bool = False


@dataclass(frozen=True)
class Answer:
    """Result of a query: class and message of its error, "" if there was none."""

    error: str = ""
    message: str = ""


@dataclass(frozen=True)
class StreamDriver:
    """A driver process that runs queries."""

    process: subprocess.Popen[str] = field(repr=False)

    def run(self, query: Query) -> Answer | None:
        """Result of a query; None if the driver was killed before its end."""
        assert self.process.stdin is not None and self.process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps(asdict(query)) + "\n")
            self.process.stdin.flush()
        line = self.process.stdout.readline()
        return Answer(**json.loads(line)) if line else None


@contextlib.contextmanager
def stream_driver(jars: Sequence[Path] = (), crash_at: str | None = None) -> Iterator[StreamDriver]:
    """Start a driver; on exit kill it with its JVM and tasks."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TIDELINE_")}
    environment |= {"PYTHONPATH": str(ROOT)} | ({"TIDELINE_CRASH_AT": crash_at} if crash_at else {})
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.spark.stream_process", *map(str, jars)],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield StreamDriver(process)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def serve(jars: Sequence[str]) -> None:
    """Answer the queries on stdin."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").appName("streams")
    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.jars": ",".join(jars),
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    if "TIDELINE_CRASH_AT" in os.environ:
        failpoints.arm_from(os.environ["TIDELINE_CRASH_AT"])
    for line in sys.stdin:
        print(json.dumps(asdict(run(session, Query(**json.loads(line))))), flush=True)


def run(session: SparkSession, query: Query) -> Answer:
    """Run one query to its end."""
    reader = session.readStream.format(query.source).options(**query.options)
    if query.schema is not None:
        reader = reader.schema(query.schema)
    try:
        if query.begins_at_timeline:
            reader = reader.option("startingOffsets", starting_offsets(query.conf))
        writer = stream(reader.load().selectExpr(*query.columns), query.conf)
        writer.option("checkpointLocation", query.checkpoint).trigger(availableNow=True).start().awaitTermination()
    except (TidelineError, StreamingQueryException) as error:
        return Answer(type(error).__name__, str(error))
    return Answer()


if __name__ == "__main__":
    serve(sys.argv[1:])
