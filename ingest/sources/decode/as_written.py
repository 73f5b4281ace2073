"""Objects and arrays that a string column keeps: as the text that they are written as.

The parser of `values` gives values without their places in the text, so where a string column meets an
object or an array the text is read once more, guided by the declared type. Blanks, escapes, digits and
repeated fields stay as they are: what was logged is what is stored.
"""

from __future__ import annotations

import json
import re
from typing import NoReturn, cast

import pyarrow as pa

from ingest.sources.decode.values import declared_type, value_decoder

_BLANKS = re.compile(r"[ \t\n\r]*")


class _Constant(Exception):
    """NaN, Infinity or -Infinity was found: it is not JSON, so no column keeps it."""


def with_texts(text: str, value: object, kind: pa.DataType) -> object:
    """A value in which objects and arrays that stand where the type has a string are texts.

    Args:
        text: JSON, the value and nothing but blanks besides.
        value: what `values` parsed of it.
        kind: the declared type.
    """
    if not _keeps_text(value, kind):
        return value
    return _Reader(text).read(_skip(text, 0), kind)[0]


def _keeps_text(value: object, kind: pa.DataType) -> bool:
    if not isinstance(value, (dict, list)):
        return False
    if pa.types.is_string(kind):
        return True
    if pa.types.is_struct(kind) and isinstance(value, dict):
        return any(_keeps_text(value.get(field.name), field.type) for field in kind)
    if pa.types.is_list(kind) and isinstance(value, list):
        return any(_keeps_text(item, kind.value_type) for item in value)
    if pa.types.is_map(kind) and isinstance(value, dict):
        return any(_keeps_text(item, kind.item_type) for item in value.values())
    return False


class _Reader:
    """Reads text that is known to be JSON."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._any = value_decoder().raw_decode
        # Only where a value ends is asked; a number of thousands of digits has an end too.
        self._strictly = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=_refuse).raw_decode

    def read(self, at: int, kind: pa.DataType | None) -> tuple[object, int]:
        """The value that begins there, and where it ends."""
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
