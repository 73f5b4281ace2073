"""Blocks of JSON objects to columns by Arrow's reader, and what Arrow does not do right alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from ingest.sources.decode.convert import convert
from ingest.sources.decode.lines import positions_of
from ingest.sources.decode.options import EPOCH_UNITS
from ingest.sources.decode.timestamp_columns import epoch_column, outside
from ingest.sources.decode.timestamps import EPOCH_PRECISION, epoch_scale

_WIDEST = 38
"""Digits of a decimal of 128 bits. Arrow takes as many as the type has, scales them, and does not look if they fit."""


class Refused(Exception):
    """Arrow does not take these lines together; at least one of them it does not take alone."""


@dataclass(frozen=True)
class Parsed:
    """Columns of lines that Arrow took.

    Attributes:
        columns: in the schema's types, one value a line.
        bad: lines among them with a value that does not fit after all.
    """

    columns: list[pa.Array]
    bad: frozenset[int]


def is_read_by_arrow(kind: pa.DataType, timestamp_format: str | None) -> bool:
    """Whether Arrow reads a column of this type; not so maps, base64, and dates inside of structs and arrays."""
    if pa.types.is_nested(kind):
        return _nested_is_plain(kind, timestamp_format is not None)
    return not pa.types.is_binary(kind)


def parse_block(
    data: bytes, rows: int, schema: pa.Schema, timestamp_formats: Mapping[str, str | None], *, strict: bool
) -> Parsed:
    """Columns of a block whose lines each begin with ``{`` and end with ``}``.

    Args:
        data: the lines.
        rows: how many they are.
        schema: the columns.
        timestamp_formats: by column.
        strict: refuse fields that the schema does not have.

    Raises:
        Refused: not every line is one object of the schema.
    """
    carriers = pa.schema([(field.name, _carrier(field.type, timestamp_formats.get(field.name))) for field in schema])
    try:
        table = pj.read_json(
            pa.BufferReader(data),
            read_options=pj.ReadOptions(use_threads=False, block_size=len(data) + 1),
            parse_options=pj.ParseOptions(
                explicit_schema=carriers, unexpected_field_behavior="error" if strict else "ignore"
            ),
        )
    except pa.ArrowInvalid as refusal:
        raise Refused(str(refusal)) from None
    if table.num_rows != rows:
        raise Refused(f"{table.num_rows} objects in {rows} lines")
    columns: list[pa.Array] = []
    bad: set[int] = set()
    for field, carrier in zip(schema, table.columns, strict=True):
        values = carrier.combine_chunks()
        timestamp_format = timestamp_formats.get(field.name)
        if pa.types.is_decimal(values.type) and timestamp_format is not None and pa.types.is_timestamp(field.type):
            counts, values = values, epoch_column(values, EPOCH_UNITS[timestamp_format], field.type)
            bad.update(positions_of(pc.and_(pc.is_null(values), pc.is_valid(counts))))
        elif pa.types.is_decimal(field.type):
            values, too_long = _fitting(values, field.type)
            bad.update(too_long)
        elif carriers.field(field.name).type != field.type:
            converted = convert(values, field.name, field.type, timestamp_format)
            values = converted.values
            bad.update(converted.bad)
        else:
            bad.update(_unfit(values))
        columns.append(values)
    return Parsed(columns, frozenset(bad))


def _carrier(kind: pa.DataType, timestamp_format: str | None) -> pa.DataType:
    """What Arrow reads a column as: texts where its own conversion is another, or would refuse the whole block."""
    if pa.types.is_timestamp(kind) and timestamp_format is not None and timestamp_format in EPOCH_UNITS:
        return pa.decimal128(EPOCH_PRECISION, epoch_scale(EPOCH_UNITS[timestamp_format]))
    if may_wrap(kind):
        return pa.decimal256(2 * _WIDEST, kind.scale)
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return pa.string()
    return kind


def _nested_is_plain(kind: pa.DataType, formatted: bool) -> bool:
    if pa.types.is_struct(kind):
        return all(_nested_is_plain(field.type, formatted) for field in kind)
    if pa.types.is_list(kind):
        return _nested_is_plain(kind.value_type, formatted)
    if pa.types.is_timestamp(kind):
        return kind.tz is not None and not formatted
    return not (pa.types.is_map(kind) or pa.types.is_date(kind) or pa.types.is_binary(kind) or may_wrap(kind))


def may_wrap(kind: pa.DataType) -> bool:
    """Whether digits that Arrow takes can be too many for 128 bits once they are scaled."""
    return bool(pa.types.is_decimal(kind) and kind.precision + kind.scale > _WIDEST)


def _unfit(values: pa.Array) -> Sequence[int]:
    """Rows with a value that Arrow takes and no column does.

    NaN, floats too large for 32 bits, years beyond 9999, decimals of more digits than their type has.
    """
    kind = values.type
    if pa.types.is_decimal(kind):
        return _fitting(values, kind)[1]
    if pa.types.is_timestamp(kind):
        return positions_of(outside(values))
    if pa.types.is_floating(kind):
        finite = pc.is_finite(values)
        return [] if pc.all(finite).as_py() is not False else positions_of(pc.invert(finite))
    if pa.types.is_struct(kind):
        return [row for child in values.flatten() for row in _unfit(child)]
    if pa.types.is_list(kind):
        inner = _unfit(values.flatten())
        parents = pc.list_parent_indices(values) if inner else None
        return [parents[at].as_py() for at in inner] if parents is not None else []
    return []


def _fitting(values: pa.Array, kind: pa.DataType) -> tuple[pa.Array, Sequence[int]]:
    """Decimals as of this type, and the rows of those that have too many digits, which are null."""
    try:
        if values.type != kind:
            return pc.cast(values, kind), []
        values.validate(full=True)
        return values, []
    except pa.ArrowInvalid:
        limit = Decimal((0, (1,), kind.precision - kind.scale))
        found = enumerate(values.to_pylist())
        too_long = [row for row, value in found if value is not None and value.copy_abs() >= limit]
    fits = np.ones(len(values), np.bool_)
    fits[too_long] = False
    return pc.cast(pc.if_else(pa.array(fits), values, pa.scalar(None, values.type)), kind), too_long
