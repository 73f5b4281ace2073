"""Snapshot of a Delta table from its log: version, marker, schema and rules, without its files.

::

    _last_checkpoint ─► txn, metaData and protocol of that checkpoint ─► the entries behind it, in order

delta-rs loads the list of all files into memory to open a table: 25 MB for 10,000 files. A job that appends does not
need this list, and a checkpoint keeps the other actions in columns of their own.

Only the usual form of a log is read here: whole entries, classic checkpoints in one file. Logs of another form
(checkpoints in parts, with sidecars) are left to delta-rs.

Source: Delta Transaction Log Protocol, sections "Delta Log Entries", "Checkpoints", "Last Checkpoint File", "Actions".
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import Schema
from deltalake.exceptions import DeltaError

from sinks.delta.entry import EntryFacts, read_entry
from sinks.delta.rules import TableState
from timeline.concurrency import map_concurrently
from timeline.errors import NotFoundError, StoreUnavailableError
from timeline.stores.base import ObjectStore

if TYPE_CHECKING:
    import pyarrow.fs as pafs
    import pyarrow.parquet as pq

LOG_FOLDER = "_delta_log"
"""Folder of the log below the table's root (section "Delta Log Entries")."""

_ENTRY = re.compile(rf"{LOG_FOLDER}/(?P<version>\d{{20}})\.json")
_CHECKPOINT = re.compile(rf"{LOG_FOLDER}/(?P<version>\d{{20}})\.checkpoint\b.*")
_ACTIONS = ("txn", "metaData", "protocol", "sidecar")
_ROWS_AT_ONCE = 1 << 10
"""Nearly all rows are files: most batches hold only files, and are skipped."""

_READER_VERSION = 3
_WRITER_VERSION = 7


class UnfamiliarLogError(Exception):
    """A log that does not have the usual form; it may be damaged."""


@dataclass(frozen=True)
class TableSnapshot:
    """The state of a table when its log was read.

    Attributes:
        version: of the newest log entry.
        applied: the newest epoch that the job's marker names; None if it has none.
        state: schema, properties and features of the table.
        newest: the newest entry as it is stored; None if it was cleaned up behind a checkpoint.
    """

    version: int
    applied: int | None
    state: TableState
    newest: bytes | None = field(repr=False)

    def after(self, body: bytes, seen: EntryFacts) -> TableSnapshot:
        """The snapshot with one more entry, which changes nothing but the marker."""
        applied = self.applied if seen.marker is None else seen.marker
        return replace(self, version=self.version + 1, applied=applied, newest=body)


def entry_path(version: int) -> str:
    """The log entry of a version, below the table's root."""
    return f"{LOG_FOLDER}/{version:020d}.json"


def entry_version(path: str) -> int | None:
    """The version of the log entry at a path; None if the path is no log entry."""
    return _version(_ENTRY, path)


def checkpoint_version(path: str) -> int | None:
    """The version of the checkpoint, or of a part of it, at a path; None if the path is neither."""
    return _version(_CHECKPOINT, path)


def _version(pattern: re.Pattern[str], path: str) -> int | None:
    found = pattern.fullmatch(path)
    return int(found["version"]) if found else None


def stored_entry(store: ObjectStore, version: int) -> bytes | None:
    """A version's log entry; None if it does not exist yet, was cleaned up, or was deleted with the table."""
    try:
        return store.get(entry_path(version))
    except NotFoundError:
        return None


def read_snapshot(store: ObjectStore, open_files: Callable[[], pafs.FileSystem], app_id: str) -> TableSnapshot | None:
    """The table's current snapshot; None if there is no log.

    Args:
        store: the table's folder.
        open_files: opens the same folder to read parts of files; called if there is a checkpoint.
        app_id: key of the job's marker.

    Raises:
        UnfamiliarLogError: delta-rs has to open the log, or there is no table.
        StoreUnavailableError: the log cannot be read, or its newest entry is still being written.
    """
    checkpoint = _last_checkpoint(store)
    listed = [info.path for info in store.list(LOG_FOLDER, after=entry_path(checkpoint) if checkpoint >= 0 else "")]
    if checkpoint < 0 and not listed:
        return None
    behind = [found for path in listed if (found := entry_version(path)) is not None]
    last = checkpoint + len(behind)
    if behind != list(range(checkpoint + 1, last + 1)) or last < 0:
        raise UnfamiliarLogError("entries are missing")
    if any((_version(_CHECKPOINT, path) or 0) > last for path in listed):
        # `_last_checkpoint` may be older than the last checkpoint; then missing entries go unnoticed here.
        raise UnfamiliarLogError(f"a checkpoint behind version {last}")

    def look(version: int) -> tuple[EntryFacts, bytes | None]:
        body = store.get(entry_path(version))
        try:
            seen = read_entry(f"{store.url}/{entry_path(version)}", body, app_id)
        except StoreUnavailableError as error:
            if version == last:  # its writer may not be done
                raise
            raise UnfamiliarLogError(str(error)) from error
        return seen, body if version == last else None

    try:
        seen, newest = _checkpointed(open_files(), checkpoint, app_id) if checkpoint >= 0 else EntryFacts(), None
        for entry, body in map_concurrently(look, behind, store.traits.requests_at_once):
            seen, newest = seen.then(entry), body
        if not behind:
            newest = stored_entry(store, last)
        return TableSnapshot(last, seen.marker, _state(seen), newest)
    except NotFoundError as error:
        raise UnfamiliarLogError(f"an entry is gone: {error}") from error


def _last_checkpoint(store: ObjectStore) -> int:
    """The version of the newest checkpoint according to ``_last_checkpoint``; -1 if there is none."""
    try:
        told = json.loads(store.get(f"{LOG_FOLDER}/_last_checkpoint"))
        if told.get("parts") is not None:
            raise UnfamiliarLogError("a checkpoint in parts")
        return int(told["version"])
    except NotFoundError:
        return -1
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UnfamiliarLogError(f"_last_checkpoint: {error}") from error


def _checkpointed(files: pafs.FileSystem, version: int, app_id: str) -> EntryFacts:
    import pyarrow.parquet as pq

    path = f"{LOG_FOLDER}/{version:020d}.checkpoint.parquet"
    marker: int | None = None
    rules: dict[str, dict[str, Any]] = {}
    try:
        with files.open_input_file(path) as file:
            for kind, action in _actions_in(pq.ParquetFile(file, pre_buffer=True)):
                if kind == "sidecar":
                    raise UnfamiliarLogError(f"{path} has sidecars")
                if kind != "txn":
                    rules[kind] = action
                elif action["appId"] == app_id:
                    marker = int(action["version"])
    except (OSError, pa.ArrowException, DeltaError, KeyError, TypeError, ValueError) as error:
        raise UnfamiliarLogError(f"{path}: {error}") from error
    return EntryFacts(marker, rules.get("metaData"), rules.get("protocol"))


def _actions_in(checkpoint: pq.ParquetFile) -> Iterator[tuple[str, dict[str, Any]]]:
    kinds = [kind for kind in _ACTIONS if kind in checkpoint.schema_arrow.names]
    for batch in checkpoint.iter_batches(_ROWS_AT_ONCE, columns=kinds, use_threads=False):
        for kind in kinds:
            column = batch.column(kind)
            if column.null_count < len(column):
                yield from ((kind, action) for action in column.to_pylist(maps_as_pydicts="strict") if action)


def _state(seen: EntryFacts) -> TableState:
    metadata, protocol = seen.metadata, seen.protocol
    if metadata is None or protocol is None:
        raise UnfamiliarLogError("no metaData or no protocol")
    try:
        if protocol["minReaderVersion"] > _READER_VERSION or protocol["minWriterVersion"] > _WRITER_VERSION:
            raise UnfamiliarLogError(f"protocol {protocol}")
        configuration = metadata.get("configuration") or {}
        if not all(isinstance(word, str) for pair in configuration.items() for word in pair):
            raise UnfamiliarLogError(f"properties {configuration}")
        return TableState(
            schema_json=Schema.from_json(metadata["schemaString"]).to_json(),
            partition_columns=tuple(metadata.get("partitionColumns") or ()),
            configuration=configuration,
            writer_features=frozenset(protocol.get("writerFeatures") or ()),
            reader_features=frozenset(protocol.get("readerFeatures") or ()),
            table_id=str(metadata.get("id") or ""),
        )
    except (KeyError, TypeError, ValueError, AttributeError, DeltaError) as error:
        raise UnfamiliarLogError(f"metaData or protocol: {error}") from error
