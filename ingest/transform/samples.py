"""Sample values in place of a row's: several of each type, so that an error about a value differs among them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ingest.transform.nodes import each, errors_of_spark, kind_of, sql_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import DataType

TEXTS = (" ", "a", "2020-01-01", "<a>1</a>", "1")
"""Texts that functions can parse: a word, a date, XML, a number. None has a time of day."""

_NUMBERS = ("0", "1", "2", "100")
_DAYS = ("1900-01-01", "1970-01-01", "2020-02-29")
_CONSTRUCTORS = frozenset({"CreateArray", "CreateMap", "CreateNamedStruct"})


class Samples:
    """Sample values by type, as Spark's expressions; asks Spark once for each type."""

    def __init__(self, session: SparkSession) -> None:
        """Start with an empty cache.

        Args:
            session: evaluates the samples.
        """
        assert session._jvm is not None
        self._session = session
        self._literal = session._jvm.org.apache.spark.sql.catalyst.expressions.Literal
        self._to_seq = session._jvm.PythonUtils.toSeq
        self._known: dict[str, list[Any]] = {}

    def of(self, kind: Any) -> Sequence[Any]:
        """Samples of a type: only Spark's default value where no others are known, none where it has no default.

        Args:
            kind: Spark's type.
        """
        key = str(kind.json())
        if key not in self._known:
            self._known[key] = self._made(kind)
        return self._known[key]

    def at(self, kind: Any, number: int) -> Any:
        """One sample of a type; numbers beyond the last sample start over.

        Raises:
            LookupError: the type has none.
        """
        found = self.of(kind)
        if not found:
            raise LookupError(str(kind.simpleString()))
        return found[number % len(found)]

    def text(self, value: str, kind: Any) -> Any:
        """A constant text as an expression.

        Args:
            value: the text.
            kind: Spark's type with the collation.
        """
        return self._literal.create(value, kind)

    def with_children(self, node: Any, children: Sequence[Any]) -> Any:
        """The expression with other children."""
        return node.withNewChildren(self._to_seq(list(children)))

    def filled(self, node: Any, number: int) -> Any:
        """An expression with samples for the values that rows have, and its constants as they are.

        Raises:
            LookupError: a type has no sample.
        """
        children = []
        for child in each(node.children()):
            if child.foldable():
                children.append(child)
            elif kind_of(child) in _CONSTRUCTORS:  # the query fixes its size, and perhaps its keys
                children.append(self.filled(child, number))
            else:
                children.append(self.at(child.dataType(), number))
        return self.with_children(node, children)

    def _made(self, kind: Any) -> list[Any]:
        from pyspark.sql.types import _parse_datatype_json_string

        if str(kind.typeName()).startswith("string"):
            return [self.text(text, kind) for text in TEXTS]
        try:
            written = _written(_parse_datatype_json_string(str(kind.json())))
            if not written:
                return [self._literal.default(kind)]
            frame = self._session.sql("SELECT " + ", ".join(f"{value} AS v{at}" for at, value in enumerate(written)))
            made = [alias.child() for alias in each(frame._jdf.queryExecution().analyzed().expressions())]
            return [value for value in made if value.eval(None) is not None]
        except errors_of_spark(ValueError):  # some types have no values
            return []


def unknown_parts(node: Any) -> list[Any]:
    """Parts of an expression that `Samples.filled` replaces with samples."""
    parts: list[Any] = []
    for child in each(node.children()):
        if not child.foldable():
            parts += unknown_parts(child) if kind_of(child) in _CONSTRUCTORS else [child]
    return parts


def has_constant(node: Any) -> bool:
    """Whether a constant is among an expression's children, directly or in an array, map or struct."""
    return any(
        child.foldable() or (kind_of(child) in _CONSTRUCTORS and has_constant(child)) for child in each(node.children())
    )


def _written(kind: DataType) -> list[str]:
    """Sample values of a type in SQL; empty for types with a default only."""
    from pyspark.sql import types

    match kind:
        case types.BooleanType():
            return ["true", "false"]
        case types.NumericType():
            return [f"try_cast({number} AS {kind.simpleString()})" for number in _NUMBERS]
        case types.BinaryType():
            return [f"X'{text.encode().hex()}'" for text in TEXTS]
        case types.DateType() | types.TimestampType() | types.TimestampNTZType():
            return [f"CAST('{day}' AS {kind.simpleString()})" for day in _DAYS]
        case types.StringType():
            return [sql_text(text) for text in TEXTS]
        case types.ArrayType():
            parts = _written(kind.elementType)
            if not parts:
                return []
            none = f"slice(array({parts[0]}), 2, 1)"  # the type of array() differs
            return [none, *(f"array({', '.join(of_size)})" for of_size in (parts[:1], parts[1:3], parts[:3]))]
        case types.MapType():
            keys, values = _written(kind.keyType), _written(kind.valueType)
            if not (keys and values):
                return []
            pairs = [f"{key}, {values[at % len(values)]}" for at, key in enumerate(keys)]
            return [f"map({pairs[0]})", f"map({pairs[0]}, {pairs[1]})"]
        case types.StructType():
            fields = [_written(field.dataType) for field in kind.fields]
            if not all(fields):
                return []
            return [
                "named_struct({})".format(
                    ", ".join(
                        f"{sql_text(field.name)}, {values[at % len(values)]}"
                        for field, values in zip(kind.fields, fields, strict=True)
                    )
                )
                for at in range(2)
            ]
        case _:
            return []
