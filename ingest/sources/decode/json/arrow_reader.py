"""Way 1: a whole block of JSON lines by Arrow's reader, and corrections where Arrow accepts or rounds too much.

Arrow parses a stream of objects, not lines. Every line begins with ``{`` and ends with ``}``, so no object spans a
line end (a raw line end inside a string is refused), and each line is at least one object. Where rows and lines are
equal in number, each line is therefore exactly one object.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from ingest.sources.decode.convert import convert
from ingest.sources.decode.decimals import DIGITS_OF_128_BITS, DIGITS_OF_256_BITS, to_decimals
from ingest.sources.decode.json.exponents import rows_of_exponents, rows_to_zero, safe_exponent
from ingest.sources.decode.json.line_block import DecodedLines, JsonColumns
from ingest.sources.decode.lines import positions_of
from ingest.sources.decode.time_format import TimeFormat
from ingest.sources.decode.timestamp_columns import epoch_column, outside
from ingest.sources.decode.timestamps import EPOCH_PRECISION, epoch_scale

_FLOAT_BITS = (32, 64)


def is_read_in_place(kind: pa.DataType, timestamp_format: TimeFormat | None) -> bool:
    """Whether Arrow reads a column of this type in its line: all types but maps and base64.

    Inside structs and arrays also not dates, wall clocks, times with a format, and decimals that `may_wrap`.
    """
    if pa.types.is_nested(kind):
        return _is_nested_in_place(kind, timestamp_format is not None)
    return not pa.types.is_binary(kind)


def may_wrap(kind: pa.DataType) -> bool:
    """Whether a decimal's digits can exceed 128 bits after scaling: Arrow accepts such digits and wraps them."""
    return bool(pa.types.is_decimal(kind) and kind.precision + kind.scale > DIGITS_OF_128_BITS)


@dataclass(frozen=True)
class ArrowReader:
    """Decodes blocks with the same columns.

    Attributes:
        columns: the columns; see `reads_all`.
    """

    columns: JsonColumns

    @property
    def reads_all(self) -> bool:
        """Whether Arrow reads each of the columns in place."""
        return all(is_read_in_place(field.type, self.columns.format_of(field.name)) for field in self.columns.schema)

    def decode(self, data: bytes, rows: int) -> DecodedLines | None:
        """Decode all lines but those with a value out of range; None where Arrow refuses the block, or for unsafe rows.

        Arrow refuses a block for one line that is no JSON object, or one value of another kind than its column.

        Args:
            data: the lines; see `LineBlock`.
            rows: number of lines, at least one.
        """
        table = None if self.unsafe_rows(data) else self._read(data, rows)
        if table is None:
            return None
        columns: list[pa.Array] = []
        bad: set[int] = set()
        for field, carrier in zip(self.columns.schema, table.columns, strict=True):
            values, misfits = _converted(carrier.combine_chunks(), field, self.columns.format_of(field.name))
            columns.append(values)
            bad.update(misfits)
        zeros = {bits: np.concatenate([_zeros(each, bits) for each in columns]) for bits in _FLOAT_BITS}
        bad |= rows_to_zero(data, zeros)
        return DecodedLines(np.arange(rows), columns).without(bad)

    def accepts(self, data: bytes, rows: int) -> bool:
        """Whether Arrow does not refuse lines without unsafe rows; a fifth of the cost of `decode` for few lines.

        Args:
            data: the lines; see `LineBlock`.
            rows: number of lines, at least one.
        """
        return self._read(data, rows) is not None

    def unsafe_rows(self, data: bytes) -> set[int]:
        """Lines with an exponent that Arrow cannot scale a decimal by; see `exponents`."""
        return set() if self._safe_exponent is None else rows_of_exponents(data, self._safe_exponent)

    @cached_property
    def carriers(self) -> pa.Schema:
        """The types that Arrow reads the columns as, before their conversion."""
        found = self.columns
        return pa.schema([(field.name, _carrier(field.type, found.format_of(field.name))) for field in found.schema])

    def _read(self, data: bytes, rows: int) -> pa.Table | None:
        try:
            table = pj.read_json(
                pa.BufferReader(data),
                read_options=pj.ReadOptions(use_threads=False, block_size=len(data) + 1),
                parse_options=self._parse_options,
            )
        except pa.ArrowInvalid:
            return None
        return table if table.num_rows == rows else None

    @cached_property
    def _parse_options(self) -> pj.ParseOptions:
        unexpected = "error" if self.columns.strict else "ignore"
        return pj.ParseOptions(explicit_schema=self.carriers, unexpected_field_behavior=unexpected)

    @cached_property
    def _safe_exponent(self) -> int | None:
        return safe_exponent(pa.struct(list(self.carriers)))


def _carrier(kind: pa.DataType, timestamp_format: TimeFormat | None) -> pa.DataType:
    """The type that Arrow reads a column as: string where its own conversion differs, or refuses a whole block."""
    micros_per_unit = None if timestamp_format is None else timestamp_format.micros_per_unit
    if pa.types.is_timestamp(kind) and micros_per_unit is not None:
        return pa.decimal128(EPOCH_PRECISION, epoch_scale(micros_per_unit))
    if may_wrap(kind):
        return pa.decimal256(DIGITS_OF_256_BITS, kind.scale)
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return pa.string()
    return kind


def _is_nested_in_place(kind: pa.DataType, formatted: bool) -> bool:
    if pa.types.is_struct(kind):
        return all(_is_nested_in_place(field.type, formatted) for field in kind)
    if pa.types.is_list(kind):
        return _is_nested_in_place(kind.value_type, formatted)
    if pa.types.is_timestamp(kind):
        return kind.tz is not None and not formatted
    return not (pa.types.is_map(kind) or pa.types.is_date(kind) or pa.types.is_binary(kind) or may_wrap(kind))


def _converted(
    values: pa.Array, field: pa.Field, timestamp_format: TimeFormat | None
) -> tuple[pa.Array, Collection[int]]:
    """A carrier's values in the column's type, and the rows whose value does not fit."""
    kind = field.type
    if pa.types.is_decimal(values.type) and timestamp_format is not None and pa.types.is_timestamp(kind):
        instants = epoch_column(values, timestamp_format.micros_per_unit or 1, kind)
        return instants, _lost(values, instants)
    if pa.types.is_decimal(kind):
        decimals = to_decimals(values, kind)
        return decimals, _lost(values, decimals)
    if values.type != kind:
        converted = convert(values, field.name, kind, timestamp_format)
        return converted.values, converted.bad
    return values, _misfits(values)


def _misfits(values: pa.Array) -> Sequence[int]:
    """Rows with a value that Arrow accepts but no column.

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
        return [row for child in values.flatten() for row in _misfits(child)]
    if pa.types.is_list(kind):
        inner = _misfits(values.flatten())
        parents = pc.list_parent_indices(values) if inner else None
        return [parents[at].as_py() for at in inner] if parents is not None else []
    return []


def _lost(before: pa.Array, after: pa.Array) -> Sequence[int]:
    """Rows whose value became null in a conversion."""
    return positions_of(pc.and_(pc.is_null(after), pc.is_valid(before))) if after.null_count > before.null_count else []


def _zeros(values: pa.Array, bits: int) -> npt.NDArray[np.intp]:
    """Rows with a zero in a float column of this width."""
    kind = values.type
    if pa.types.is_floating(kind) and kind.bit_width == bits:
        # By cast to booleans: a comparison with a number loads pandas.
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
