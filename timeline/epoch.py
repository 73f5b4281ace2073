"""An epoch's offset ranges, and the bodies that carry it through its states: plan and manifest.

::

    <t>.commit.requested   Plan       what will be read, by whom
    <t>.inflight           (empty)    data may be written from now on
    <t>.inflight           Manifest   what was written: enough to commit without the writer
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from pydantic import JsonValue

from timeline.body import BodyFormat

Json: TypeAlias = JsonValue


@dataclass(frozen=True)
class Position:
    """Read position of a shard.

    Attributes:
        offset: the first offset that is not read yet, in the shard's unit (bytes, records).
        detail: the source's data for finding and checking the position again.
    """

    offset: int
    detail: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True)
class OffsetRange:
    """Consecutive records ``[start, until)`` of one shard.

    Attributes:
        shard: the independently ordered part of the source.
        start: first offset.
        until: first offset after the range.
        detail: the source's data for reading exactly these records (path, compression, …).
        after: detail of the position after the range.
    """

    shard: str
    start: int
    until: int
    detail: Mapping[str, Json] = field(default_factory=dict)
    after: Mapping[str, Json] = field(default_factory=dict)

    @property
    def end(self) -> Position:
        """The shard's position once this range is committed."""
        return Position(self.until, self.after)

    def __str__(self) -> str:
        return f"{self.shard}[{self.start}, {self.until})"


@dataclass(frozen=True, order=True)
class EpochRef:
    """Reference to an epoch: its number, its instant, and its writer's generation."""

    epoch: int
    instant: str
    generation: int

    def __str__(self) -> str:
        # The epoch of an instant without a plan is unknown.
        return f"epoch {self.epoch} (instant {self.instant})" if self.epoch >= 0 else f"instant {self.instant}"


@dataclass(frozen=True)
class WrittenFile:
    """One closed data file.

    Attributes:
        path: path below the target's root, as stored (not URL-encoded).
        size: bytes.
        rows: rows in the file, from its own footer.
        partition: value of each partition column as Delta writes it, None for null.
        stats: Delta's per-file statistics (numRecords, minValues, maxValues, nullCount).
        crc32: CRC-32 of all its bytes (ISO 3309, as zlib's); None if its writer did not compute it.
    """

    path: str
    size: int
    rows: int
    partition: Mapping[str, str | None] = field(default_factory=dict)
    stats: Mapping[str, Json] = field(default_factory=dict)
    crc32: int | None = None


@dataclass(frozen=True)
class WriteReport:
    """Report of one task attempt for one target: ``rows + dropped + rejected`` is the number of its input rows.

    Attributes:
        rows: rows written.
        bytes: size of these rows in the target.
        files: the data files, for a lake target.
        dropped: rows left out: another row has their key, or the query excludes them.
        rejected: rows that the target refused; they go to the quarantine.
        detail: the sink's own data about the attempt.
    """

    rows: int
    bytes: int
    files: tuple[WrittenFile, ...] = ()
    dropped: int = 0
    rejected: int = 0
    detail: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True)
class Part:
    """A target's prepared share of one epoch: all that its commit needs, in any process.

    Attributes:
        target: the target's name in the job.
        epoch: the epoch of the part.
        rows: rows that become visible with the commit; a part of 0 rows commits nothing.
        bytes: size of the files.
        files: the data files, sorted by path; none for a target that has no files.
        dropped: rows left out: another row has their key, or the query excludes them.
        rejected: rows that the target refused; they are in the quarantine.
        detail: the sink's own data for the commit.
    """

    target: str
    epoch: EpochRef
    rows: int
    bytes: int
    files: tuple[WrittenFile, ...] = ()
    dropped: int = 0
    rejected: int = 0
    detail: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True)
class ShardCount:
    """Record counts of one shard in one epoch: unless ``read == accepted + rejected``, the epoch is not prepared.

    Attributes:
        shard: the shard.
        read: records in the epoch's range.
        accepted: records that became rows.
        rejected: records that could not be decoded; they go to the quarantine.
        reasons: number of rejected records for each reason; reasons hold no values.
    """

    shard: str
    read: int
    accepted: int
    rejected: int
    reasons: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    """Plan of an epoch: its ranges, targets and writer. Body of ``<t>.commit.requested``.

    Attributes:
        ref: epoch, instant and generation of its writer.
        job: the job's name.
        writer: the process that planned the epoch, human-readable.
        ranges: one offset range for each shard to read.
        targets: names of the targets, in the order of application.
        schema: columns and Spark SQL types of the rows.
        token: distinguishes this plan from another process's plan of the same instant time.
        reading: keys of the job file that determine the values of the records, with their settings; None in plans of
            versions that did not record it.
    """

    ref: EpochRef
    job: str
    writer: str
    ranges: tuple[OffsetRange, ...]
    targets: tuple[str, ...]
    schema: Mapping[str, str]
    token: str
    reading: Mapping[str, str] | None = None

    @property
    def positions(self) -> dict[str, Position]:
        """Positions of the planned shards once the epoch is committed."""
        return {offsets.shard: offsets.end for offsets in self.ranges}


@dataclass(frozen=True)
class Manifest:
    """An epoch in its prepared state. Body of ``<t>.inflight`` once the write is done.

    Attributes:
        ref: epoch, instant and generation of its writer.
        counts: for each shard, records read, accepted and rejected.
        parts: each target's prepared share, in the order of application.
    """

    ref: EpochRef
    counts: tuple[ShardCount, ...]
    parts: tuple[Part, ...]

    @property
    def rows(self) -> int:
        """Rows accepted into the epoch."""
        return sum(count.accepted for count in self.counts)

    @property
    def rejected(self) -> int:
        """Rows for the quarantine: records that cannot be decoded, and rows that a target refuses."""
        return sum(count.rejected for count in self.counts) + sum(part.rejected for part in self.parts)


PLAN = BodyFormat("plan", Plan)
MANIFEST = BodyFormat("manifest", Manifest)
