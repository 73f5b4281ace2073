"""Delta log entries as text: written to append files, and read for changes that others have made.

Source: Delta Transaction Log Protocol, section "Actions"; paths are URIs there, percent-encoded.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self
from urllib.parse import quote, unquote

from sinks.held import Span
from timeline.epoch import Json, WrittenFile
from timeline.errors import StoreUnavailableError

_ENGINE = "Tideline"
_ID_DIGITS = 15
"""Hex digits of a timeline's id that fit a version, which is a signed number of 64 bits."""

INSTANT = "tideline.instant"
"""Key of ``commitInfo``: the instant of the epoch."""

MISSING = "tideline.missing"
"""Key of ``commitInfo``: epochs that were known to be missing, as JSON; a later epoch replays them or gives them up."""

_ROW_BY_ROW = frozenset({"DELETE", "UPDATE", "MERGE", "OPTIMIZE", "TRUNCATE", "REORG", "VACUUM START", "VACUUM END"})
"""Operations that remove rows on purpose, one by one or by a condition: normal use of a table."""

_WHOLE = ("REPLACE TABLE", "CREATE OR REPLACE TABLE", "STREAMING UPDATE", "CLONE")
"""Prefixes of operations that replace all rows of a table."""


@dataclass(frozen=True)
class DeltaLogEntry:
    """One commit: files, the value of the job's marker, and human-readable metadata.

    Attributes:
        epoch: the marker's value.
        files: data files that become visible.
        metadata: metadata that ``DESCRIBE HISTORY`` shows.
        written_ms: when the files were written, milliseconds since 1970.
        job: marker of the job's timeline; None to leave it out.
    """

    epoch: int
    files: Sequence[WrittenFile]
    metadata: Mapping[str, str]
    written_ms: int
    job: JobMarker | None = None


@dataclass(frozen=True)
class TableOverwrite:
    """Replacement of a table's rows by another writer's entry: by older rows, or by others.

    Attributes:
        words: human-readable description.
        is_restore: whether the table was restored to another version.
        version: the restored version, if the entry names it.
        at_ms: time of the restored version in milliseconds since 1970, if the entry names a time instead.
        is_unclear: whether some of the rows may remain.
    """

    words: str
    is_restore: bool = False
    version: int | None = None
    at_ms: int | None = None
    is_unclear: bool = False


@dataclass(frozen=True)
class EntryFacts:
    """Facts of a log entry that a later append depends on.

    Attributes:
        marker: new value of the job's marker; None if the entry does not set it.
        metadata: its action ``metaData``: the table's schema and properties; None if it has none.
        protocol: its action ``protocol``; None if it has none.
        instant: the instant of the epoch that the marker names; None if the entry does not record it.
        missing: epochs that the job knew to be missing when it put the marker.
        taken: replacement of earlier rows; None if the entry only added rows, or changed rows one by one.
        written_ms: time of the entry in milliseconds since 1970, from its writer; None if it has none.
    """

    marker: int | None = None
    metadata: Mapping[str, Any] | None = None
    protocol: Mapping[str, Any] | None = None
    instant: str | None = None
    missing: tuple[Span, ...] = ()
    taken: TableOverwrite | None = None
    written_ms: int | None = None

    @property
    def changes_rules(self) -> bool:
        """Whether the entry changes the table's schema, properties or protocol."""
        return self.metadata is not None or self.protocol is not None

    def then(self, later: EntryFacts) -> EntryFacts:
        """The facts of this entry and a later one together."""
        return EntryFacts(
            self.marker if later.marker is None else later.marker,
            later.metadata or self.metadata,
            later.protocol or self.protocol,
            self.instant if later.marker is None else later.instant,
            self.missing if later.marker is None else later.missing,
        )


@dataclass(frozen=True)
class JobMarker:
    """The marker that identifies a job's timeline in a table, even if the timeline itself was deleted.

    Attributes:
        key: derived from the job's name.
        version: a number derived from the timeline's id.
    """

    key: str
    version: int

    @classmethod
    def of(cls, job: str, app_id: str) -> Self:
        """The marker of a job.

        Args:
            job: the job's name.
            app_id: key of the job's epoch markers, derived from the timeline's id.
        """
        return cls(f"tideline-job-{job}", int(hashlib.sha256(app_id.encode()).hexdigest()[:_ID_DIGITS], 16))


def append_text(app_id: str, entry: DeltaLogEntry, partition_by: Sequence[str]) -> bytes:
    """The entry that adds files to a table.

    Args:
        app_id: key of the job's marker.
        entry: the files to add.
        partition_by: the table's partition columns.
    """
    info: dict[str, Json] = {
        "timestamp": entry.written_ms,
        "operation": "WRITE",
        "operationParameters": {"mode": "Append", "partitionBy": _json(list(partition_by))},
        "operationMetrics": {
            "numFiles": str(len(entry.files)),
            "numOutputRows": str(sum(file.rows for file in entry.files)),
            "numOutputBytes": str(sum(file.size for file in entry.files)),
        },
        "isBlindAppend": True,
        "engineInfo": _ENGINE,
        **entry.metadata,
    }
    marker: Json = {"appId": app_id, "version": entry.epoch, "lastUpdated": entry.written_ms}
    markers: list[dict[str, Json]] = [{"txn": marker}]
    if entry.job is not None:
        markers.append({"txn": {"appId": entry.job.key, "version": entry.job.version}})
    actions: list[dict[str, Json]] = [
        {"commitInfo": info},
        *markers,
        *(_added(file, entry.written_ms) for file in entry.files),
    ]
    return _lines(actions)


def creation_text(app_id: str, entry: DeltaLogEntry, partition_by: Sequence[str], schema_json: str) -> bytes:
    """The entry that creates a table with timestamps without a zone, and adds files to it.

    Args:
        app_id: key of the job's marker.
        entry: the files to add.
        partition_by: the table's partition columns.
        schema_json: the table's schema, as in the log.
    """
    protocol: dict[str, Json] = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["timestampNtz"],
        "writerFeatures": ["appendOnly", "invariants", "timestampNtz"],
    }
    table: dict[str, Json] = {
        "id": str(uuid.uuid4()),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": schema_json,
        "partitionColumns": list(partition_by),
        "configuration": {},
        "createdTime": entry.written_ms,
    }
    return _lines([{"protocol": protocol}, {"metaData": table}]) + append_text(app_id, entry, partition_by)


def withdrawal_text(entry: DeltaLogEntry) -> bytes:
    """The entry that removes an entry's files again from a table for which they were not meant."""
    info: Json = {
        "timestamp": entry.written_ms,
        "operation": "DELETE",
        "operationParameters": {
            "predicate": json.dumps(["an epoch that was meant for the table that was here before"])
        },
        "engineInfo": _ENGINE,
    }
    return _lines([{"commitInfo": info}, *(_removed(file, entry.written_ms) for file in entry.files)])


def read_entry(where: str, body: bytes, app_id: str) -> EntryFacts:
    """Facts of any writer's log entry that a later append depends on.

    Args:
        where: path of the entry, for messages.
        body: the entry.
        app_id: key of the job's marker.

    Raises:
        StoreUnavailableError: the entry is still being written, or damaged.
    """
    seen = EntryFacts()
    info: Mapping[str, Any] = {}
    takes_rows = False
    with _readable(where):
        for action in _actions(body):
            marked = action.get("txn")
            marker = int(marked["version"]) if marked and marked["appId"] == app_id else None
            seen = seen.then(EntryFacts(marker, action.get("metaData"), action.get("protocol")))
            info = action.get("commitInfo") or info
            takes_rows = takes_rows or ("remove" in action and action["remove"].get("dataChange") is not False)
        if seen.marker is not None:
            missing = json.loads(info.get(MISSING) or "[]")
            known = tuple((int(first), int(last)) for first, last in missing)
            return replace(seen, instant=info.get(INSTANT), missing=known, written_ms=_number(info.get("timestamp")))
        return replace(seen, taken=_taken(info, takes_rows), written_ms=_number(info.get("timestamp")))


def _taken(info: Mapping[str, Any], takes_rows: bool) -> TableOverwrite | None:
    """Replacement of earlier rows by an entry without the job's marker, according to its ``commitInfo``."""
    operation = str(info.get("operation") or "").upper()
    given = info.get("operationParameters") or {}
    if operation == "RESTORE":
        version = _number(given.get("version"))
        at_ms = _number(given.get("datetime")) if version is None else None
        to = f"version {version}" if version is not None else f"an older version ({json.dumps(given)})"
        return TableOverwrite(f"restored to {to}", True, version, at_ms)
    if not takes_rows or operation in _ROW_BY_ROW:
        return None
    is_dynamic = str(given.get("isDynamicPartitionOverwrite")).strip('"').lower() == "true"
    if operation == "WRITE" and (is_dynamic or given.get("predicate") not in (None, "", "[]", "true")):
        return None
    if operation == "WRITE" or operation.startswith(_WHOLE):
        return TableOverwrite(f"overwritten ({operation})")
    return TableOverwrite(f"changed ({operation or 'an entry that does not say what it did'})", is_unclear=True)


def _number(given: object) -> int | None:
    text = str(given if given is not None else "").strip('"')
    return int(text) if text.isdecimal() else None


def removed_paths(where: str, body: bytes) -> frozenset[str]:
    """Paths of data files, as stored, that any writer's entry removes from the table; otherwise as `read_entry`."""
    with _readable(where):
        return frozenset(unquote(action["remove"]["path"]) for action in _actions(body) if "remove" in action)


def _actions(body: bytes) -> Iterator[dict[str, Any]]:
    return (json.loads(line) for line in filter(None, body.splitlines()))


@contextlib.contextmanager
def _readable(where: str) -> Iterator[None]:
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreUnavailableError(f"{where}: an entry of the table's log cannot be read: {error}") from error


def stats_text(file: WrittenFile) -> str:
    """A file's statistics as the log holds them."""
    return _json(dict(file.stats))


def _lines(actions: Iterable[dict[str, Json]]) -> bytes:
    # A lone surrogate has no UTF-8: it is written as a JSON escape.
    return "".join(f"{_json(action)}\n" for action in actions).encode(errors="backslashreplace")


def _json(value: Json) -> str:
    # Characters beyond ASCII are not escaped: arrow-json, with which delta-rs reads a log, decodes escapes of the
    # planes 2, 4, … 16 wrongly.
    return json.dumps(value, allow_nan=False, ensure_ascii=False)


def _removed(file: WrittenFile, at_ms: int) -> dict[str, Json]:
    return {
        "remove": {
            "path": quote(file.path, safe="/="),
            "deletionTimestamp": at_ms,
            "dataChange": True,
            "extendedFileMetadata": True,
            "partitionValues": dict(file.partition),
            "size": file.size,
        }
    }


def _added(file: WrittenFile, written_ms: int) -> dict[str, Json]:
    return {
        "add": {
            "path": quote(file.path, safe="/="),
            "partitionValues": dict(file.partition),
            "size": file.size,
            "modificationTime": written_ms,
            "dataChange": True,
            "stats": stats_text(file),
        }
    }
