"""The timeline as rows for people and machines: what `tideline show` prints."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ingest.counts import TargetRows, left_out
from timeline.decision import Decision, read_decision
from timeline.epoch import MANIFEST, PLAN, Manifest, Plan
from timeline.errors import FormatError
from timeline.holes import Hole, lost
from timeline.hudi import read_completed
from timeline.instant import Action, Instant, State, commit_inflight, commit_requested, parse_time
from timeline.rollback import ROLLBACK_PLAN, RollbackPlan
from timeline.store import ObjectStore, Retry, read_or_none
from timeline.view import Timeline


@dataclass(frozen=True)
class InstantRow:
    """One instant with what its bodies say; None where nothing says it (yet).

    Attributes:
        time: when it was requested.
        action: what it does.
        state: how far it is.
        epoch: its epoch.
        outcome: what was decided.
        rows: rows committed: those that the decoder accepted; what a target left out of them is in `targets`.
        rejected: rows quarantined.
        files: data files written, or deleted by a rollback.
        bytes: size of the data files.
        targets: for each target, what became of the rows that it was given.
        offsets: for each shard, the offsets it brings it to.
        lost: for each shard that goes on behind records that are gone, which ones and why.
        seconds: from requested to completed.
        note: why it was rolled back, or who is responsible.
    """

    time: str
    action: str
    state: str
    epoch: int | None = None
    outcome: str | None = None
    rows: int | None = None
    rejected: int | None = None
    files: int | None = None
    bytes: int | None = None
    targets: Mapping[str, TargetRows] | None = None
    offsets: Mapping[str, int] | None = None
    lost: Mapping[str, Sequence[Hole]] | None = None
    seconds: float | None = None
    note: str | None = None


def instant_rows(store: ObjectStore, timeline: Timeline, retry: Retry) -> Sequence[InstantRow]:
    """A row for each instant of the view, oldest first. Reads a body or two for each: filter the view before."""
    return [_row(store, instant, retry) for instant in timeline]


def _row(store: ObjectStore, instant: Instant, retry: Retry) -> InstantRow:
    base: dict[str, Any] = {"time": instant.time, "action": instant.action.value, "state": instant.state.value}
    try:
        match (instant.action, instant.state):
            case (Action.COMMIT, State.COMPLETED):
                return InstantRow(**base, **_completed_commit(read_completed(store, instant, retry)), **_took(instant))
            case (Action.COMMIT, _):
                return InstantRow(**base, **_pending_commit(store, instant.time, retry))
            case (Action.ROLLBACK, State.COMPLETED):
                return InstantRow(**base, **_rollback(read_completed(store, instant, retry)), **_took(instant))
            case (Action.ROLLBACK, _):
                path = Instant(instant.time, Action.ROLLBACK, State.REQUESTED).path
                body = read_or_none(store, path, retry)
                plan = ROLLBACK_PLAN.load(path, body) if body else None
                return InstantRow(**base, **(_pending_rollback(plan) if plan else {}))
            case _:
                return InstantRow(**base)
    except FormatError as error:
        return InstantRow(**base, note=f"unreadable: {error}")


def _took(instant: Instant) -> dict[str, Any]:
    assert instant.completion_time is not None
    return {"seconds": (parse_time(instant.completion_time) - parse_time(instant.time)) / 1000}


def _completed_commit(body: Mapping[str, Any]) -> dict[str, Any]:
    extra = body.get("extraMetadata") or {}
    if "tideline.epoch" not in extra:
        return {"note": "not written by Tideline"}
    targets = json.loads(extra["tideline.targets"])
    offsets = json.loads(extra["tideline.offsets"])
    holes = json.loads(extra.get("tideline.lost", "{}"))
    taken = {
        name: TargetRows(target["rows"], target.get("dropped", 0), target.get("rejected", 0))
        for name, target in targets.items()
    }
    lost_behind = _lost({shard: [Hole(**hole) for hole in each] for shard, each in holes.items()})
    notes = [note for note in (left_out(taken).removeprefix("; "), lost_behind.get("note")) if note]
    return {
        "epoch": int(extra["tideline.epoch"]),
        "outcome": "commit",
        "rows": int(extra["tideline.rows"]),
        "rejected": int(extra["tideline.rejected"]),
        "files": sum(target["files"] for target in targets.values()),
        "bytes": sum(target["bytes"] for target in targets.values()),
        "offsets": {shard: position["offset"] for shard, position in offsets.items()},
        "targets": taken,
        **lost_behind,
        "note": "; ".join(notes) or None,
    }


def _lost(holes: Mapping[str, Sequence[Hole]]) -> dict[str, Any]:
    if not holes:
        return {}
    return {
        "lost": holes,
        "note": "lost: " + "; ".join(f"{shard} {hole}" for shard, each in holes.items() for hole in each),
    }


def _pending_commit(store: ObjectStore, time: str, retry: Retry) -> dict[str, Any]:
    requested = commit_requested(time).path
    body = read_or_none(store, requested, retry)
    if body is None:
        return {"note": "rolled back before; left by a writer that woke up late"}
    plan: Plan = PLAN.load(requested, body)
    inflight = commit_inflight(time).path
    prepared = read_or_none(store, inflight, retry)
    manifest: Manifest | None = MANIFEST.load(inflight, prepared) if prepared else None
    decision: Decision | None = read_decision(store, plan.ref.epoch, retry)
    row: dict[str, Any] = {
        "epoch": plan.ref.epoch,
        "offsets": {offsets.shard: offsets.until for offsets in plan.ranges},
        "note": f"by {plan.writer}, generation {plan.ref.generation}",
    }
    lost_behind = _lost(lost(plan.positions))
    if lost_behind:
        row |= lost_behind | {"note": f"{row['note']}; {lost_behind['note']}"}
    if decision is not None:
        row["outcome"] = "commit" if decision.commits(time) else "rollback"
    if manifest is not None:
        row["rows"], row["rejected"] = manifest.rows, manifest.rejected
        row["targets"] = {part.target: TargetRows.of(part) for part in manifest.parts}
        row["files"] = sum(len(part.files) for part in manifest.parts)
        row["bytes"] = sum(part.bytes for part in manifest.parts)
    return row


def _pending_rollback(plan: RollbackPlan) -> dict[str, Any]:
    return {
        "epoch": plan.epoch if plan.epoch >= 0 else None,
        "outcome": "rollback",
        "note": f"{plan.reason}: instant {plan.instant}",
    }


def _rollback(body: Mapping[str, Any]) -> dict[str, Any]:
    extra = body.get("extraMetadata") or {}
    instants = ", ".join(body.get("commitsRollback") or ())
    reason = extra.get("tideline.reason")
    return {
        "epoch": int(extra["tideline.epoch"]) if "tideline.epoch" in extra else None,
        "outcome": "rollback",
        "files": body.get("totalFilesDeleted"),
        "note": f"{reason}: instant {instants}" if reason else f"of {instants}, not by Tideline",
    }
