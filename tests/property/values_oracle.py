"""The value of each text in each type, by Python's own Decimal, datetime, json and base64, without Tideline's code.

Rules that are Tideline's and not Python's: integers have no plus, no fraction, no exponent and at most 19 digits; in
JSON, booleans are ``true`` and ``false``, floats are numbers, and binary is base64; in texts, ``0`` and ``1`` are
booleans too, NaN and infinities are floats, and binary is UTF-8; of up to nine digits of a second's fraction, those
beyond microseconds are dropped; a float is the nearest one, but infinity or zero only if the text says so.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import json
import math
import re
import struct
from decimal import Context, Decimal, Inexact, InvalidOperation
from fractions import Fraction

import pyarrow as pa

REJECTED = object()
"""Result for a text that is no value of the type."""
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_WORD = re.compile(r"[+-]?(?:nan|inf|infinity)", re.IGNORECASE)
_MOMENT = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})"
    r"(?:[T ]([0-9]{2})(?::([0-9]{2})(?::([0-9]{2})(?:[.,]([0-9]{1,9}))?)?)?(Z|[+-][0-9]{2}(?::?[0-9]{2})?)?)?"
)
_EPOCH = datetime.datetime(1970, 1, 1)


class Number(str):
    """A JSON number as written."""

    __slots__ = ()


class Malformed(ValueError):
    """A constant that is no JSON by RFC 8259: NaN or an infinity."""


def of_json(text: str, kind: pa.DataType) -> object:
    """The value of a JSON text."""
    try:
        return of_parsed(json.loads(text, parse_float=Number, parse_int=Number, parse_constant=_refuse), kind)
    except ValueError:
        return REJECTED


def of_parsed(value: object, kind: pa.DataType) -> object:
    """The value of parsed JSON; for a string column, a nested one is compact JSON, as written in all test texts."""
    if value is None:
        return None
    if pa.types.is_nested(kind):
        return _nested(value, kind)
    if pa.types.is_string(kind):
        return _as_text(value)
    if pa.types.is_boolean(kind):
        return value if isinstance(value, bool) else REJECTED
    if not isinstance(value, str):
        return REJECTED
    if pa.types.is_decimal(kind):
        return decimal_of(value, kind.precision, kind.scale)
    if isinstance(value, Number):
        if pa.types.is_integer(kind):
            return _integer(value, kind.bit_width)
        return float_of(value, kind.bit_width) if pa.types.is_floating(kind) else REJECTED
    if pa.types.is_binary(kind):
        try:
            return base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            return REJECTED
    return _date_or_time(value, kind)


def of_text(text: str, kind: pa.DataType) -> object:
    """The value of a CSV field, of a pattern's group, or of a text in a Parquet column."""
    if pa.types.is_string(kind):
        return text
    if pa.types.is_binary(kind):
        return text.encode()
    if pa.types.is_boolean(kind):
        return {"true": True, "1": True, "false": False, "0": False}.get(text.lower(), REJECTED)
    if pa.types.is_integer(kind):
        return _integer(text, kind.bit_width)
    if pa.types.is_floating(kind):
        if _WORD.fullmatch(text):
            return float(text)
        return float_of(text, kind.bit_width)
    if pa.types.is_decimal(kind):
        return decimal_of(text, kind.precision, kind.scale)
    if pa.types.is_nested(kind):
        # Null texts are those in `nulls` of the job file, not JSON's null.
        found = of_json(text, kind)
        return REJECTED if found is None else found
    return _date_or_time(text, kind)


def decimal_of(text: str, precision: int, scale: int) -> object:
    """The number as a decimal; REJECTED if a digit would be lost."""
    if not _NUMBER.fullmatch(text):
        return REJECTED
    if not re.search("[1-9]", re.split("[eE]", text)[0]):
        return Decimal(0)
    context = Context(prec=precision, traps=[Inexact, InvalidOperation])
    try:
        return Decimal(text).quantize(Decimal((0, (1,), -scale)), context=context)
    except (Inexact, InvalidOperation):
        return REJECTED


def float_of(text: str, bits: int) -> object:
    """The nearest float, ties to even."""
    if not _NUMBER.fullmatch(text):
        return REJECTED
    number = float(text)
    if bits == 32 and number and math.isfinite(number):
        number = _nearest_32(Fraction(Decimal(text)), number)
    is_zero = not re.search("[1-9]", re.split("[eE]", text)[0])
    return number if math.isfinite(number) and (number != 0) is not is_zero else REJECTED


def of_number(value: int | float | Decimal, kind: pa.DataType) -> object:
    """The value of a number of a Parquet column; a decimal takes the shortest text of a float."""
    text = repr(value) if isinstance(value, float) else f"{value:f}" if isinstance(value, Decimal) else str(value)
    if pa.types.is_decimal(kind):
        return decimal_of(text, kind.precision, kind.scale)
    if pa.types.is_floating(kind):
        if isinstance(value, int):
            is_exact = abs(value) <= 2 ** (24 if kind.bit_width == 32 else 53)
            return float(value) if is_exact else REJECTED
        if isinstance(value, float):
            return float_of(str(Decimal(value)), kind.bit_width) if math.isfinite(value) else value
        return float_of(text, kind.bit_width)
    if pa.types.is_boolean(kind):
        return bool(value) if value in (0, 1) else REJECTED
    limit = 2 ** (kind.bit_width - 1)
    if isinstance(value, float) and not math.isfinite(value):
        return REJECTED
    return int(value) if -limit <= value < limit and value == int(value) else REJECTED


def _nearest_32(exact: Fraction, near: float) -> float:
    if abs(exact) >= 2**128 - 2**103:
        return math.inf
    try:
        (bits,) = struct.unpack("<I", struct.pack("<f", near))
    except OverflowError:  # rounding to 64 bits first exceeded the range of 32 bits
        bits = 0x7F7FFFFF | (0x80000000 if near < 0 else 0)
    around = [bits + step for step in (-1, 0, 1) if 0 <= (bits + step) & 0x7FFFFFFF < 0x7F800000 and bits + step >= 0]
    floats = [(each, struct.unpack("<f", struct.pack("<I", each))[0]) for each in around]
    return float(min(floats, key=lambda each: (abs(Fraction(each[1]) - exact), each[0] & 1))[1])


def _integer(text: str, bits: int) -> object:
    if not re.fullmatch("-?[0-9]{1,19}", text):
        return REJECTED
    number = int(text)
    return number if -(2 ** (bits - 1)) <= number < 2 ** (bits - 1) else REJECTED


def _as_text(value: object) -> object:
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            return REJECTED
        return str(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return _written(value)


def _written(value: object) -> str:
    if isinstance(value, Number):
        return str(value)
    if isinstance(value, list):
        return f"[{','.join(map(_written, value))}]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(name)}:{_written(item)}" for name, item in value.items()) + "}"
    return json.dumps(value)


def _date_or_time(text: str, kind: pa.DataType) -> object:
    found = _MOMENT.fullmatch(text)
    if found is None:
        return REJECTED
    year, month, day, hour, minute, second, fraction, zone = found.groups()
    try:
        if pa.types.is_date(kind):
            return datetime.date(int(year), int(month), int(day)) if hour is None else REJECTED
        if zone is not None and kind.tz is None:
            return REJECTED
        micros = int(((fraction or "") + "000000")[:6])
        moment = datetime.datetime(
            int(year), int(month), int(day), int(hour or 0), int(minute or 0), int(second or 0), micros
        )
        moment -= _offset(zone or "Z")
    except (ValueError, OverflowError):
        return REJECTED
    return moment if kind.tz is None else moment.replace(tzinfo=datetime.UTC)


def _offset(zone: str) -> datetime.timedelta:
    if zone == "Z":
        return datetime.timedelta()
    hours, minutes = int(zone[1:3]), int(zone[3:].lstrip(":") or 0)
    if hours > 23 or minutes > 59:
        raise ValueError(zone)
    return datetime.timedelta(hours=hours, minutes=minutes) * (-1 if zone[0] == "-" else 1)


def _nested(value: object, kind: pa.DataType) -> object:
    found: object = REJECTED
    if pa.types.is_list(kind) and isinstance(value, list):
        found = [of_parsed(item, kind.value_type) for item in value]
        return REJECTED if REJECTED in found else found
    if pa.types.is_struct(kind) and isinstance(value, dict):
        fields = {field.name: of_parsed(value.get(field.name), field.type) for field in kind}
        return REJECTED if REJECTED in fields.values() else fields
    if pa.types.is_map(kind) and isinstance(value, dict):
        entries = [(name, of_parsed(item, kind.item_type)) for name, item in value.items()]
        return REJECTED if REJECTED in [item for _, item in entries] else entries
    return found


def _refuse(constant: str) -> object:
    raise Malformed(constant)


def same(left: object, right: object) -> bool:
    """Whether two values are the same: NaN is NaN, the zeros differ, and true is not 1."""
    if isinstance(left, float) and isinstance(right, float):
        if math.isnan(left) or math.isnan(right):
            return math.isnan(left) and math.isnan(right)
        return left == right and math.copysign(1, left) == math.copysign(1, right)
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(item, right[name]) for name, item in left.items())
    if isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        return len(left) == len(right) and all(map(same, left, right))
    return type(left) is type(right) and left == right
