"""Takes out of lines what Arrow's reader cannot read in place, and makes columns of it.

::

    {"id":1,"zones":{"a":{"n":1},"b":{"n":2}},"tags":["x"]}       zones map<string,struct<n:int>>, tags string
    {"id":1,"zones":null,"tags":null}                             the rest: what Arrow reads as lines
                    {"key":"a","value":{"n":1}}                   entries of maps: lines too, with columns of their own
                    {"key":"b","value":{"n":2}}
    ["x"]                                                         a text: kept as it is, once Arrow finds it valid

Both the rest and what was taken out are read by Arrow's parser. JSON has a grammar without context: if a value
is valid alone, and the line with null at its place is, then so is the line.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ingest.sources.decode.arrow_json import may_wrap
from ingest.sources.decode.lines import Positions, cut_out, pieces_of, positions_of
from ingest.sources.decode.narrow import Taken
from ingest.sources.decode.records import join_lines
from ingest.sources.decode.structure import Fields, Structure

_CONSTANTS = r"(?:\A|[:,\[])\s*-?(?:NaN|Inf(?:inity)?)\s*(?:[,\]}]|\z)"
"""Taken for numbers by Arrow, not by `values`; a text that looks as if it has one is decoded there."""

_CONSTANT_WORDS = (b"NaN", b"Inf")
_ENTRY_KEY, ENTRY_VALUE = "key", "value"
_ANY = pa.schema([("", pa.null())])
"""A column that no line has: reading it checks only that the lines are JSON."""

Take = Callable[[bytes, int, pa.Schema], Taken]
"""Decodes so many lines with such columns, as far as Arrow can."""


@dataclass(frozen=True)
class Peeled:
    """Lines taken apart.

    Attributes:
        structure: of the lines.
        doubtful: for each line, whether it cannot be taken apart; if any is, nothing is taken out.
        rest: the lines with null in place of what was taken out; None where nothing was.
        values: by column, what was taken out.
    """

    structure: Structure
    doubtful: npt.NDArray[np.bool_]
    rest: bytes | None
    values: dict[str, Values]


@dataclass(frozen=True)
class Values:
    """Values of one column that were taken out.

    Attributes:
        texts: binary.
        rows: the line of each, in order; at most one a line.
    """

    texts: pa.Array
    rows: Positions


@dataclass(frozen=True)
class Column:
    """A column made of values that were taken out.

    Attributes:
        values: one a line; null where none was taken out.
        bad: lines whose value is not taken.
    """

    values: pa.Array
    bad: frozenset[int]


def is_object(kind: pa.DataType) -> bool:
    """Whether objects of this type are taken out: maps, and structs that hold what Arrow may not read in place."""
    if pa.types.is_struct(kind):
        return any(is_object(field.type) or _is_refused_inside(field.type) for field in kind)
    return bool(pa.types.is_map(kind))


def _is_refused_inside(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_date(kind) or pa.types.is_timestamp(kind) or may_wrap(kind))


def peel(data: bytes, schema: pa.Schema) -> Peeled:
    """Take out the objects of maps and some structs, and of string columns what is no string.

    Args:
        data: lines without blank ones, each beginning with ``{`` and ending with ``}``, in UTF-8.
        schema: the columns.
    """
    names = [field.name for field in schema if is_object(field.type) or pa.types.is_string(field.type)]
    structure = Structure.of(data)
    fields = structure.named(names)
    if not fields.doubtful.any():
        fields = fields.only(_is_out(structure, fields, [schema.field(name).type for name in names]))
    if fields.doubtful.any() or not len(fields.rows):
        return Peeled(structure, fields.doubtful, None, {})
    pieces = pieces_of(data, fields.starts, fields.ends)
    is_value = pa.array(np.arange(len(pieces)) % 2 == 1)
    rest = pc.if_else(is_value, pa.scalar(b"null"), pieces)
    values = {}
    for index, name in enumerate(names):
        which = np.flatnonzero(fields.names == index)
        if len(which):
            values[name] = Values(pieces.take(pa.array(2 * which + 1)), fields.rows[which])
    return Peeled(structure, fields.doubtful, _content(rest), values)


def text_column(values: Values, rows: int, take: Take) -> Column:
    """Values as the texts that they are written as.

    Args:
        values: of a string column.
        rows: lines that there are.
        take: reads lines.
    """
    lines = pc.binary_join_element_wise(b'{"value":', values.texts, b"}", b"")
    data = join_lines(lines)
    taken = take(data, len(lines), _ANY)
    valid = np.zeros(len(lines), np.bool_)
    valid[taken.lines] = True
    if any(_has_word(data, word) for word in _CONSTANT_WORDS):
        valid[positions_of(pc.match_substring_regex(values.texts, pattern=_CONSTANTS))] = False
    return Column(_spread(values.texts.view(pa.string()), values.rows, rows), frozenset(values.rows[~valid].tolist()))


def map_column(values: Values, rows: int, kind: pa.MapType, take: Take) -> Column:
    """Objects as maps.

    Args:
        values: of a map column.
        rows: lines that there are.
        kind: the type, with texts for keys.
        take: reads lines.
    """
    entries = _entries(values.texts)
    bad = set(values.rows[entries.doubtful].tolist())
    columns = pa.schema([(_ENTRY_KEY, kind.key_type), (ENTRY_VALUE, kind.item_type)])
    taken = take(join_lines(entries.lines), len(entries.lines), columns) if len(entries.lines) else Taken()
    lines = taken.lines
    keys, items = (taken.column(at, field.type) for at, field in enumerate(columns))
    left = np.ones(len(entries.lines), np.bool_)
    left[lines] = False
    unfit = np.concatenate((entries.rows[left], _with_repeated(keys, entries.rows[lines])))
    if len(unfit):
        bad.update(values.rows[unfit].tolist())
        keep = ~np.isin(entries.rows[lines], unfit)
        lines, keys, items = lines[keep], keys.filter(pa.array(keep)), items.filter(pa.array(keep))
    counts = np.zeros(rows, np.int32)
    counts[values.rows] = np.bincount(entries.rows[lines], minlength=len(values.rows))
    is_null = np.ones(rows, np.bool_)
    is_null[values.rows] = False
    offsets = pa.array(np.concatenate(([0], np.cumsum(counts))), pa.int32())
    return Column(pa.MapArray.from_arrays(offsets, keys, items, kind, mask=pa.array(is_null)), frozenset(bad))


def struct_column(values: Values, rows: int, kind: pa.StructType, take: Take) -> Column:
    """Objects as structs.

    Args:
        values: of a struct column.
        rows: lines that there are.
        kind: the type.
        take: reads lines.
    """
    taken = take(join_lines(values.texts), len(values.texts), pa.schema(list(kind)))
    left = np.ones(len(values.texts), np.bool_)
    left[taken.lines] = False
    fields = [taken.column(at, field.type) for at, field in enumerate(kind)]
    structs = pa.StructArray.from_arrays(fields, fields=list(kind))
    return Column(_spread(structs, values.rows[taken.lines], rows), frozenset(values.rows[left].tolist()))


@dataclass(frozen=True)
class _Entries:
    """Entries of objects.

    Attributes:
        doubtful: for each object, whether it cannot be taken apart; its entries are not there.
        lines: ``{"key":…,"value":…}`` of each entry.
        rows: index of the object of each.
    """

    doubtful: npt.NDArray[np.bool_]
    lines: pa.Array
    rows: Positions


def _entries(objects: pa.Array) -> _Entries:
    data = join_lines(objects)
    fields = Structure.of(data).all()
    names = cut_out(data, fields.name_starts, fields.name_ends)
    values = cut_out(data, fields.starts, fields.ends)
    lines = pc.binary_join_element_wise(b'{"key":', names, b',"value":', values, b"}", b"")
    return _Entries(fields.doubtful, lines, fields.rows)


def _has_word(data: bytes, word: bytes) -> bool:
    """``word in data``, in a fifth of the time where its first byte is rare."""
    codes = np.frombuffer(data, np.uint8)
    at = np.flatnonzero(codes[: 1 - len(word)] == word[0])
    for offset, code in enumerate(word[1:], 1):
        at = at[codes[at + offset] == code]
    return len(at) > 0


def _is_out(structure: Structure, fields: Fields, kinds: list[pa.DataType]) -> npt.NDArray[np.bool_]:
    """Which values are to be taken out; null and what else Arrow reads or refuses by itself stays."""
    first = structure.bounds.codes[fields.starts]
    is_kept = np.array([pa.types.is_string(kind) for kind in kinds], np.bool_)[fields.names]
    is_text = (first != ord('"')) & (first != ord("n"))
    is_out: npt.NDArray[np.bool_] = np.where(is_kept, is_text, first == ord("{"))
    return is_out


def _content(texts: pa.Array) -> bytes:
    """The values of a binary array without nulls one after the other."""
    offsets = np.frombuffer(texts.buffers()[1], np.int32)[texts.offset : texts.offset + len(texts) + 1]
    content: bytes = texts.buffers()[2].slice(int(offsets[0]), int(offsets[-1] - offsets[0])).to_pybytes()
    return content


def _spread(values: pa.Array, at: Positions, rows: int) -> pa.Array:
    """Values at their rows, null between them."""
    if len(at) == rows:
        return values
    index = np.full(rows, -1, np.int64)
    index[at] = np.arange(len(at))
    return values.take(pa.array(index, mask=index < 0))


def _with_repeated(keys: pa.Array, rows: Positions) -> Positions:
    """Rows in which a key is there more than once; of these the last one counts, which is left to `values`."""
    coded = pc.dictionary_encode(keys)
    both = rows * len(coded.dictionary) + np.asarray(coded.indices)
    if (np.diff(both) > 0).all():  # keys come in the same order everywhere
        return np.empty(0, np.intp)
    order = np.argsort(both, kind="stable")
    repeated: Positions = rows[order[1:][np.diff(both[order]) == 0]]
    return repeated
