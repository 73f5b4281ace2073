"""Spark's analysis of a job's query: its columns, and whether a job may have it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ingest.transform.constants import optimized
from ingest.transform.dated import DatedTexts
from ingest.transform.layout import quoted
from ingest.transform.nodes import each
from ingest.transform.plans import PlanReader
from ingest.transform.rules import SOURCE, column_names, leaves_out, nondeterministic, refusals
from sinks.sql_types import parse_type, type_name
from timeline.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

VIEW = "source"
"""Name of the decoded rows in a query."""

_NO_NAME = frozenset(" ,;{}()\n\t=")
"""Characters that Delta's writers do not allow in a column's name."""


@dataclass(frozen=True)
class Analysis:
    """A query that a job may have.

    Attributes:
        schema: columns of its result, all nullable.
        columns: columns of the source that it reads, in the source's order; at least one.
        leaves_out: whether it may leave rows out.
    """

    schema: pa.Schema
    columns: tuple[str, ...]
    leaves_out: bool


def analyze(session: SparkSession, query: str, source: pa.Schema) -> Analysis:
    """Analyze a query without running it.

    Args:
        session: session in which the view ``source`` is replaced.
        query: one SELECT.
        source: columns of the rows that the query reads.

    Raises:
        ConfigError: Spark refuses the query, or the query does not treat each row by itself.
    """
    from pyspark.errors import PySparkException

    try:
        # The parser takes its settings from the session that created a frame last.
        empty = session.createDataFrame(session.sparkContext.emptyRDD(), spark_schema(source))
        empty.createOrReplaceTempView(VIEW)
        # Refuse anything but a query: `session.sql` would run a command.
        parsed = session._jsparkSession.sessionState().sqlParser().parseQuery(query)
        result = session.sql(query)
    except PySparkException as error:
        raise ConfigError(f"transform: {_first_paragraph(error)}") from error
    reader = PlanReader(session, int(empty._jdf.queryExecution().analyzed().rdd().id()))
    execution = result._jdf.queryExecution()
    plan = reader.analyzed(execution.analyzed())
    # Spark rewrites some functions before it runs them; only then the last casts of constants appear.
    assert session._jvm is not None
    replaced = session._jvm.org.apache.spark.sql.catalyst.optimizer.ReplaceExpressions.apply(execution.analyzed())
    written = reader.parsed(parsed, column_names(plan) | {name.lower() for name in source.names})
    found = [*refusals(plan), *nondeterministic(written)] or nondeterministic(
        reader.analyzed(replaced, DatedTexts(session, replaced))
    )
    if found:
        reasons = "".join(f"\n  {reason}" for reason in dict.fromkeys(found))
        raise ConfigError(
            f"transform: the query must make of each row of source, by itself, one row or none:{reasons}\n"
            "Do the rest in a query of its own, over the table"
        )
    columns = _columns_read(optimized(session, execution, replaced), source)
    return Analysis(_result_schema(result), columns, leaves_out(plan))


def spark_schema(schema: pa.Schema) -> StructType:
    """The columns as a Spark schema."""
    from pyspark.sql.types import StructField, StructType, _parse_datatype_string

    return StructType([StructField(field.name, _parse_datatype_string(type_name(field.type))) for field in schema])


def _first_paragraph(error: Exception) -> str:
    """Spark's message about a query, without the plan."""
    return str(error).strip().split("\n\n")[0].partition(";\n'")[0].strip()


def _result_schema(result: DataFrame) -> pa.Schema:
    fields: list[pa.Field] = []
    for field in result.schema.fields:
        if _NO_NAME & set(field.name):
            raise ConfigError(f"transform: column {field.name!r} needs a name that a table can have: ... AS name")
        try:
            fields.append(pa.field(field.name, parse_type(_type_text(field.dataType))))
        except ValueError as error:
            raise ConfigError(f"transform: column {field.name!r} cannot be stored: {error}; CAST it") from error
    counts = Counter(field.name.lower() for field in fields)
    for field in fields:
        if counts[field.name.lower()] > 1:
            raise ConfigError(
                f"transform: {counts[field.name.lower()]} columns are called {field.name!r}, whose case "
                "does not matter: name each once"
            )
    return pa.schema(fields)


def _type_text(kind: DataType) -> str:
    """A type as `sinks.sql_types` reads it: Spark's own text does not quote names of fields."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    match kind:
        case StructType():
            return f"struct<{','.join(f'{quoted(field.name)}:{_type_text(field.dataType)}' for field in kind.fields)}>"
        case ArrayType():
            return f"array<{_type_text(kind.elementType)}>"
        case MapType():
            return f"map<{_type_text(kind.keyType)},{_type_text(kind.valueType)}>"
        case _:
            return kind.simpleString()


def _columns_read(plan: Any, source: pa.Schema) -> tuple[str, ...]:
    """Columns of the source that an optimized plan reads."""
    used = _ids(plan.outputSet())
    names: dict[int, str] = {}
    waiting = [plan]
    while waiting:
        node = waiting.pop()
        if node.nodeName() == SOURCE:
            names = {int(column.exprId().id()): str(column.name()) for column in each(node.output())}
        else:
            used |= _ids(node.references())
        waiting += each(node.children())
    read = {name for number, name in names.items() if number in used}
    # A query of constants reads none, but a column is needed to count its rows.
    return tuple(name for name in source.names if name in read) or (source.names[0],)


def _ids(columns: Any) -> set[int]:
    return {int(column.exprId().id()) for column in each(columns.toSeq())}
