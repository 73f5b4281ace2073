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
    """How far a shard has been read.

    Attributes:
        offset: the first offset that is not read yet, in the shard's unit (bytes, records).
        detail: what the source needs to find and check the place again.
    """

    offset: int
    detail: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True)
class OffsetRange:
    """Consecutive records ``[start, until)`` of one shard.

    Attributes:
        shard: the independently ordered part of the source.
        start: first offset.
        until: first offset after it.
        detail: what a reader needs to read exactly these records (path, compression, …).
        after: detail of the position behind the range.
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
    """Which epoch, by which instant, written by which generation of the writer."""

    epoch: int
    instant: str
    generation: int

    def __str__(self) -> str:
        # An instant without a plan does not tell its epoch any more.
        return f"epoch {self.epoch} (instant {self.instant})" if self.epoch >= 0 else f"instant {self.instant}"


@dataclass(frozen=True)
class WrittenFile:
    """One closed data file.

    Attributes:
        path: below the target's root, as it is stored (not URL-encoded).
        size: bytes.
        rows: rows in it, from the file's own footer.
        partition: value of each partition column as Delta writes it, None for null.
        stats: Delta's per-file statistics (numRecords, minValues, maxValues, nullCount).
        crc32: CRC-32 of all its bytes (ISO 3309, as zlib's); None of a file that its writer has not summed up.
    """

    path: str
    size: int
    rows: int
    partition: Mapping[str, str | None] = field(default_factory=dict)
    stats: Mapping[str, Json] = field(default_factory=dict)
    crc32: int | None = None


@dataclass(frozen=True)
class WriteReport:
    """What one task attempt wrote to one target: ``rows + dropped + rejected`` is what it was given.

    Attributes:
        rows: rows written.
        bytes: their size as the target stores it.
        files: the data files, for a lake target.
        dropped: rows left out: another one has their key, or the query leaves them out.
        rejected: rows that the target refused; they go to the quarantine.
        detail: what the sink needs to know of it besides.
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
        epoch: the epoch it belongs to.
        rows: rows that become visible with the commit; a part of 0 rows commits nothing.
        bytes: size of the files.
        files: the data files, sorted by path; none for a target that has no files.
        dropped: rows left out: another one has their key, or the query leaves them out.
        rejected: rows that the target refused; they are in the quarantine.
        detail: what the sink needs to commit it besides.
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
    """What became of one shard's records in one epoch: ``read == accepted + rejected`` or it is not prepared.

    Attributes:
        shard: the shard.
        read: its records in the epoch's range.
        accepted: those that became rows.
        rejected: those that could not be decoded; they go to the quarantine.
        reasons: why those were rejected, without their values, and how many for each reason.
    """

    shard: str
    read: int
    accepted: int
    rejected: int
    reasons: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    """What an epoch will read, and who plans it. Body of ``<t>.commit.requested``.

    Attributes:
        ref: epoch, instant and generation of its writer.
        job: the job's name.
        writer: the process that planned it, for people.
        ranges: one offset range for each shard it reads.
        targets: names of the targets it will be applied to, in the order of application.
        schema: columns and Spark SQL types of the rows.
        token: tells this plan from another process's plan of the same instant time.
        reading: keys of the job file that say what values its records have, and what they say; None of a version that
            did not tell it.
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
        """Where the shards that it reads stand once it is committed."""
        return {offsets.shard: offsets.end for offsets in self.ranges}


@dataclass(frozen=True)
class Manifest:
    """An epoch in its prepared state. Body of ``<t>.inflight`` once the write is done.

    Attributes:
        ref: epoch, instant and generation of its writer.
        counts: for each shard, rows read, accepted and rejected.
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
        """Rows that go to the quarantine: those that cannot be decoded, and those that a target refuses."""
        return sum(count.rejected for count in self.counts) + sum(part.rejected for part in self.parts)


PLAN = BodyFormat("plan", Plan)
MANIFEST = BodyFormat("manifest", Manifest)
