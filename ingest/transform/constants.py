"""Constants of a query: Spark evaluates them when it optimizes the query, and one that fails would fail every epoch."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ingest.transform.plans import each
from timeline.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FAILS = "transform: {what} fails whatever a row has: {said}. Change it, or leave it out"
_RAISED = "raise_error"

_PATTERNS = (
    "[INVALID_PARAMETER_VALUE.PATTERN",
    "[INVALID_FORMAT.ESC_",
    "[INVALID_DATETIME_PATTERN",
    "[INCONSISTENT_BEHAVIOR_CROSS_VERSION.DATETIME_PATTERN_RECOGNITION",
)
"""How Spark's errors begin for a pattern that it cannot compile: of a regular expression, of LIKE, of dates."""

_JAVA_PATTERNS = frozenset({"FormatString", "StringSplit"})
"""Expressions whose patterns Java compiles, with errors of its own that have no condition."""


def optimized(session: SparkSession, execution: Any, replaced: Any) -> Any:
    """A query's optimized plan, in which constants are evaluated.

    Args:
        session: the session of the query.
        execution: Spark's execution of the query; nothing is run.
        replaced: the analyzed plan with functions as Spark runs them.

    Raises:
        ConfigError: a constant fails, or a constant pattern cannot be compiled.
    """
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        plan = execution.optimizedPlan()
    except (PySparkException, Py4JJavaError) as error:
        said = spark_says(error)
        what = _fragment(error) or _failing(replaced, said) or "an expression"
        raise ConfigError(_FAILS.format(what=what, said=said)) from error
    for what, node in (*_raised_by_every_row(plan), *_with_patterns(session, replaced)):
        try:
            node.eval(None)
        except (PySparkException, Py4JJavaError) as error:
            said = spark_says(error)
            is_java = _kind(node) in _JAVA_PATTERNS and not said.startswith("[")
            if what == _RAISED or is_java or said.startswith(_PATTERNS):
                raise ConfigError(_FAILS.format(what=what, said=said)) from error
    return plan


def spark_says(error: Exception) -> str:
    """The condition and the words of one of Spark's errors, in one line."""
    from py4j.protocol import Py4JJavaError

    text = str(error.java_exception.toString()) if isinstance(error, Py4JJavaError) else str(error)
    return (text.strip() or type(error).__name__).splitlines()[0].partition(" SQLSTATE: ")[0].rstrip(".")


def _fragment(error: Exception) -> str:
    """The part of the query that Spark blames; "" where it names none."""
    from pyspark.errors import PySparkException

    contexts = (error.getQueryContext() if isinstance(error, PySparkException) else None) or []
    return next((fragment for context in contexts if (fragment := " ".join(context.fragment().split()))), "")


def _failing(plan: Any, said: str) -> str:
    """The smallest constant that fails with these words, as SQL; "" where none is found."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    for node in _constants(plan):
        try:
            node.eval(None)
        except (PySparkException, Py4JJavaError) as error:
            if spark_says(error) == said:
                return str(node.sql())
    return ""


def _constants(plan: Any) -> Iterator[Any]:
    """What Spark evaluates once for all rows; what an expression is made of comes before it."""
    for node in _expressions(plan):
        if node.foldable():
            yield node


def _expressions(plan: Any) -> Iterator[Any]:
    """All expressions of a plan; what one is made of comes before it."""

    def of(node: Any) -> Iterator[Any]:
        for child in each(node.children()):
            yield from of(child)
        yield node

    for child in each(plan.children()):
        yield from _expressions(child)
    for node in each(plan.expressions()):
        yield from of(node)


def _raised_by_every_row(plan: Any) -> Iterator[tuple[str, Any]]:
    """Each `raise_error` that every row runs into. Spark folds none, as most are for some rows only.

    It is what an expression evaluates first, in operators up to the first filter.
    """
    operators = [plan]
    while below := each(operators[-1].children()):
        operators.append(below[0])
    for operator in reversed(operators):
        for first in each(operator.expressions()):
            while not (is_raised := _kind(first) == "RaiseError") and (parts := each(first.children())):
                first = parts[0]
            if is_raised and all(part.foldable() for part in each(first.children())):
                yield _RAISED, first
        if _kind(operator) == "Filter":
            return


def _with_patterns(session: SparkSession, plan: Any) -> Iterator[tuple[str, Any]]:
    """Expressions of rows and constants, with blanks and zeros for what comes of the row.

    Spark compiles a pattern when rows are there. A blank is no wrong pattern, so one that is wrong is a constant.
    """
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    jvm = session._jvm
    assert jvm is not None
    literal = jvm.org.apache.spark.sql.catalyst.expressions.Literal
    for node in _expressions(plan):
        children = each(node.children())
        if node.foldable() or not any(child.foldable() for child in children):
            continue
        with contextlib.suppress(Py4JJavaError, PySparkException):  # some types have no such value
            values = [child if child.foldable() else _value(literal, child.dataType()) for child in children]
            yield str(node.sql()), node.withNewChildren(jvm.PythonUtils.toSeq(values))


def _value(literal: Any, kind: Any) -> Any:
    return literal.create(" ", kind) if kind.typeName() == "string" else literal.default(kind)


def _kind(node: Any) -> str:
    return str(node.getClass().getSimpleName())
