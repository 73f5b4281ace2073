"""Way 2: values that Arrow cannot read in place, extracted from their lines into blocks and columns of their own.

::

    {"id":1,"zones":{"a":{"n":1},"b":{"n":2}},"tags":["x"],"x":5}     zones map<string,struct<n:int>>, tags string
    id, x                                                             typed columns and columns in place
    {"value":{"n":1}}                                                 map entries: a block with one column
    {"value":{"n":2}}
    ["x"]                                                             a string column's value that is no string: a text

`ways` decodes the blocks between `extract` and `merge`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ingest.sources.decode.json.arrow_reader import is_read_in_place, may_wrap
from ingest.sources.decode.json.line_block import DecodedLines, JsonColumns, LineBlock
from ingest.sources.decode.json.object_fields import MapEntries, ParsedObjects, RawValues, parse_objects
from ingest.sources.decode.json.typed_columns import can_name, is_typed, map_array, scatter
from ingest.sources.decode.lines import Positions
from ingest.sources.decode.records import join_lines
from ingest.sources.decode.time_format import TimeFormat

_MOST_BYTES = 2**31 - 1


@dataclass(frozen=True)
class ExtractedFields:
    """Lines as objects, with their fields sorted by the way that decodes them.

    Attributes:
        objects: the lines that are objects.
        typed: columns that msgspec read.
        values: by column, the values to decode outside their line.
        bad: objects with a value that is no object in a column of objects.
        in_place: columns that Arrow reads in the objects' lines, without `values`.
    """

    objects: ParsedObjects
    typed: Mapping[str, pa.Array]
    values: Mapping[str, RawValues]
    bad: frozenset[int]
    in_place: JsonColumns

    @property
    def block_in_place(self) -> LineBlock:
        """The objects encoded as lines with the columns in place only."""
        data = self.objects.as_lines(self.in_place.schema, {name: found.rows for name, found in self.values.items()})
        return LineBlock(data, len(self.objects), self.in_place, self.objects)


@dataclass(frozen=True)
class ExtractedColumn:
    """A column of extracted values.

    Attributes:
        values: one an object; null where no value was extracted.
        bad: objects whose value was not decoded.
    """

    values: pa.Array
    bad: frozenset[int] = frozenset()


def is_extractable(kind: pa.DataType, timestamp_format: TimeFormat | None) -> bool:
    """Whether a column's values can be read in place, or after extraction from their lines.

    Not for base64, map keys other than strings, structs without fields, and arrays that `is_read_in_place` excludes.
    """
    if pa.types.is_map(kind):
        return bool(pa.types.is_string(kind.key_type)) and is_extractable(kind.item_type, timestamp_format)
    if pa.types.is_struct(kind):
        return kind.num_fields > 0 and all(is_extractable(field.type, timestamp_format) for field in kind)
    return is_read_in_place(kind, timestamp_format)


def extract(block: LineBlock) -> ExtractedFields | None:
    """The fields of a block's lines: objects of maps and some structs, and values of string columns that are no string.

    None where msgspec cannot parse the block: a column's name needs an escape, or the block is too large.
    """
    schema, strict = block.columns.schema, block.columns.strict
    if len(block.data) > _MOST_BYTES or not can_name(schema.names):
        return None
    objects = parse_objects(block.data, block.rows, schema, strict=strict)
    typed: dict[str, pa.Array] = {}
    values: dict[str, RawValues] = {}
    in_place: list[pa.Field] = []
    bad: set[int] = set()
    for field in schema:
        is_object = _is_object(field.type)
        if is_typed(field.type):
            typed[field.name] = objects.typed_column(field.name)
            continue
        if not is_object:
            in_place.append(field)
        if is_object or pa.types.is_string(field.type):
            found = objects.raw_values(field.name)
            is_null = found.first == ord("n")
            if is_object:
                is_outside = found.first == ord("{")
                bad.update(found.rows[~is_outside & ~is_null].tolist())
            else:
                is_outside = ~is_null & (found.first != ord('"'))
            if is_outside.any():
                values[field.name] = found.filter(is_outside)
    return ExtractedFields(objects, typed, values, frozenset(bad), block.columns.select(pa.schema(in_place)))


def merge(
    extracted: ExtractedFields, columns: Mapping[str, ExtractedColumn], in_place: DecodedLines, schema: pa.Schema
) -> DecodedLines:
    """Decoded lines of the block that fields were extracted from.

    Args:
        extracted: the fields.
        columns: by column, the decoded values of `ExtractedFields.values`.
        in_place: the decoded columns in place; an object that is missing here is left undecoded.
        schema: all columns.
    """
    objects, lines = extracted.objects, in_place.lines
    outside = {name: column.values for name, column in columns.items()} | dict(extracted.typed)
    merged: list[pa.Array] = []
    for field in schema:
        at = extracted.in_place.schema.get_field_index(field.name)
        values = in_place.columns[at] if at >= 0 else pa.nulls(len(lines), field.type)
        column = outside.get(field.name)
        if column is not None:
            column = column if len(lines) == len(objects) else column.take(pa.array(lines))
            values = column if values.null_count == len(values) else pc.coalesce(values, column)
        merged.append(values)
    bad = extracted.bad.union(*(column.bad for column in columns.values()))
    positions = np.flatnonzero(np.isin(lines, list(bad))).tolist() if bad else []
    return DecodedLines(objects.lines[lines], merged).without(positions)


def text_column(values: RawValues, rows: int) -> ExtractedColumn:
    """Values of a string column as their JSON texts.

    Args:
        values: the values.
        rows: number of objects.
    """
    return ExtractedColumn(scatter(values.texts.view(pa.string()), values.rows, rows))


def entry_block(entries: MapEntries, columns: JsonColumns) -> LineBlock:
    """One line ``{"value":…}`` for each entry.

    Args:
        entries: entries of all maps.
        columns: see `JsonColumns.of_entries`.
    """
    count = len(entries.values)
    data = join_lines(pc.binary_join_element_wise(b'{"value":', entries.values, b"}", b"")) if count else b""
    return LineBlock(data, count, columns)


def map_column(
    values: RawValues, entries: MapEntries, decoded: DecodedLines, kind: pa.MapType, rows: int
) -> ExtractedColumn:
    """A column of maps.

    Args:
        values: the maps as objects.
        entries: their entries.
        decoded: the decoded lines of the `entry_block`.
        kind: the column's type, with string keys.
        rows: number of objects.
    """
    of_object = np.repeat(np.arange(len(entries.counts)), entries.counts)
    lines, items = decoded.lines, decoded.columns[0]
    keys, counts = entries.names, entries.counts
    is_bad = np.zeros(len(counts), np.bool_)
    if len(lines) < len(of_object):
        is_bad[of_object[_missing(len(of_object), lines)]] = True
        is_good = ~is_bad[of_object[lines]]
        keys, items = keys.take(pa.array(lines[is_good])), items.filter(pa.array(is_good))
        counts = np.where(is_bad, 0, counts)
    maps = map_array(kind, keys, items, counts, values.rows, rows)
    return ExtractedColumn(maps, frozenset(values.rows[is_bad].tolist()))


def struct_block(values: RawValues, columns: JsonColumns) -> LineBlock:
    """One line for each struct.

    Args:
        values: the structs as objects.
        columns: see `JsonColumns.of_struct`.
    """
    return LineBlock(join_lines(values.texts), len(values.texts), columns)


def struct_column(values: RawValues, decoded: DecodedLines, kind: pa.StructType, rows: int) -> ExtractedColumn:
    """A column of structs.

    Args:
        values: the structs as objects.
        decoded: the decoded lines of the `struct_block`.
        kind: the column's type.
        rows: number of objects.
    """
    structs = pa.StructArray.from_arrays(decoded.columns, fields=list(kind))
    bad = frozenset(values.rows[_missing(len(values.texts), decoded.lines)].tolist())
    return ExtractedColumn(scatter(structs, values.rows[decoded.lines], rows), bad)


def _is_object(kind: pa.DataType) -> bool:
    """Whether objects of this type are extracted: maps, and structs with a field that Arrow may not read in place."""
    if pa.types.is_struct(kind):
        return any(_is_object(field.type) or _is_refused_inside(field.type) for field in kind)
    return bool(pa.types.is_map(kind))


def _is_refused_inside(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_date(kind) or pa.types.is_timestamp(kind) or may_wrap(kind))


def _missing(count: int, lines: Positions) -> npt.NDArray[np.bool_]:
    """A mask of the indices below a count that are not among the lines."""
    is_missing = np.ones(count, np.bool_)
    is_missing[lines] = False
    return is_missing
