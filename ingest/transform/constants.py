"""Constants of a query that fail whatever a row has: they would fail every epoch, so they are looked for at its start.

::

    1/0, CAST('x' AS INT)                  Spark evaluates them when it optimizes the query
    elt(5, 'a', 'b'), raise_error('x')     no row's value in them, though Spark calls them no constants: evaluated once
    encode(host, 'nosuch'), slice(tags, 0, 1)
        constants beside values of rows: evaluated with several values for each of these. Where all fail with the same
        words, and these are about a parameter, it is the constant that fails
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ingest.transform.plans import each
from timeline.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FAILS = "transform: {what} fails whatever a row has: {said}. Mend this expression, or leave it out"
_RAISED = "RaiseError"

_PARAMETERS = (
    "[INVALID_PARAMETER_VALUE.",
    "[INVALID_FORMAT.ESC_",
    "[INVALID_DATETIME_PATTERN",
    "[INCONSISTENT_BEHAVIOR_CROSS_VERSION.DATETIME_PATTERN_RECOGNITION",
    "[INVALID_INDEX_OF_ZERO",
    "[INVALID_TIMEZONE",
    "[INVALID_VARIANT_GET_PATH",
    "[ILLEGAL_DAY_OF_WEEK",
    "[UNSUPPORTED_FEATURE.AES_MODE",
)
"""How Spark's errors begin for a parameter that no value of a row can help: a pattern, a character set, a zone, ..."""

_CONTENT = "[INVALID_PARAMETER_VALUE.AES_CRYPTO_ERROR"
"""What Spark says of bytes that a key does not open, among its errors of parameters."""

_JAVA_TEXTS = ("java.lang.RuntimeException: Invalid XPath", "Delimiter cannot be empty")
"""How Java's own errors of parameters begin, which Spark passes on without a condition."""

_JAVA_PATTERNS = frozenset({"FormatString", "StringSplit", "StringToMap"})
"""Expressions whose patterns Java compiles, with errors that begin in many ways."""

_WITH_OPTIONS = frozenset({"CsvToStructs", "StructsToCsv"})
"""Expressions with parameters that are no expressions."""

_GROUPS = frozenset({"RegExpExtract", "RegExpExtractAll"})
_SHORT_CIRCUITS = frozenset({"And", "Or"})
_UNSURE = frozenset({"TryEval", "LambdaFunction"})
"""Expressions whose parts may fail, or are perhaps never evaluated: an array may be empty."""

_TEXTS = (" ", "a", "2020-01-01", "<a>1</a>")
_NUMBERS = 3
_SUFFIXES = {"byte": "Y", "short": "S", "integer": "", "long": "L", "float": "F", "double": "D"}
_SAMPLES = max(len(_TEXTS), _NUMBERS)


def optimized(session: SparkSession, execution: Any, replaced: Any) -> Any:
    """A query's optimized plan, in which constants are evaluated.

    Args:
        session: the session of the query.
        execution: Spark's execution of the query; nothing is run.
        replaced: the analyzed plan with functions as Spark runs them.

    Raises:
        ConfigError: a constant fails, or no value of a row can go with it.
    """
    try:
        plan = execution.optimizedPlan()
    except _errors() as error:
        said = spark_says(error)
        what = _fragment(error) or _failing(replaced, said) or "an expression"
        raise ConfigError(_FAILS.format(what=what, said=said)) from error
    for node in _before_rows(session, plan):
        said = _failure(node)
        if said and not said.startswith("[INTERNAL_ERROR"):
            raise ConfigError(_FAILS.format(what=_smallest(node, said), said=said))
    for node in _expressions(replaced):
        said = _wrong_parameter(session, node)
        if said:
            raise ConfigError(_FAILS.format(what=str(node.sql()), said=said))
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
    return next((str(node.sql()) for node in _constants(plan) if _failure(node) == said), "")


def _smallest(node: Any, said: str) -> str:
    """The smallest part of an expression that fails with the same words, as SQL."""
    for child in each(node.children()):
        if _failure(child) == said:
            return _smallest(child, said)
    return "raise_error" if _kind(node) == _RAISED else str(node.sql())


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


def _before_rows(session: SparkSession, plan: Any) -> Iterator[Any]:
    """The largest parts of expressions that have no value of a row in them and that every row runs into.

    Those are in operators up to the first filter, and not in what an expression evaluates for some rows only.
    """
    jvm = session._jvm
    assert jvm is not None
    conditional = jvm.java.lang.Class.forName("org.apache.spark.sql.catalyst.expressions.ConditionalExpression")

    def of(node: Any) -> Iterator[Any]:
        kind = _kind(node)
        if kind in _UNSURE or not node.deterministic():
            return
        if node.references().isEmpty():
            yield node
        elif not conditional.isInstance(node):
            for child in each(node.children())[: 1 if kind in _SHORT_CIRCUITS else None]:
                yield from of(child)
        else:
            for first in each(node.alwaysEvaluatedInputs()):
                yield from of(first)

    operators = [plan]
    while below := each(operators[-1].children()):
        operators.append(below[0])
    for operator in reversed(operators):
        for expression in each(operator.expressions()):
            yield from of(expression)
        if _kind(operator) == "Filter":
            return


def _wrong_parameter(session: SparkSession, node: Any) -> str:
    """What Spark says of an expression whose constants go with no value of a row; "" where they may."""
    children, kind = each(node.children()), _kind(node)
    constants = [child.foldable() for child in children]
    if all(constants) or not (any(constants) or kind in _WITH_OPTIONS):
        return ""
    jvm = session._jvm
    assert jvm is not None
    if kind in _GROUPS:
        if not constants[1]:
            return ""  # the groups are the row's
        if said := _missing_group(jvm, children):
            return said
    told: set[str] = set()
    for at in range(_SAMPLES):
        try:
            values = [child if child.foldable() else _sample(session, child.dataType(), at) for child in children]
            said = _failure(node.withNewChildren(jvm.PythonUtils.toSeq(values)))
        except _errors():  # some types have no such value
            return ""
        told.add(said)
        if len(told) > 1 or not _is_of_parameter(kind, said):
            return ""
    return told.pop()


def _is_of_parameter(kind: str, said: str) -> bool:
    if not said.startswith("["):
        return bool(said) and (kind in _JAVA_PATTERNS or said.startswith(_JAVA_TEXTS))
    if kind == "Elt" and said.startswith("[INVALID_ARRAY_INDEX]"):
        return True
    return said.startswith(_PARAMETERS) and not said.startswith(_CONTENT)


def _missing_group(jvm: Any, children: Sequence[Any]) -> str:
    """What is wrong with the number of a group; Spark looks at it for texts that match only."""
    _, pattern, group = children
    if not group.foldable():
        return ""
    try:
        text, number = pattern.eval(None), group.eval(None)
        if text is None or number is None:
            return ""
        groups = int(jvm.java.util.regex.Pattern.compile(text.toString()).matcher("").groupCount())
    except _errors():
        return ""
    if 0 <= int(number) <= groups:
        return ""
    return f"[INVALID_PARAMETER_VALUE.REGEX_GROUP_INDEX] the pattern has {groups} groups, and no number {number}"


def _failure(node: Any) -> str:
    """What Spark says when it evaluates an expression; "" where that works."""
    try:
        node.eval(None)
    except _errors() as error:
        return spark_says(error)
    return ""


def _sample(session: SparkSession, kind: Any, at: int) -> Any:
    """One of the values of a type that stand for a row's, as an expression."""
    jvm, name = session._jvm, str(kind.typeName())
    assert jvm is not None
    text = _TEXTS[at % len(_TEXTS)]
    if name == "string":
        return jvm.org.apache.spark.sql.catalyst.expressions.Literal.create(text, kind)
    if name == "binary" or name in _SUFFIXES:
        written = f"X'{text.encode().hex()}'" if name == "binary" else f"{at % _NUMBERS}{_SUFFIXES[name]}"
        return session._jsparkSession.sessionState().sqlParser().parseExpression(written)
    return jvm.org.apache.spark.sql.catalyst.expressions.Literal.default(kind)


def _errors() -> tuple[type[Exception], ...]:
    """What an expression fails with; imported late, as a job without a query has no Spark."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    return Py4JJavaError, PySparkException


def _kind(node: Any) -> str:
    return str(node.getClass().getSimpleName())
