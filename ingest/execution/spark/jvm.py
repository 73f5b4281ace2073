"""Starts Spark's JVM so that its stderr becomes log records of this process.

::

    spark-submit ── spark-class ── java        one pipe, inherited ──▶ thread ──▶ logger ``ingest.execution.spark.jvm``

Otherwise the JVM writes between the lines of ``--log-json`` and over the progress line, and the
reason of a failed start is on the terminal but not in the error.
"""

from __future__ import annotations

import collections
import contextlib
import logging
import os
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ingest.execution.spark.failure import cause_of
from ingest.execution.spark.jvm_log import read_line
from timeline.errors import SparkJobError

if TYPE_CHECKING:
    from socketserver import BaseServer

    from pyspark import SparkConf

log = logging.getLogger(__name__)

JAVA_ADVICE = (
    "Spark 4.1 needs Java 17 or newer: install it (Debian, Ubuntu: apt-get install openjdk-17-jre-headless), "
    "or set JAVA_HOME to where it is"
)

# The launcher always adds this module (Spark 4.1, JavaModuleOptions), and the JVM cannot suppress its notice.
_NOISE = frozenset({"WARNING: Using incubator modules: jdk.incubator.vector"})
_KEPT_LINES = 40
_POLL_S = 0.2


class JvmOutput:
    """The stderr of one JVM and of its child processes, line by line until the last process has ended.

    While the JVM starts there are no rows yet, and lines are shown whole; for later lines see
    `ingest.execution.spark.jvm_log`.
    """

    def __init__(self) -> None:
        self._has_started = False
        self._lines: collections.deque[str] = collections.deque(maxlen=_KEPT_LINES)
        self._thread: threading.Thread | None = None

    @contextlib.contextmanager
    def opened(self) -> Iterator[int]:
        """The write end of a pipe, for a process to inherit in this context; the reader ends with the last copy."""
        read_end, write_end = os.pipe()
        self._thread = threading.Thread(target=self._read, args=(read_end,), name="tideline-jvm", daemon=True)
        self._thread.start()
        try:
            yield write_end
        finally:
            os.close(write_end)

    def has_started(self) -> None:
        """Mark the JVM as started: later lines may quote rows."""
        self._has_started = True

    def last_lines(self, wait_s: float = 1.0) -> str:
        """The last lines of a process that has just ended."""
        if self._thread is not None:
            self._thread.join(wait_s)
        return "\n".join(self._lines)

    def _read(self, read_end: int) -> None:
        with os.fdopen(read_end, encoding="utf-8", errors="replace") as pipe:
            for line in pipe:
                text = line.rstrip()
                if text and text not in _NOISE:
                    self._tell(text)

    def _tell(self, text: str) -> None:
        line = read_line(text)
        self._lines.append(line.whole)
        is_whole = not self._has_started or log.isEnabledFor(logging.DEBUG)
        text = line.whole if is_whole else line.shown
        if text:
            log.log(line.level, "%s", text)


def is_submitted() -> bool:
    """Whether spark-submit started this process: its JVM runs already, with settings and output of its own."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def submitted_settings() -> dict[str, str]:
    """Settings from the options and files of spark-submit; only where `is_submitted`.

    Raises:
        SparkJobError: the JVM of spark-submit is dead.
    """
    from py4j.protocol import Py4JError
    from pyspark import SparkConf, SparkContext

    try:
        SparkContext._ensure_initialized()
        return dict(SparkConf().getAll())
    except (Py4JError, OSError) as error:
        raise SparkJobError(f"the JVM of spark-submit does not answer: {cause_of(str(error))}; start again") from error


def stop_with_submit(stop: threading.Event) -> None:
    """Set an event once spark-submit has ended: a signal to spark-submit has no other effect on this process.

    Otherwise a driver whose JVM is dead would hold its timeline until it next needs Spark.
    """
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_POLL_S)
        # Output went through spark-submit; a broken pipe must not disturb the settling of open epochs.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for stream in (1, 2):
            os.dup2(nowhere, stream)
        stop.set()

    threading.Thread(target=watch, name="tideline-submit", daemon=True).start()


def log_lost_connections() -> None:
    """Make pyspark's accumulator servers log the loss of their JVM; by default they print a trace on stderr."""
    from pyspark.accumulators import AccumulatorTCPServer, AccumulatorUnixServer

    # The method that socketserver leaves to be overridden.
    for server in (AccumulatorTCPServer, AccumulatorUnixServer):
        setattr(server, "handle_error", _log_lost_connection)  # noqa: B010 - mypy takes it for a plain method


def silence_query_errors() -> None:
    """Keep pyspark from printing errors of queries, which it also raises: their texts may quote a row's value."""
    from pyspark.logger import PySparkLogger

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True


def _log_lost_connection(server: BaseServer, request: object, client_address: object) -> None:
    log.debug("the JVM's connection for accumulators was lost", exc_info=True)


def start_jvm(conf: SparkConf) -> None:
    """Start the JVM of this process unless it runs already; the next SparkContext uses it.

    Raises:
        SparkJobError: the JVM does not start; the message has its output, and advice.
    """
    from pyspark import SparkContext
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is not None:
        return
    output = JvmOutput()
    try:
        # `popen_kwargs` is Spark's own hook for the JVM's output.
        with output.opened() as write_end:
            gateway = launch_gateway(conf, {"stderr": write_end, "cwd": _folder()})  # type: ignore[no-untyped-call]
            output.has_started()
    except (PySparkRuntimeError, OSError) as error:
        said = cause_of(output.last_lines())
        raise SparkJobError(f"Spark's JVM does not start: {said}. {_advice(said)}") from error
    SparkContext._ensure_initialized(gateway=gateway, conf=conf)


def _folder() -> str | None:
    """Working directory of the JVM: the current one, or the root where it was deleted, in which no JVM starts."""
    try:
        os.getcwd()
    except FileNotFoundError:
        return "/"
    return None


def _advice(said: str) -> str:
    is_spark = "org.apache.spark" in said and "UnsupportedClassVersionError" not in said
    return "Check spark.master and spark.conf in the job file" if is_spark else JAVA_ADVICE
