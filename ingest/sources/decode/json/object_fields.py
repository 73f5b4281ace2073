"""JSON objects to their fields by msgspec: each field as its JSON text, or typed (`typed_columns`).

::

    {"a": {"b": [1, "}"]}, "c" : 2, "d": 3}      a line
    a: {"b": [1, "}"]}   c: 2                    fields of the schema; d is parsed and dropped

msgspec parses each line whole, so a parsed line is JSON by RFC 8259, in the fields that are dropped too. Of a repeated
field the last one counts, as in `values`. `values` accepts some lines that msgspec refuses, such as a string with half
of a surrogate pair.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Any, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import UNSET, Raw

from ingest.sources.decode.json.typed_columns import attribute, fields_type, is_typed, msgspec_type, typed_array
from ingest.sources.decode.lines import Positions

_RESERVED_FRAMES = 100
"""Stack frames below msgspec's call. Its nesting limit is the stack that is left, as for Python's parser: with fewer
frames left than `values` has, msgspec accepts no line that `values` refuses."""

_REFUSALS = (msgspec.DecodeError, RecursionError)
_ENCODER = msgspec.json.Encoder()
_ENTRIES = msgspec.json.Decoder(dict[str, Raw])

T = TypeVar("T")


@dataclass(frozen=True)
class RawValues:
    """JSON texts of one column's values.

    Attributes:
        texts: binary, without blanks around them.
        rows: index of each value's object, ascending; at most one value an object.
    """

    texts: pa.Array
    rows: Positions

    @property
    def first(self) -> npt.NDArray[np.uint8]:
        """The first byte of each text, which identifies a value's kind."""
        content = self.texts.buffers()[2]
        if content is None:
            return np.empty(0, np.uint8)
        return np.frombuffer(content, np.uint8)[np.frombuffer(self.texts.buffers()[1], np.int32)[: len(self.texts)]]

    def are_of(self, kind: pa.DataType, *, strict: bool) -> npt.NDArray[np.bool_]:
        """A mask of the values that msgspec accepts as values of a type.

        Args:
            kind: the type; see `msgspec_type`.
            strict: refuse fields that structs do not have.
        """
        decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(msgspec_type(kind, strict=strict))
        return np.array([_is_accepted(decoder, text) for text in self.texts.to_pylist()], np.bool_)

    def filter(self, keep: npt.NDArray[np.bool_]) -> RawValues:
        """The values that the mask keeps."""
        return self if keep.all() else RawValues(self.texts.filter(pa.array(keep)), self.rows[keep])


class ParsedObjects:
    """Objects of a block that msgspec parsed.

    Attributes:
        lines: index of each object's line.
    """

    def __init__(self, lines: Positions, objects: list[Any], schema: pa.Schema) -> None:
        """Wrap parsed structs.

        Args:
            lines: index of each object's line.
            objects: structs of the type that `_type_of` makes of the schema.
            schema: the fields.
        """
        self.lines = lines
        self._objects = objects
        self._schema = schema

    def __len__(self) -> int:
        return len(self._objects)

    def typed_column(self, name: str) -> pa.Array:
        """A column of a typed field; see `is_typed`."""
        at = self._schema.get_field_index(name)
        return typed_array(attribute(self._objects, at), self._schema.field(at).type)

    def raw_values(self, name: str) -> RawValues:
        """The JSON texts of a field that is not typed, of the objects that have it."""
        found = attribute(self._objects, self._schema.get_field_index(name))
        rows = [row for row, value in enumerate(found) if value is not UNSET]
        values = found if len(rows) == len(found) else [found[row] for row in rows]
        return RawValues(_binary_array(values), np.array(rows, np.intp))

    def as_lines(self, schema: pa.Schema, without: Mapping[str, Positions]) -> bytes:
        """JSON lines with some fields of the objects.

        Args:
            schema: the fields, none of them typed.
            without: by field, objects whose field is left out.
        """
        columns = []
        for field in schema:
            column = attribute(self._objects, self._schema.get_field_index(field.name))
            for row in without.get(field.name, ()):
                column[row] = UNSET
            columns.append(column)
        return _ENCODER.encode_lines(list(map(_type_of(schema, strict=False), *columns)))


@dataclass(frozen=True)
class MapEntries:
    """Entries of objects that are values of a map column.

    Attributes:
        counts: number of entries of each object.
        names: names of all entries, object by object; each name once an object.
        values: binary, the JSON text of each entry's value.
    """

    counts: npt.NDArray[np.intp]
    names: pa.Array
    values: pa.Array


def parse_objects(data: bytes, rows: int, schema: pa.Schema, *, strict: bool) -> ParsedObjects:
    """The objects of a block; lines that are no object are left out.

    Args:
        data: lines; see `LineBlock`.
        rows: number of lines.
        schema: the fields; see `can_name`.
        strict: leave out objects with other fields, also inside typed columns.
    """
    decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(_type_of(schema, strict=strict))
    try:
        lines, objects = _call_from_below(lambda: _parsed(decoder, data, rows))
    except RecursionError:  # the caller's stack has no room for the reserved frames
        lines, objects = np.empty(0, np.intp), []
    return ParsedObjects(lines, objects, schema)


def map_entries(objects: pa.Array) -> MapEntries:
    """All entries of objects.

    Args:
        objects: binary, texts of `RawValues`: these are JSON, so none is refused.
    """
    found = [_ENTRIES.decode(one) for one in objects.to_pylist()]
    names = pa.array(list(chain.from_iterable(found)), pa.string())
    values = _binary_array([value for one in found for value in one.values()])
    return MapEntries(np.array([len(one) for one in found], np.intp), names, values)


def _parsed(decoder: msgspec.json.Decoder[Any], data: bytes, rows: int) -> tuple[Positions, list[Any]]:
    """The lines that are objects, and the objects."""
    try:
        objects = decoder.decode_lines(data)
        # No object spans a line end: JSON has no } before a {. As many objects as lines: one in each.
        if len(objects) == rows:
            return np.arange(rows), objects
    except _REFUSALS:
        pass
    lines: list[int] = []
    objects = []
    for line, text in enumerate(data.split(b"\n")[:rows]):  # no line follows the last line end
        try:
            objects.append(decoder.decode(text))
        except _REFUSALS:
            continue
        lines.append(line)
    return np.array(lines, np.intp), objects


def _is_accepted(decoder: msgspec.json.Decoder[Any], text: bytes) -> bool:
    try:
        decoder.decode(text)
    except _REFUSALS:
        return False
    return True


@lru_cache(maxsize=64)
def _type_of(schema: pa.Schema, *, strict: bool) -> Any:
    kinds = {
        field.name: (msgspec_type(field.type, strict=strict), None)
        if is_typed(field.type)
        else (Raw | msgspec.UnsetType, UNSET)
        for field in schema
    }
    return fields_type(kinds, strict=strict)


def _binary_array(texts: Sequence[bytes | Raw]) -> pa.Array:
    offsets = np.zeros(len(texts) + 1, np.int32)
    np.cumsum([memoryview(text).nbytes for text in texts], out=offsets[1:])
    return pa.Array.from_buffers(pa.binary(), len(texts), [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(texts))])


def _call_from_below(call: Callable[[], T], frames: int = _RESERVED_FRAMES) -> T:
    return call() if frames == 0 else _call_from_below(call, frames - 1)
