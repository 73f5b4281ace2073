"""Tells whether a row's value or the machine made a query fail on Spark, by the place in Spark that raised the error.

::

    Job aborted ◀─cause─ an error of a task ◀─cause─ …
                              └ its innermost frames in Spark: an expression, or a parser of texts ──▶ the row
                                                               a Python worker, files, memory     ──▶ the machine

SQLSTATEs do not distinguish the two: some of Spark's errors about values are syntax errors (42…) or constraint
violations (23…), some have none, and some are Java's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from timeline.epoch import Plan
from timeline.errors import DataError, SparkJobError

_VALUE_STATES = ("22", "P0001")
"""SQLSTATEs that mean a wrong value wherever they are raised: data exceptions, and errors of raise_error."""

_SPARK = "org.apache.spark."
_NO_PLACE = tuple(_SPARK + part for part in ("sql.errors.", "types.", "unsafe.types.", "util."))
"""Packages that only create errors, or that all others use."""

_OF_VALUES = tuple(_SPARK + f"sql.catalyst.{part}." for part in ("csv", "expressions", "json", "util", "xml"))
_COMPILER = _SPARK + "sql.catalyst.expressions.codegen."
_UNNAMED = "_LEGACY_ERROR_TEMP_"
"""Prefix of conditions without a meaningful name; their message templates, without values, are shown instead."""

_MOST_CAUSES = 20


def failed_row(plan: Plan, error: SparkJobError) -> DataError | None:
    """The error of a row's value that the query fails on; None for any other failure.

    Args:
        plan: the epoch's plan.
        error: the error of the Spark job that ran the query, with Spark's own error as its cause.
    """
    from pyspark.errors import PySparkException, QueryContextType

    cause = error.__cause__
    thrown = list(_thrown(cause))
    found = [each for each in thrown if is_about_a_value(_class(each), _frames(each))]
    said, parts = "", []
    if isinstance(cause, PySparkException):
        state = cause.getSqlState() or ""
        if not found and not state.startswith(_VALUE_STATES):
            return None
        said = _telling(cause.getCondition()) or (state and f"SQLSTATE {state}")
        contexts = cause.getQueryContext()
        parts = [each.fragment() for each in contexts if each.contextType() is QueryContextType.SQL]
    elif not found:
        return None
    # Spark's message may repeat the value; its condition or class, and the query's fragment, do not.
    said = said or next(filter(None, map(_condition, found)), "") or _class(found[-1])
    where = f" in {', '.join(parts)}" if parts else ""
    return DataError(
        f"{plan.ref}: the query of transform fails on a row: {said}{where}. Nothing of the epoch was committed. "
        "Let the query make null of such values (try_cast, try_to_timestamp, ...), or leave such rows out (WHERE)"
    )


def is_about_a_value(kind: str, frames: Iterable[str]) -> bool:
    """Whether an error was raised by an expression, or a parser of texts, on a value.

    Args:
        kind: the error's class in Java.
        frames: class names of its stack frames, the innermost first.
    """
    if kind.endswith("Error"):  # a Java `Error` is about the machine: its memory, its libraries
        return False
    for frame in frames:
        if frame.startswith(_SPARK) and not frame.startswith(_NO_PLACE):
            return frame.startswith(_OF_VALUES) and not frame.startswith(_COMPILER)
    return False


def _thrown(error: BaseException | None) -> Iterator[Any]:
    """Java exceptions behind an exception of PySpark, the outermost first."""
    thrown = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    for _ in range(_MOST_CAUSES):
        if thrown is None:
            return
        yield thrown
        thrown = thrown.getCause()


def _class(thrown: Any) -> str:
    return str(thrown.getClass().getName())


def _frames(thrown: Any) -> Iterator[str]:
    return (str(frame.getClassName()) for frame in thrown.getStackTrace())


def _condition(thrown: Any) -> str:
    """The condition of a Spark exception; "" for other exceptions."""
    from py4j.protocol import Py4JError

    try:
        return _telling(str(thrown.getCondition()))
    except Py4JError:  # it has no such method
        return ""


def _telling(condition: str | None) -> str:
    """A condition's name, or its message template where the name is not meaningful."""
    from pyspark import SparkContext

    if condition is None or not condition.startswith(_UNNAMED):
        return condition or ""
    jvm = SparkContext._jvm
    return (
        "" if jvm is None else str(jvm.org.apache.spark.SparkThrowableHelper.getMessageTemplate(condition)).rstrip(".")
    )
