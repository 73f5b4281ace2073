"""Takes out of lines what Arrow's reader cannot read in place, and makes columns of it.

::

    {"id":1,"zones":{"a":{"n":1},"b":{"n":2}},"tags":["x"],"x":5}     zones map<string,struct<n:int>>, tags string
    {"id":1}                                                          the rest: what Arrow reads as lines
    {"value":{"n":1}}                                                 values of maps: lines with a column of their own
    {"value":{"n":2}}
    ["x"]                                                             a text: kept as it is
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ingest.sources.decode.arrow_json import may_wrap
from ingest.sources.decode.fields import Objects, Values, entries, take_apart
from ingest.sources.decode.lines import Positions
from ingest.sources.decode.narrow import Taken
from ingest.sources.decode.native import is_native, map_array, spread
from ingest.sources.decode.records import join_lines

ENTRY_VALUE = "value"

Take = Callable[[bytes, int, pa.Schema], Taken]
"""Decodes so many lines with such columns, as far as Arrow can."""


@dataclass(frozen=True)
class Peeled:
    """Lines taken apart.

    Attributes:
        objects: those of the lines that are objects.
        native: columns that need no more reading.
        values: by column, what was taken out.
        bad: which of the objects have no object where their column is one.
    """

    objects: Objects
    native: dict[str, pa.Array]
    values: dict[str, Values]
    bad: frozenset[int]


@dataclass(frozen=True)
class Column:
    """A column that Arrow's reader does not make.

    Attributes:
        values: one an object; null where none was taken out.
        bad: objects whose value is not taken.
    """

    values: pa.Array
    bad: frozenset[int] = frozenset()


def is_object(kind: pa.DataType) -> bool:
    """Whether objects of this type are taken out: maps, and structs that hold what Arrow may not read in place."""
    if pa.types.is_struct(kind):
        return any(is_object(field.type) or _is_refused_inside(field.type) for field in kind)
    return bool(pa.types.is_map(kind))


def _is_refused_inside(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_date(kind) or pa.types.is_timestamp(kind) or may_wrap(kind))


def peel(data: bytes, rows: int, schema: pa.Schema, *, strict: bool) -> Peeled:
    """Take out the objects of maps and some structs, and of string columns what is no string.

    Args:
        data: lines without blank ones, each beginning with ``{`` and ending with ``}``, in UTF-8.
        rows: how many they are.
        schema: the columns.
        strict: leave out lines with other fields.
    """
    objects = take_apart(data, rows, schema, strict=strict)
    native: dict[str, pa.Array] = {}
    values: dict[str, Values] = {}
    bad: set[int] = set()
    for field in schema:
        if is_native(field.type):
            native[field.name] = objects.native(field.name)
        elif is_object(field.type) or pa.types.is_string(field.type):
            found = objects.column(field.name)
            is_null = found.first == ord("n")
            if is_object(field.type):
                is_out = found.first == ord("{")
                bad.update(found.rows[~is_out & ~is_null].tolist())
            else:
                is_out = ~is_null & (found.first != ord('"'))
            if is_out.any():
                values[field.name] = found.only(is_out)
    return Peeled(objects, native, values, frozenset(bad))


def text_column(values: Values, rows: int) -> Column:
    """Values as the texts that they are written as.

    Args:
        values: of a string column.
        rows: objects that there are.
    """
    return Column(spread(values.texts.view(pa.string()), values.rows, rows))


def map_column(values: Values, rows: int, kind: pa.MapType, take: Take) -> Column:
    """Objects as maps.

    Args:
        values: of a map column, objects.
        rows: objects that there are.
        kind: the type, with texts for keys.
        take: reads lines.
    """
    found = entries(values.texts)
    of_object = np.repeat(np.arange(len(found.counts)), found.counts)
    lines, items = np.empty(0, np.intp), pa.nulls(0, kind.item_type)
    if len(of_object):
        framed = pc.binary_join_element_wise(b'{"value":', found.values, b"}", b"")
        taken = take(join_lines(framed), len(framed), pa.schema([(ENTRY_VALUE, kind.item_type)]))
        lines, items = taken.lines, taken.column(0, kind.item_type)
    keys, counts = found.names, found.counts
    is_bad = np.zeros(len(counts), np.bool_)
    if len(lines) < len(of_object):
        is_bad[of_object[_left(len(of_object), lines)]] = True
        is_good = ~is_bad[of_object[lines]]
        keys, items = keys.take(pa.array(lines[is_good])), items.filter(pa.array(is_good))
        counts = np.where(is_bad, 0, counts)
    maps = map_array(kind, keys, items, counts, values.rows, rows)
    return Column(maps, frozenset(values.rows[is_bad].tolist()))


def struct_column(values: Values, rows: int, kind: pa.StructType, take: Take) -> Column:
    """Objects as structs.

    Args:
        values: of a struct column, objects.
        rows: objects that there are.
        kind: the type.
        take: reads lines.
    """
    taken = take(join_lines(values.texts), len(values.texts), pa.schema(list(kind)))
    fields = [taken.column(at, field.type) for at, field in enumerate(kind)]
    structs = pa.StructArray.from_arrays(fields, fields=list(kind))
    bad = frozenset(values.rows[_left(len(values.texts), taken.lines)].tolist())
    return Column(spread(structs, values.rows[taken.lines], rows), bad)


def _left(count: int, taken: Positions) -> npt.NDArray[np.bool_]:
    """Which of so many are not taken."""
    is_left = np.ones(count, np.bool_)
    is_left[taken] = False
    return is_left
