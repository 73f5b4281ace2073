"""Reports made by hand: no job, no store."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from ingest.driver.takeover import Recovery
from ingest.protocol.evidence import Evidence
from ingest.protocol.recovery import RecoveryStep, StepKind
from ingest.reports.offsets import JobOffsets, ShardOffsets, ShardState
from ingest.reports.report import JobReport
from ingest.sources.base import Unit
from tests.unit.ingest.reports import made_histories as made
from timeline.history.entry import Entry
from timeline.history.epochs import History
from timeline.lease import LeaseState, WriterRecord
from timeline.process import ProcessId

AT = datetime.fromtimestamp(made.START_MS / 1000, UTC) + timedelta(minutes=3)


def writer(*, released: bool = False) -> WriterRecord:
    process = ProcessId("web-1", "boot", 4711, 1, "")
    return WriterRecord(2, process, "job", 60_000, 3, released, "t")


def shard(name: str, lag: int, *, state: ShardState | None = None, note: str = "") -> ShardOffsets:
    found = state or (ShardState.BEHIND if lag else ShardState.CURRENT)
    return ShardOffsets(name, found, 400, 400 + lag, lag, 3, note=note)


def report(
    *entries: Entry,
    shards: tuple[ShardOffsets, ...] = (shard("events-0", 0),),
    found: tuple[tuple[Evidence, RecoveryStep], ...] = (),
    lease: LeaseState = LeaseState.EXPIRED,
    released: bool = True,
    offsets: JobOffsets | None = None,
    unknown: tuple[str, ...] = (),
    unreadable: tuple[str, ...] = (),
    job: str = "web-logs",
    at: datetime = AT,
) -> JobReport:
    """A report on a job; by default the job has ended well.

    Args:
        *entries: its instants.
        shards: offsets of its shards, in records.
        found: pending instants, and their recovery steps.
        lease: state of the latest writer's lease.
        released: whether the latest writer has released its lease.
        offsets: take the place of `shards`.
        unknown: the parts that could not be read.
        unreadable: files in the timeline's folder that are no instants.
        job: its name.
        at: time of the report.
    """
    return JobReport(
        job=job,
        place="memory://lake",
        conf="job.yaml",
        at=at,
        history=History(entries),
        offsets=offsets or JobOffsets(Unit.RECORDS, shards, 4),
        recovery=Recovery(found=found, writer=writer(released=released)),
        lease=lease,
        unknown=unknown,
        unreadable=unreadable,
    )


def pending(kind: StepKind, reason: str = "not prepared", epoch: int = 7) -> tuple[Evidence, RecoveryStep]:
    """The evidence of a pending instant, and its recovery step."""
    plan = made.plan(epoch, made.START_MS + 60_000)
    return Evidence(plan.ref.instant, plan, None, LeaseState.EXPIRED, None), RecoveryStep(kind, reason)
