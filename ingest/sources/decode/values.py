"""One JSON value to one column value: the definition of the values that a declared type accepts.

Slow and exact: this module decides about every value that Arrow refuses, and gives the reasons of rejections.
Numbers stay as written until the type is known, so that no digit is lost.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from decimal import Decimal
from json.encoder import encode_basestring
from typing import NoReturn, cast

import pyarrow as pa
import pyarrow.compute as pc

from ingest.sources.decode.decimals import exact
from ingest.sources.decode.time_format import TimeFormat
from ingest.sources.decode.timestamps import (
    EPOCH_PRECISION,
    epoch_scale,
    format_day,
    format_micros,
    in_range,
    iso_micros,
)
from sinks.sql_types import type_name

_SHOWN = 60
_INTEGER = re.compile(r"-?[0-9]+")
_NOT_ZERO = re.compile(r"[+-]?[0.]*[1-9]")


class Number(str):
    """A JSON number as it was written."""

    __slots__ = ()


class Constant(Number):
    """NaN, Infinity or -Infinity: not JSON, but many parsers, also Arrow's, read them as numbers. They fit no type."""

    __slots__ = ()


class Rejection(Exception):
    """A value or a line is rejected, for the reason in the message; never leaves the decoders."""


def parse_object(line: str) -> dict[str, object]:
    """Parse a line of JSON (RFC 8259) to an object, numbers as `Number`; of a repeated field the last one counts.

    Raises:
        Rejection: the line is not JSON, or not an object.
    """
    try:
        found = _loads(line)
    except json.JSONDecodeError as failure:
        raise Rejection(f"malformed JSON: {failure.msg} at character {failure.pos}") from None
    except RecursionError:
        raise Rejection("malformed JSON: nested too deeply") from None
    if not isinstance(found, dict):
        raise Rejection(f"a JSON object is expected, found {_kind(found)}")
    return found


def parse_json(text: str) -> object:
    """Parse any JSON value, numbers as `Number`.

    Raises:
        Rejection: the text is not JSON.
    """
    try:
        return _loads(text)
    except (json.JSONDecodeError, RecursionError):
        raise Rejection("is not JSON") from None


def value_decoder() -> json.JSONDecoder:
    """A JSON parser that keeps numbers as `Number`."""
    return json.JSONDecoder(parse_float=Number, parse_int=Number, parse_constant=Constant)


def json_text(value: object) -> str:
    """A parsed value as JSON text: order of fields and digits of numbers kept, no blanks.

    Raises:
        Rejection: the value contains a `Constant`.
    """
    # By exact type, the most frequent first: this runs for every value of every text that is stored.
    kind = type(value)
    if kind is Number:
        return str.__str__(cast(Number, value))
    if kind is str:
        return encode_basestring(cast(str, value))
    if kind is dict:
        fields = cast(dict[str, object], value).items()
        return "{" + ",".join([f"{encode_basestring(name)}:{json_text(item)}" for name, item in fields]) + "}"
    if kind is list:
        return "[" + ",".join([json_text(item) for item in cast(list[object], value)]) + "]"
    if value is None:
        return "null"
    if kind is bool:
        return "true" if value else "false"
    raise Rejection(f"{value} is not JSON")


def declared_type(kind: pa.StructType, name: str) -> pa.DataType | None:
    """The type of a struct's field; None where the struct has no field of this name."""
    if not name.isascii():
        try:
            name.encode()
        except UnicodeEncodeError:  # half of a surrogate pair, which Arrow refuses in a name
            return None
    at = kind.get_field_index(name)
    return kind.field(at).type if at >= 0 else None


def printable(text: str) -> str:
    """The text with halves of surrogate pairs, which UTF-8 cannot encode, written as escapes."""
    return text.encode(errors="backslashreplace").decode()


def shown(value: object) -> str:
    """A value as text for a reason, cut after 60 characters."""
    text = value if isinstance(value, Number) else repr(value if isinstance(value, str) else None)
    if not isinstance(value, str):
        try:
            text = json_text(value)
        except Rejection as rejection:
            text = str(rejection)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def mismatch(column: str, value: object, kind: pa.DataType, expected: str | None = None) -> str:
    """The reason for a value that does not fit its column.

    Args:
        column: path of the column or of a value inside.
        value: the value.
        kind: the declared type.
        expected: human-readable description of a fitting value; None for the type's name.
    """
    return f"{column}: {shown(value)} is not {expected or article(type_name(kind))}"


def expected_map(kind: pa.DataType) -> str | None:
    """Description of a fitting value for a type with maps, human-readable; None where the type has no map."""
    return f"{article(type_name(kind))} with each key once" if _has_map(kind) else None


def _has_map(kind: pa.DataType) -> bool:
    if pa.types.is_nested(kind) and not pa.types.is_map(kind):
        return any(_has_map(kind.field(at).type) for at in range(kind.num_fields))
    return bool(pa.types.is_map(kind))


def expected_time(value: object, kind: pa.DataType, written: TimeFormat | None) -> str | None:
    """Description of a fitting value for a time, human-readable; None where the type's name suffices.

    Args:
        value: the value that does not fit.
        kind: the declared type.
        written: the column's time format.
    """
    if written is None:
        return None
    timezone = written.timezone_of(kind)
    if timezone is not None and _timestamp(value, kind, replace(written, timezone=None)) is not None:
        return f"a time that clocks of {timezone} showed"
    return written.expected(kind)


def to_value(value: object, column: str, kind: pa.DataType, timestamp_format: TimeFormat | None) -> object:
    """A parsed value in the form that Arrow accepts for the declared type; timestamps as microseconds.

    Objects and arrays fit a string column as texts only: see `verbatim_text`.

    Args:
        value: the value, numbers as `Number`.
        column: path of the value, for the reason.
        kind: the declared type.
        timestamp_format: the column's time format; None is ISO 8601.

    Raises:
        Rejection: the value does not fit.
    """
    if value is None:
        return None
    converted = _scalar(value, kind, timestamp_format)
    if converted is not None:
        return converted
    if pa.types.is_list(kind) and isinstance(value, list):
        return [to_value(item, f"{column}[{at}]", kind.value_type, timestamp_format) for at, item in enumerate(value)]
    if pa.types.is_struct(kind) and isinstance(value, dict):
        return {
            field.name: to_value(value.get(field.name), f"{column}.{field.name}", field.type, timestamp_format)
            for field in kind
        }
    if pa.types.is_map(kind) and isinstance(value, dict):
        keys = _keys(value, column, kind.key_type, timestamp_format)
        return [
            (key, to_value(item, f"{column}[{shown(name)}]", kind.item_type, timestamp_format))
            for key, (name, item) in zip(keys, value.items(), strict=True)
        ]
    _refuse(value, column, kind, timestamp_format)


def _refuse(value: object, column: str, kind: pa.DataType, timestamp_format: TimeFormat | None) -> NoReturn:
    raise Rejection(mismatch(column, value, kind, expected_time(value, kind, timestamp_format)))


def _keys(names: Iterable[str], column: str, kind: pa.DataType, timestamp_format: TimeFormat | None) -> list[object]:
    """A map's keys; two names that become the same key are refused: table readers disagree on duplicate keys."""
    found: dict[object, str] = {}
    for name in names:
        key = _key(name, column, kind, timestamp_format)
        first = found.setdefault(key, name)
        if first != name:
            raise Rejection(f"{column}: {shown(name)} beside {shown(first)} is not another key of the map")
    return list(found)


def _key(name: str, column: str, kind: pa.DataType, timestamp_format: TimeFormat | None) -> object:
    """A map's key: the field's name, as a number where the map's keys are numbers."""
    plain: object = name if pa.types.is_string(kind) or not _INTEGER.fullmatch(name) else Number(name)
    converted = _scalar(plain, kind, timestamp_format)
    if converted is None:
        _refuse(name, f"{column}, key", kind, timestamp_format)
    return converted


def _scalar(value: object, kind: pa.DataType, timestamp_format: TimeFormat | None) -> object:
    """The converted value; None where it does not fit or the type is nested."""
    if pa.types.is_string(kind):
        return _text(value)
    if pa.types.is_boolean(kind):
        return value if isinstance(value, bool) else None
    if pa.types.is_integer(kind):
        return _integer(value, kind.bit_width)
    if pa.types.is_floating(kind):
        return _float(value, kind.bit_width)
    if pa.types.is_decimal(kind):
        return _decimal(value, kind.precision, kind.scale)
    if pa.types.is_timestamp(kind):
        return _timestamp(value, kind, timestamp_format or TimeFormat())
    if pa.types.is_date(kind):
        return _date(value, timestamp_format or TimeFormat())
    if pa.types.is_binary(kind):
        return _base64(value)
    return None


def _text(value: object) -> str | None:
    """A string, number or boolean as text; `verbatim_text` has replaced objects and arrays by their texts before."""
    if isinstance(value, (dict, list)):
        return None
    try:
        text = value if type(value) is str else json_text(value)
        text.encode()
    except (UnicodeEncodeError, Rejection):
        return None
    return text


def _integer(value: object, bits: int) -> int | None:
    if not isinstance(value, Number) or not _INTEGER.fullmatch(value) or len(value) > 20:
        return None
    number = int(value)
    return number if -(1 << (bits - 1)) <= number < 1 << (bits - 1) else None


def _float(value: object, bits: int) -> float | None:
    if not isinstance(value, Number) or isinstance(value, Constant):
        return None
    # By Arrow: a Python float has 64 bits, so a number would be rounded twice on the way to 32.
    number: float = pc.cast(pa.scalar(str(value)), pa.float32() if bits == 32 else pa.float64()).as_py()
    return number if math.isfinite(number) and (number or not _NOT_ZERO.match(value)) else None


def _decimal(value: object, precision: int, scale: int) -> Decimal | None:
    return exact(value, precision, scale) if isinstance(value, str) else None


def _timestamp(value: object, kind: pa.DataType, written: TimeFormat) -> int | None:
    if not isinstance(value, str):
        return None
    if written.micros_per_unit is not None:
        return _epoch(value, written.micros_per_unit)
    if isinstance(value, Number):
        return None
    zoned, timezone = kind.tz is not None, written.timezone_of(kind)
    if written.pattern is not None:
        return format_micros(value, written.pattern, zoned=zoned, timezone=timezone, year=written.year)
    return iso_micros(value, zoned=zoned, timezone=timezone)


def _epoch(value: str, micros_per_unit: int) -> int | None:
    number = _decimal(value, EPOCH_PRECISION, epoch_scale(micros_per_unit))
    return None if number is None else in_range(int(number * micros_per_unit))


def _date(value: object, written: TimeFormat) -> datetime.date | None:
    if written.day_pattern is not None:
        is_text = isinstance(value, str) and not isinstance(value, Number)
        return format_day(cast(str, value), written.day_pattern, written.year) if is_text else None
    if not isinstance(value, str) or not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", value):
        return None
    try:
        return datetime.date.fromisoformat(value)
    except ValueError:
        return None


def _base64(value: object) -> bytes | None:
    if not isinstance(value, str) or isinstance(value, Number):
        return None
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return None


def _loads(text: str) -> object:
    found: object = value_decoder().decode(text)
    return found


def article(name: str) -> str:
    """A type's name with its article."""
    return f"an {name}" if name.startswith(("int", "array")) else f"a {name}"


_KINDS: Mapping[type, str] = {bool: "true or false", Number: "a number", str: "a string", list: "an array"}


def _kind(value: object) -> str:
    return "null" if value is None else _KINDS.get(type(value), "a value")
