"""A Delta table's log: reads it, and puts the next version.

::

    load      first: checkpoint and entries are read ─→ version, marker, schema and rules, none of its files
              later: the newest entry is there still ─→ entries behind it, one by one
    append    our own entry, put-if-absent as version + 1 ── every 100th ─→ a checkpoint, by a process of its own

delta-rs keeps a list of all of a table's files, and scans it for each commit: 6 ms at 10 versions, 67 at 2,000. An
epoch does not need the list: a blind append conflicts only with a change of the table's rules, which the entries in
between show.

Every failure of the store is a StoreUnavailableError: the error of a failed put does not tell whether the put landed.
Only the log itself does.

Source: Delta Transaction Log Protocol, sections "Delta Log Entries" and "Actions".
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from urllib.parse import unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.transaction import AddAction, create_table_with_add_actions

from sinks.delta.checkpoint import CheckpointRequest, Checkpoints
from sinks.delta.entry import (
    DeltaLogEntry,
    EntryFacts,
    append_text,
    creation_text,
    read_entry,
    removed_paths,
    stats_text,
    withdrawal_text,
)
from sinks.delta.held import LogWalk, held_in
from sinks.delta.location import trusting
from sinks.delta.rules import TableState, delta_schema, hides_timestamp_ntz
from sinks.delta.snapshot import (
    LOG_FOLDER,
    TableSnapshot,
    UnfamiliarLogError,
    checkpoint_version,
    entry_path,
    entry_version,
    read_snapshot,
    stored_entry,
)
from sinks.delta.table import foreign_errors, is_missing, open_table, table_files
from sinks.held import Base, Held, is_single, numbers_of, spans
from timeline.errors import AlreadyExistsError, NotFoundError, StoreUnavailableError, TargetRefusedError
from timeline.stores.base import ObjectStore

_LOG = logging.getLogger(__name__)

_CHECKPOINT_EVERY = 100
_MOST_FOLLOWED = 100
"""Number of entries read one by one; beyond it, reopening the table from its checkpoint is cheaper."""

_IN_SIGHT_S = 600.0
"""A cached snapshot is valid this long: its entry is the newest one, or the next entry can be read. Entries are cleaned
up behind checkpoints once they are older than a table's retention: after that, a known entry may lie before a gap, and
no reader sees a version that is put into the gap."""


@dataclass
class DeltaLog:
    """The log of the table at one place; caches its snapshot, so that the next load reads only new entries.

    Attributes:
        location: the table's place as delta-rs takes it.
        store: the table's folder.
        app_id: key of the job's marker.
        storage_options: as delta-rs takes them; may hold secrets.
        authorities: certificate file that its clients trust, see `trusting`.
        wall_clock: seconds since 1970; continues while the process or its machine is stopped.
        checkpoints: checkpoints that this process makes.
    """

    location: str
    store: ObjectStore
    app_id: str
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    authorities: str | None = None
    wall_clock: Callable[[], float] = time.time
    checkpoints: Checkpoints = field(default_factory=Checkpoints, init=False, repr=False)
    _known: TableSnapshot | None = field(default=None, init=False, repr=False)
    _looked_at: float = field(default=0.0, init=False, repr=False)
    _entries: dict[int, EntryFacts] = field(default_factory=dict, init=False, repr=False)

    def load(self) -> TableSnapshot | None:
        """The table's current snapshot; None if there is no log.

        Raises:
            StoreUnavailableError: the log cannot be read.
            TargetRefusedError: entries of the log are missing.
        """
        known, self._known = self._in_sight(), None  # whatever fails below, the next call starts from the log
        looked_at = self.wall_clock()
        self._known = self._followed(known) if known is not None else None
        if self._known is None:
            self._entries.clear()  # entries of another log, if the table was recreated
            self._known = self._opened()
        self._looked_at = looked_at
        return self._known

    def cached_snapshot(self) -> TableSnapshot | None:
        """The last snapshot, if it is recent and its entry exists. If others have put later versions, `append` fails.

        Raises:
            StoreUnavailableError: the log cannot be read.
        """
        known, self._known = self._in_sight(), None
        self._known = known if known is not None and self._is_there(known) else None
        return self._known

    def version_of(self, app_id: str) -> int | None:
        """The version of the marker with any key; None if there is no such marker, or no table.

        Raises:
            StoreUnavailableError: the log cannot be read.
        """
        try:
            handle = open_table(self.location, self.storage_options, self.authorities)
        except StoreUnavailableError as error:
            if is_missing(error):
                return None
            raise self._broken(error) from error
        return handle.transaction_version(app_id)

    def held(self, snapshot: TableSnapshot, known: Base | None) -> Held:
        """The job's epochs in the table; see `sinks.delta.held`.

        Reads the entries behind the job's newest one that were not read yet: nothing if that is the newest of all.

        Raises:
            StoreUnavailableError: the log cannot be read.
        """

        def entry(version: int) -> EntryFacts | None:
            if version not in self._entries:
                body = snapshot.newest if version == snapshot.version else stored_entry(self.store, version)
                if body is None:
                    return None
                where = f"{self.store.url}/{entry_path(version)}"
                self._entries[version] = replace(read_entry(where, body, self.app_id), metadata=None, protocol=None)
            return self._entries[version]

        def marker_at(version: int) -> int | None:
            try:
                return open_table(self.location, self.storage_options, self.authorities, version).transaction_version(
                    self.app_id
                )
            except StoreUnavailableError:
                return None

        walk = LogWalk(entry, marker_at)
        held = held_in(walk, snapshot.state.table_id, snapshot.version, snapshot.applied, known)
        if len(self._entries) > _MOST_FOLLOWED:
            self._entries.clear()
        return held

    def files(self, snapshot: TableSnapshot) -> dict[str, int | None]:
        """Number of rows of each data file that readers see, by its path as stored; None if the log has no number.

        Raises:
            StoreUnavailableError: the log cannot be read.
        """
        handle = open_table(self.location, self.storage_options, self.authorities, snapshot.version)
        actions = pa.table(handle.get_add_actions(flatten=True)).select(["path", "num_records"])
        return {unquote(action["path"]): action["num_records"] for action in actions.to_pylist()}

    def removed(self) -> frozenset[str] | None:
        """Paths of all files ever removed from the table; None if the log does not reach back to version 0.

        Reads every log entry.

        Raises:
            StoreUnavailableError: the log cannot be read.
        """
        entries = [info.path for info in self.store.list(LOG_FOLDER) if entry_version(info.path) is not None]
        if not entries or not entries[0].endswith("/00000000000000000000.json"):
            return None
        found: set[str] = set()
        for path in entries:
            try:
                body = self.store.get(path)
            except NotFoundError:
                return None
            found |= removed_paths(f"{self.store.url}/{path}", body)
        return frozenset(found)

    def create(self, schema: pa.Schema, partition_columns: Sequence[str], entry: DeltaLogEntry) -> None:
        """Create the table by putting version 0, durable on a file system too; fails if there is a table.

        Args:
            schema: columns of the table.
            partition_columns: names of the partition columns, in order.
            entry: the first files to add.

        Raises:
            StoreUnavailableError: another writer was faster, or it is unknown whether the put landed.
        """
        if hides_timestamp_ntz(schema):
            # delta-rs 1.6 does not find timestamp_ntz in maps, and creates a table that it refuses to read.
            text = creation_text(self.app_id, entry, partition_columns, delta_schema(schema).to_json())
            try:
                self.store.put_if_absent(entry_path(0), text)
            except AlreadyExistsError as error:
                raise StoreUnavailableError(f"{self.location}: someone else has made the table") from error
            return
        with foreign_errors(self.location), trusting(self.authorities):
            create_table_with_add_actions(
                self.location,
                delta_schema(schema),
                _add_actions(entry),
                mode="error",
                partition_by=list(partition_columns),
                configuration=_configuration(schema),
                storage_options=dict(self.storage_options) or None,
                commit_properties=CommitProperties(
                    custom_metadata=dict(entry.metadata),
                    max_commit_retries=0,
                    app_transactions=_transactions(self.app_id, entry),
                ),
            )
        # On a file system delta-rs leaves the entry in the system's cache.
        self.store.make_durable([entry_path(0), LOG_FOLDER, ""])

    def append(self, after: TableSnapshot, entry: DeltaLogEntry) -> None:
        """Put the version that follows `after`, and no other.

        Neither markers nor schemas are compared here: compare them on `after` before.

        Raises:
            StoreUnavailableError: another writer was faster, or it is unknown whether the put landed.
            TargetRefusedError: the table was deleted or recreated since `after` was read; no reader sees the rows.
        """
        known, self._known = self._known, None
        put_at = self.wall_clock()
        body = append_text(self.app_id, entry, after.state.partition_columns)
        version = after.version + 1
        try:
            self.store.put_if_absent(entry_path(version), body)
        except AlreadyExistsError as error:
            self._known = known
            raise StoreUnavailableError(f"{self.location}: someone else has put version {version}") from error
        self._entries.clear()  # the next `held` ends at this entry
        self._refuse_replaced(after, body, entry)
        self._confirm(version, entry)
        self._known, self._looked_at = after.after(body, EntryFacts(marker=entry.epoch)), put_at
        if version % _checkpoint_interval(after.state) == 0:
            self.checkpoints.start(CheckpointRequest(self.location, self.storage_options, self.authorities, version))

    def _refuse_replaced(self, after: TableSnapshot, body: bytes, entry: DeltaLogEntry) -> None:
        """Check that an entry that was put follows the entry that it was put for.

        An entry alone makes a log that nobody can open, not even to recreate the table beside it: then the entry is
        deleted, which takes nothing from readers. If the table's entries are copied back just then, the table lacks an
        epoch of its timeline, which the next `held` reports. From a recreated table a further entry removes the rows.

        Raises:
            TargetRefusedError: the entry does not follow it.
            StoreUnavailableError: the log cannot be read.
        """
        before = stored_entry(self.store, after.version) if after.newest is not None else None
        if before == after.newest:
            return
        version = after.version + 1
        if before is None and not self._has_checkpoint_behind(after.version):
            if stored_entry(self.store, version) == body and stored_entry(self.store, version + 1) is None:
                self.store.delete([entry_path(version)])
            how = "made anew" if self.store.list(LOG_FOLDER) else "deleted"
            raise TargetRefusedError(f"{self.location} was {how} meanwhile, and has nothing of this epoch")
        table = self._opened()
        if table is not None and table.state.table_id == after.state.table_id:
            return
        with contextlib.suppress(AlreadyExistsError):
            self.store.put_if_absent(entry_path(version + 1), withdrawal_text(entry))
        raise TargetRefusedError(
            f"{self.location} was made anew meanwhile; of this epoch it has version {version}, whose rows are taken "
            f"out again by version {version + 1}"
        )

    def _has_checkpoint_behind(self, version: int) -> bool:
        listed = (info.path for info in self.store.list(LOG_FOLDER))
        return any((checkpoint_version(path) or -1) >= version for path in listed)

    def _broken(self, error: StoreUnavailableError) -> TargetRefusedError | StoreUnavailableError:
        """The error for a log that cannot be opened: missing entries, if there are any, else the given error."""
        listed = [info.path for info in self.store.list(LOG_FOLDER)]
        entries = {version for path in listed if (version := entry_version(path)) is not None}
        first = max((version for path in listed if (version := checkpoint_version(path)) is not None), default=-1) + 1
        gone = spans(set(range(first, max(entries, default=-1))) - entries)
        if not gone:
            return error
        named = numbers_of(gone)
        are_gone = f"entry {named} of its log is" if is_single(gone) else f"entries {named} of its log are"
        return TargetRefusedError(
            f"the Delta table at {self.location} cannot be opened: {are_gone} gone. Nothing was written. Restore what "
            f"is gone below {LOG_FOLDER} from the store's versions or a backup; where that is not possible, remove "
            f"{LOG_FOLDER} (the data files stay), and tideline replay CONF makes the table anew with all epochs"
        )

    def _confirm(self, version: int, entry: DeltaLogEntry) -> None:
        """Read the log again if an entry was put long after the last read: the process or its machine was stopped.

        Raises:
            StoreUnavailableError: no reader sees the entry, or the log cannot be read.
        """
        if self._is_recent():
            return
        table = self._opened()
        if table is None or table.applied is None or table.applied < entry.epoch:
            raise StoreUnavailableError(
                f"{self.location}: version {version} was put where older entries have been cleaned up: nobody sees it"
            )

    def _in_sight(self) -> TableSnapshot | None:
        return self._known if self._is_recent() else None

    def _is_recent(self) -> bool:
        return 0 <= self.wall_clock() - self._looked_at <= _IN_SIGHT_S

    def _followed(self, known: TableSnapshot) -> TableSnapshot | None:
        """The known snapshot and the entries behind it; None if the table has to be reopened."""
        if not self._is_there(known):
            return None
        first = known.version + 1
        for version in itertools.count(first):
            body = stored_entry(self.store, version)
            if body is None:
                return known
            seen = read_entry(f"{self.store.url}/{entry_path(version)}", body, self.app_id)
            self._entries[version] = seen
            if seen.changes_rules or version - first >= _MOST_FOLLOWED:
                return None
            known = known.after(body, seen)
        raise AssertionError("unreachable: versions end")

    def _is_there(self, known: TableSnapshot) -> bool:
        # A search for higher versions alone would miss that a table was deleted and recreated.
        return known.newest is not None and stored_entry(self.store, known.version) == known.newest

    def _opened(self) -> TableSnapshot | None:
        try:
            return read_snapshot(
                self.store, partial(table_files, self.location, self.storage_options, self.authorities), self.app_id
            )
        except UnfamiliarLogError as error:
            _LOG.debug("%s: opened by delta-rs: %s", self.location, error)
            return self._opened_by_delta_rs()

    def _opened_by_delta_rs(self) -> TableSnapshot | None:
        """The table as delta-rs sees it, without its files."""
        try:
            handle = open_table(self.location, self.storage_options, self.authorities)
        except StoreUnavailableError as error:
            # delta-rs reports no table also while the table is being created, or if its log is damaged.
            if not is_missing(error) or any(info.path.endswith(".json") for info in self.store.list(LOG_FOLDER)):
                raise self._broken(error) from error
            return None
        with foreign_errors(self.location):
            version, applied, state = handle.version(), handle.transaction_version(self.app_id), _state(handle)
        return TableSnapshot(version, applied, state, stored_entry(self.store, version))


def _transactions(app_id: str, entry: DeltaLogEntry) -> list[Transaction]:
    job = [Transaction(entry.job.key, entry.job.version)] if entry.job is not None else []
    return [Transaction(app_id, entry.epoch), *job]


def _configuration(schema: pa.Schema) -> dict[str, str | None]:
    # For timestamp_ntz delta-rs 1.6 makes a protocol that lists this feature only; Spark then refuses a
    # table with a not-null column for not listing "invariants". Asked for version 7 it lists them all.
    return {"delta.minWriterVersion": "7"} if '"timestamp_ntz"' in delta_schema(schema).to_json() else {}


def _add_actions(entry: DeltaLogEntry) -> list[AddAction]:
    return [
        AddAction(
            path=file.path,  # as it is stored; delta-rs encodes it for the log
            size=file.size,
            partition_values=dict(file.partition),
            modification_time=entry.written_ms,
            data_change=True,
            stats=stats_text(file),
        )
        for file in entry.files
    ]


def _state(handle: DeltaTable) -> TableState:
    metadata, protocol = handle.metadata(), handle.protocol()
    return TableState(
        schema_json=handle.schema().to_json(),
        partition_columns=tuple(metadata.partition_columns),
        configuration=metadata.configuration,
        writer_features=frozenset(protocol.writer_features or ()),
        reader_features=frozenset(protocol.reader_features or ()),
        table_id=str(metadata.id),
    )


def _checkpoint_interval(state: TableState) -> int:
    given = state.configuration.get("delta.checkpointInterval", "")
    return int(given) if given.isdecimal() and int(given) > 0 else _CHECKPOINT_EVERY
