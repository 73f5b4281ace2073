"""Takes JSON objects apart into their fields, each as the text that it is written as, or as a number.

::

    {"a": {"b": [1, "}"]}, "c" : 2, "d": 3}      a line
    a: {"b": [1, "}"]}   c: 2                    fields that were asked for; the others are read, and left out

(c is a number at once where its column is an integer: see `native`.)

msgspec's parser goes once over each line, so a line that is taken apart is JSON by RFC 8259, all of it: what is
not asked for too. Of a repeated field the last one counts, as for `values`. A line that it does not take can
still be one that `values` takes (half of a surrogate pair in a string is such a case).
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

from ingest.sources.decode.lines import Positions
from ingest.sources.decode.native import attribute, fields_type, is_native, native_array, native_type

_FURTHER_DOWN = 100
"""Frames of the stack. Python's parser takes values as deeply nested as what is left of it allows, and so does msgspec:
from further down it takes no line that `values` would not, which is called from fewer frames above."""

_REFUSALS = (msgspec.DecodeError, RecursionError)
_ENCODER = msgspec.json.Encoder()
_ENTRIES = msgspec.json.Decoder(dict[str, Raw])

T = TypeVar("T")


@dataclass(frozen=True)
class Values:
    """JSON values of one column, as they are written.

    Attributes:
        texts: binary, without blanks around them.
        rows: index of the object of each, in order; at most one an object.
    """

    texts: pa.Array
    rows: Positions

    @property
    def first(self) -> npt.NDArray[np.uint8]:
        """The first byte of each: of which kind it is."""
        content = self.texts.buffers()[2]
        if content is None:
            return np.empty(0, np.uint8)
        return np.frombuffer(content, np.uint8)[np.frombuffer(self.texts.buffers()[1], np.int32)[: len(self.texts)]]

    def only(self, which: npt.NDArray[np.bool_]) -> Values:
        """Some of them."""
        return self if which.all() else Values(self.texts.filter(pa.array(which)), self.rows[which])


class Objects:
    """Objects that were taken apart.

    Attributes:
        lines: of each object, the index of its line.
    """

    def __init__(self, lines: Positions, objects: list[Any], schema: pa.Schema) -> None:
        """Objects of the type that `_type_of` makes of this schema."""
        self.lines = lines
        self._objects = objects
        self._schema = schema

    def __len__(self) -> int:
        return len(self._objects)

    def native(self, name: str) -> pa.Array:
        """The column with this name, of a native type."""
        at = self._schema.get_field_index(name)
        return native_array(attribute(self._objects, at), self._schema.field(at).type)

    def column(self, name: str) -> Values:
        """The field with this name, of the objects that have it, where its column is not of a native type."""
        found = attribute(self._objects, self._schema.get_field_index(name))
        rows = [row for row, value in enumerate(found) if value is not UNSET]
        values = found if len(rows) == len(found) else [found[row] for row in rows]
        return Values(_joined(values), np.array(rows, np.intp))

    def as_lines(self, schema: pa.Schema, without: Mapping[str, Positions]) -> bytes:
        """Some fields of the objects, one object a line.

        Args:
            schema: the fields, none of a native type.
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
class Entries:
    """Fields of objects, whatever they are called.

    Attributes:
        counts: how many each object has.
        names: of them, object by object, each once.
        values: binary, their texts.
    """

    counts: npt.NDArray[np.intp]
    names: pa.Array
    values: pa.Array


def take_apart(data: bytes, rows: int, schema: pa.Schema, *, strict: bool) -> Objects:
    """The objects that lines are; lines that are none are left out.

    Args:
        data: lines without blank ones, each beginning with ``{`` and ending with ``}``, in UTF-8.
        rows: how many they are.
        schema: the fields that are wanted; see `can_name`.
        strict: leave out objects with other fields, and with such in columns of a native type.
    """
    decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(_type_of(schema, strict=strict))
    try:
        lines, objects = _further_down(lambda: _decoded(decoder, data, rows))
    except RecursionError:  # called from too far down
        lines, objects = np.empty(0, np.intp), []
    return Objects(lines, objects, schema)


def entries(objects: pa.Array) -> Entries:
    """All fields of objects.

    Args:
        objects: binary, values out of objects that were taken apart: nothing of them is refused.
    """
    found = [_ENTRIES.decode(one) for one in objects.to_pylist()]
    names = pa.array(list(chain.from_iterable(found)), pa.string())
    values = _joined([value for one in found for value in one.values()])
    return Entries(np.array([len(one) for one in found], np.intp), names, values)


def _decoded(decoder: msgspec.json.Decoder[Any], data: bytes, rows: int) -> tuple[Positions, list[Any]]:
    """The objects that there are, and the lines that they are."""
    try:
        objects = decoder.decode_lines(data)
        # Over a line's end no object runs: a } before a { is nowhere in JSON. As many as lines: one in each.
        if len(objects) == rows:
            return np.arange(rows), objects
    except _REFUSALS:
        pass
    lines: list[int] = []
    objects = []
    for line, text in enumerate(data.split(b"\n")[:rows]):  # behind the last line end is no line
        try:
            objects.append(decoder.decode(text))
        except _REFUSALS:
            continue
        lines.append(line)
    return np.array(lines, np.intp), objects


@lru_cache(maxsize=64)
def _type_of(schema: pa.Schema, *, strict: bool) -> Any:
    kinds = {
        field.name: (native_type(field.type, strict=strict), None)
        if is_native(field.type)
        else (Raw | msgspec.UnsetType, UNSET)
        for field in schema
    }
    return fields_type(kinds, strict=strict)


def _joined(texts: Sequence[bytes | Raw]) -> pa.Array:
    """Texts as binary."""
    offsets = np.zeros(len(texts) + 1, np.int32)
    np.cumsum([memoryview(text).nbytes for text in texts], out=offsets[1:])
    return pa.Array.from_buffers(pa.binary(), len(texts), [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(texts))])


def _further_down(call: Callable[[], T], frames: int = _FURTHER_DOWN) -> T:
    return call() if frames == 0 else _further_down(call, frames - 1)
