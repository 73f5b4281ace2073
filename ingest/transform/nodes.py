"""Access to nodes of Spark's plans and expressions in the JVM."""

from __future__ import annotations

from typing import Any


def each(sequence: Any) -> list[Any]:
    """The elements of a Scala sequence."""
    return [sequence.apply(at) for at in range(sequence.size())]


def kind_of(node: Any) -> str:
    """The class of a node, without its package."""
    return str(node.getClass().getSimpleName())


def sql_text(text: str) -> str:
    """A text as a quoted SQL literal."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def errors_of_spark(*others: type[Exception]) -> tuple[type[Exception], ...]:
    """Error classes of a call into the JVM, for `except`; imported late, as a job without a query has no Spark.

    Args:
        others: further classes to catch.
    """
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    return (Py4JJavaError, PySparkException, *others)
