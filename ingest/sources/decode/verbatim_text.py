"""Objects and arrays in string columns: their JSON text verbatim.

The parser of `values` does not give the position of a value in the text. Where a string column has an object or an
array, the text is therefore parsed once more, guided by the declared type. Blanks, escapes, digits and repeated fields
are stored as written.
"""

from __future__ import annotations

import json
import re
from typing import NoReturn, cast

import pyarrow as pa

from ingest.sources.decode.values import declared_type, value_decoder

_BLANKS = re.compile(r"[ \t\n\r]*")


class _Constant(Exception):
    """NaN, Infinity or -Infinity was found, which is not JSON, so no column accepts it."""


def with_verbatim_texts(text: str, value: object, kind: pa.DataType) -> object:
    """The value, with objects and arrays replaced by their texts where the type has a string.

    Args:
        text: the JSON text of the value, with or without blanks around it.
        value: the value that `values` parsed from the text.
        kind: the declared type.
    """
    if not _has_verbatim_text(value, kind):
        return value
    return _TextReader(text).read(_skip(text, 0), kind)[0]


def _has_verbatim_text(value: object, kind: pa.DataType) -> bool:
    if not isinstance(value, (dict, list)):
        return False
    if pa.types.is_string(kind):
        return True
    if pa.types.is_struct(kind) and isinstance(value, dict):
        return any(_has_verbatim_text(value.get(field.name), field.type) for field in kind)
    if pa.types.is_list(kind) and isinstance(value, list):
        return any(_has_verbatim_text(item, kind.value_type) for item in value)
    if pa.types.is_map(kind) and isinstance(value, dict):
        return any(_has_verbatim_text(item, kind.item_type) for item in value.values())
    return False


class _TextReader:
    """Parses a text that is known to be JSON."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._any = value_decoder().raw_decode
        # Only the end of a value is used, so numbers of any length are kept as strings.
        self._strictly = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=_refuse).raw_decode

    def read(self, at: int, kind: pa.DataType | None) -> tuple[object, int]:
        """The value that begins at an index, and the index behind the value."""
        first = self._text[at]
        if first == "{" and kind is not None and (pa.types.is_struct(kind) or pa.types.is_map(kind)):
            return self._object(at + 1, kind)
        if first == "[" and kind is not None and pa.types.is_list(kind):
            return self._array(at + 1, kind.value_type)
        if first in "{[" and kind is not None and pa.types.is_string(kind):
            try:
                end = self._strictly(self._text, at)[1]
            except _Constant:
                return self._any(self._text, at)
            return self._text[at:end], end
        return self._any(self._text, at)

    def _object(self, at: int, kind: pa.DataType) -> tuple[object, int]:
        found: dict[str, object] = {}
        at = _skip(self._text, at)
        while self._text[at] != "}":
            name, at = cast(tuple[str, int], self._any(self._text, at))
            at = _skip(self._text, at)
            found[name], at = self.read(_skip(self._text, at + 1), _type_of(kind, name))
            at = self._next(at)
        return found, at + 1

    def _array(self, at: int, kind: pa.DataType) -> tuple[object, int]:
        found: list[object] = []
        at = _skip(self._text, at)
        while self._text[at] != "]":
            item, at = self.read(at, kind)
            found.append(item)
            at = self._next(at)
        return found, at + 1

    def _next(self, at: int) -> int:
        at = _skip(self._text, at)
        return _skip(self._text, at + 1) if self._text[at] == "," else at


def _type_of(kind: pa.DataType, name: str) -> pa.DataType | None:
    if pa.types.is_map(kind):
        return kind.item_type
    return declared_type(kind, name)


def _skip(text: str, at: int) -> int:
    found = _BLANKS.match(text, at)
    return found.end() if found is not None else at


def _refuse(_constant: str) -> NoReturn:
    raise _Constant
