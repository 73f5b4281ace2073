"""The columns of a streaming DataFrame as a job's columns."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from sinks.sql_types import parse_type, type_name
from timeline.errors import ConfigError


def row_schema(columns: StructType) -> pa.Schema:
    """Arrow schema of the rows that targets get, in the order of the DataFrame's columns.

    All columns are nullable, as in every job: a query without nulls today may have some tomorrow.

    Raises:
        ConfigError: no target can hold a column's name or type.
    """
    if not columns.fields:
        raise ConfigError("the query has no columns; select at least one")
    seen: dict[str, str] = {}
    for name in columns.names:
        if not name.strip():
            raise ConfigError("a column of the query has no name; give it one with .alias(…)")
        if name.lower() in seen:
            raise ConfigError(f"columns {seen[name.lower()]!r} and {name!r}: tables ignore case in names; rename one")
        seen[name.lower()] = name
    return pa.schema([(field.name, _column_type(field.name, field.dataType)) for field in columns])


def check_same(found: pa.Schema, wanted: pa.Schema, whose: str) -> None:
    """Refuse a query whose columns differ from `wanted`; their order does not matter.

    Args:
        found: the query's columns.
        wanted: the columns that it must have.
        whose: owner of `wanted`, for the message.

    Raises:
        ConfigError: the message has the difference.
    """
    has = {field.name: type_name(field.type) for field in found}
    wants = {field.name: type_name(field.type) for field in wanted}
    differences = [
        f"  {name}: the query has {has.get(name, 'no such column')}, wanted is {wants.get(name, 'no such column')}"
        for name in {**wants, **has}
        if has.get(name) != wants.get(name)
    ]
    if differences:
        listed = "\n".join(differences)
        raise ConfigError(f"the query's columns are not those of {whose}; select and cast them in the query:\n{listed}")


def _column_type(name: str, kind: DataType) -> pa.DataType:
    try:
        return _arrow_type(kind)
    except ValueError as error:
        raise ConfigError(
            f"column {name!r} is {kind.simpleString()}, which no target holds; cast it in the query ({error})"
        ) from error


def _arrow_type(kind: DataType) -> pa.DataType:
    # By structure and not by the whole type's name: Spark writes names of fields without the quotes they may need.
    match kind:
        case ArrayType():
            return pa.list_(_arrow_type(kind.elementType))
        case MapType():
            return pa.map_(_arrow_type(kind.keyType), _arrow_type(kind.valueType))
        case StructType():
            if not kind.fields:
                raise ValueError("a struct has at least one field")
            return pa.struct([(field.name, _arrow_type(field.dataType)) for field in kind])
        case _:
            return parse_type(kind.simpleString())
