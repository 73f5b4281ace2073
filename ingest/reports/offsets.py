"""Offsets of each shard: committed, newest in the source, and the lag between them. Reads no records."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial

from ingest.driver.build import TimelineHandle, open_source
from ingest.sources.base import ShardEnd, Source, Unit
from ingest.sources.options import StreamOptions
from ingest.sources.quarantine import source_positions
from timeline.active import ActiveTimeline
from timeline.chain import Chain, load_chain
from timeline.concurrency import map_concurrently
from timeline.decision import Decision, read_decision
from timeline.epoch import Position
from timeline.errors import SourceError
from timeline.holes import Hole, holes_of
from timeline.stores.base import ObjectStore, Retry

_READERS = 16
_OF_A_QUERY = "a streaming query reads the source; ask it, or its source, how far that goes"


class ShardState(enum.Enum):
    """A shard's committed offset compared with the newest one of its source."""

    CURRENT = "current"
    BEHIND = "behind"
    NEW = "new"
    GONE = "gone"
    LOST = "lost"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class KnownHole:
    """Records that the job skipped.

    Attributes:
        epoch: the epoch that skipped them.
        hole: their offsets, and why they were skipped.
    """

    epoch: int
    hole: Hole


@dataclass(frozen=True)
class ShardOffsets:
    """Offsets of one shard.

    Attributes:
        shard: the shard.
        state: committed compared with newest.
        committed: the first offset that is not committed; None for a shard that no epoch has read.
        newest: the offset behind the last record in the source; None where unknown, or where the shard is missing.
        lag: units (bytes, records) behind the committed offset that can still be read; None where unknown.
        epoch: the last epoch that advanced it; None where none of the epochs that were read did.
        lost: records behind the committed offset that the source no longer has.
        holes: records that the job skipped, in the epochs that were read.
        note: a remark for the user; "" for none.
    """

    shard: str
    state: ShardState
    committed: int | None
    newest: int | None
    lag: int | None
    epoch: int | None
    lost: Hole | None = None
    holes: tuple[KnownHole, ...] = ()
    note: str = ""


@dataclass(frozen=True)
class JobOffsets:
    """Offsets of all shards of a job.

    Attributes:
        unit: what offsets count; None where the source cannot say.
        shards: one row for each shard, by name.
        next_epoch: the first epoch that is not decided.
        looked_from: the first epoch whose decision was read for `epoch` and `holes`.
        unknown: why the source's offsets are unknown; None where it answered.
        is_silent: whether the source did not answer.
        pending: number of pending instants; their ranges count as committed once they are decided.
    """

    unit: Unit | None
    shards: Sequence[ShardOffsets] = ()
    next_epoch: int = 0
    looked_from: int = 0
    unknown: str | None = None
    is_silent: bool = False
    pending: int = 0

    @property
    def lag(self) -> int | None:
        """Units behind all committed offsets; None where unknown."""
        return None if self.unknown is not None else sum(row.lag or 0 for row in self.shards)

    @property
    def committed(self) -> int:
        """Sum of the committed offsets."""
        return sum(row.committed or 0 for row in self.shards)

    def count(self, state: ShardState) -> int:
        """Number of shards in this state."""
        return sum(row.state is state for row in self.shards)


@dataclass(frozen=True)
class SourceEnds:
    """Ends of the source's shards, or why they are unknown.

    Attributes:
        unit: what offsets count; None where the source cannot say.
        ends: end of each shard; None where unknown.
        unknown: why they are unknown.
        is_silent: whether the source did not answer.
    """

    unit: Unit | None
    ends: Mapping[str, ShardEnd] | None = None
    unknown: str | None = None
    is_silent: bool = False


@dataclass(frozen=True)
class _Moved:
    """Progress of shards by decisions.

    Attributes:
        epochs: the last epoch that advanced each shard.
        holes: holes of each shard.
    """

    epochs: dict[str, int] = field(default_factory=dict)
    holes: dict[str, list[KnownHole]] = field(default_factory=dict)


def job_offsets(opened: TimelineHandle, most_epochs: int) -> JobOffsets:
    """Offsets of all shards: from the job's timeline, and from its source as far as that answers.

    Args:
        opened: the job; it may not have begun.
        most_epochs: number of newest decisions read for holes and for the last epoch of each shard; 0: all.

    Raises:
        ConfigError: a package for the source is missing.
        StoreUnavailableError: the timeline's store does not answer.
    """
    timeline = ActiveTimeline.load(opened.store, opened.retry)
    chain = load_chain(opened.store, timeline, opened.retry)
    looked_from = max(0, chain.next_epoch - most_epochs) if most_epochs else 0
    moved = _moved(_decisions(opened.store, range(looked_from, chain.next_epoch), opened.retry))
    said = source_ends(open_job_source(opened), chain.positions)
    shards = sorted({*source_positions(chain.positions), *(said.ends or {})})
    return JobOffsets(
        said.unit,
        [_row(shard, chain, said.ends, moved) for shard in shards],
        chain.next_epoch,
        looked_from,
        said.unknown,
        said.is_silent,
        len(timeline.pending()),
    )


def open_job_source(opened: TimelineHandle) -> Source | None:
    """The job's source; None where a streaming query reads it."""
    return None if isinstance(opened.config.source, StreamOptions) else open_source(opened.config)


def source_ends(source: Source | None, positions: Mapping[str, Position]) -> SourceEnds:
    """Ends of the source's shards; a source that does not answer raises nothing."""
    if source is None:
        return SourceEnds(None, unknown=_OF_A_QUERY)
    try:
        return SourceEnds(source.unit, source.ends(positions))
    except (SourceError, OSError) as error:
        return SourceEnds(source.unit, unknown=str(error), is_silent=True)


def _row(shard: str, chain: Chain, ends: Mapping[str, ShardEnd] | None, moved: _Moved) -> ShardOffsets:
    position = chain.positions.get(shard)
    end = ends.get(shard) if ends is not None else None
    return ShardOffsets(
        shard,
        shard_state(position, end),
        position.offset if position is not None else None,
        end.newest if end is not None else None,
        end.lag if end is not None else None,
        moved.epochs.get(shard),
        end.lost if end is not None else None,
        tuple(moved.holes.get(shard, ())),
        end.note if end is not None else "",
    )


def shard_state(position: Position | None, end: ShardEnd | None) -> ShardState:
    """State of a shard by its committed position (None: no epoch has read it) and its end (None: unknown)."""
    if end is None:
        return ShardState.UNKNOWN
    if end.lost is not None or (end.newest is not None and end.newest < end.start):
        return ShardState.LOST
    if end.newest is None:
        return ShardState.GONE
    if position is None:
        return ShardState.NEW
    return ShardState.BEHIND if end.lag else ShardState.CURRENT


def _moved(decisions: Sequence[Decision]) -> _Moved:
    moved = _Moved()
    for decision in decisions:
        for shard, position in decision.positions.items():
            moved.epochs[shard] = decision.epoch
            for hole in holes_of(position.detail):
                moved.holes.setdefault(shard, []).append(KnownHole(decision.epoch, hole))
    return moved


def _decisions(store: ObjectStore, epochs: range, retry: Retry) -> list[Decision]:
    read = partial(read_decision, store, retry=retry)
    return [decision for decision in map_concurrently(read, epochs, _READERS) if decision is not None]


def offsets_json(offsets: JobOffsets) -> dict[str, object]:
    """Offsets as one JSON object; see ``docs/cli.md``."""
    return {
        "unit": offsets.unit.value if offsets.unit is not None else None,
        "next_epoch": offsets.next_epoch,
        "looked_from_epoch": offsets.looked_from,
        "pending": offsets.pending,
        "unknown": offsets.unknown,
        "total": {
            "shards": len(offsets.shards),
            "committed": offsets.committed,
            "lag": offsets.lag,
            **{state.value: offsets.count(state) for state in ShardState},
        },
        "shards": [_row_json(row) for row in offsets.shards],
    }


def _row_json(row: ShardOffsets) -> dict[str, object]:
    holes = [{"epoch": known.epoch, **asdict(known.hole)} for known in row.holes]
    lost = asdict(row.lost) if row.lost is not None else None
    return {**vars(row), "state": row.state.value, "lost": lost, "holes": holes, "note": row.note or None}
