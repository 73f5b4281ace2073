"""Lines of Spark's JVM and of its Python workers as log records, without texts that may quote a row's value.

::

    log4j ──── one event, one line of JSON ──┐
    worker ─── its own warnings, the same ───┼──▶ level, logger, message; of an error class, condition and place
    all else, line by line ──────────────────┘    the whole text with details only (DEBUG)

An event is one line (`log4j2.properties`), so that a value with line breaks cannot pass for an event. With a
job's own log4j2 file, each line is classified alone: all but records, errors and notices of the JVM is hidden.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from dataclasses import dataclass

from ingest.execution.spark.failure import PYTHON_TRACE, STEPS_OF_A_TRACE, error_in_python

# With or without a date before the level.
_RECORD = re.compile(r"(?:[-\d/: ,.]+ )?(?P<level>TRACE|DEBUG|INFO|WARN|ERROR|FATAL) ")
_WARNING_LEVELS = frozenset({"WARN", "ERROR", "FATAL", "WARNING", "CRITICAL"})
_JAVA_ERROR = re.compile(r"(?P<kind>(?:[a-z_][\w$]*\.)+[A-Z][\w$]*(?:Error|Exception))\b(?:: (?P<words>.*))?")
_CAUSE = re.compile(r"^\s*(?:Caused by|Suppressed): ", re.M)
_PYTHON_ERROR = re.compile(r"(?P<kind>[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit))(?:: .*)?")
_CONDITION = re.compile(r"\[[A-Z][A-Z0-9_.]+\]")
_STATE = re.compile(r"\bSQLSTATE: ([0-9A-Z]{5})\b")
_OF_THE_JVM = ("#", "OpenJDK ", "Java HotSpot", "WARNING: ", "Fatal Python error: ")
_OF_THE_MACHINE = ("java.lang.OutOfMemoryError", "java.io.", "java.net.", "java.nio.", "org.apache.hadoop.")
"""Java classes whose texts are about the machine; any other text may quote a value."""
_CRASHED = "Python worker exited unexpectedly (crashed)"
_OWN_LOGGERS = ("timeline", "sinks", "ingest")


@dataclass(frozen=True)
class Line:
    """A line of a JVM's stderr.

    Attributes:
        level: level of the log record.
        shown: the text without possible values of a row; "" where nothing is left.
        whole: the whole text.
    """

    level: int
    shown: str
    whole: str


def read_line(line: str) -> Line:
    """Parse a line: of an event its message, of an error its class, condition, SQLSTATE and place."""
    event = _event(line)
    if event is not None:
        return _read_event(event)
    record = _RECORD.match(line)
    if record is not None:
        return Line(_level(record["level"]), line[: record.end()] + shown_message(line[record.end() :]), line)
    if line.startswith(_OF_THE_JVM):
        return Line(logging.INFO, line, line)
    # A Python error inside of a Java error: steps follow, and the last line is the error itself.
    if line[:1].isspace() or line.startswith(STEPS_OF_A_TRACE) or line.endswith(PYTHON_TRACE):
        return Line(logging.DEBUG, "", line)
    python = _PYTHON_ERROR.fullmatch(line)
    if python is not None and "." not in python["kind"]:
        return Line(logging.INFO, python["kind"], line)
    java = _JAVA_ERROR.search(line)
    return Line(logging.INFO, _shown_java(java[0]) if java is not None else "", line)


def shown_message(message: str) -> str:
    """A message of Spark; an error that it quotes is reduced by `shown_thrown`."""
    first = message.partition("\n")[0]
    found = _JAVA_ERROR.search(first)
    if found is not None:
        return first[: found.start()] + shown_thrown(message[found.start() :])
    condition = _CONDITION.search(first)
    return first if condition is None else first[: condition.start()] + _marks(message[condition.start() :])


def shown_thrown(thrown: str, at: str = "") -> str:
    """An error and its causes by class, condition and SQLSTATE, each without its text; the place.

    Args:
        thrown: the error as Java prints it, with causes and steps.
        at: place of the error; "" if unknown.
    """
    outer, *causes = _CAUSE.split(thrown)
    if ".PythonException" in outer.partition(":")[0]:
        python = error_in_python(thrown)
        if python is not None:
            return python
    # A value may have lines that begin like causes: of a cause only its class, condition and SQLSTATE are shown.
    found = [_shown_java(cause, is_outer=False) for cause in causes if _JAVA_ERROR.match(cause)]
    return ", caused by ".join(dict.fromkeys((_shown_java(outer) + (f" at {at}" if at else ""), *found)))


class ToDriver(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes records of a Python worker as events, for the driver that reads the JVM's stderr."""

    def format(self, record: logging.LogRecord) -> str:
        """See logging.Handler."""
        return json.dumps({"level": record.levelname, "logger": record.name, "message": record.getMessage()})


def log_to_driver() -> None:
    """Send warnings of this process's tasks to the driver's log; for Spark's worker processes."""
    handler = ToDriver(sys.stderr)
    handler.setLevel(logging.WARNING)
    for name in _OWN_LOGGERS:
        logging.getLogger(name).addHandler(handler)


def _event(line: str) -> dict[str, str] | None:
    if not line.startswith('{"level":'):
        return None
    try:
        found = json.loads(line, strict=False)
    except ValueError:
        return None
    return found if isinstance(found, dict) and all(isinstance(value, str) for value in found.values()) else None


def _read_event(event: dict[str, str]) -> Line:
    # log4j puts a blank before an error's text.
    level, logger, message, thrown = (event.get(name, "").strip() for name in ("level", "logger", "message", "thrown"))
    at = event.get("at", "").replace(" ", "").strip(":")
    start = f"{level} {logger.rpartition('.')[2]}: "
    is_own = logger.startswith(tuple(f"{name}." for name in _OWN_LOGGERS))
    shown = start + (message if is_own else shown_message(message))
    if thrown:
        shown = f"{shown.rstrip('.')}: {shown_thrown(thrown, at)}"
    return Line(_level(level), shown, "\n".join(filter(None, (start + message, thrown))))


def _level(name: str) -> int:
    return logging.WARNING if name in _WARNING_LEVELS else logging.INFO


def _shown_java(said: str, *, is_outer: bool = True) -> str:
    """A Java error's class, and the parts of its text that quote no value.

    Args:
        said: class and text, which may have several lines.
        is_outer: whether the text certainly is an error's own.
    """
    kind, _, words = said.partition(": ")
    if not re.fullmatch(r"[\w$.]+", kind):
        return "an error"
    if is_outer and kind.startswith(_OF_THE_MACHINE):
        marks = words.partition("\n")[0].strip()
    else:
        marks = _CRASHED if words.startswith(_CRASHED) else _marks(words)
    return f"{kind}: {marks}" if marks else kind


def _marks(words: str) -> str:
    """Condition and SQLSTATE of an error's text; "" where it has none."""
    condition, states = _CONDITION.match(words), _STATE.findall(words)
    return " ".join(filter(None, (condition[0] if condition else "", f"SQLSTATE: {states[-1]}" if states else "")))
