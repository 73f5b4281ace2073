"""Sinks whose rows can be read back: for ``tideline read``, and as a quarantine whose records are replayed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import pyarrow as pa

from sinks.base import Sink

if TYPE_CHECKING:
    # Importing Arrow's functions takes a tenth of a second, and recovery does not need them.
    import pyarrow.compute as pc


@runtime_checkable
class ReadableSink(Protocol):
    """A sink whose rows ``tideline read`` prints; an addition to `sinks.base.Sink`."""

    @property
    def target(self) -> str:
        """See Sink."""

    @property
    def row_schema(self) -> pa.Schema:
        """Columns of the rows that are read; touches no storage."""

    def read_rows(self, limit: int | None = None) -> Iterator[pa.RecordBatch]:
        """Rows as another reader sees them, all from one snapshot, taken when the first batch is requested.

        Args:
            limit: maximum number of rows; None: all.

        Raises:
            ConfigError: the installed packages or the configuration cannot read the rows.
            StoreUnavailableError: the rows could not be read.
        """


class SnapshotRows(Protocol):
    """Rows of a target as of a version; picklable, because tasks read them."""

    def newest(self) -> int | None:
        """The newest version; None if the target has none yet.

        Raises:
            StoreUnavailableError: the target could not be read.
        """

    def read(self, version: int, columns: Sequence[str], where: pc.Expression) -> Iterator[pa.RecordBatch]:
        """This job's rows of one version, always the same rows, in no particular order.

        Args:
            version: the version to read.
            columns: names of the columns to read, in order.
            where: filter of the rows: an Arrow expression, as `pyarrow.Table.filter` takes it.

        Raises:
            StoreUnavailableError: the version no longer exists, or cannot be read.
        """


@runtime_checkable
class SnapshotSink(Protocol):
    """A sink whose rows can be read as of a version: as the quarantine, its records can be replayed."""

    def snapshots(self) -> SnapshotRows:
        """The reader of the target's versions; touches no storage yet."""


def readable(sink: Sink) -> ReadableSink | None:
    """The sink if its rows can be printed, else None."""
    return sink if isinstance(sink, ReadableSink) else None


def snapshots_of(sink: Sink) -> SnapshotRows | None:
    """The reader of the sink's rows as of a version; None if the sink has none."""
    return sink.snapshots() if isinstance(sink, SnapshotSink) else None
