"""JSON bodies with a kind and a format version: dataclasses in, bytes out, and back."""

from __future__ import annotations

import json
from typing import Generic, TypeVar

from pydantic import TypeAdapter, ValidationError

from timeline.errors import FormatError

FORMAT_VERSION = 1
"""Version of all JSON bodies; raised when a reader of the old version would misread a new body."""

T = TypeVar("T")


class BodyFormat(Generic[T]):
    """How one frozen dataclass is stored: its fields as one JSON object beside ``format`` and ``kind``.

    Unknown fields of the same format version are ignored, so a version may add fields that older
    readers can do without.
    """

    def __init__(self, kind: str, body_type: type[T]) -> None:
        self.kind = kind
        self._fields: TypeAdapter[T] = TypeAdapter(body_type)

    def dump(self, value: T) -> bytes:
        """The value's bytes; what `load` made of some bytes gives the same bytes again.

        Raises:
            FormatError: a text in it is no Unicode (a lone surrogate), which `load` would refuse for good.
        """
        try:
            fields = self._fields.dump_python(value, mode="json")
        except PydanticSerializationError as error:
            raise FormatError(f"a {self.kind} cannot be stored: {error}") from error
        return json.dumps({"format": FORMAT_VERSION, "kind": self.kind, **fields}, separators=(",", ":")).encode()

    def load(self, path: str, body: bytes) -> T:
        """The value that an object holds.

        Args:
            path: where it was read, for messages.
            body: the object's bytes.

        Raises:
            FormatError: damaged, of another kind, or written by a newer version.
        """
        try:
            fields = json.loads(body)
        except ValueError as error:
            raise FormatError(f"{path}: not a {self.kind}: {error}") from error
        if not isinstance(fields, dict) or fields.get("kind") != self.kind:
            raise FormatError(f"{path}: expected a {self.kind}, found {str(fields)[:80]}")
        version = fields.pop("format", None)
        if not isinstance(version, int) or version > FORMAT_VERSION:
            raise FormatError(f"{path}: format {version!r}, this version reads up to {FORMAT_VERSION}: upgrade tideline")
        del fields["kind"]
        try:
            return self._fields.validate_python(fields)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise FormatError(f"{path}: {self.kind}.{where}: {first['msg']}, found {first.get('input')!r:.80}") from error
