"""Blocks of JSON objects to columns by Arrow's reader, and what Arrow does not do right alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from ingest.sources.decode.convert import convert
from ingest.sources.decode.decimals import DIGITS_OF_128_BITS, DIGITS_OF_256_BITS, to_decimals
from ingest.sources.decode.exponents import row_of_exponent, rows_to_zero, safe_exponent
from ingest.sources.decode.lines import positions_of
from ingest.sources.decode.time_format import TimeFormat
from ingest.sources.decode.timestamp_columns import epoch_column, outside
from ingest.sources.decode.timestamps import EPOCH_PRECISION, epoch_scale
from timeline.units import count

_FLOAT_BITS = (32, 64)


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


def is_read_by_arrow(kind: pa.DataType, timestamp_format: TimeFormat | None) -> bool:
    """Whether Arrow reads a column of this type; not so maps, base64, and dates inside of structs and arrays."""
    if pa.types.is_nested(kind):
        return _nested_is_plain(kind, timestamp_format is not None)
    return not pa.types.is_binary(kind)


def parse_block(
    data: bytes, rows: int, schema: pa.Schema, timestamp_formats: Mapping[str, TimeFormat | None], *, strict: bool
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
    safe = safe_exponent(pa.struct(list(carriers)))
    unsafe = None if safe is None else row_of_exponent(data, safe)
    if unsafe is not None:
        raise Refused(f"an exponent that Arrow cannot scale by in row {unsafe}")
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
        raise Refused(f"{count(table.num_rows, 'object')} in {count(rows, 'line')}")
    columns: list[pa.Array] = []
    bad: set[int] = set()
    for field, carrier in zip(schema, table.columns, strict=True):
        values = carrier.combine_chunks()
        timestamp_format = timestamp_formats.get(field.name)
        if pa.types.is_decimal(values.type) and timestamp_format is not None and pa.types.is_timestamp(field.type):
            found, values = values, epoch_column(values, timestamp_format.micros_per_unit or 1, field.type)
            bad.update(_lost(found, values))
        elif pa.types.is_decimal(field.type):
            found, values = values, to_decimals(values, field.type)
            bad.update(_lost(found, values))
        elif carriers.field(field.name).type != field.type:
            converted = convert(values, field.name, field.type, timestamp_format)
            values = converted.values
            bad.update(converted.bad)
        else:
            bad.update(_unfit(values))
        columns.append(values)
    zeros = {bits: np.concatenate([_zeros(each, bits) for each in columns]) for bits in _FLOAT_BITS}
    bad |= rows_to_zero(data, zeros)
    return Parsed(columns, frozenset(bad))


def _carrier(kind: pa.DataType, timestamp_format: TimeFormat | None) -> pa.DataType:
    """What Arrow reads a column as: texts where its own conversion is another, or would refuse the whole block."""
    micros_per_unit = None if timestamp_format is None else timestamp_format.micros_per_unit
    if pa.types.is_timestamp(kind) and micros_per_unit is not None:
        return pa.decimal128(EPOCH_PRECISION, epoch_scale(micros_per_unit))
    if may_wrap(kind):
        return pa.decimal256(DIGITS_OF_256_BITS, kind.scale)
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
    return bool(pa.types.is_decimal(kind) and kind.precision + kind.scale > DIGITS_OF_128_BITS)


def _unfit(values: pa.Array) -> Sequence[int]:
    """Rows with a value that Arrow takes and no column does.

    NaN, floats too large for 32 bits, years beyond 9999, decimals of more digits than their type has.
    """
    kind = values.type
    if pa.types.is_decimal(kind):
        return _lost(values, to_decimals(values, kind))
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


def _lost(before: pa.Array, after: pa.Array) -> Sequence[int]:
    """Rows whose value did not become one of the other type."""
    return positions_of(pc.and_(pc.is_null(after), pc.is_valid(before))) if after.null_count > before.null_count else []


def _zeros(values: pa.Array, bits: int) -> npt.NDArray[np.intp]:
    """Rows with a float of so many bits that is 0."""
    kind = values.type
    if pa.types.is_floating(kind) and kind.bit_width == bits:
        # As truth: to compare with a number Arrow loads pandas.
        found: npt.NDArray[np.intp] = (
            pc.indices_nonzero(pc.invert(pc.cast(values, pa.bool_()))).to_numpy().astype(np.intp)
        )
        return found
    if pa.types.is_struct(kind):
        return np.unique(np.concatenate([_zeros(child, bits) for child in values.flatten()]))
    if pa.types.is_list(kind):
        inner = _zeros(values.flatten(), bits)
        return np.unique(pc.list_parent_indices(values).to_numpy()[inner]) if len(inner) else inner
    return np.empty(0, np.intp)
