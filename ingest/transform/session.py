"""The Spark session of a job's query: a session of its own, with the settings that its files need."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from timeline.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TResult = TypeVar("TResult")


@runtime_checkable
class SessionRunner(Protocol):
    """A runner with a Spark session, which a query needs; otherwise as `ingest.execution.runner.Runner`."""

    def with_session(
        self, work: Callable[[SparkSession], Sequence[TResult]], tasks: int, stop: threading.Event
    ) -> Sequence[TResult]:
        """Call `work` with the session, on the one thread that speaks to Spark.

        Args:
            work: runs at most one Spark job.
            tasks: number of tasks of this job.
            stop: set from outside to cancel the tasks.

        Raises:
            StoppedError: `stop` was set while tasks were running; they were cancelled.
            SparkJobError: a task failed more often than Spark retries it. The session is stopped.
        """


_NEEDED = {
    # Delta's log has no statistics of Spark's old INT96, and other readers misread it.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.writeLegacyFormat": "false",
    # Otherwise Spark reads a file that a query names before the query is refused.
    "spark.sql.runSQLOnFiles": "false",
    # Otherwise ${env:HOME} in a query is replaced by the machine's value: the query must be the job file's text.
    "spark.sql.variable.substitute": "false",
}
_DEFAULTS = {
    # Partitions whose files are open at once in a task; for more partitions Spark sorts the rows first.
    "spark.sql.maxConcurrentOutputFileWriters": "32",
}


_ARROW = {
    # Tideline itself makes the batches: checks of every value took 10 % of the JVM's work for a query.
    "arrow.enable_unsafe_memory_access": "true",
    "arrow.enable_null_check_for_get": "false",
}
"""System properties of a JVM that runs tasks; Arrow reads them when it is first used."""


def open_session(started: SparkSession) -> SparkSession:
    """A new session for one job's query, with its own views and settings, on the Spark that is already started."""
    from pyspark.logger import PySparkLogger

    # Errors of a query are raised; PySpark would also log them, with the whole Java stack.
    PySparkLogger.getLogger("SQLQueryContextLogger").disabled = True
    session = started.newSession()
    assert session._jvm is not None
    system = session._jvm.java.lang.System
    for key, value in _ARROW.items():
        # For tasks in this JVM; executors of a cluster have spark.executor.extraJavaOptions.
        if system.getProperty(key) is None:
            system.setProperty(key, value)
    given = {key for key, _ in started.sparkContext.getConf().getAll()}
    for key, value in _NEEDED.items():
        session.conf.set(key, value)
    for key, value in _DEFAULTS.items():
        if key not in given:
            session.conf.set(key, value)
    return session


_S3A = "org.apache.hadoop.fs.s3a.S3AFileSystem"
_S3A_PROVIDERS = "fs.s3a.aws.credentials.provider"


def s3a_settings(storage: Mapping[str, Any]) -> dict[str, str]:
    """The job's S3 storage options under Hadoop's names; may hold secrets. Hadoop finds options that are not given."""
    given = {**storage, **(storage.get("client_kwargs") or {})}
    names = {
        "key": "fs.s3a.access.key",
        "aws_access_key_id": "fs.s3a.access.key",
        "secret": "fs.s3a.secret.key",
        "aws_secret_access_key": "fs.s3a.secret.key",
        "token": "fs.s3a.session.token",
        "aws_session_token": "fs.s3a.session.token",
        "endpoint_url": "fs.s3a.endpoint",
        "region_name": "fs.s3a.endpoint.region",
    }
    settings = {name: str(given[key]) for key, name in names.items() if given.get(key) is not None}
    if "fs.s3a.session.token" in settings:
        settings[_S3A_PROVIDERS] = "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider"
    if given.get("anon"):
        settings[_S3A_PROVIDERS] = "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"
    if "fs.s3a.endpoint" in settings:
        settings["fs.s3a.path.style.access"] = "true"
        settings["fs.s3a.connection.ssl.enabled"] = str(not settings["fs.s3a.endpoint"].startswith("http://")).lower()
    return settings


def prepare_s3a(session: SparkSession, storage: Mapping[str, Any]) -> None:
    """Configure Spark to write to S3 with the job file's options; settings in ``spark.conf`` take precedence.

    Raises:
        ConfigError: Hadoop's client for S3 is missing.
    """
    from py4j.protocol import Py4JJavaError

    context = session.sparkContext
    assert context._jvm is not None
    try:
        loader = context._jvm.java.lang.Thread.currentThread().getContextClassLoader()
        loader.loadClass(_S3A)
    except Py4JJavaError as error:
        raise ConfigError(
            f"transform: Spark itself writes the result, and has no client for S3 here ({_S3A} is not found): add "
            "spark.conf: {spark.jars.packages: org.apache.hadoop:hadoop-aws:3.4.2}, or put its jars into spark.jars"
        ) from error
    hadoop = context._jsc.hadoopConfiguration()
    given = {key for key, _ in context.getConf().getAll()}
    for name, value in s3a_settings(storage).items():
        if f"spark.hadoop.{name}" not in given:
            hadoop.set(name, value)
