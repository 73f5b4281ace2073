"""Spark's JVM, started so that what it writes to stderr becomes log records of this process.

::

    spark-submit ── spark-class ── java        one pipe, inherited ──▶ thread ──▶ logger ``ingest.jvm``

Left to itself the JVM writes between the lines of ``--log-json`` and over the progress line, and the
reason why it does not start is on the terminal but not in the error.
"""

from __future__ import annotations

import collections
import logging
import os
import re
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from timeline.errors import SparkJobError

if TYPE_CHECKING:
    from pyspark import SparkConf

log = logging.getLogger(__name__)

JAVA_ADVICE = (
    "Spark 4.1 needs Java 17 or newer: install it (Debian, Ubuntu: apt-get install openjdk-17-jre-headless), "
    "or set JAVA_HOME to where it is"
)

# The launcher always adds this module (Spark 4.1, JavaModuleOptions), and the JVM has no switch against its notice.
_NOISE = frozenset({"WARNING: Using incubator modules: jdk.incubator.vector"})
# With or without a date before it: the user's own log4j2 file may be in force.
_LEVEL = re.compile(r"(?:[-\d/: ,.]+ )?(?P<level>TRACE|DEBUG|INFO|WARN|ERROR|FATAL) ")
_KEPT_LINES = 40
_STEPS_OF_A_TRACE = ("at ", "... ", "File ", "Traceback", "^", "JVM stacktrace", "Caused by: ")


class JvmOutput:
    """The stderr of one JVM and of all that it starts, line by line until the last of them has ended."""

    def __init__(self) -> None:
        """Open a pipe and read from it in a thread of its own."""
        self._lines: collections.deque[str] = collections.deque(maxlen=_KEPT_LINES)
        read_end, self.write_end = os.pipe()
        self._thread = threading.Thread(target=self._read, args=(read_end,), name="tideline-jvm", daemon=True)
        self._thread.start()

    def detach(self) -> None:
        """Close this process's own write end: the JVM has its copy, and the thread ends with it."""
        os.close(self.write_end)

    def last_lines(self, wait_s: float = 1.0) -> Sequence[str]:
        """The last lines of a JVM that has just ended."""
        self._thread.join(wait_s)
        return tuple(self._lines)

    def _read(self, read_end: int) -> None:
        with os.fdopen(read_end, encoding="utf-8", errors="replace") as pipe:
            for line in pipe:
                text = line.rstrip()
                if text and text not in _NOISE:
                    self._lines.append(text)
                    log.log(level_of(text), "%s", text)


def level_of(line: str) -> int:
    """Level of a line's record: what Spark calls WARN or worse is for people to see, all else is detail."""
    found = _LEVEL.match(line)
    return logging.WARNING if found and found["level"] in ("WARN", "ERROR", "FATAL") else logging.INFO


def start_jvm(conf: SparkConf) -> None:
    """Start the JVM of this process unless it runs already; the next SparkContext uses it.

    Raises:
        SparkJobError: it does not start; the message has what it said, and what it needs.
    """
    from pyspark import SparkContext
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is not None:
        return
    output = JvmOutput()
    try:
        # `popen_kwargs` is Spark's own hook for those who want the JVM's output.
        gateway = launch_gateway(conf, {"stderr": output.write_end})
        SparkContext._ensure_initialized(gateway=gateway, conf=conf)
    except PySparkRuntimeError as error:
        output.detach()
        said = cause_of("\n".join(output.last_lines()))
        raise SparkJobError(f"Spark's JVM does not start: {said}. {JAVA_ADVICE}") from error
    except OSError as error:
        output.detach()
        raise SparkJobError(f"Spark's JVM cannot be started: {error}. {JAVA_ADVICE}") from error
    output.detach()


def cause_of(message: str) -> str:
    """The line of a Spark error that names the cause: the last one of the Python traceback, or the first."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    causes = [line for line in lines if not line.startswith(_STEPS_OF_A_TRACE)]
    errors = [line for line in causes if "Error: " in line or "Exception: " in line]
    return (errors or causes or ["it said nothing"])[-1 if errors else 0][:500]
