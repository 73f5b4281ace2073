"""Files of Hudi's archive of layout 1: Hudi's log format, blocks of Avro records, one for each state of an instant.

::

    file   block …
    block  "#HUDI#" | size: i64 | version: i32 | type: i32 | header | length: i64 | content | footer | size: i64
    header count: i32, then for each entry   key: i32 | length: i32 | bytes       (the footer alike)
    content of type 3 (Avro data)   version: i32 | count: i32, then for each record   length: i32 | Avro

Numbers are big-endian; `size` counts what follows it. Source: ``HoodieLogFormat``, ``HoodieAvroDataBlock`` and
``HoodieArchivedMetaEntry.avsc`` of Apache Hudi 0.15.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Iterator, Mapping
from typing import Any

import fastavro

from timeline.errors import FormatError
from timeline.hudi.archived import Archived
from timeline.hudi.bodies import DAMAGED, checked
from timeline.instant import Action, Instant, State, TimelineLayout, parse_time
from timeline.units import count

_MAGIC = b"#HUDI#"
_VERSION = 1
_AVRO_DATA = 3
_SCHEMA = 2

_PLANS = ("hoodieRequestedReplaceMetadata", "hoodieCleanerPlan", "hoodieCompactionPlan")
_METADATA = (
    "hoodieCommitMetadata",
    "hoodieReplaceCommitMetadata",
    "hoodieCleanMetadata",
    "hoodieRollbackMetadata",
    "hoodieSavePointMetadata",
    "hoodieCompactionMetadata",
)


def parse_log(where: str, body: bytes, bodies: bool) -> Iterator[Archived]:
    """The records of one file, one for each state of an instant.

    Args:
        where: path of the file, for messages.
        body: the file's bytes.
        bodies: whether to read bodies.

    Raises:
        FormatError: the rest of the file cannot be read.
    """
    at = 0
    while at < len(body):
        try:
            end, records = _block(body, at)
        except FormatError as error:
            raise FormatError(f"{where}: block at byte {at}: {error}; what follows it was not read") from error
        except DAMAGED as error:
            raise FormatError(f"{where}: block at byte {at} is damaged: {error}; what follows was not read") from error
        for record in records:
            yield _archived(where, record, bodies)
        at = end


def _block(body: bytes, at: int) -> tuple[int, list[Mapping[str, Any]]]:
    """End offset of a block, and its records."""
    if body[at : at + len(_MAGIC)] != _MAGIC:
        raise FormatError(f"expected {_MAGIC!r}, found {body[at : at + len(_MAGIC)]!r}")
    start = at + len(_MAGIC) + 8
    (size,) = struct.unpack_from(">q", body, start - 8)
    end = start + size
    if not start < end <= len(body):
        raise FormatError(f"{count(size, 'byte')} long, {len(body) - start:,} are left")
    version, kind = struct.unpack_from(">ii", body, start)
    if (version, kind) != (_VERSION, _AVRO_DATA):
        raise FormatError(f"version {version}, type {kind}; read are version {_VERSION}, type {_AVRO_DATA} (Avro data)")
    header, at = _header(body, start + 8)
    (length,) = struct.unpack_from(">q", body, at)
    if not 8 <= length <= end - at - 8:
        raise FormatError(f"content of {count(length, 'byte')} in a block of {size:,}")
    return end, list(_records(body[at + 8 : at + 8 + length], fastavro.parse_schema(json.loads(header[_SCHEMA]))))


def _header(body: bytes, at: int) -> tuple[Mapping[int, bytes], int]:
    (count,) = struct.unpack_from(">i", body, at)
    at += 4
    entries: dict[int, bytes] = {}
    for _ in range(count):
        key, length = struct.unpack_from(">ii", body, at)
        entries[key] = body[at + 8 : at + 8 + length]
        at += 8 + length
    return entries, at


def _records(content: bytes, schema: Any) -> Iterator[Mapping[str, Any]]:
    (count,) = struct.unpack_from(">i", content, 4)
    at = 8
    for _ in range(count):
        (length,) = struct.unpack_from(">i", content, at)
        record = fastavro.schemaless_reader(io.BytesIO(content[at + 4 : at + 4 + length]), schema, None)
        if not isinstance(record, dict):
            raise FormatError("a record that is none")
        yield record
        at += 4 + length


def _archived(where: str, record: Mapping[str, Any], bodies: bool) -> Archived:
    time, word, state_word = (record.get(name) for name in ("commitTime", "actionType", "actionState"))
    try:
        # Before 0.6 only completed instants were archived, and the state was left out.
        state = State((state_word or "completed").lower())
        action = Action(word).when_completed if state is State.COMPLETED else Action(word)
        instant = Instant(time or "", action, state, layout=TimelineLayout.ONE)
    except (ValueError, FormatError) as error:
        raise FormatError(f"{where}: instant {time!r}, action {word!r}, state {state_word!r}: {error}") from error
    if not bodies:
        return Archived(instant)
    is_done = state is State.COMPLETED
    request = next((record[name] for name in _PLANS if record.get(name)), None)
    completed = next((record[name] for name in _METADATA if record.get(name)), None) if is_done else None
    done_ms = _moment_ms(record.get("stateTransitionTime")) if is_done else 0
    try:
        completed = checked(f"{where}: instant {time}", completed) if completed else None
    except FormatError as error:
        return Archived(instant, request, None, done_ms, (str(error),))
    return Archived(instant, request, completed, done_ms)


def _moment_ms(time: str | None) -> int:
    """Time of the state in milliseconds since 1970; 0 if missing (before Hudi 0.14) or invalid."""
    try:
        return parse_time(time) if time else 0
    except FormatError:
        return 0
