"""Rejected rows of Parquet files, restored from the quarantine as they were in their file.

::

    raw      {"n": "x", "t": "2026-07-01 10:00:00+00:00"}
    context  {"types": ["string", ["timestamp", "us", "Europe/Berlin"]]}      of each column, in the row's order

Rows of versions that did not keep types get the types of their JSON. A row that cannot be restored is rejected again,
with the same bytes.
"""

from __future__ import annotations

import base64
import datetime
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from decimal import Decimal

import pyarrow as pa

from ingest.sources.base import Block, Decoded
from ingest.sources.files.parquet_columns import is_list
from ingest.sources.files.parquet_rows import BINARY, EPOCH, NANOS
from sinks.base import REJECTED_SCHEMA, Json

TEXT = "text"
"""Key of a block's detail: the row as JSON, where it is rejected without being read."""

CONTEXT = "context"
"""Key of a block's detail: the context of such a row."""

_TYPES = "types"
_SECOND = datetime.timedelta(seconds=1)
_DAY_MILLIS = 86_400_000


class _Fields(list[tuple[str, object]]):
    """Fields of a JSON object in their order; a name may occur twice."""


def with_types(decoded: Decoded, schema: pa.Schema) -> Decoded:
    """Add the file's types to rejected rows; without them an integer would be restored as another type.

    Args:
        decoded: rows of one block.
        schema: schema of the block's data.
    """
    rejected = decoded.rejected
    if not rejected.num_rows:
        return decoded
    context = json.dumps({_TYPES: [_code_of(kind) for kind in schema.types]}, ensure_ascii=False)
    at = REJECTED_SCHEMA.get_field_index("context")
    contexts = pa.repeat(pa.scalar(context, pa.string()), rejected.num_rows)
    return replace(decoded, rejected=rejected.set_column(at, REJECTED_SCHEMA.field(at), contexts))


def quarantined_rows(shard: str, rejected: pa.RecordBatch) -> Iterator[Block]:
    """See `ingest.sources.base.QuarantineDecoder`: one row per block, since the decoder numbers rows consecutively."""
    columns = (rejected.column(name).to_pylist() for name in ("offset", "raw", "context"))
    for offset, raw, context in zip(*columns, strict=True):
        try:
            yield Block(shard, offset, 1, _row(raw, context))
        except (ValueError, TypeError, LookupError, ArithmeticError, RecursionError, pa.ArrowException) as failure:
            detail: dict[str, Json] = {"reason": f"the row cannot be read again: {failure}", CONTEXT: context}
            if raw is not None:
                detail[TEXT] = raw.decode(errors="surrogateescape")
            yield Block(shard, offset, 1, None, detail)


def _row(raw: bytes, context: str | None) -> pa.RecordBatch:
    """Restore one row.

    Raises:
        Exception: one of those that `quarantined_rows` catches: the row cannot be restored.
    """
    fields = _fields(json.loads(raw, object_pairs_hook=_Fields))
    names, values = [name for name, _ in fields], [value for _, value in fields]
    known = {} if context is None else json.loads(context)
    if not isinstance(known, dict):
        raise ValueError("the context is no object")
    codes = known.get(_TYPES)
    if codes is None:
        arrays = [pa.array([_plain(value)]) for value in values]
    else:
        arrays = [_column([value], _type_of(code)) for value, code in zip(values, codes, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names)


def _plain(value: object) -> object:
    """A JSON value without a type, in the form that Arrow accepts."""
    if isinstance(value, _Fields):
        names = [name for name, _ in value]
        if (twice := next((name for name in names if names.count(name) > 1), None)) is not None:
            raise ValueError(f"{twice}: two fields of one struct have this name")
        return _bytes(value) if names == [BINARY] else {name: _plain(each) for name, each in value}
    return [_plain(each) for each in value] if isinstance(value, list) else value


def _code_of(kind: pa.DataType) -> Json:
    """A type as JSON; types that the decoder treats alike have the same code."""
    if pa.types.is_dictionary(kind):
        return _code_of(kind.value_type)
    if isinstance(kind, pa.BaseExtensionType):
        return _code_of(kind.storage_type)
    if pa.types.is_timestamp(kind):
        return ["timestamp", kind.unit, kind.tz]
    if pa.types.is_decimal(kind):
        return ["decimal", kind.precision, kind.scale]
    if pa.types.is_map(kind):
        return ["map", _code_of(kind.key_type), _code_of(kind.item_type)]
    if pa.types.is_struct(kind):
        return ["struct", *([field.name, _code_of(field.type)] for field in kind)]
    if is_list(kind):
        return ["list", _code_of(kind.value_type)]
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return "string"
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind) or pa.types.is_fixed_size_binary(kind):
        return "binary"
    return str(kind)


def _type_of(code: Json) -> pa.DataType:
    match code:
        case str():
            return pa.type_for_alias(code)
        case ["timestamp", unit, zone]:
            return pa.timestamp(unit, zone)
        case ["decimal", int(precision), int(scale)]:
            return pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)
        case ["map", key, item]:
            return pa.map_(_type_of(key), _type_of(item))
        case ["list", item]:
            return pa.list_(_type_of(item))
        case ["struct", *fields]:
            return pa.struct([pa.field(str(name), _type_of(kind)) for name, kind in map(_pair, fields)])
        case _:
            raise ValueError(f"{code} is no type")


def _pair(found: Json) -> tuple[Json, Json]:
    if not isinstance(found, list) or len(found) != 2:
        raise ValueError(f"{found} is no field")
    return found[0], found[1]


def _column(values: Sequence[object], kind: pa.DataType) -> pa.Array:
    """A column of this type from JSON values that `parquet_rows.row_text` wrote."""
    missing = pa.array([value is None for value in values], pa.bool_())
    if pa.types.is_struct(kind) and kind.num_fields:
        rows = [None if value is None else _fields(value, kind.names) for value in values]
        parts = [
            _column([None if row is None else row[at][1] for row in rows], field.type) for at, field in enumerate(kind)
        ]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=missing)
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        lists = [[] if value is None else _items(value) for value in values]
        offsets = pa.array([0, *itertools.accumulate(map(len, lists))], pa.int32())
        items = list(itertools.chain.from_iterable(lists))
        if pa.types.is_list(kind):
            return pa.ListArray.from_arrays(offsets, _column(items, kind.value_type), mask=missing)
        entries = [_fields(item, ["key", "value"]) for item in items]
        parts = [
            _column([entry[at][1] for entry in entries], part)
            for at, part in enumerate((kind.key_type, kind.item_type))
        ]
        return pa.MapArray.from_arrays(offsets, *parts, mask=missing)
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        # A text that is not UTF-8 is written as bytes are.
        return pa.array([None if value is None else _bytes(value) for value in values], pa.binary()).view(kind)
    if pa.types.is_decimal(kind):
        return pa.array([None if value is None else Decimal(str(value)) for value in values], kind)
    if pa.types.is_temporal(kind):
        counts = [None if value is None else _count(value, kind) for value in values]
        return pa.array(counts, pa.int32() if kind.bit_width == 32 else pa.int64()).view(kind)
    return pa.array([{} if value == _Fields() else value for value in values], kind)


def _fields(value: object, names: Sequence[str] | None = None) -> _Fields:
    if not isinstance(value, _Fields) or (names is not None and [name for name, _ in value] != list(names)):
        raise ValueError("an object with other fields is expected")
    return value


def _items(value: object) -> list[object]:
    if not isinstance(value, list) or isinstance(value, _Fields):
        raise ValueError("a list is expected")
    return value


def _bytes(value: object) -> bytes:
    if isinstance(value, str):
        return value.encode()
    ((_, text),) = _fields(value, [BINARY])
    return base64.b64decode(str(text), validate=True)


def _count(value: object, kind: pa.DataType) -> int:
    """The number that the file had for a time, from its text."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    text = str(value)
    if pa.types.is_date(kind):
        days = (datetime.date.fromisoformat(text) - EPOCH.date()).days
        return days if pa.types.is_date32(kind) else days * _DAY_MILLIS
    whole, _, fraction = text.removesuffix("+00:00").partition(".")
    read: Callable[[str], datetime.datetime] = datetime.datetime.fromisoformat
    moment = read(f"{EPOCH.date()} {whole}" if pa.types.is_time(kind) else whole)
    nanos = (moment - EPOCH) // _SECOND * NANOS["s"] + int(fraction.ljust(9, "0"))
    return nanos // NANOS[kind.unit]
