"""A Delta table's log through delta-rs: load it, put the next version. The one place that opens tables.

Every failure is one error, StoreUnavailableError: what delta-rs says about a put that did not
return says too little to tell whether it landed. Only the log itself tells.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, create_table_with_add_actions

from sinks.delta_location import trusting
from sinks.delta_rules import TableState, delta_schema
from timeline.epoch import WrittenFile
from timeline.errors import NotFoundError, StoreUnavailableError
from timeline.store import ObjectStore

LOG_FOLDER = "_delta_log"
"""Folder of the log below the table's root (Delta Transaction Log Protocol, section "Delta Log Entries")."""

_ENTRY = re.compile(rf"{LOG_FOLDER}/\d{{20}}\.json")


@dataclass(frozen=True)
class Snapshot:
    """The table as its log was when it was loaded.

    Attributes:
        version: of the newest log entry.
        handle: delta-rs's own view of this version.
    """

    version: int
    handle: DeltaTable

    def applied_epoch(self, app_id: str) -> int | None:
        """The newest epoch that the job's marker names; None where it has none."""
        return self.handle.transaction_version(app_id)

    def files(self) -> dict[str, int | None]:
        """Rows of each data file that readers see, by its path as it is stored; None where the log tells none."""
        actions = pa.table(self.handle.get_add_actions(flatten=True)).select(["path", "num_records"])
        return {unquote(action["path"]): action["num_records"] for action in actions.to_pylist()}

    @property
    def state(self) -> TableState:
        """What the log says about the table."""
        metadata, protocol = self.handle.metadata(), self.handle.protocol()
        return TableState(
            schema_json=self.handle.schema().to_json(),
            partition_columns=tuple(metadata.partition_columns),
            configuration=metadata.configuration,
            writer_features=frozenset(protocol.writer_features or ()),
            reader_features=frozenset(protocol.reader_features or ()),
        )


@dataclass(frozen=True)
class LogEntry:
    """One commit: files, the job's marker, and words for people.

    Attributes:
        app_id: key of the marker.
        epoch: the marker's value.
        files: data files that become visible.
        metadata: what ``DESCRIBE HISTORY`` shows.
        written_ms: when the files were written, milliseconds since 1970.
    """

    app_id: str
    epoch: int
    files: Sequence[WrittenFile]
    metadata: Mapping[str, str]
    written_ms: int


@dataclass
class DeltaLog:
    """The log of the table at one place; keeps what it has read, so that the next load reads only what is new.

    Attributes:
        location: the table's place as delta-rs takes it.
        store: the same place, for what delta-rs does not tell.
        storage_options: as delta-rs takes them; may hold secrets.
        authorities: whom its clients trust, see `trusting`.
    """

    location: str
    store: ObjectStore
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    authorities: str | None = None
    _known: Snapshot | None = field(default=None, init=False, repr=False)
    _newest_entry: bytes | None = field(default=None, init=False, repr=False)

    def load(self) -> Snapshot | None:
        """The table as its log is now; None where there is no log.

        Raises:
            StoreUnavailableError: the log cannot be read.
        """
        known, self._known = self._known, None  # whatever fails below, the next call starts from the log
        # A handle only ever looks for higher versions: of a table that was deleted and made again it
        # would see nothing. So its newest entry has to be there still, byte by byte.
        if known is not None and self._newest_entry is not None and self._entry(known.version) == self._newest_entry:
            handle = known.handle
            with foreign_errors(self.location):
                handle.update_incremental()
        else:
            known = None
            opened = self._open()
            if opened is None:
                return None
            handle = opened
        self._known = Snapshot(handle.version(), handle)
        if known is None or known.version != self._known.version:
            self._newest_entry = self._entry(self._known.version)
        return self._known

    def removed(self) -> frozenset[str] | None:
        """Paths of all files that were ever taken out of the table; None where the log does not go back to its begin.

        Reads every log entry.

        Raises:
            StoreUnavailableError: the log cannot be read.
        """
        entries = [info.path for info in self.store.list(LOG_FOLDER) if _ENTRY.fullmatch(info.path)]
        if not entries or not entries[0].endswith("/00000000000000000000.json"):
            return None
        found: set[str] = set()
        for path in entries:
            actions = map(json.loads, self.store.get(path).splitlines())
            found.update(unquote(action["remove"]["path"]) for action in actions if "remove" in action)
        return frozenset(found)

    def create(self, schema: pa.Schema, partition_columns: Sequence[str], entry: LogEntry) -> None:
        """Put version 0; fails where there is a table.

        Raises:
            StoreUnavailableError: someone else was faster, or it is unknown whether it landed.
        """
        with foreign_errors(self.location), trusting(self.authorities):
            create_table_with_add_actions(
                self.location,
                delta_schema(schema),
                _add_actions(entry),
                mode="error",
                partition_by=list(partition_columns),
                configuration=_configuration(schema),
                storage_options=dict(self.storage_options) or None,
                commit_properties=_properties(entry),
            )

    def append(self, after: Snapshot, entry: LogEntry) -> None:
        """Put the version that follows `after`, and no other.

        delta-rs compares neither markers nor schemas here: compare them on `after` before.

        Raises:
            StoreUnavailableError: someone else was faster, or it is unknown whether it landed.
        """
        handle = after.handle
        with foreign_errors(self.location):
            handle.create_write_transaction(
                [*_add_actions(entry)],
                "append",
                handle.schema(),
                partition_by=list(handle.metadata().partition_columns),
                commit_properties=_properties(entry),
            )

    def _open(self) -> DeltaTable | None:
        try:
            return open_table(self.location, self.storage_options, self.authorities)
        except StoreUnavailableError as error:
            # Says so too when the table is just being created, or its log is damaged.
            if not is_missing(error) or any(info.path.endswith(".json") for info in self.store.list(LOG_FOLDER)):
                raise
            return None

    def _entry(self, version: int) -> bytes | None:
        try:
            return self.store.get(f"{LOG_FOLDER}/{version:020d}.json")
        except NotFoundError:
            return None  # cleaned up behind a checkpoint, or the table is gone


def open_table(
    location: str, storage_options: Mapping[str, str], authorities: str | None, version: int | None = None
) -> DeltaTable:
    """A table as delta-rs sees it.

    Args:
        location: as delta-rs takes it.
        storage_options: as delta-rs takes them; may hold secrets.
        authorities: whom its clients trust, see `trusting`.
        version: which one; None for the newest.

    Raises:
        StoreUnavailableError: it cannot be opened; `is_missing` tells whether that is for there being none.
    """
    with foreign_errors(location), trusting(authorities):
        return DeltaTable(location, version=version, storage_options=dict(storage_options) or None)


def is_missing(error: StoreUnavailableError) -> bool:
    """Whether a table could not be opened because delta-rs finds none."""
    return isinstance(error.__cause__, TableNotFoundError)


@contextmanager
def foreign_errors(location: str) -> Iterator[None]:
    """Turn whatever delta-rs raises into the one error that is known here."""
    try:
        yield
    except (DeltaError, OSError) as error:
        raise StoreUnavailableError(f"{location}: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    """The first line of what delta-rs says, and the system's error below it; the rest may quote a whole answer."""
    first, _, rest = str(error).partition("\n")
    found = re.search(r"[A-Z][\w ,'-]+ \(os error \d+\)", rest)
    return f"{first.rstrip()}: {found[0]}" if found else first


def _configuration(schema: pa.Schema) -> dict[str, str | None]:
    # For timestamp_ntz delta-rs 1.6 makes a protocol that lists this feature only; Spark then refuses a
    # table with a not-null column for not listing "invariants". Asked for version 7 it lists them all.
    return {"delta.minWriterVersion": "7"} if '"timestamp_ntz"' in delta_schema(schema).to_json() else {}


def _add_actions(entry: LogEntry) -> list[AddAction]:
    return [
        AddAction(
            path=file.path,  # as it is stored; delta-rs encodes it for the log
            size=file.size,
            partition_values=dict(file.partition),
            modification_time=entry.written_ms,
            data_change=True,
            stats=json.dumps(file.stats, allow_nan=False),
        )
        for file in entry.files
    ]


def _properties(entry: LogEntry) -> CommitProperties:
    # Without retries a put can only be the version after the one that was looked at.
    return CommitProperties(
        custom_metadata=dict(entry.metadata),
        max_commit_retries=0,
        app_transactions=[Transaction(entry.app_id, entry.epoch)],
    )
