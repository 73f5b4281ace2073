"""Lossless JSON text of Arrow columns, both ways: for nested values of a TiKV row, and for refused or printed rows.

| Spark SQL type | JSON |
|---|---|
| whole numbers, boolean | number, ``true`` or ``false`` |
| float, double | number; ``"NaN"``, ``"Infinity"``, ``"-Infinity"`` |
| decimal | number with all its digits, ``1E-20`` among them (a reader must not parse it as a double) |
| string | string |
| binary | string, base64 with padding (RFC 4648, section 4) |
| date | string, ``"2024-05-01"``; years have four digits or more, and ``-`` in front before the year 0 |
| timestamp | string in UTC with six decimals, ``"2024-05-01T12:00:00.000000Z"`` |
| timestamp_ntz | the same without ``Z`` |
| array | array |
| struct | object, all fields, in the type's order |
| map | object where keys are strings, otherwise an array of ``[key,value]``; a repeated key stays repeated |
| null | ``null`` |

No spaces; UTF-8; only characters that JSON demands are escaped.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Sequence
from decimal import Decimal
from itertools import pairwise
from json.encoder import encode_basestring  # the quoting of json.dumps(ensure_ascii=False), without its set-up

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from timeline.errors import FormatError

Parsed = str | int | float | Decimal | bool | list["Parsed"] | tuple["Parsed", ...] | None
"""Result of the JSON parser; an object is a tuple of (name, value) pairs, so that repeated keys survive."""

_NULL = "null"
_NO_NUMBERS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
# Older versions wrote years of three digits behind the sign.
_DATE = re.compile(r"((?:[+-]?\d{4,}|-\d{3})-\d\d-\d\d)", re.ASCII)
_TIME = re.compile(_DATE.pattern[:-1] + r"T\d\d:\d\d:\d\d\.\d{6})", re.ASCII)
_YEAR_0 = np.datetime64("0000-01-01")
_NO_TIME = "NaT"
_EARLIEST = "-290308-12-21T19:59:05.224192"
"""The time of the smallest number of microseconds, which numpy reads as NaT."""

_TIME_UTC = re.compile(_TIME.pattern + "Z", re.ASCII)


def to_json(column: pa.Array) -> list[str]:
    """The JSON text of each value of a column; ``null`` for null."""
    texts = _texts(column)
    if column.null_count:
        return [text if there else _NULL for text, there in zip(texts, column.is_valid().to_pylist(), strict=True)]
    return texts


def from_json(texts: Sequence[str | bytes | None], kind: pa.DataType) -> pa.Array:
    """The column whose values `to_json` wrote; None becomes null.

    Raises:
        FormatError: a text is not JSON, or not a value of this type.
    """
    try:
        parsed = [None if text is None else _PARSER.decode(_as_text(text)) for text in texts]
        return _column(parsed, kind)
    except (ValueError, TypeError, ArithmeticError, RecursionError, pa.ArrowException) as error:
        raise FormatError(f"JSON text that is no value of {kind}: {error}") from error


def _texts(column: pa.Array) -> list[str]:
    """Like `to_json`, but texts of nulls have no meaning."""
    kind, types = column.type, pa.types
    if types.is_string(kind) or types.is_large_string(kind):
        return [encode_basestring(value) for value in column.fill_null("").to_pylist()]
    if types.is_boolean(kind) or types.is_integer(kind) or types.is_decimal(kind):
        return [_NULL if value is None else value for value in column.cast(pa.string()).to_pylist()]
    if types.is_floating(kind):
        return [_NULL if value is None else _float_text(value) for value in column.to_pylist()]
    if types.is_binary(kind) or types.is_large_binary(kind):
        return [f'"{base64.b64encode(value).decode()}"' for value in column.fill_null(b"").to_pylist()]
    if types.is_date32(kind):
        days = column.cast(pa.int32()).fill_null(0).to_numpy(zero_copy_only=False)
        return [f'"{value}"' for value in _calendar_texts(days.astype("M8[D]"))]
    if types.is_timestamp(kind):
        zone = "Z" if kind.tz else ""
        micros = column.cast(pa.timestamp("us", kind.tz)).cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
        return [f'"{value}{zone}"' for value in _calendar_texts(micros.view("M8[us]"))]
    if types.is_struct(kind):
        return _struct_texts(column)
    if types.is_map(kind):
        return _map_texts(column)
    if types.is_list(kind) or types.is_large_list(kind):
        starts, items = _spans(column, column.values)
        return [f"[{','.join(items[start:end])}]" for start, end in pairwise(starts)]
    raise TypeError(f"{kind} has no JSON text")


def _calendar_texts(moments: npt.NDArray[np.datetime64]) -> list[str]:
    """Dates or times in ISO 8601, with years of at least four digits."""
    texts: list[str] = np.datetime_as_string(moments).tolist()
    if not (np.isnat(moments) | (moments < _YEAR_0)).any():
        return texts
    # numpy writes the year -1 as -001.
    texts = [f"-0{text[1:]}" if text[0] == "-" and text[4] == "-" else text for text in texts]
    return [_EARLIEST if text == _NO_TIME else text for text in texts]


def _float_text(value: float) -> str:
    if math.isfinite(value):
        return repr(value)
    return '"NaN"' if math.isnan(value) else '"Infinity"' if value > 0 else '"-Infinity"'


def _struct_texts(column: pa.Array) -> list[str]:
    names = [encode_basestring(field.name) for field in column.type]
    fields = [[f"{name}:{text}" for text in to_json(column.field(index))] for index, name in enumerate(names)]
    return [f"{{{','.join(values)}}}" for values in zip(*fields, strict=True)] if fields else ["{}"] * len(column)


def _map_texts(column: pa.Array) -> list[str]:
    starts, keys = _spans(column, column.keys)
    _, items = _spans(column, column.items)
    if pa.types.is_string(column.type.key_type):
        pairs, begin, end = [f"{key}:{item}" for key, item in zip(keys, items, strict=True)], "{", "}"
    else:
        pairs, begin, end = [f"[{key},{item}]" for key, item in zip(keys, items, strict=True)], "[", "]"
    return [f"{begin}{','.join(pairs[first:last])}{end}" for first, last in pairwise(starts)]


def _spans(column: pa.Array, inner: pa.Array) -> tuple[list[int], list[str]]:
    """Start of each list (and end of the last one) in the texts of this slice's items, and these texts."""
    offsets = column.offsets.to_pylist() or [0]
    return [offset - offsets[0] for offset in offsets], to_json(inner.slice(offsets[0], offsets[-1] - offsets[0]))


def _as_text(text: str | bytes) -> str:
    return text.decode() if isinstance(text, bytes) else text


def _no_constant(name: str) -> Parsed:
    raise ValueError(f"{name} outside quotes")


_PARSER = json.JSONDecoder(parse_float=Decimal, parse_constant=_no_constant, object_pairs_hook=tuple)


def _column(values: Sequence[Parsed], kind: pa.DataType) -> pa.Array:
    """Parsed values as a column, recursively by columns."""
    types = pa.types
    nulls = np.array([value is None for value in values], dtype=np.bool_)
    if types.is_struct(kind):
        fields = [_fields(value) for value in values]
        children = [_column([row.get(field.name) for row in fields], field.type) for field in kind]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=pa.array(nulls))
    if types.is_map(kind):
        pairs = [_pairs(value) for value in values]
        keys = _column([key for row in pairs for key, _ in row], kind.key_type)
        items = _column([item for row in pairs for _, item in row], kind.item_type)
        return pa.MapArray.from_arrays(_offsets(pairs, nulls), keys, items, type=kind)
    if types.is_list(kind) or types.is_large_list(kind):
        rows = [_list(value) for value in values]
        inner = _column([item for row in rows for item in row], kind.value_type)
        factory = pa.LargeListArray if types.is_large_list(kind) else pa.ListArray
        return factory.from_arrays(_offsets(rows, nulls, types.is_large_list(kind)), inner, type=kind)
    if types.is_binary(kind) or types.is_large_binary(kind):
        return pa.array(
            [None if value is None else base64.b64decode(str(value), validate=True) for value in values], kind
        )
    if types.is_date32(kind):
        days = np.array([_time(value, _DATE) for value in values], dtype="M8[D]")
        return pa.array(days.view(np.int64), mask=nulls).cast(pa.int32()).cast(kind)
    if types.is_timestamp(kind):
        pattern = _TIME_UTC if kind.tz else _TIME
        micros = np.array([_time(value, pattern) for value in values], dtype="M8[us]")
        return pa.array(micros.view(np.int64), mask=nulls).cast(kind)
    if types.is_floating(kind):
        return pa.array([_float(value) for value in values], pa.float64()).cast(kind)
    if types.is_decimal(kind):
        return pa.array([_of(value, int, Decimal) for value in values], kind)
    allowed = bool if types.is_boolean(kind) else int if types.is_integer(kind) else str
    return pa.array([_of(value, allowed) for value in values], kind)


def _of(value: Parsed, *allowed: type) -> Parsed:
    """The value, of exactly these types or null; Arrow itself would cut a fraction off, and read true as 1."""
    if value is not None and type(value) not in allowed:
        raise ValueError(f"{value!r} where {' or '.join(each.__name__ for each in allowed)} is needed")
    return value


def _time(value: Parsed, pattern: re.Pattern[str]) -> str:
    """A date or time for numpy, checked because numpy itself accepts far more."""
    if value is None:
        return _NO_TIME
    found = pattern.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError(f"{value!r} where {pattern.pattern} is needed")
    return found.group(1)


def _float(value: Parsed) -> float | None:
    """A number, also from the name of NaN or an infinity."""
    if isinstance(value, str) and value in _NO_NUMBERS:
        return _NO_NUMBERS[value]
    if value is None or (isinstance(value, int | Decimal) and not isinstance(value, bool)):
        return None if value is None else float(value)
    raise ValueError(f"{value!r} where a number is needed")


def _fields(value: Parsed) -> dict[str, Parsed]:
    """An object's values by name; none for null."""
    return {str(name): item for name, item in _pairs(value)}


def _list(value: Parsed) -> Sequence[Parsed]:
    """An array's items; none for null."""
    if value is None or isinstance(value, list):
        return value or []
    raise ValueError(f"{value!r} where an array is needed")


def _pairs(value: Parsed) -> list[tuple[Parsed, Parsed]]:
    """The names and values of an object, or the pairs of a map's array; none for null."""
    pairs: list[tuple[Parsed, Parsed]] = []
    for pair in value if isinstance(value, tuple) else _list(value):
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            raise ValueError(f"{pair!r} where a name or key and its value are needed")
        pairs.append((pair[0], pair[1]))
    return pairs


def _offsets(rows: Sequence[Sequence[object]], nulls: npt.NDArray[np.bool_], large: bool = False) -> pa.Array:
    """List offsets, null where the list itself is null."""
    ends = np.cumsum([0, *map(len, rows)])
    return pa.array(ends, pa.int64() if large else pa.int32(), mask=np.append(nulls, False))
