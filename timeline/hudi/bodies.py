"""Bodies of any writer's instants as dictionaries: JSON or an Avro object container, under Hudi's field names.

Hudi's layout 1 has JSON for commits and Avro for the rest, layout 2 has Avro for all.
Source: ``CommitMetadataSerDeV1``, ``CommitMetadataSerDeV2`` of Apache Hudi 1.x.
"""

from __future__ import annotations

import io
import json
import struct
import zlib
from collections.abc import Mapping
from typing import Any

import fastavro
from pydantic import TypeAdapter, ValidationError
from typing_extensions import TypedDict

from timeline.errors import FormatError

DAMAGED = (
    ValueError,
    LookupError,
    TypeError,
    StopIteration,
    EOFError,
    OverflowError,
    MemoryError,
    RecursionError,
    zlib.error,
    struct.error,
    fastavro.schema.SchemaParseException,
)
"""Exceptions of fastavro for damaged bytes; the type depends on the damaged byte."""

_AVRO_MAGIC = b"Obj\x01"


class _WriteStat(TypedDict, total=False):
    path: str | None
    numWrites: int | None
    fileSizeInBytes: int | None


class _Deleted(TypedDict, total=False):
    successDeleteFiles: list[str] | None


class _Told(TypedDict, total=False):
    """The fields that views read."""

    partitionToWriteStats: dict[str, list[_WriteStat]] | None
    partitionMetadata: dict[str, _Deleted] | None
    extraMetadata: dict[str, str | None] | None
    commitsRollback: list[str] | None
    totalFilesDeleted: int | None


_TOLD = TypeAdapter(_Told)


def parse_body(where: str, body: bytes) -> Mapping[str, Any] | None:
    """The fields of a body under its writer's names; None for an empty body.

    Args:
        where: path of the object, for messages.
        body: the object's bytes.

    Raises:
        FormatError: the body is damaged, or neither JSON nor Avro.
    """
    if not body:
        return None
    if body.startswith(_AVRO_MAGIC):
        return checked(where, avro_record(where, body))
    if body.lstrip().startswith(b"{"):
        return checked(where, _json(where, body))
    raise FormatError(f"{where}: neither JSON nor an Avro object container, it begins with {body[:12]!r}")


def checked(where: str, fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """The same fields, after checking that the fields that views read have Hudi's types.

    Raises:
        FormatError: a field has another type.
    """
    try:
        _TOLD.validate_python(fields, strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(map(str, first["loc"]))
        raise FormatError(f"{where}: {name}: {first['msg']}, found {first.get('input')!r:.80}") from error
    return fields


def avro_record(where: str, body: bytes) -> Mapping[str, Any]:
    """The first record of an Avro object container.

    Args:
        where: the object, for messages.
        body: its bytes.

    Raises:
        FormatError: it is damaged, or holds no record.
    """
    try:
        record = next(iter(fastavro.reader(io.BytesIO(body))))
    except DAMAGED as error:
        raise FormatError(f"{where}: a damaged Avro object container: {error}") from error
    if not isinstance(record, dict):
        raise FormatError(f"{where}: an Avro object container that holds no record")
    return record


def _json(where: str, body: bytes) -> Mapping[str, Any]:
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{where}: damaged JSON: {error}") from error
    assert isinstance(fields, dict), "what begins with a brace is an object"
    return fields
