"""Row values: the columns that are not keys in one compact layout, encoded and decoded.

::

    version  columns  variable  fixed bytes  null bitmap        fixed section  end offsets    variable data
    u8 = 1   u16      u16       u16          ceil(columns / 8)  fixed bytes    variable u32s  last end offset

All numbers are little-endian. `columns`, `variable` and `fixed bytes` are those of the writer's schema, so a
reader that knows fewer columns (older) or more (newer) finds its own: columns are only ever appended to a schema.
docs/tikv-layout.md has the layout byte by byte.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sinks.json_text import from_json, to_json
from sinks.tikv.binary_arrays import (
    EMPTY,
    Booleans,
    Bytes,
    Ints,
    Values,
    as_binary,
    fixed_rows,
    mask_of,
    matrix_at,
    offsets_of,
    pieces,
    values_of,
)
from timeline.errors import ConfigError, FormatError
from timeline.units import count

VERSION = 1

_HEADER: Mapping[str, tuple[str, int]] = {
    "version": ("u1", 0),
    "columns": ("<u2", 1),
    "variable": ("<u2", 3),
    "fixed_bytes": ("<u2", 5),
}
_HEADER_BYTES = 7
_MOST = np.iinfo(np.uint16).max


@dataclass(frozen=True)
class ValueCodec:
    """Encodes the columns of whole batches into values, and decodes them.

    Attributes:
        schema: the columns, in the order in which they are stored; may be empty.

    Raises:
        ConfigError: a column's type cannot be stored, or there are too many columns.
    """

    schema: pa.Schema

    def __post_init__(self) -> None:
        if len(set(self.schema.names)) != len(self.schema.names):
            raise ConfigError(f"columns {self.schema.names}: allowed is each name once")
        for field in self.schema:
            try:
                _format(field.type)
            except ConfigError as error:
                raise ConfigError(f"column `{field.name}`: {error}") from None
        if len(self.schema) > _MOST or _layout(self._formats, *self._own_shape).itemsize > _MOST:
            raise ConfigError(
                f"{count(len(self.schema), 'column')}: a row's fixed part would be above {_MOST} bytes; use fewer"
            )

    def encode(self, rows: pa.RecordBatch) -> pa.Array:
        """The value of each row, as `binary`; never null, never empty.

        Args:
            rows: contain the schema's columns, in any order and among others.
        """
        columns, variable, fixed_bytes = self._own_shape
        record = np.zeros(rows.num_rows, dtype=_layout(self._formats, *self._own_shape))
        record["version"] = VERSION
        record["columns"] = columns
        record["variable"] = variable
        record["fixed_bytes"] = fixed_bytes
        texts: list[pa.Array] = []
        end = np.zeros(rows.num_rows, dtype=np.int64)
        for index, field in enumerate(self.schema):
            column = rows.column(field.name)
            if column.type != field.type:
                column = column.cast(field.type)
            if column.null_count:
                record["nulls"][:, index // 8] |= mask_of(column.is_null()).astype(np.uint8) << (index % 8)
            if self._formats[index] is not None:
                record[f"c{index}"] = _fixed_values(column)
                continue
            texts.append(as_binary(_json_column(column) if _is_json(field.type) else column))
            end += np.diff(offsets_of(texts[-1]))
            record["ends"][:, len(texts) - 1] = end
        head = fixed_rows(record.view(np.uint8).reshape(rows.num_rows, record.dtype.itemsize))
        return pc.binary_join_element_wise(head, *texts, EMPTY) if texts else head

    def decode(self, values: pa.Array) -> pa.RecordBatch:
        """Decode values; columns that were appended to the schema later are null, unknown columns are left out.

        With a schema of no columns the batch has no rows either: Arrow counts rows by columns.

        Raises:
            FormatError: a value is null (a delete), of another version, or not of this layout.
        """
        if values.null_count:
            raise FormatError(f"{values.null_count} of {count(len(values), 'value')} null: a delete has no columns")
        found = values_of(values)
        _expect(found.lengths >= _HEADER_BYTES, "a value is shorter than its header")
        shapes = found.words(found.starts, np.full(len(values), _HEADER_BYTES, dtype=np.int64))
        first, inverse = np.unique(shapes, return_inverse=True)
        parts = [self._decode_alike(found, np.flatnonzero(inverse == index)) for index in range(len(first))]
        if len(parts) == 1:
            return parts[0]
        if not parts:
            return pa.RecordBatch.from_pylist([], self.schema)
        back = np.argsort(np.argsort(inverse, kind="stable"), kind="stable")
        return pa.Table.from_batches(parts).combine_chunks().take(pa.array(back)).to_batches()[0]

    @cached_property
    def _formats(self) -> tuple[str | None, ...]:
        """Each column's numpy format in the fixed section; None where it is variable."""
        return tuple(_format(field.type) for field in self.schema)

    @property
    def _own_shape(self) -> tuple[int, int, int]:
        return len(self._formats), self._formats.count(None), _fixed_bytes(self._formats)

    def _decode_alike(self, values: Values, which: Ints) -> pa.RecordBatch:
        """Decode the values with the indices `which`; they have one header."""
        starts, ends = values.starts[which], values.ends[which]
        version, *counts = struct.unpack("<BHHH", values.data[starts[0] :][:_HEADER_BYTES].tobytes())
        shape = (counts[0], counts[1], counts[2])
        if version != VERSION:
            raise FormatError(f"a value of layout version {version}; this version of Tideline reads {VERSION}")
        known = self._formats[: shape[0]]
        own = len(known), known.count(None), _fixed_bytes(known)
        if shape != own and not (shape[0] > own[0] and shape[1] >= own[1] and shape[2] >= own[2]):
            raise FormatError(
                f"a value of {count(shape[0], 'column')}, {shape[1]} of them variable, with "
                f"{count(shape[2], 'fixed byte')}; columns {self.schema.names[: own[0]]} have {own[1]} and {own[2]}: "
                "columns may only be appended to a schema"
            )
        layout = _layout(known, *shape)
        _expect(ends - starts >= layout.itemsize, "a value is shorter than its fixed part")
        record = matrix_at(values.data, starts, layout.itemsize).reshape(-1).view(layout)
        begins = starts + layout.itemsize
        limits = record["ends"].astype(np.int64).reshape(len(which), shape[1])
        _expect(np.diff(limits, axis=1, prepend=0).reshape(-1) >= 0, "end offsets of a value go back")
        _expect(begins + (limits[:, -1] if shape[1] else 0) == ends, "a value is not as long as its end offsets say")
        columns: list[pa.Array] = []
        texts = 0
        for index, field in enumerate(self.schema):
            if index >= len(known):
                columns.append(pa.nulls(len(which), field.type))
                continue
            is_null = (record["nulls"][:, index // 8] >> np.uint8(index % 8)) & 1 == 1
            if known[index] is not None:
                columns.append(_fixed_column(np.ascontiguousarray(record[f"c{index}"]), is_null, field.type))
                continue
            start = begins + (limits[:, texts - 1] if texts else 0)
            columns.append(_variable_column(values.data, start, begins + limits[:, texts], is_null, field.type))
            texts += 1
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def _format(kind: pa.DataType) -> str | None:
    """The numpy format of a type in the fixed section; None for a variable one.

    Raises:
        ConfigError: the type cannot be stored.
    """
    types = pa.types
    if types.is_signed_integer(kind):
        return f"<i{kind.bit_width // 8}"
    if types.is_float32(kind) or types.is_float64(kind):
        return f"<f{kind.bit_width // 8}"
    if types.is_boolean(kind):
        return "u1"
    if types.is_date32(kind):
        return "<i4"
    if types.is_timestamp(kind) and kind.unit == "us":
        return "<i8"
    if types.is_decimal128(kind):
        return "V16"
    if types.is_string(kind) or types.is_large_string(kind) or types.is_binary(kind) or types.is_large_binary(kind):
        return None
    if _is_json(kind):
        for index in range(kind.num_fields):
            _format(kind.field(index).type)
        return None
    raise ConfigError(
        f"{kind} cannot be stored; allowed are tinyint to bigint, float, double, boolean, date, timestamp, "
        "timestamp_ntz, decimal, string, binary, and struct, array, map of these"
    )


def _is_json(kind: pa.DataType) -> bool:
    """Whether values of this type are stored as JSON text."""
    types = pa.types
    return bool(types.is_struct(kind) or types.is_map(kind) or types.is_list(kind) or types.is_large_list(kind))


def _fixed_bytes(formats: Sequence[str | None]) -> int:
    return sum(np.dtype(each).itemsize for each in formats if each is not None)


def _layout(formats: Sequence[str | None], columns: int, variable: int, fixed_bytes: int) -> np.dtype[np.void]:
    """The part of a value before its variable data, as one packed numpy record.

    Args:
        formats: numpy formats of the known columns; further columns of the value get no field.
        columns: columns in the value.
        variable: variable columns in the value.
        fixed_bytes: size of the fixed section in the value.
    """
    bitmap_bytes = (columns + 7) // 8
    places: dict[str, tuple[object, int]] = {**_HEADER, "nulls": (("u1", (bitmap_bytes,)), _HEADER_BYTES)}
    start = _HEADER_BYTES + bitmap_bytes
    ends_at = start + fixed_bytes
    for index, each in enumerate(formats):
        if each is not None:
            places[f"c{index}"] = (each, start)
            start += np.dtype(each).itemsize
    places["ends"] = (("<u4", (variable,)), ends_at)
    return np.dtype(
        {
            "names": list(places),
            "formats": [kind for kind, _ in places.values()],
            "offsets": [offset for _, offset in places.values()],
            "itemsize": ends_at + 4 * variable,
        }
    )


def _fixed_values(column: pa.Array) -> npt.NDArray[np.generic]:
    """A column in the numpy format of the fixed section; zero where it is null."""
    kind, types = column.type, pa.types
    if types.is_decimal(kind):
        raw = np.frombuffer(column.buffers()[1], dtype="V16", count=len(column), offset=16 * column.offset)
        if not column.null_count:
            return raw
        kept = raw.copy()
        kept[mask_of(column.is_null())] = np.zeros(1, "V16")[0]
        return kept
    if types.is_boolean(kind):
        return mask_of(column).view(np.uint8)
    if types.is_temporal(kind):
        column = column.view(pa.int32() if types.is_date32(kind) else pa.int64())
    numbers: npt.NDArray[np.generic] = (column.fill_null(0) if column.null_count else column).to_numpy()
    return numbers


def _fixed_column(values: npt.NDArray[np.generic], is_null: Booleans, kind: pa.DataType) -> pa.Array:
    """The Arrow column of values from the fixed section."""
    valid = pa.py_buffer(np.packbits(~is_null, bitorder="little")) if is_null.any() else None
    data = np.packbits(values != 0, bitorder="little") if pa.types.is_boolean(kind) else values
    column = pa.Array.from_buffers(kind, len(values), [valid, pa.py_buffer(data.view(np.uint8))])
    if pa.types.is_decimal(kind):
        try:
            column.validate(full=True)  # 16 bytes may hold more digits than the type has
        except pa.ArrowInvalid as error:
            raise FormatError(f"a value holds a number that is no {kind}: {error}") from error
    return column


def _json_column(column: pa.Array) -> pa.Array:
    """JSON texts of a column; empty where it is null."""
    texts = zip(to_json(column), column.is_valid().to_pylist(), strict=True)
    return pa.array([text if there else "" for text, there in texts], pa.string())


def _variable_column(data: Bytes, starts: Ints, ends: Ints, is_null: Booleans, kind: pa.DataType) -> pa.Array:
    """The Arrow column of values from the variable data."""
    found = pieces(data, starts, ends)
    if is_null.any():
        found = pc.if_else(pa.array(is_null), pa.scalar(None, pa.binary()), found)
    if _is_json(kind):
        return from_json(found.to_pylist(), kind)
    try:
        return found.cast(kind)
    except pa.ArrowInvalid as error:
        raise FormatError(f"a value holds bytes that are no {kind}: {error}") from error


def _expect(holds: Booleans, fault: str) -> None:
    if not holds.all():
        raise FormatError(f"{fault}: it was not written in this layout, or by other columns")
