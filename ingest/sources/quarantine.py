"""The quarantine as a shard of its own: rejected records are read again as an epoch like any other.

::

    shard      tideline:quarantine
    offset     number of an epoch: records that earlier epochs rejected have been replayed
    range      [a, e): records that epochs a … e-1 rejected, replayed by epoch e

Each record is replayed once, since a decision advances the shard like any other. A record that is rejected
again is in the quarantine under the epoch that replayed it, so the next replay begins with it. Rows that a
target refused are not replayed: the other targets have them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from ingest.sources.base import (
    Block,
    Decoder,
    QuarantineDecoder,
    RangeReader,
    ShardEnd,
    Source,
    SourcePlan,
    SplitSize,
    Unit,
)
from ingest.sources.replays import REPLAY_SHARD
from sinks.reading import SnapshotRows
from timeline.epoch import OffsetRange, Position
from timeline.errors import ConfigError, RangeGoneError

QUARANTINE_SHARD = "tideline:quarantine"
"""Name of the shard; no source has a shard of this name."""

OWN_SHARDS = (QUARANTINE_SHARD, REPLAY_SHARD)
"""Shards of Tideline itself, not of a source."""

_COLUMNS = ("shard", "offset", "raw", "context")
_VERSION = "version"


@dataclass(frozen=True)
class WithQuarantine:
    """A job's source, with its rejected records as a further shard; see `Source`.

    Attributes:
        source: the job's own source.
        quarantine: rows of the quarantine; None where they cannot be read back.
    """

    source: Source
    quarantine: SnapshotRows | None

    def require_quarantine(self) -> SnapshotRows:
        """The quarantine's rows.

        Raises:
            ConfigError: the quarantine's sink cannot read rows back.
        """
        if self.quarantine is None:
            raise ConfigError(
                "quarantine.type: rows of such a target cannot be read back, so its records cannot be replayed; a "
                "quarantine of type delta can, or of another type whose sink offers snapshots()"
            )
        return self.quarantine

    def plan(self, after: Mapping[str, Position]) -> SourcePlan:
        """See Source; `plan_rejected` plans the quarantine."""
        return self.source.plan(source_positions(after))

    def plan_rejected(self, after: Mapping[str, Position], epoch: int) -> SourcePlan:
        """A plan of all rejected records that were not replayed; empty where there are none.

        Args:
            after: committed positions.
            epoch: the epoch that will replay them.

        Raises:
            ConfigError: see `require_quarantine`.
            StoreUnavailableError: the quarantine cannot be read.
        """
        quarantine = self.require_quarantine()
        start = after[QUARANTINE_SHARD].offset if QUARANTINE_SHARD in after else 0
        version = quarantine.newest()
        if version is None:
            return SourcePlan((), unit=Unit.EPOCHS)
        found = quarantine.read(version, ["epoch"], _replayable(start, epoch))
        if not any(batch.num_rows for batch in found):
            return SourcePlan((), unit=Unit.EPOCHS)
        return SourcePlan((OffsetRange(QUARANTINE_SHARD, start, epoch, detail={_VERSION: version}),), unit=Unit.EPOCHS)

    def ends(self, after: Mapping[str, Position]) -> Mapping[str, ShardEnd]:
        """See Source; only the source's own shards."""
        return self.source.ends(source_positions(after))

    @property
    def unit(self) -> Unit:
        """See Source."""
        return self.source.unit

    @property
    def split_size(self) -> SplitSize:
        """See Source."""
        return self.source.split_size

    def split(self, offsets: OffsetRange, most: int) -> Sequence[OffsetRange]:
        """See Source; a replay is one piece."""
        return [offsets] if offsets.shard == QUARANTINE_SHARD else self.source.split(offsets, most)

    def infer_schema(self, plan: SourcePlan) -> pa.Schema:
        """See Source."""
        return self.source.infer_schema(plan)

    def reader(self, schema: pa.Schema | None = None) -> RangeReader:
        """See Source."""
        own = self.source.reader(schema)
        return own if self.quarantine is None else _Reader(own, self.quarantine, self.source.quarantine_decoder())

    def decoder(self, schema: pa.Schema, *, lineage: bool) -> Decoder:
        """See Source."""
        return self.source.decoder(schema, lineage=lineage)

    def quarantine_decoder(self) -> QuarantineDecoder:
        """See Source."""
        return self.source.quarantine_decoder()

    def completed(self, positions: Mapping[str, Position]) -> None:
        """See Source."""
        self.source.completed(source_positions(positions))


@dataclass(frozen=True)
class _Reader:
    own: RangeReader
    quarantine: SnapshotRows
    quarantine_decoder: QuarantineDecoder

    def read(self, offsets: OffsetRange) -> Iterator[Block]:
        return self._read_rejected(offsets) if offsets.shard == QUARANTINE_SHARD else self.own.read(offsets)

    def _read_rejected(self, offsets: OffsetRange) -> Iterator[Block]:
        version = offsets.detail[_VERSION]
        if not isinstance(version, int):
            raise RangeGoneError(f"{offsets}: no version of the quarantine is planned")
        for batch in self.quarantine.read(version, _COLUMNS, _replayable(offsets.start, offsets.until)):
            for shard in pc.unique(batch.column("shard")).to_pylist():
                rejected = batch.filter(pc.equal(batch.column("shard"), shard))
                for block in self.quarantine_decoder(shard, rejected.drop_columns(["shard"])):
                    yield replace(block, shard=shard)


def _replayable(start: int, until: int) -> pc.Expression:
    """Filter for quarantined rows of epochs ``[start, until)`` that can be decoded again."""
    epoch = pc.field("epoch")
    # A row without bytes and context cannot be decoded: the source could not read the record.
    has_bytes = pc.field("raw").is_valid() | pc.field("context").is_valid()
    return (epoch >= start) & (epoch < until) & pc.field("target").is_null() & has_bytes


def source_positions(positions: Mapping[str, Position]) -> dict[str, Position]:
    """Positions of the source's own shards."""
    return {shard: position for shard, position in positions.items() if shard not in OWN_SHARDS}
