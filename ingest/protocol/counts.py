"""Row counts of an epoch: whether they add up, and the share of each target.

::

    read ─┬─ rejected by the decoder ───────────────┐
          └─ accepted ─┬─ written to a target       ├─ rows of the quarantine
                       ├─ dropped (a key twice)     │
                       └─ rejected by the target ───┘

Every target decides for itself: a row that one target rejects is written to the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from timeline.epoch import EpochRef, Manifest, Part, Plan, ShardCount, WriteReport
from timeline.errors import InvariantError, RowCountError
from timeline.units import count as words


@dataclass(frozen=True)
class TargetRows:
    """Accepted rows by their outcome in one target; the sum is the number of accepted rows.

    Attributes:
        written: rows written.
        dropped: rows left out: duplicates of a key, rows that the query drops, and rows replayed for other targets.
        rejected: rows that the target refused; they are in the quarantine.
    """

    written: int = 0
    dropped: int = 0
    rejected: int = 0

    @property
    def given(self) -> int:
        """Number of rows that the target was given."""
        return self.written + self.dropped + self.rejected

    @property
    def is_all(self) -> bool:
        """Whether every row was written."""
        return self.given == self.written

    def __add__(self, other: TargetRows) -> TargetRows:
        return TargetRows(self.written + other.written, self.dropped + other.dropped, self.rejected + other.rejected)

    def __str__(self) -> str:
        return self.words()

    def words(self, dropped: str = "dropped") -> str:
        """The counts, human-readable; a replay has another word for dropped rows."""
        return f"{self.written:,} written + {self.dropped:,} {dropped} + {self.rejected:,} rejected"

    @classmethod
    def of(cls, taken: Sequence[WriteReport] | Part) -> TargetRows:
        """The rows of a target's reports, or of its part."""
        each = [taken] if isinstance(taken, Part) else taken
        return cls(sum(one.rows for one in each), sum(one.dropped for one in each), sum(one.rejected for one in each))


def rows_by_target(manifest: Manifest) -> dict[str, TargetRows]:
    """Accepted rows of an epoch by outcome, for each target that did not write all of them."""
    taken = {part.target: TargetRows.of(part) for part in manifest.parts}
    return {target: rows for target, rows in taken.items() if not rows.is_all}


def left_out(targets: Mapping[str, TargetRows], dropped: str = "dropped") -> str:
    """Targets that did not write every row, human-readable; "" if there are none."""
    return "".join(f"; {target}: {rows.words(dropped)}" for target, rows in targets.items() if not rows.is_all)


def rows_read(manifest: Manifest) -> int:
    """Number of records that an epoch has read."""
    return sum(count.read for count in manifest.counts)


def check_counts(
    plan: Plan, quarantine: str, counts: Sequence[ShardCount], reports: Mapping[str, Sequence[WriteReport]]
) -> None:
    """Refuse an epoch whose rows do not add up, per shard and per target.

    Args:
        plan: the epoch.
        quarantine: name of the target that takes rejected rows.
        counts: read, accepted and rejected records of each shard.
        reports: reports of each target's tasks.

    Raises:
        RowCountError: names the shard or target, and the numbers.
    """
    planned = {offsets.shard for offsets in plan.ranges}
    if {count.shard for count in counts} != planned:
        raise RowCountError(f"{plan.ref}: planned shards {sorted(planned)}, counted {[c.shard for c in counts]}")
    for misfit in count_mismatches(
        counts, {target: TargetRows.of(each) for target, each in reports.items()}, quarantine
    ):
        raise RowCountError(f"{plan.ref}: {misfit}")


def count_mismatches(counts: Sequence[ShardCount], taken: Mapping[str, TargetRows], quarantine: str) -> Iterator[str]:
    """Row counts of an epoch that do not add up, human-readable.

    Args:
        counts: read, accepted and rejected records of each shard.
        taken: rows of each target by outcome.
        quarantine: name of the target that takes rejected rows.
    """
    for count in counts:
        if count.read != count.accepted + count.rejected:
            yield (
                f"shard {count.shard}: {words(count.read, 'row')} read, "
                f"{count.accepted} accepted + {count.rejected} rejected"
            )
    accepted = sum(count.accepted for count in counts)
    undecodable = sum(count.rejected for count in counts)
    accepting = {target: rows for target, rows in taken.items() if target != quarantine}
    for target, rows in accepting.items():
        if rows.given != accepted:
            yield f"target {target} took {rows} = {words(rows.given, 'row')}, expected {accepted}"
    refused = sum(rows.rejected for rows in accepting.values())
    quarantined = taken.get(quarantine)
    if quarantined != TargetRows(undecodable + refused):
        by_targets = "".join(f" + {rows.rejected} rejected by {target}" for target, rows in accepting.items())
        yield f"target {quarantine} took {quarantined}, expected {undecodable} rejected by the decoder{by_targets}"


def check_part(target: str, epoch: EpochRef, part: Part, reports: Sequence[WriteReport]) -> None:
    """Refuse a part that is not the target's, or does not hold the rows that were written for it.

    Args:
        target: the target's name.
        epoch: the prepared epoch.
        part: the part that the target's sink made of the reports.
        reports: one for each task.

    Raises:
        RowCountError: names the target and both numbers.
        InvariantError: the part is of another target or epoch.
    """
    if (part.target, part.epoch) != (target, epoch):
        raise InvariantError(
            f"{epoch}: the sink of target {target} prepared a part of target {part.target}, {part.epoch}: this is a "
            "mistake in the sink. Nothing was committed"
        )
    wrote, holds = TargetRows.of(reports), TargetRows.of(part)
    if wrote != holds:
        raise RowCountError(f"{part.epoch}: target {part.target} took {wrote}, its prepared part has {holds}")
