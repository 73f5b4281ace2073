"""Histories made by hand, for pictures and pages: no store, no clock."""

from __future__ import annotations

from dataclasses import dataclass

from timeline.decision import Decision, Outcome
from timeline.epoch import EpochRef, Manifest, OffsetRange, Part, Plan, Position, ShardCount, WrittenFile
from timeline.history.entry import Entry
from timeline.history.epochs import History
from timeline.instant import Action, Instant, State, commit_completed, commit_requested, format_time
from timeline.rollback import RollbackPlan

START_MS = 1_772_355_600_000
"""2026-03-01 09:00 UTC."""

WRITER = "process 4711 on web-1"
RESCUER = "process 4712 on web-1"


@dataclass(frozen=True)
class Pace:
    """Duration of an epoch's states, ms."""

    write_ms: int = 1500
    decide_ms: int = 200
    apply_ms: int = 400

    @property
    def total_ms(self) -> int:
        return self.write_ms + self.decide_ms + self.apply_ms


def plan(epoch: int, start_ms: int, shards: int = 1, rows: int = 100) -> Plan:
    ranges = tuple(OffsetRange(f"events-{shard}", epoch * rows, (epoch + 1) * rows) for shard in range(shards))
    ref = EpochRef(epoch, format_time(start_ms), 1)
    return Plan(ref, "job", WRITER, ranges, ("lake",), {"id": "bigint"}, "t")


def manifest(of: Plan, *, rejected: int = 0, file_bytes: int = 5_000_000, reason: str = "malformed JSON") -> Manifest:
    counts = tuple(
        ShardCount(
            each.shard,
            each.until - each.start,
            each.until - each.start - rejected,
            rejected,
            {reason: rejected} if rejected else {},
        )
        for each in of.ranges
    )
    rows = sum(count.accepted for count in counts)
    file = WrittenFile(f"f-{of.ref.epoch}.parquet", file_bytes, rows)
    return Manifest(of.ref, counts, (Part("lake", of.ref, rows, file_bytes, (file,)),))


def decision(of: Plan, outcome: Outcome, at_ms: int, *, by: str = WRITER, reason: str = "written") -> Decision:
    positions = {shard: Position(end.offset) for shard, end in of.positions.items()}
    return Decision(
        of.ref.epoch,
        outcome,
        of.ref.instant,
        format_time(at_ms),
        1,
        by,
        reason,
        "t",
        positions=positions if outcome is Outcome.COMMIT else {},
    )


def committed(
    epoch: int,
    start_ms: int,
    *,
    pace: Pace | None = None,
    by: str = WRITER,
    reason: str = "written",
    shards: int = 1,
    rejected: int = 0,
    file_bytes: int = 5_000_000,
    why_rejected: str = "malformed JSON",
) -> Entry:
    """A completed epoch.

    Args:
        epoch: its number.
        start_ms: time of its request, milliseconds since 1970.
        pace: duration of its states.
        by: the process that decided it.
        reason: the decision's reason.
        shards: number of shards, of 100 records each.
        rejected: rejected records of each shard.
        file_bytes: size of its one file.
        why_rejected: reason of the rejected records.
    """
    took = pace or Pace()
    planned = plan(epoch, start_ms, shards)
    decided_ms = start_ms + took.write_ms + took.decide_ms
    return Entry(
        commit_completed(planned.ref.instant, format_time(decided_ms)),
        planned,
        manifest(planned, rejected=rejected, file_bytes=file_bytes, reason=why_rejected),
        decision(planned, Outcome.COMMIT, decided_ms, by=by, reason=reason),
        prepared_ms=start_ms + took.write_ms,
        completed_ms=start_ms + took.total_ms,
        is_claimed=True,
    )


def rolled_back(epoch: int, start_ms: int, *, after_ms: int = 3000, reason: str = "not prepared") -> Entry:
    """The completed rollback of an epoch, whose own files are deleted.

    Args:
        epoch: its number.
        start_ms: time of the epoch's request, milliseconds since 1970.
        after_ms: from the epoch's request to the rollback's.
        reason: the rollback's reason.
    """
    planned = plan(epoch, start_ms)
    undone_ms = start_ms + after_ms
    return Entry(
        Instant(format_time(undone_ms), Action.ROLLBACK, State.COMPLETED, format_time(undone_ms + 50)),
        decision=decision(planned, Outcome.ROLLBACK, undone_ms - 1, by=RESCUER, reason=reason),
        completed={"commitsRollback": [planned.ref.instant], "totalFilesDeleted": 2},
        rollback=RollbackPlan(planned.ref.instant, epoch, format_time(undone_ms + 50), reason, RESCUER, "t"),
        completed_ms=undone_ms + 60,
        is_claimed=True,
    )


def pending(epoch: int, start_ms: int, *, is_prepared: bool = False, is_decided: bool = False) -> Entry:
    """A pending epoch.

    Args:
        epoch: its number.
        start_ms: time of its request, milliseconds since 1970.
        is_prepared: whether it has a manifest.
        is_decided: whether it is decided to be committed.
    """
    planned = plan(epoch, start_ms)
    state = Instant(planned.ref.instant, Action.COMMIT, State.INFLIGHT)
    return Entry(
        state if is_prepared else commit_requested(planned.ref.instant),
        planned,
        manifest(planned) if is_prepared else None,
        decision(planned, Outcome.COMMIT, start_ms + 1700) if is_decided else None,
        prepared_ms=start_ms + 1500 if is_prepared else 0,
        is_claimed=True,
    )


def hudi(action: Action, start_ms: int, *, took_ms: int | None = 900) -> Entry:
    """An instant that Apache Hudi wrote."""
    time = format_time(start_ms)
    if took_ms is None:
        return Entry(Instant(time, action, State.INFLIGHT))
    stats = {"": [{"path": "a.parquet", "fileSizeInBytes": 40_000_000, "numWrites": 10}]}
    done = Instant(time, action, State.COMPLETED, format_time(start_ms + took_ms))
    return Entry(done, completed={"partitionToWriteStats": stats}, completed_ms=start_ms + took_ms)


def steady(epochs: int, *, every_ms: int = 2500, shards: int = 1, start_ms: int = START_MS) -> list[Entry]:
    """Completed epochs from 0 on.

    Args:
        epochs: their number.
        every_ms: from one request to the next.
        shards: number of shards.
        start_ms: time of the first request, milliseconds since 1970.
    """
    return [committed(epoch, start_ms + epoch * every_ms, shards=shards) for epoch in range(epochs)]


def eventful() -> History:
    """Commits, rejected rows, a rollback, a commit that another process finished, and a pending one."""
    entries = steady(4)
    entries.append(committed(4, START_MS + 10_000, rejected=7))
    entries.append(rolled_back(5, START_MS + 13_000))
    late = Pace(write_ms=1600, decide_ms=2500, apply_ms=300)
    entries.append(
        committed(6, START_MS + 17_000, pace=late, by=RESCUER, reason="recovered: prepared: every target is ready")
    )
    entries.append(pending(7, START_MS + 22_000, is_prepared=True))
    return History(tuple(entries))
