"""A schema from a sample: the narrowest types that hold every value seen as it is written, text where none does.

A type holds a number if it gives back the same number, digit by digit: a double is the number of its shortest text.
Integers beyond 2^53 never become doubles, which skip integers there. Digits of a time beyond microseconds are no
reason for text: no column stores them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

from ingest.sources.decode.convert import convert
from ingest.sources.decode.decimals import DIGITS_OF_128_BITS
from ingest.sources.decode.timestamps import iso_micros
from ingest.sources.decode.values import Constant, Number, Rejection, parse_object
from timeline.errors import SourceError

_INSTANT = pa.timestamp("us", tz="UTC")
_CSV_CANDIDATES = (pa.int64(), pa.float64(), pa.bool_(), pa.date32(), _INSTANT)
_LISTS = (
    pa.types.is_list,
    pa.types.is_large_list,
    pa.types.is_fixed_size_list,
    pa.types.is_list_view,
    pa.types.is_large_list_view,
)
_DATE_LENGTH = len("2020-01-01")
_DOUBLE_KEEPS = 2**53
"""Up to this number, doubles hold every integer."""
_DOUBLES = {"int", "double"}
_NOT_ZERO = re.compile(r"[+-]?[0.]*[1-9]")


@dataclass
class _Seen:
    """Types of the values of one JSON field so far."""

    kinds: set[str] = field(default_factory=set)
    fields: dict[str, _Seen] = field(default_factory=dict)
    items: _Seen | None = None

    def add(self, value: object) -> None:
        """Add the type of one value; null and constants that are no JSON add nothing."""
        match value:
            case None | Constant():
                return  # records with a constant are rejected whatever the type
            case bool():
                self.kinds.add("boolean")
            case Number():
                self.kinds.add(_number_kind(value))
            case str():
                is_moment = len(value) > _DATE_LENGTH and iso_micros(value, zoned=True) is not None
                self.kinds.add("timestamp" if is_moment else "string")
            case list():
                self.kinds.add("array")
                self.items = self.items or _Seen()
                for item in value:
                    self.items.add(item)
            case dict():
                self.kinds.add("struct")
                for name, item in value.items():
                    self.fields.setdefault(name, _Seen()).add(item)

    def kind(self) -> pa.DataType:
        """The type that holds all values seen."""
        if self.kinds == {"boolean"}:
            return pa.bool_()
        if self.kinds and self.kinds <= {"int", "bigint"}:
            return pa.int64()
        if self.kinds and self.kinds <= _DOUBLES:
            return pa.float64()
        if self.kinds == {"timestamp"}:
            return _INSTANT
        if self.kinds == {"array"} and self.items is not None:
            return pa.list_(self.items.kind())
        # Delta has no struct without fields: the value is stored as text.
        if self.kinds == {"struct"} and self.fields and not _ambiguous(self.fields):
            return pa.struct([(name, seen.kind()) for name, seen in self.fields.items()])
        return pa.string()


def infer_json(lines: Iterable[bytes]) -> pa.Schema:
    """Columns of JSON lines, in the order in which they are first seen; lines that are no objects are left out.

    Raises:
        SourceError: no line is an object with a field, or two fields differ in letters' case only.
    """
    seen = _Seen()
    for line in lines:
        try:
            seen.add(parse_object(line.decode()))
        except (Rejection, UnicodeDecodeError):
            continue
    return _checked([(name, one.kind()) for name, one in seen.fields.items()])


def infer_texts(columns: Mapping[str, pa.Array]) -> pa.Schema:
    """Columns of CSV files by their texts: bigint, double, boolean, date, timestamp, or string.

    Raises:
        SourceError: there is no column, or two differ in letters' case only.
    """
    return _checked([(name, _kind_of_texts(texts)) for name, texts in columns.items()])


def infer_groups(groups: Sequence[str]) -> pa.Schema:
    """Columns of a text pattern: strings, as the pattern says nothing about types.

    Raises:
        SourceError: two groups differ in letters' case only.
    """
    return _checked([(name, pa.string()) for name in groups])


def infer_parquet(schema: pa.Schema) -> pa.Schema:
    """The file's columns, in types that the targets support.

    Raises:
        SourceError: a type has no counterpart, or two columns have one name or differ in letters' case only.
    """
    return _checked([(column.name, _plain(column.type, column.name)) for column in schema])


def _number_kind(text: str) -> str:
    """The narrowest type that holds a number: int (which a double holds too), bigint, double, or string."""
    if text.lstrip("-").isdigit():
        number = int(text[:30])
        if abs(number) <= _DOUBLE_KEEPS:
            return "int"
        return "bigint" if -(2**63) <= number < 2**63 else "string"
    value = float(text)
    if not math.isfinite(value):
        return "string"
    if value == 0:  # a zero's exponent may exceed the limit of Decimal
        return "string" if _NOT_ZERO.match(text) else "double"
    return "double" if Decimal(repr(value)) == Decimal(text) else "string"


def _kind_of_texts(texts: pa.Array) -> pa.DataType:
    present = pc.drop_null(texts)
    if len(present) == 0:
        return pa.string()
    # Leading zeros and a plus are part of a code (a postcode, a phone number), not of a number.
    are_codes = pc.any(pc.match_substring_regex(present, pattern=r"\A(?:\+|-?0[0-9])")).as_py()
    for kind in _CSV_CANDIDATES:
        if pa.types.is_integer(kind) or pa.types.is_floating(kind):
            fits = not are_codes
        elif pa.types.is_boolean(kind):
            fits = not pc.any(pc.match_substring_regex(present, pattern="[0-9]")).as_py()
        else:
            fits = True
        if fits and not convert(present, "", kind).bad and (not pa.types.is_floating(kind) or _are_doubles(present)):
            return kind
    return pa.string()


def _are_doubles(numbers: pa.Array) -> bool:
    return all(_number_kind(text) in _DOUBLES for text in numbers.to_pylist())


def _ambiguous(names: Iterable[str]) -> bool:
    lowered = [name.lower() for name in names]
    return len(set(lowered)) != len(lowered)


def _checked(fields: list[tuple[str, pa.DataType]]) -> pa.Schema:
    if not fields:
        raise SourceError(
            "no schema can be inferred: nothing in the sample can be decoded; write schema in the job file"
        )
    if _ambiguous(name for name, _ in fields):
        raise SourceError(
            f"no schema can be inferred: two of {', '.join(name for name, _ in fields)} have one name, or differ in "
            "letters' case only, which tables do not allow; write schema in the job file with the one that is meant"
        )
    return pa.schema(fields)


def _plain(kind: pa.DataType, name: str) -> pa.DataType:
    """A Parquet column's type as one of the types that a schema can declare."""
    if pa.types.is_dictionary(kind):
        return _plain(kind.value_type, name)
    if isinstance(kind, pa.BaseExtensionType):
        return _plain(kind.storage_type, name)
    if pa.types.is_map(kind):
        return pa.map_(_plain(kind.key_type, name), _plain(kind.item_type, name))
    if any(is_list(kind) for is_list in _LISTS):
        return pa.list_(_plain(kind.value_type, name))
    if pa.types.is_struct(kind):
        if _ambiguous(child.name for child in kind):
            raise SourceError(
                f"column {name}: two of its fields have one name, or differ in letters' case only, which tables do not "
                "allow; write schema in the job file with the one that is meant"
            )
        return pa.struct([(child.name, _plain(child.type, f"{name}.{child.name}")) for child in kind])
    if pa.types.is_timestamp(kind):
        return _INSTANT if kind.tz is not None else pa.timestamp("us")
    if pa.types.is_decimal(kind) and kind.precision <= DIGITS_OF_128_BITS:
        return pa.decimal128(kind.precision, kind.scale)
    for holds, plain in (
        (pa.types.is_large_string, pa.string()),
        (pa.types.is_string_view, pa.string()),
        (pa.types.is_large_binary, pa.binary()),
        (pa.types.is_binary_view, pa.binary()),
        (pa.types.is_fixed_size_binary, pa.binary()),
        (pa.types.is_uint8, pa.int16()),
        (pa.types.is_uint16, pa.int32()),
        (pa.types.is_uint32, pa.int64()),
        (pa.types.is_uint64, pa.decimal128(20, 0)),
        (pa.types.is_float16, pa.float32()),
        (pa.types.is_date64, pa.date32()),
        (pa.types.is_null, pa.string()),
    ):
        if holds(kind):
            return plain
    if pa.types.is_time(kind) or pa.types.is_duration(kind) or pa.types.is_decimal256(kind):
        raise SourceError(
            f"column {name} has type {kind}, which no target has; write schema in the job file without it"
        )
    return kind
