"""Conversion between Spark SQL's type names, which job files and messages use, and Arrow's types.

Names and grammar are those of Spark SQL's reference, "Data Types"; a struct's field may be written ``a:int`` or ``a:
int``, and a name that is not a plain word goes between backticks. `timestamp` is a point in time in microseconds, UTC;
`timestamp_ntz` a wall-clock time without a zone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import pyarrow as pa

_NAMES: Mapping[str, pa.DataType] = {
    "tinyint": pa.int8(),
    "byte": pa.int8(),
    "smallint": pa.int16(),
    "short": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_CANONICAL: Mapping[pa.DataType, str] = {kind: name for name, kind in reversed(list(_NAMES.items()))}
_TOKEN = re.compile(r"\s*(?:(`(?:[^`]|``)+`)|([^\s<>(),:`]+)|([<>(),:]))")
_ALLOWED = f"{', '.join(_NAMES)}, decimal(p,s), array<t>, map<k,v>, struct<name:t,...>"
_DEEPEST = 64
_MOST_DIGITS = 38
"""Spark's DecimalType.MAX_PRECISION."""


def parse_type(text: str) -> pa.DataType:
    """The Arrow type of a Spark SQL type name; type names are case-insensitive.

    Args:
        text: for example ``bigint``, ``decimal(10,2)``, ``array<struct<a:int,b:map<string,double>>>``.

    Raises:
        ValueError: the message names the wrong piece and what is allowed in its place.
    """
    parser = _Parser(text)
    found = parser.type(depth=0)
    if parser.peek() is not None:
        raise ValueError(f"{text!r}: {parser.peek()!r} after the end of the type")
    return found


def type_name(kind: pa.DataType) -> str:
    """The Spark SQL name of an Arrow type; the inverse of `parse_type`.

    Raises:
        ValueError: Spark SQL has no such type (an unsigned integer, a time of day, ...).
    """
    if pa.types.is_decimal128(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_list(kind):
        return f"array<{type_name(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{type_name(kind.key_type)},{type_name(kind.item_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{','.join(f'{_quoted(field.name)}:{type_name(field.type)}' for field in kind)}>"
    if kind not in _CANONICAL:
        raise ValueError(f"{kind}: Spark SQL has no such type; allowed are {_ALLOWED}")
    return _CANONICAL[kind]


def _quoted(name: str) -> str:
    """A field name as `_Parser.name` reads it back."""
    return name if re.fullmatch(r"\w+", name) else "`" + name.replace("`", "``") + "`"


class _Parser:
    """Recursive descent over the tokens of one type name."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[str] = []
        self._next = 0
        index = 0
        while index < len(text.rstrip()):
            found = _TOKEN.match(text, index)
            if found is None:
                raise ValueError(f"{text!r}: unexpected {text[index:].strip()!r}; allowed are {_ALLOWED}")
            self._tokens.append(found.group(found.lastindex or 0))
            index = found.end()

    def peek(self) -> str | None:
        """The next token; None at the end."""
        return self._tokens[self._next] if self._next < len(self._tokens) else None

    def take(self) -> str:
        """The next token, consumed."""
        token = self.peek()
        if token is None:
            raise ValueError(f"{self._text!r} ends too early; allowed are {_ALLOWED}")
        self._next += 1
        return token

    def expect(self, symbol: str) -> None:
        """Consume exactly this symbol."""
        found = self.peek()
        if found != symbol:
            raise ValueError(f"{self._text!r}: found {found or 'the end'!r} where {symbol!r} is needed")
        self._next += 1

    def type(self, depth: int) -> pa.DataType:
        """One type, simple or nested."""
        if depth > _DEEPEST:
            raise ValueError(f"a type nested more than {_DEEPEST} deep")
        word = self.take()
        match word.lower():
            case "array":
                self.expect("<")
                inner = self.type(depth + 1)
                self.expect(">")
                return pa.list_(inner)
            case "map":
                self.expect("<")
                key = self.type(depth + 1)
                self.expect(",")
                item = self.type(depth + 1)
                self.expect(">")
                return pa.map_(key, item)
            case "struct":
                return self.struct(depth)
            case "decimal" | "dec" | "numeric":
                return self.decimal()
            case simple if simple in _NAMES:
                return _NAMES[simple]
        raise ValueError(f"unknown type {word!r}; allowed are {_ALLOWED}")

    def struct(self, depth: int) -> pa.DataType:
        """The fields of a struct, behind its keyword."""
        self.expect("<")
        fields: list[pa.Field] = []
        while self.peek() != ">":
            if fields:
                self.expect(",")
            name = self.name()
            if name in [field.name for field in fields]:
                raise ValueError(f"{self._text!r}: the struct has two fields {name!r}")
            self.expect(":")
            fields.append(pa.field(name, self.type(depth + 1)))
        self.expect(">")
        if not fields:
            raise ValueError(f"{self._text!r}: a struct has at least one field")
        return pa.struct(fields)

    def name(self) -> str:
        """A field's name, plain or between backticks."""
        token = self.take()
        if token in "<>(),:":
            raise ValueError(f"{self._text!r}: found {token!r} where a field's name is needed")
        return token[1:-1].replace("``", "`") if token.startswith("`") else token

    def decimal(self) -> pa.DataType:
        """Precision and scale behind the keyword; Spark's default is 10 digits, none behind the point."""
        if self.peek() != "(":
            return pa.decimal128(10, 0)
        self.expect("(")
        precision, scale = self.number(), 0
        if self.peek() == ",":
            self.expect(",")
            scale = self.number()
        self.expect(")")
        if not (1 <= precision <= _MOST_DIGITS and scale <= precision):
            raise ValueError(f"decimal({precision},{scale}): allowed are 1 <= p <= {_MOST_DIGITS} and 0 <= s <= p")
        return pa.decimal128(precision, scale)

    def number(self) -> int:
        """A whole number."""
        token = self.take()
        if not re.fullmatch(r"[0-9]{1,4}", token):
            raise ValueError(f"{self._text!r}: found {token!r} where a whole number is needed")
        return int(token)
