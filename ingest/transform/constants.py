"""Finds constants of a query that fail for every row: they would fail each epoch, so a run checks them at its start.

::

    1/0, CAST('x' AS INT)                  Spark evaluates them when it optimizes the query
    elt(5, 'a', 'b'), raise_error('x')     without a row's value, but no constants to Spark: evaluated once
    encode(host, 'nosuch'), slice(tags, 0, 1)
        constants beside values of rows: evaluated with samples for these values. If all samples fail with the same
        message, the constant is at fault: a message about a row's value repeats the value
    id / 0, make_date(2020, 13, id)        the same where every row reaches the expression; behind CASE, WHERE, ... it
                                           may fail only for rows that reach it
    from_json(host, …, map('timestampFormat', 'qqq'))
        gives null without an error: the pattern is compiled on its own
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ingest.transform.nodes import each, errors_of_spark, kind_of, sql_text
from ingest.transform.samples import Samples, has_constant, unknown_parts
from timeline.errors import ConfigError
from timeline.units import count

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FAILS = "transform: {what} fails whatever a row has: {said}. Mend this expression, or leave it out"
_RAISED = "RaiseError"

_PARAMETERS = (
    "[INVALID_PARAMETER_VALUE.",
    "[INVALID_FORMAT.ESC_",
    "[INVALID_DATETIME_PATTERN",
    "[INCONSISTENT_BEHAVIOR_CROSS_VERSION.DATETIME_",
    "[INVALID_INDEX_OF_ZERO",
    "[INVALID_TIMEZONE",
    "[INVALID_VARIANT_GET_PATH",
    "[ILLEGAL_DAY_OF_WEEK",
    "[UNSUPPORTED_FEATURE.AES_MODE",
)
"""Prefixes of Spark's errors for a parameter that is wrong for every row: a pattern, a character set, a zone, ..."""

_CRYPTO = "[INVALID_PARAMETER_VALUE.AES_CRYPTO_ERROR"
"""Prefix of Spark's error for bytes that a key cannot decrypt: a parameter error by name, but about a row's value."""

_CONTENT = (
    _CRYPTO,
    "[INTERNAL_ERROR",
    "[INVALID_PARAMETER_VALUE.REGEX_GROUP_INDEX",
    "[MALFORMED_RECORD_IN_PARSING",
    "The key array and value array of MapData must have the same length",
)
"""Prefixes of errors about values of rows whose messages do not repeat the values."""

_JAVA_TEXTS = ("java.lang.RuntimeException: Invalid XPath", "Delimiter cannot be empty")
"""Prefixes of Java's own parameter errors, which Spark passes on without a condition."""

_JAVA_PATTERNS = frozenset({"FormatNumber", "FormatString", "StringSplit", "StringToMap"})
"""Expressions whose patterns Java compiles; the errors have no common prefix."""

_PARSERS = frozenset({"CsvToStructs", "JsonToStructs", "XmlToStructs"})
_WITH_OPTIONS = _PARSERS | {"StructsToCsv", "StructsToXml"}
_OF_PATTERNS = frozenset({"LikeAll", "LikeAny", "NotLikeAll", "NotLikeAny"})
"""Like `_WITH_OPTIONS`: expressions with parameters that are not child expressions."""

_FORMATS = frozenset({"dateformat", "timestampformat", "timestampntzformat"})
"""Options of parsers, in lower case, that are patterns: a bad one gives null for each row, without an error."""

_GROUPS = frozenset({"RegExpExtract", "RegExpExtractAll"})
_SHORT_CIRCUITS = frozenset({"And", "Or"})
_UNSURE = frozenset({"TryEval", "LambdaFunction"})
"""Expressions whose parts may fail without an error, or may never be evaluated: an array may be empty."""


def optimized(session: SparkSession, execution: Any, replaced: Any) -> Any:
    """A query's optimized plan, in which constants are evaluated.

    Args:
        session: the session of the query.
        execution: Spark's execution of the query; nothing is run.
        replaced: the analyzed plan after ``ReplaceExpressions``.

    Raises:
        ConfigError: a constant fails, or is wrong for every value of a row.
    """
    try:
        plan = execution.optimizedPlan()
    except errors_of_spark() as error:
        said = spark_says(error)
        what = _fragment(error) or _failing(replaced, said) or "an expression"
        raise ConfigError(_FAILS.format(what=what, said=said)) from error
    reached = list(_before_rows(session, plan))
    for node in reached:
        said = _failure(node) if node.references().isEmpty() else ""
        if said and not said.startswith("[INTERNAL_ERROR"):
            raise ConfigError(_FAILS.format(what=_smallest(node, said), said=said))
    samples = Samples(session)
    for node in _expressions(replaced):
        said = _wrong_parameter(session, samples, node) or _wrong_format(session, node)
        if said:
            raise ConfigError(_FAILS.format(what=_named(node), said=said))
    for node in reached:
        failed = _fails_for_each(samples, node)
        if failed is not None:
            raise ConfigError(_FAILS.format(what=_fragment(failed) or str(node.sql()), said=spark_says(failed)))
    return plan


def spark_says(error: Exception) -> str:
    """The condition and the message of a Spark error, in one line."""
    from py4j.protocol import Py4JJavaError

    text = str(error.java_exception.toString()) if isinstance(error, Py4JJavaError) else str(error)
    return (text.strip() or type(error).__name__).splitlines()[0].partition(" SQLSTATE: ")[0].rstrip(".")


def _fragment(error: Exception) -> str:
    """The fragment of the query that Spark's error names; "" where it names none."""
    from pyspark.errors import PySparkException

    contexts = (error.getQueryContext() if isinstance(error, PySparkException) else None) or []
    return next((fragment for context in contexts if (fragment := " ".join(context.fragment().split()))), "")


def _named(node: Any) -> str:
    """An expression as SQL; the query's own text where its parameters are not child expressions."""
    origin = node.origin()
    if kind_of(node) in _WITH_OPTIONS | _OF_PATTERNS and origin.sqlText().isDefined():
        text = str(origin.sqlText().get())[int(origin.startIndex().get()) : int(origin.stopIndex().get()) + 1]
        return " ".join(text.split())
    return str(node.sql())


def _failing(plan: Any, said: str) -> str:
    """The smallest constant that fails with this message, as SQL; "" where none is found."""
    return next((str(node.sql()) for node in _constants(plan) if _failure(node) == said), "")


def _smallest(node: Any, said: str) -> str:
    """The smallest part of an expression that fails with the same message, as SQL."""
    for child in each(node.children()):
        if _failure(child) == said:
            return _smallest(child, said)
    return "raise_error" if kind_of(node) == _RAISED else str(node.sql())


def _constants(plan: Any) -> Iterator[Any]:
    """Expressions that Spark evaluates once for all rows; children come before their parents."""
    for node in _expressions(plan):
        if node.foldable():
            yield node


def _expressions(plan: Any) -> Iterator[Any]:
    """All expressions of a plan; children come before their parents."""

    def of(node: Any) -> Iterator[Any]:
        for child in each(node.children()):
            yield from of(child)
        yield node

    for child in each(plan.children()):
        yield from _expressions(child)
    for node in each(plan.expressions()):
        yield from of(node)


def _before_rows(session: SparkSession, plan: Any) -> Iterator[Any]:
    """Expressions that are evaluated for every row; of those without a row's value, only the largest.

    They are in operators up to the first filter, and not in branches that are evaluated for some rows only.
    """
    jvm = session._jvm
    assert jvm is not None
    conditional = jvm.java.lang.Class.forName("org.apache.spark.sql.catalyst.expressions.ConditionalExpression")

    def of(node: Any) -> Iterator[Any]:
        kind = kind_of(node)
        if kind in _UNSURE or not node.deterministic():
            return
        yield node
        if node.references().isEmpty():
            return
        if not conditional.isInstance(node):
            children = each(node.children())
            goes_on = kind not in _SHORT_CIRCUITS or _is_of_nulls(children[0])
            for child in children if goes_on else children[:1]:
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
        if kind_of(operator) == "Filter":
            return


def _is_of_nulls(node: Any) -> bool:
    """Whether a condition only checks for non-null values, as Spark adds it before conditions that need them."""
    kind = kind_of(node)
    return kind == "IsNotNull" or (kind == "And" and all(map(_is_of_nulls, each(node.children()))))


def _wrong_parameter(session: SparkSession, samples: Samples, node: Any) -> str:
    """Spark's error for an expression whose constants are wrong for every value of a row; "" where they may work."""
    children, kind = each(node.children()), kind_of(node)
    constants = [child.foldable() for child in children]
    if all(constants) or not (any(constants) or kind in _WITH_OPTIONS or kind in _OF_PATTERNS):
        return ""
    jvm = session._jvm
    assert jvm is not None
    if kind in _GROUPS:
        if not constants[1]:
            return ""  # the pattern, and so its groups, is a row's value
        if said := _missing_group(jvm, children):
            return said
    failed = _same_error(samples, node)
    return spark_says(failed) if failed is not None and _is_of_parameter(kind, spark_says(failed)) else ""


def _fails_for_each(samples: Samples, node: Any) -> Exception | None:
    """The error of an expression that fails because of its constants; None where values of rows may be the cause.

    An error about a row's value repeats the value, so its message differs between values.
    """
    kinds = {kind_of(child) for child in each(node.children())}
    if kinds & _UNSURE or kind_of(node) in _SHORT_CIRCUITS or not has_constant(node):
        return None
    parts = unknown_parts(node)
    # Binary values may need a format that no sample has.
    if not parts or any(part.dataType().typeName() == "binary" for part in parts):
        return None
    failed = _same_error(samples, node)
    if failed is None or spark_says(failed).startswith(_CONTENT):
        return None
    return failed if all(len(samples.of(part.dataType())) > 1 for part in parts) else None


def _same_error(samples: Samples, node: Any) -> Exception | None:
    """The error of an expression, if it fails with the same message for all samples; None otherwise."""
    found: Exception | None = None
    try:
        count = max((len(samples.of(part.dataType())) for part in unknown_parts(node)), default=1)
        for number in range(count):
            failed = _error(samples.filled(node, number))
            if failed is None or (found is not None and spark_says(failed) != spark_says(found)):
                return None
            found = failed
    except errors_of_spark(LookupError):  # some types have no sample
        return None
    return found


def _wrong_format(session: SparkSession, node: Any) -> str:
    """Spark's error for a date pattern among a parser's options; "" where every pattern compiles."""
    if kind_of(node) not in _PARSERS:
        return ""
    for option in each(node.options().toSeq()):
        name, pattern = str(option._1()), str(option._2())
        if name.lower() in _FORMATS:
            date = session.sql(f"SELECT to_timestamp(' ', {sql_text(pattern)}) AS x")
            try:
                date._jdf.queryExecution().optimizedPlan()
            except errors_of_spark() as error:
                if spark_says(error).startswith(_PARAMETERS):
                    return f"{name} '{pattern}': {spark_says(error)}"
    return ""


def _is_of_parameter(kind: str, said: str) -> bool:
    if not said.startswith("["):
        return bool(said) and (kind in _JAVA_PATTERNS or kind in _WITH_OPTIONS or said.startswith(_JAVA_TEXTS))
    if kind == "Elt" and said.startswith("[INVALID_ARRAY_INDEX]"):
        return True
    return said.startswith(_PARAMETERS) and not said.startswith(_CRYPTO)


def _missing_group(jvm: Any, children: Sequence[Any]) -> str:
    """The error of a group number that the pattern does not have; "" for others. Spark checks it on matches only."""
    _, pattern, group = children
    if not group.foldable():
        return ""
    try:
        text, number = pattern.eval(None), group.eval(None)
        if text is None or number is None:
            return ""
        groups = int(jvm.java.util.regex.Pattern.compile(text.toString()).matcher("").groupCount())
    except errors_of_spark():
        return ""
    if 0 <= int(number) <= groups:
        return ""
    return (
        f"[INVALID_PARAMETER_VALUE.REGEX_GROUP_INDEX] the pattern has {count(groups, 'group')}, and no number {number}"
    )


def _failure(node: Any) -> str:
    """Message of Spark's error when it evaluates an expression; "" where that works."""
    failed = _error(node)
    return "" if failed is None else spark_says(failed)


def _error(node: Any) -> Exception | None:
    """Spark's error when it evaluates an expression; None where that works."""
    try:
        node.eval(None)
    except errors_of_spark() as error:
        return error
    return None
