"""JSON bodies with a kind and a format version: dataclasses in, bytes out, and back."""

from __future__ import annotations

import enum
import json
from typing import Generic, TypeVar

from pydantic import TypeAdapter, ValidationError

from timeline.errors import FormatError

FORMAT_VERSION = 1
"""Version of all JSON bodies; raised when a reader of the old version would misread a new body."""

T = TypeVar("T")


class BodyFormat(Generic[T]):
    """Storage format of one frozen dataclass: its fields in one JSON object beside ``format`` and ``kind``.

    Unknown fields of the same format version are ignored, so a version may add fields that older
    readers can do without.
    """

    def __init__(self, kind: str, body_type: type[T]) -> None:
        self.kind = kind
        self._fields: TypeAdapter[T] = TypeAdapter(body_type)

    def dump(self, value: T) -> bytes:
        """The value's bytes; the same fields in the same order give the same bytes.

        Raises:
            FormatError: a text is no valid Unicode, such as a file name that is not UTF-8: stored in
                part or in another spelling, the name would mean another shard.
        """
        # Not pydantic's JSON mode, which silently replaces characters that it cannot encode in a key.
        fields = self._fields.dump_python(value)
        content = {"format": FORMAT_VERSION, "kind": self.kind, **fields}
        text = json.dumps(content, separators=(",", ":"), ensure_ascii=False, default=_plain)
        try:
            return text.encode()
        except UnicodeEncodeError as error:
            found = text[max(0, error.start - 40) : error.end + 10]
            raise FormatError(f"a {self.kind} cannot hold {found!r}, which is no Unicode: rename it") from error

    def load(self, path: str, body: bytes) -> T:
        """The value stored in an object.

        Args:
            path: path of the object, for messages.
            body: the object's bytes.

        Raises:
            FormatError: the body is damaged, of another kind, or of a newer format version.
        """
        try:
            fields = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise FormatError(f"{path}: not a {self.kind}: {error}") from error
        if not isinstance(fields, dict) or fields.get("kind") != self.kind:
            raise FormatError(f"{path}: expected a {self.kind}, found {str(fields)[:80]}")
        version = fields.pop("format", None)
        if type(version) is not int or version < 1:
            raise FormatError(f"{path}: damaged: format {version!r}, expected a number from 1 to {FORMAT_VERSION}")
        if version > FORMAT_VERSION:
            raise FormatError(f"{path}: format {version}, this version reads up to {FORMAT_VERSION}: upgrade tideline")
        del fields["kind"]
        try:
            return self._fields.validate_python(fields)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            found = f"{first.get('input')!r:.80}"
            raise FormatError(f"{path}: {self.kind}.{where}: {first['msg']}, found {found}") from error


def _plain(value: object) -> object:
    """JSON form of an enum, the only type in bodies that `json` cannot encode."""
    if isinstance(value, enum.Enum):
        return value.value
    raise TypeError(f"{value!r} has no place in a body")
