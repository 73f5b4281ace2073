"""History of a timeline: all that is stored about each instant, and views of the history as rows.

::

    instant ─► Entry ─┬─ InstantRow     one for each instant
                      ├─ EpochRow       one for each epoch: what was decided, by whom, why
                      ├─ OffsetRow      one for each epoch and shard that it read
                      ├─ FileRow        one for each data file that was written or deleted
                      └─ RejectedRow    one for each epoch, shard and reason

For reports: the protocol never reads the history.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from timeline.concurrency import map_concurrently
from timeline.decision import Outcome
from timeline.epoch import Plan
from timeline.history.entry import Entry, read_entry
from timeline.history.rows import HUDI, TIDELINE, EpochRow, FileRow, InstantRow, OffsetRow, RejectedRow
from timeline.holes import holes_of
from timeline.instant import Action, Instant, parse_time, utc_of
from timeline.stores.base import ObjectStore, Retry

_READERS = 16


@dataclass(frozen=True)
class History:
    """A timeline's history, oldest instant first.

    Attributes:
        entries: one for each instant.
    """

    entries: tuple[Entry, ...] = ()

    @classmethod
    def read(
        cls,
        store: ObjectStore,
        instants: Sequence[Instant],
        retry: Retry,
        modified_ms: Mapping[str, int] | None = None,
    ) -> History:
        """Read the entries of these instants concurrently.

        Args:
            store: the timeline's store.
            instants: the instants to read.
            retry: retry bounds.
            modified_ms: modification time of each file of the timeline folder by name, in milliseconds since 1970.

        Raises:
            StoreUnavailableError: the store does not answer.
        """
        read = partial(read_entry, store, retry=retry, modified_ms=modified_ms)
        return cls(tuple(map_concurrently(read, instants, _READERS)))

    def instants(self) -> list[InstantRow]:
        """A row for each instant."""
        return [_instant_row(entry) for entry in self.entries]

    def epochs(self) -> list[EpochRow]:
        """A row for each epoch, in the order of their numbers."""
        by_epoch: dict[int, list[Entry]] = {}
        for entry in self.entries:
            if entry.epoch is not None:
                by_epoch.setdefault(entry.epoch, []).append(entry)
        return [_epoch_row(epoch, by_epoch[epoch]) for epoch in sorted(by_epoch)]

    def offsets(self) -> list[OffsetRow]:
        """A row for each range that a commit planned."""
        return [row for entry in self.entries for row in _offset_rows(entry)]

    def files(self) -> list[FileRow]:
        """A row for each file that a commit wrote and each one that a rollback deleted."""
        return [row for entry in self.entries for row in _file_rows(entry)]

    def rejected(self) -> list[RejectedRow]:
        """A row for each quarantine reason of each shard of a commit, and for each target that refused rows."""
        return [row for entry in self.entries for row in _rejected_rows(entry)]


def _instant_row(entry: Entry) -> InstantRow:
    instant, decision = entry.instant, entry.decision
    row: dict[str, Any] = {"reason": decision.reason if decision else None, **_author(entry)}
    if instant.action is Action.ROLLBACK:
        row |= _rollback_columns(entry)
    else:
        row |= _amounts(entry)
        row["decided"] = utc_of(decision.completion_time) if decision else None
    done_ms = _done_ms(entry)
    return InstantRow(
        instant.time,
        instant.action.value,
        instant.state.value,
        epoch=entry.epoch,
        outcome=entry.outcome.value if entry.outcome else None,
        requested=utc_of(instant.time),
        prepared=_from_ms(entry.prepared_ms),
        completed=_from_ms(done_ms),
        seconds=_seconds(parse_time(instant.time), done_ms),
        writer=TIDELINE if entry.is_tideline else HUDI,
        archived=entry.is_archived,
        problems="; ".join(entry.problems) or None,
        **row,
    )


def _rollback_columns(entry: Entry) -> dict[str, Any]:
    body = entry.completed or {}
    of = ", ".join(entry.undone)
    reason = entry.rollback.reason if entry.rollback else entry.extra.get("tideline.reason")
    return {
        "files": body.get("totalFilesDeleted"),
        "by": entry.rollback.by if entry.rollback else entry.extra.get("tideline.by"),
        "reason": (f"{reason}: instant {of}" if reason else f"instant {of}") if of else reason,
    }


def _author(entry: Entry) -> dict[str, Any]:
    if entry.decision is not None:
        return {"by": entry.decision.by, "generation": entry.decision.generation}
    if entry.plan is not None:
        return {"by": entry.plan.writer, "generation": entry.plan.ref.generation}
    return {}


def _amounts(entry: Entry) -> dict[str, Any]:
    """Rows and files of a commit, from its manifest, or from another writer's completed body."""
    manifest = entry.manifest
    if manifest is not None:
        return {
            "rows": manifest.rows,
            "rejected": manifest.rejected,
            "dropped": sum(part.dropped for part in manifest.parts),
            "files": sum(len(part.files) for part in manifest.parts),
            "bytes": sum(part.bytes for part in manifest.parts),
        }
    if entry.completed is None or entry.is_tideline:
        return {}
    if "partitionToWriteStats" not in entry.completed:
        # A clean deletes files, like a rollback; a savepoint neither writes nor deletes.
        return {"files": entry.completed.get("totalFilesDeleted")}
    written = list(_hudi_files(entry))
    return {
        "rows": sum(file.rows or 0 for file in written),
        "files": len(written),
        "bytes": sum(file.bytes or 0 for file in written),
    }


def _epoch_row(epoch: int, entries: Sequence[Entry]) -> EpochRow:
    decision = next((entry.decision for entry in entries if entry.decision is not None), None)
    commits = [entry for entry in entries if entry.instant.action is Action.COMMIT]
    undone = next((each for each in entries if each.instant.action is Action.ROLLBACK), None)
    # The decided instant; before a decision, the oldest commit.
    of = decision.instant if decision else commits[0].instant.time if commits else entries[0].instant.time
    commit = next((entry for entry in commits if entry.instant.time == of), None)
    is_committed = commit is not None and not commit.instant.is_pending
    last = commit if is_committed else undone
    state = "committed" if is_committed else "pending"
    if not is_committed and undone is not None and not undone.instant.is_pending and not commits:
        state = "rolled back"
    prepared_ms = commit.prepared_ms if commit else 0
    done_ms = _done_ms(last) if last is not None and state != "pending" else 0
    decided = decision.completion_time if decision else None
    return EpochRow(
        epoch,
        of,
        state,
        outcome=decision.outcome.value if decision else None,
        reason=decision.reason if decision else None,
        **(_author(commit or entries[0])),
        requested=utc_of(of),
        prepared=_from_ms(prepared_ms),
        decided=utc_of(decided) if decided else None,
        completed=_from_ms(done_ms),
        write_s=_seconds(parse_time(of), prepared_ms),
        commit_s=_seconds(parse_time(decided), done_ms) if decided else None,
        read=sum(count.read for count in commit.manifest.counts) if commit and commit.manifest else None,
        lost=_lost_records(commit.plan) if commit and commit.plan else None,
        **(_amounts(commit) if commit else {}),
    )


def _offset_rows(entry: Entry) -> Iterator[OffsetRow]:
    if entry.plan is None:
        return
    counts = {count.shard: count for count in entry.manifest.counts} if entry.manifest else {}
    for offsets in entry.plan.ranges:
        count = counts.get(offsets.shard)
        yield OffsetRow(
            entry.plan.ref.epoch,
            entry.instant.time,
            entry.outcome.value if entry.outcome else None,
            offsets.shard,
            offsets.start,
            offsets.until,
            read=count.read if count else None,
            accepted=count.accepted if count else None,
            rejected=count.rejected if count else None,
            lost="; ".join(map(str, holes_of(offsets.after))) or None,
        )


def _file_rows(entry: Entry) -> Iterator[FileRow]:
    outcome = entry.outcome.value if entry.outcome else None
    if entry.instant.action is Action.ROLLBACK:
        for folder in ((entry.completed or {}).get("partitionMetadata") or {}).values():
            for path in folder.get("successDeleteFiles") or ():
                target, _, below = path.rpartition(": ")
                yield FileRow(
                    entry.instant.time, entry.epoch, outcome, target or None, below, archived=entry.is_archived
                )
        return
    if not entry.parts and not entry.is_tideline:
        yield from _hudi_files(entry)
        return
    for part in entry.parts:
        for file in part.files:
            yield FileRow(
                entry.instant.time, entry.epoch, outcome, part.target, file.path, file.size, file.rows, file.partition
            )


def _hudi_files(entry: Entry) -> Iterator[FileRow]:
    for stats in ((entry.completed or {}).get("partitionToWriteStats") or {}).values():
        for file in stats:
            yield FileRow(
                entry.instant.time,
                None,
                Outcome.COMMIT.value,
                None,
                file.get("path") or "",
                file.get("fileSizeInBytes"),
                file.get("numWrites"),
                archived=entry.is_archived,
            )


def _rejected_rows(entry: Entry) -> Iterator[RejectedRow]:
    if entry.manifest is None:
        return
    outcome = entry.outcome.value if entry.outcome else None
    base = (entry.manifest.ref.epoch, entry.instant.time, outcome)
    for count in entry.manifest.counts:
        named = sum(count.reasons.values())
        for reason, rows in count.reasons.items():
            yield RejectedRow(*base, count.shard, None, reason, rows)
        if count.rejected > named:
            yield RejectedRow(*base, count.shard, None, "not recorded", count.rejected - named)
    for part in entry.parts:
        if part.rejected:
            yield RejectedRow(*base, None, part.target, f"refused by target {part.target}", part.rejected)


def _lost_records(plan: Plan) -> int | None:
    holes = [hole for offsets in plan.ranges for hole in holes_of(offsets.after)]
    known = [hole.until - hole.start for hole in holes if hole.until is not None]
    return sum(known) if holes else None


def _done_ms(entry: Entry) -> int:
    """Completion time in milliseconds since 1970: by the store's clock, else from the file name; 0 if unknown."""
    if entry.completed_ms or entry.instant.completion_time is None:
        return entry.completed_ms
    return parse_time(entry.instant.completion_time)


def _from_ms(epoch_ms: int) -> datetime | None:
    return datetime.fromtimestamp(epoch_ms / 1000, UTC) if epoch_ms else None


def _seconds(start_ms: int, end_ms: int) -> float | None:
    return max(0, end_ms - start_ms) / 1000 if end_ms else None
