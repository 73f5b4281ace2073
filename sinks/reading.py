"""Sinks whose rows can be read back: for ``tideline read``, and as a quarantine whose records are replayed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import pyarrow as pa

from sinks.base import Sink

if TYPE_CHECKING:
    # Arrow's functions take a tenth of a second, which recovery needs not wait for.
    import pyarrow.compute as pc


@runtime_checkable
class ReadableSink(Protocol):
    """A sink whose rows ``tideline read`` prints; what `sinks.base.Sink` has is there as well."""

    @property
    def target(self) -> str:
        """See Sink."""

    @property
    def row_schema(self) -> pa.Schema:
        """Columns of the rows that are read; touches no storage."""

    def read_rows(self, limit: int | None = None) -> Iterator[pa.RecordBatch]:
        """Rows as another reader sees them, all from one snapshot, taken when the first batch is asked for.

        Args:
            limit: at most so many rows; None: all.

        Raises:
            ConfigError: they cannot be read by what is installed or configured.
            StoreUnavailableError: they could not be read.
        """


class SnapshotRows(Protocol):
    """Rows of a target as of a version; picklable, for tasks read them."""

    def newest(self) -> int | None:
        """The newest version; None where there is nothing yet.

        Raises:
            StoreUnavailableError: it could not be looked at.
        """

    def read(self, version: int, columns: Sequence[str], where: pc.Expression) -> Iterator[pa.RecordBatch]:
        """This job's rows of one version, in no particular order; of one version always the same rows.

        Args:
            version: which one.
            columns: which, in order.
            where: of which rows: an expression of Arrow, as `pyarrow.Table.filter` takes it.

        Raises:
            StoreUnavailableError: the version is not there any more, or cannot be read.
        """


@runtime_checkable
class SnapshotSink(Protocol):
    """A sink whose rows can be read again as of a version: as the quarantine its records can be replayed."""

    def snapshots(self) -> SnapshotRows:
        """Reads the target; touches no storage yet."""


def readable(sink: Sink) -> ReadableSink | None:
    """The sink, where its rows can be printed."""
    return sink if isinstance(sink, ReadableSink) else None


def snapshots_of(sink: Sink) -> SnapshotRows | None:
    """Reads the sink's rows as of a version; None where it does not offer that."""
    return sink.snapshots() if isinstance(sink, SnapshotSink) else None
