"""All data about one instant, for `tideline inspect`: its stored bodies, and the step that recovery would take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TypeAlias

from ingest.driver.build import TimelineHandle, build_job
from ingest.driver.takeover import Recovery
from ingest.protocol.evidence import Evidence, Unknown, gather
from ingest.protocol.recovery import RecoveryStep, next_step
from ingest.reports.instants import InstantView, shown_instants
from ingest.reports.recovery_text import recovery_json
from timeline.active import ActiveTimeline
from timeline.errors import StoreUnavailableError, TidelineError
from timeline.history.entry import Entry, read_entry
from timeline.history.epochs import History
from timeline.history.rows import FileRow, OffsetRow, RejectedRow
from timeline.instant import Action, Instant, parse_time
from timeline.lease import LeaseObserver, LeaseState, WriterRecord

Object: TypeAlias = dict[str, object]


@dataclass(frozen=True)
class Reached:
    """A state that an instant has reached.

    Attributes:
        state: requested, prepared, decided or completed.
        at: time, UTC; requested and decided by the process's clock, the others by the store's.
        after_s: seconds since the state before.
    """

    state: str
    at: datetime
    after_s: float | None


@dataclass(frozen=True)
class RecoveryPreview:
    """Step that recovery would take for a pending instant.

    Attributes:
        found: evidence and step of a commit; None without readable evidence, and for other instants.
        words: why there is no step, or how recovery would end a rollback.
        writer: the timeline's latest writer.
    """

    found: tuple[Evidence, RecoveryStep] | None
    words: str = ""
    writer: WriterRecord | None = None

    @property
    def recovery(self) -> Recovery:
        """The preview in the form that `tideline recover` prints."""
        return Recovery(found=[self.found] if self.found is not None else [], writer=self.writer)


@dataclass(frozen=True)
class Inspection:
    """All data about one instant.

    Attributes:
        entry: its stored bodies.
        shown: the instant as a row of `tideline show`.
        reached: its states, in order.
        offsets: its offset range of each shard.
        rejected: its quarantined rows by reason.
        files: data files that it wrote, or deleted.
        preview: the step that recovery would take; None where the instant is not pending.
    """

    entry: Entry
    shown: InstantView
    reached: Sequence[Reached]
    offsets: Sequence[OffsetRow]
    rejected: Sequence[RejectedRow]
    files: Sequence[FileRow]
    preview: RecoveryPreview | None


def inspect_instant(opened: TimelineHandle, timeline: ActiveTimeline, instant: Instant) -> Inspection:
    """Read all data about one instant; writes nothing.

    Args:
        opened: the job.
        timeline: the whole timeline.
        instant: an instant of the timeline.

    Raises:
        StoreUnavailableError: the timeline's store does not answer.
    """
    entry = read_entry(opened.store, instant, opened.retry, timeline.modified_ms)
    history = History((entry,))
    (shown,) = shown_instants(history)
    return Inspection(
        entry,
        shown,
        tuple(_reached(shown)),
        history.offsets(),
        history.rejected(),
        history.files(),
        _prospect(opened, instant) if instant.is_pending else None,
    )


def _reached(shown: InstantView) -> Iterator[Reached]:
    before: datetime | None = None
    for state in ("requested", "prepared", "decided", "completed"):
        at: datetime | None = getattr(shown, state)
        if at is not None:
            yield Reached(state, at, (at - before).total_seconds() if before else None)
            before = at


def _prospect(opened: TimelineHandle, instant: Instant) -> RecoveryPreview:
    if instant.action is Action.ROLLBACK:
        return RecoveryPreview(None, "finish it: delete what is left of its instant, and record what went")
    if instant.action is not Action.COMMIT or opened.identity is None:
        return RecoveryPreview(None, "nothing: Tideline has not written it")
    observer = LeaseObserver(opened.store, opened.retry)
    try:
        evidence = gather(build_job(opened), instant.time, _look(observer))
    except TidelineError as error:
        return RecoveryPreview(None, f"that cannot be told now: {error}", observer.writer)
    return RecoveryPreview((evidence, next_step(evidence)), writer=observer.writer)


def _look(observer: LeaseObserver) -> LeaseState | Unknown:
    try:
        return observer.look()
    except StoreUnavailableError as error:
        return Unknown(str(error))


def inspection_json(inspection: Inspection, most_files: int) -> Object:
    """The inspection as one JSON object, with times for `timeline.history.rows.as_json`; see ``docs/cli.md``.

    Args:
        inspection: the instant.
        most_files: number of files listed; 0: all.
    """
    entry, files = inspection.entry, inspection.files
    return {
        "instant": asdict(inspection.shown),
        "reached": [asdict(each) for each in inspection.reached],
        "decision": _decision(entry),
        "plan": _plan(entry),
        "manifest": _manifest(entry),
        "offsets": [vars(row) for row in inspection.offsets],
        "rejected": [vars(row) for row in inspection.rejected],
        "rollback": _rollback(entry),
        "files": [vars(row) for row in files[: most_files or len(files)]],
        "files_in_all": len(files),
        "recovery": _recovery(inspection.preview),
        "problems": list(entry.problems),
    }


def _decision(entry: Entry) -> Object | None:
    decision = entry.decision
    if decision is None:
        return None
    return {
        "outcome": decision.outcome.value,
        "instant": decision.instant,
        "by": decision.by,
        "generation": decision.generation,
        "reason": decision.reason,
        "decided": datetime.fromtimestamp(parse_time(decision.completion_time) / 1000, UTC),
        "rows": decision.rows,
        "rejected": decision.rejected,
    }


def _plan(entry: Entry) -> Object | None:
    plan = entry.plan
    if plan is None:
        return None
    return {
        "epoch": plan.ref.epoch,
        "generation": plan.ref.generation,
        "job": plan.job,
        "by": plan.writer,
        "targets": list(plan.targets),
        "schema": dict(plan.schema),
        "shards": len(plan.ranges),
        "units": sum(offsets.until - offsets.start for offsets in plan.ranges),
    }


def _manifest(entry: Entry) -> Object | None:
    manifest = entry.manifest
    if manifest is None:
        return None
    parts: list[Mapping[str, object]] = [
        {
            "target": part.target,
            "rows": part.rows,
            "dropped": part.dropped,
            "rejected": part.rejected,
            "files": len(part.files),
            "bytes": part.bytes,
        }
        for part in manifest.parts
    ]
    return {
        "read": sum(count.read for count in manifest.counts),
        "rows": manifest.rows,
        "rejected": manifest.rejected,
        "parts": parts,
    }


def _rollback(entry: Entry) -> Object | None:
    """Instants that a rollback undid, its reason, and its number of deleted files; None for other instants."""
    if entry.instant.action is not Action.ROLLBACK:
        return None
    body = entry.completed or {}
    return {
        "instants": entry.undone,
        "reason": entry.rollback.reason if entry.rollback is not None else entry.extra.get("tideline.reason"),
        "by": entry.rollback.by if entry.rollback is not None else entry.extra.get("tideline.by"),
        "files_deleted": body.get("totalFilesDeleted"),
    }


def _recovery(preview: RecoveryPreview | None) -> Object | None:
    """The preview as in `tideline recover --json`, with `words` where there is no step."""
    if preview is None:
        return None
    said = recovery_json(preview.recovery, dry_run=True)
    assert isinstance(said, dict)
    found = said["found"]
    assert isinstance(found, list)
    return {"writer": said["writer"], "found": found[0] if found else None, "words": preview.words or None}
