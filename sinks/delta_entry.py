"""The text of a Delta log entry: one that appends files is written, others' are read for what concerns a job.

Source: Delta Transaction Log Protocol, section "Actions"; paths are URIs there, percent-encoded.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import quote, unquote

from timeline.epoch import Json, WrittenFile
from timeline.errors import StoreUnavailableError

_ENGINE = "Tideline"
_ID_DIGITS = 15
"""Hex digits of a timeline's id that fit a version, which is a signed number of 64 bits."""


@dataclass(frozen=True)
class LogEntry:
    """One commit: files, the value of the job's marker, and words for people.

    Attributes:
        epoch: the marker's value.
        files: data files that become visible.
        metadata: what ``DESCRIBE HISTORY`` shows.
        written_ms: when the files were written, milliseconds since 1970.
        job: whose timeline it belongs to; None where that is not told.
    """

    epoch: int
    files: Sequence[WrittenFile]
    metadata: Mapping[str, str]
    written_ms: int
    job: JobMarker | None = None


@dataclass(frozen=True)
class Seen:
    """What an entry says that a later append has to know.

    Attributes:
        marker: the epoch that it gives the job's marker; None where it leaves that alone.
        metadata: its action ``metaData``: the table's schema and properties; None where it has none.
        protocol: its action ``protocol``; None where it has none.
    """

    marker: int | None = None
    metadata: Mapping[str, Any] | None = None
    protocol: Mapping[str, Any] | None = None

    @property
    def changes_rules(self) -> bool:
        """Whether it changes the table's schema, properties or protocol."""
        return self.metadata is not None or self.protocol is not None

    def then(self, later: Seen) -> Seen:
        """What both say together."""
        return Seen(
            self.marker if later.marker is None else later.marker,
            later.metadata or self.metadata,
            later.protocol or self.protocol,
        )


@dataclass(frozen=True)
class JobMarker:
    """The marker by which a table knows a job's timeline, whatever is left of that timeline.

    Attributes:
        key: made of the job's name.
        version: a number made of the timeline's id.
    """

    key: str
    version: int

    @classmethod
    def of(cls, job: str, app_id: str) -> Self:
        """The marker of a job.

        Args:
            job: the job's name.
            app_id: the key of its own markers, which is made of the timeline's id.
        """
        return cls(f"tideline-job-{job}", int(hashlib.sha256(app_id.encode()).hexdigest()[:_ID_DIGITS], 16))


def append_text(app_id: str, entry: LogEntry, partition_by: Sequence[str]) -> bytes:
    """The entry that adds files to a table.

    Args:
        app_id: key of the job's marker.
        entry: what is added.
        partition_by: the table's partition columns.
    """
    info: dict[str, Json] = {
        "timestamp": entry.written_ms,
        "operation": "WRITE",
        "operationParameters": {"mode": "Append", "partitionBy": json.dumps(list(partition_by))},
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
    markers = [{"txn": marker}]
    if entry.job is not None:
        markers.append({"txn": {"appId": entry.job.key, "version": entry.job.version}})
    actions = [{"commitInfo": info}, *markers, *(_added(file, entry.written_ms) for file in entry.files)]
    return "".join(f"{json.dumps(action, allow_nan=False)}\n" for action in actions).encode()


def creation_text(app_id: str, entry: LogEntry, partition_by: Sequence[str], schema_json: str) -> bytes:
    """The entry that makes a table with timestamps without a zone in it, and adds files to it.

    Args:
        app_id: key of the job's marker.
        entry: what is added.
        partition_by: the table's partition columns.
        schema_json: its columns, as the log has them.
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
    made = "".join(f"{json.dumps(action)}\n" for action in ({"protocol": protocol}, {"metaData": table}))
    return made.encode() + append_text(app_id, entry, partition_by)


def read_entry(where: str, body: bytes, app_id: str) -> Seen:
    """What somebody's entry says that a later append has to know.

    Args:
        where: the entry's place, for messages.
        body: the entry.
        app_id: key of the job's marker.

    Raises:
        StoreUnavailableError: it is not written to its end yet, or damaged.
    """
    seen = Seen()
    with _readable(where):
        for action in _actions(body):
            marked = action.get("txn")
            marker = int(marked["version"]) if marked and marked["appId"] == app_id else None
            seen = seen.then(Seen(marker, action.get("metaData"), action.get("protocol")))
    return seen


def removed_paths(where: str, body: bytes) -> frozenset[str]:
    """Data files that somebody's entry takes out of the table, as they are stored; otherwise as `read_entry`."""
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
    return json.dumps(file.stats, allow_nan=False)


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
