"""Column statistics of a Parquet file for Delta's log, read from the file's own footer.

A reader skips a file when its bounds say that no row can match, so a bound may be too wide but never too narrow. A
bound that is not certain is left out: a reader then reads the file.

Floats are the exception: a footer's statistics ignore NaN, which Spark SQL sorts above every number, so Spark would
skip row groups with matching rows. Our files hold no footer statistics for floats, and none for row groups with a least
or greatest text of more than 4 KiB; `ValueStatistics` computes them from the values instead.

Further demands of readers depend on the table; see `sinks.delta.bounds`.

Source: Delta Transaction Log Protocol, section "Per-file Statistics".
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sinks.parquet.table_files import INDEXED_LEAVES
from timeline.epoch import Json
from timeline.units import count

STRING_PREFIX = 32
"""Characters of a string bound that are kept, as Delta's own writer does."""

_LONGEST_IN_FOOTER_BYTES = 4096
"""Longest bound: Arrow's writer leaves out both bounds of a row group if one is longer."""

_LAST_CODE_POINT = "\U0010ffff"
_EXACT_DIGITS = 15
_EPOCH = datetime.datetime(1970, 1, 1)
_MICROSECONDS = {"s": 1_000_000, "ms": 1_000, "us": 1}

Bounds = tuple[Json, Json]


@dataclass(frozen=True)
class Leaf:
    """One primitive column of a schema, in the order in which Parquet numbers its columns.

    Attributes:
        path: names from the top-level column down, as Parquet spells them.
        type: its Arrow type.
        around: path of the outermost list or map that contains the column; None if there is none.
    """

    path: tuple[str, ...]
    type: pa.DataType
    around: tuple[str, ...] | None

    @property
    def repeated(self) -> bool:
        """Whether the column is inside a list or map, where a bound or null count per row has no meaning."""
        return self.around is not None

    @property
    def is_float(self) -> bool:
        """Whether values can be NaN or a zero with a sign."""
        return bool(pa.types.is_floating(self.type))


def leaves(schema: pa.Schema) -> list[Leaf]:
    """All primitive columns of a schema; the index of each is its Parquet column index."""
    return [leaf for field in schema for leaf in _leaves_of(field, (), None)]


def _leaves_of(field: pa.Field, above: tuple[str, ...], around: tuple[str, ...] | None) -> Iterator[Leaf]:
    path = (*above, field.name)
    if pa.types.is_struct(field.type):
        for index in range(field.type.num_fields):
            yield from _leaves_of(field.type.field(index), path, around)
    elif pa.types.is_map(field.type):
        yield from _leaves_of(field.type.key_field.with_name("key"), (*path, "key_value"), around or path)
        yield from _leaves_of(field.type.item_field.with_name("value"), (*path, "key_value"), around or path)
    elif pa.types.is_list(field.type) or pa.types.is_large_list(field.type):
        yield from _leaves_of(field.type.value_field.with_name("element"), (*path, "list"), around or path)
    else:
        yield Leaf(path, field.type, around)


def values_of(rows: pa.RecordBatch | pa.Table, path: tuple[str, ...]) -> pa.Array | pa.ChunkedArray:
    """The values of a leaf outside of lists and maps."""
    column = rows.column(path[0])
    for name in path[1:]:
        column = pc.struct_field(column, name)
    return column


class ValueStatistics:
    """Null counts and bounds that a footer lacks, computed from values, of columns outside lists and maps.

    These are floats, and texts in row groups with a text that is too long for a footer.
    """

    def __init__(self, schema: pa.Schema) -> None:
        """Start without rows."""
        found = [leaf for leaf in leaves(schema) if not leaf.repeated]
        self._floats = [leaf.path for leaf in found if leaf.is_float]
        self._texts = [leaf.path for leaf in found if _is_text(leaf.type)]
        self.nulls = dict.fromkeys(self._floats, 0)
        self._ranges: dict[tuple[str, ...], tuple[float, float]] = {}
        self._with_nan: set[tuple[str, ...]] = set()
        self._long: dict[tuple[tuple[str, ...], int], tuple[bytes, bytes]] = {}
        self._groups = 0

    def add(self, rows: pa.Table) -> None:
        """Add the rows of the next row group."""
        for path in self._floats:
            self._add_floats(path, values_of(rows, path))
        for path in self._texts:
            column = values_of(rows, path)
            if (pc.max(pc.binary_length(column)).as_py() or 0) >= _LONGEST_IN_FOOTER_BYTES:
                found = pc.min_max(column)
                self._long[path, self._groups] = found["min"].as_py().encode(), found["max"].as_py().encode()
        self._groups += 1

    def _add_floats(self, path: tuple[str, ...], column: pa.ChunkedArray) -> None:
        self.nulls[path] += column.null_count
        if path in self._with_nan or column.null_count == len(column):
            return
        if pc.any(pc.is_nan(column)).as_py():
            self._with_nan.add(path)
            return
        found = pc.min_max(column)
        least, greatest = self._ranges.get(path, (float("inf"), float("-inf")))
        self._ranges[path] = min(least, found["min"].as_py()), max(greatest, found["max"].as_py())

    def bounds(self, path: tuple[str, ...]) -> Bounds | None:
        """Bounds of a float column; None if it holds NaN, or nothing but nulls."""
        if path in self._with_nan or path not in self._ranges:
            return None
        return _float_bounds(*self._ranges[path])

    def texts(self, path: tuple[str, ...], group: int) -> tuple[bytes, bytes] | None:
        """The least and greatest text of a row group, in UTF-8; None if the footer has its bounds."""
        return self._long.get((path, group))


def file_statistics(
    footer: pq.FileMetaData,
    schema: pa.Schema,
    *,
    partition_columns: Collection[str] = (),
    values: ValueStatistics | None = None,
) -> dict[str, Json]:
    """``numRecords``, ``nullCount``, ``minValues`` and ``maxValues`` of one file.

    Args:
        footer: the file's metadata.
        schema: its columns in the file's order.
        partition_columns: columns without statistics, since the log entry itself has their values.
        values: statistics of all rows from the file's writer; without them float columns get no bounds.
    """
    nulls: dict[str, Json] = {}
    least: dict[str, Json] = {}
    greatest: dict[str, Json] = {}
    indexed: set[tuple[str, ...]] = set()
    columns = leaves(schema)
    if len(columns) != footer.num_columns:
        raise ValueError(f"the schema has {count(len(columns), 'leaf column')}, the file {footer.num_columns}")
    for index, leaf in enumerate(columns):
        if leaf.path[0] in partition_columns:
            continue
        indexed.add(leaf.around or leaf.path)  # a list or map is one column to Delta
        if len(indexed) > INDEXED_LEAVES:
            break
        if leaf.repeated:
            continue
        null_count, bounds = _of_footer(footer, index, leaf, values)
        if leaf.is_float and values is not None:
            null_count, bounds = values.nulls[leaf.path], values.bounds(leaf.path)
        if null_count is not None:
            _put(nulls, leaf.path, null_count)
        if bounds is not None:
            _put(least, leaf.path, bounds[0])
            _put(greatest, leaf.path, bounds[1])
    return {"numRecords": footer.num_rows, "minValues": least, "maxValues": greatest, "nullCount": nulls}


def _put(tree: dict[str, Json], path: tuple[str, ...], value: Json) -> None:
    for name in path[:-1]:
        below = tree.setdefault(name, {})
        assert isinstance(below, dict)
        tree = below
    tree[path[-1]] = value


def _of_footer(
    footer: pq.FileMetaData, index: int, leaf: Leaf, values: ValueStatistics | None
) -> tuple[int | None, Bounds | None]:
    chunks = [footer.row_group(group).column(index).statistics for group in range(footer.num_row_groups)]
    return _null_count(chunks), None if leaf.is_float else _bounds(chunks, footer, leaf, values)


def _null_count(chunks: list[pq.Statistics | None]) -> int | None:
    total = 0
    for chunk in chunks:
        if chunk is None or not chunk.has_null_count:
            return None
        total += chunk.null_count
    return total


def _bounds(
    chunks: list[pq.Statistics | None], footer: pq.FileMetaData, leaf: Leaf, values: ValueStatistics | None
) -> Bounds | None:
    """Bounds over all row groups; None if a row group with values has none, or all values are null."""
    raw_least: list[object] = []
    raw_greatest: list[object] = []
    for group, chunk in enumerate(chunks):
        if chunk is not None and chunk.has_null_count and chunk.null_count == footer.row_group(group).num_rows:
            continue
        ends = values.texts(leaf.path, group) if values is not None else None
        if ends is None:
            if chunk is None or not chunk.has_min_max:
                return None
            ends = chunk.min_raw, chunk.max_raw
        raw_least.append(ends[0])
        raw_greatest.append(ends[1])
    if not raw_least:
        return None
    # A decimal's bytes are two's complement: they sort only as numbers.
    if pa.types.is_decimal(leaf.type):
        raw_least = [_unscaled(raw) for raw in raw_least]
        raw_greatest = [_unscaled(raw) for raw in raw_greatest]
    return delta_bounds(leaf.type, min(raw_least), max(raw_greatest))  # type: ignore[type-var]


def _unscaled(raw: object) -> int:
    if isinstance(raw, bytes):
        return int.from_bytes(raw, "big", signed=True)
    assert isinstance(raw, int)
    return raw


def delta_bounds(kind: pa.DataType, least: object, greatest: object) -> Bounds | None:
    """Bounds in Delta's JSON types that enclose all values between two Parquet bounds.

    Args:
        kind: the column's Arrow type.
        least: lower bound in Parquet's physical form: bool, int (also for dates, timestamps and unscaled
            decimals), UTF-8 bytes.
        greatest: upper bound, the same.

    Returns:
        None if Delta keeps no bounds for the type, or the bounds are not certain.
    """
    match least, greatest:
        case bytes(), bytes():
            return _string_bounds(least, greatest) if _is_text(kind) else None
        case bool(), bool():
            return least, greatest  # not in the protocol, but delta-rs expects them; Spark does not
        case int(), int():
            return _int_bounds(kind, least, greatest)
        case _:
            return None


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _int_bounds(kind: pa.DataType, least: int, greatest: int) -> Bounds | None:
    if pa.types.is_signed_integer(kind):
        return least, greatest
    if pa.types.is_decimal(kind):
        return _decimal_bounds(kind, least, greatest)
    try:
        if pa.types.is_date32(kind):
            days = [(_EPOCH + datetime.timedelta(days=day)).date().isoformat() for day in (least, greatest)]
            return days[0], days[1]
        if pa.types.is_timestamp(kind) and kind.unit in _MICROSECONDS:
            scale = _MICROSECONDS[kind.unit]
            return _instant(least * scale // 1000 * 1000, kind), _instant_above(greatest * scale, kind)
    except OverflowError:
        return None  # before year 1 or after 9999, which the text form cannot express
    return None


def _instant_above(microseconds: int, kind: pa.TimestampType) -> str:
    """An upper bound, rounded up to milliseconds unless that is beyond year 9999; lower bounds are rounded down."""
    try:
        return _instant(-(-microseconds // 1000) * 1000, kind)
    except OverflowError:
        return _instant(microseconds, kind)


def _instant(microseconds: int, kind: pa.TimestampType) -> str:
    moment = _EPOCH + datetime.timedelta(microseconds=microseconds)
    digits = "microseconds" if microseconds % 1000 else "milliseconds"
    return moment.isoformat(timespec=digits) + ("Z" if kind.tz is not None else "")


def _float_bounds(least: float, greatest: float) -> Bounds:
    # A zero of either sign may stand for the other one, and readers differ in how they sort them.
    return _float(-0.0 if least == 0 else least), _float(0.0 if greatest == 0 else greatest)


def _float(value: float) -> Json:
    """JSON has no infinities: as in Spark, they are texts."""
    if math.isfinite(value):
        return value
    return "Infinity" if value > 0 else "-Infinity"


def _decimal_bounds(kind: pa.Decimal128Type, least: int, greatest: int) -> Bounds | None:
    """Numbers with up to 15 digits are exact; longer ones are rounded outwards to 15 digits.

    The log holds JSON numbers, which many readers parse as doubles: 15 digits survive that.
    """
    lower = _outward(least, kind.scale, ROUND_FLOOR)
    upper = _outward(greatest, kind.scale, ROUND_CEILING)
    limit = 10**kind.precision
    if any(abs(bound.scaleb(kind.scale, _WIDE)) >= limit for bound in (lower, upper)):
        return None
    return _number(lower), _number(upper)


_WIDE = Context(prec=100)


def _outward(unscaled: int, scale: int, rounding: str) -> Decimal:
    exact = Decimal(unscaled).scaleb(-scale, _WIDE)
    return Context(prec=_EXACT_DIGITS, rounding=rounding).plus(exact)


def _number(value: Decimal) -> Json:
    return int(value) if value == value.to_integral_value(context=_WIDE) else float(value)


def _string_bounds(least: bytes, greatest: bytes) -> Bounds | None:
    try:
        lower, upper = least.decode(), greatest.decode()
    except UnicodeDecodeError:
        return None
    return lower[:STRING_PREFIX], _above(upper)


def _above(text: str) -> str:
    """An upper bound of a text: the text, or its prefix with one more character that sorts above any continuation.

    Delta compares by UTF-8 bytes, which is the order of code points. If the text continues with the last code point
    itself, the prefix continues until a smaller one follows.
    """
    cut = STRING_PREFIX
    while cut < len(text) and text[cut] == _LAST_CODE_POINT:
        cut += 1
    return text if cut >= len(text) else text[:cut] + _LAST_CODE_POINT
