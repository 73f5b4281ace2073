"""Rows of a timeline's views, for notebooks, tables and JSON; `timeline.history.epochs` creates the rows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from timeline.html import Html, element, facts_table, mark, moment
from timeline.units import iso_utc

TIDELINE = "tideline"
HUDI = "hudi"
"""Values of `InstantRow.writer`."""


@dataclass(frozen=True)
class InstantRow:
    """One instant. None means unknown, or not yet known. Times are UTC.

    Attributes:
        time: instant time, as on the timeline.
        action: its action.
        state: requested, inflight or completed.
        epoch: its epoch.
        outcome: commit or rollback, reached or decided.
        reason: reason of the outcome.
        by: the process that decided, or before a decision the process that planned.
        generation: writer generation of that process.
        requested: time of the request.
        prepared: put time of the manifest, by the store's clock.
        decided: time of the decision.
        completed: put time of the completed file, by the store's clock.
        seconds: from requested to completed.
        rows: rows that the decoder accepted.
        dropped: rows that targets left out: another row has their key, or the query excludes them.
        rejected: rows quarantined.
        files: data files written, or deleted by a rollback or a clean.
        bytes: size of the data files.
        writer: tideline or hudi.
        archived: whether the instant is out of the active timeline.
        problems: read errors.
    """

    time: str
    action: str
    state: str
    epoch: int | None = None
    outcome: str | None = None
    reason: str | None = None
    by: str | None = None
    generation: int | None = None
    requested: datetime | None = None
    prepared: datetime | None = None
    decided: datetime | None = None
    completed: datetime | None = None
    seconds: float | None = None
    rows: int | None = None
    dropped: int | None = None
    rejected: int | None = None
    files: int | None = None
    bytes: int | None = None
    writer: str = TIDELINE
    archived: bool = False
    problems: str | None = None


@dataclass(frozen=True)
class EpochRow:
    """One epoch: its decision and its result. Times are UTC.

    Attributes:
        epoch: its number.
        instant: the decided instant, or the one that waits for a decision.
        state: committed, rolled back, or pending (not finished, decided or not).
        outcome: the decided outcome; None while the epoch is open.
        reason: reason of the decision.
        by: the process that decided, or before a decision the process that planned.
        generation: writer generation of that process.
        requested: time of the plan.
        prepared: put time of the manifest, by the store's clock.
        decided: time of the decision.
        completed: completion time of the commit in all targets, or of the rollback, by the store's clock.
        write_s: seconds from requested to prepared.
        commit_s: seconds from decided to completed.
        read: records read.
        rows: rows accepted.
        dropped: rows that targets left out: another row has their key, or the query excludes them.
        rejected: rows quarantined.
        files: data files of all targets.
        bytes: size of these files.
        lost: records that the source no longer had, as far as their number is known.
    """

    epoch: int
    instant: str
    state: str
    outcome: str | None = None
    reason: str | None = None
    by: str | None = None
    generation: int | None = None
    requested: datetime | None = None
    prepared: datetime | None = None
    decided: datetime | None = None
    completed: datetime | None = None
    write_s: float | None = None
    commit_s: float | None = None
    read: int | None = None
    rows: int | None = None
    dropped: int | None = None
    rejected: int | None = None
    files: int | None = None
    bytes: int | None = None
    lost: int | None = None

    def _repr_html_(self) -> str:
        """Notebook view: the decision, its author and reason, and the result."""
        return epoch_html(self)


@dataclass(frozen=True)
class OffsetRow:
    """The range of one shard in one epoch.

    Attributes:
        epoch: the epoch.
        instant: its instant.
        outcome: commit or rollback; None while the epoch is open.
        shard: the shard.
        start: first offset.
        until: first offset after the range, the shard's position once the epoch is committed.
        read: records read.
        accepted: records that became rows.
        rejected: records that were quarantined.
        lost: records that the source no longer had, human-readable.
    """

    epoch: int
    instant: str
    outcome: str | None
    shard: str
    start: int
    until: int
    read: int | None = None
    accepted: int | None = None
    rejected: int | None = None
    lost: str | None = None


@dataclass(frozen=True)
class FileRow:
    """One data file that an instant wrote, or deleted.

    Attributes:
        instant: the instant.
        epoch: its epoch.
        outcome: commit, rollback (the file is deleted), or None while the epoch is open.
        target: the target of the file; None for another writer's file, and for deleted files of the base target.
        path: path below the target's root.
        bytes: size of the file.
        rows: rows in the file.
        partition: value of each partition column.
        archived: whether the instant is out of the active timeline.
    """

    instant: str
    epoch: int | None
    outcome: str | None
    target: str | None
    path: str
    bytes: int | None = None
    rows: int | None = None
    partition: Mapping[str, str | None] = field(default_factory=dict)
    archived: bool = False


@dataclass(frozen=True)
class RejectedRow:
    """Number of rows of one epoch and shard, or target, that were quarantined for one reason.

    Attributes:
        epoch: the epoch.
        instant: its instant.
        outcome: commit or rollback; None while the epoch is open.
        shard: the shard; None for rows that a target refused.
        target: the target that refused the rows; None for records that could not be decoded.
        reason: the reason, without the values of single rows.
        rows: number of rows.
    """

    epoch: int
    instant: str
    outcome: str | None
    shard: str | None
    target: str | None
    reason: str
    rows: int


def as_json(value: object) -> object:
    """JSON form of a time: ISO 8601 (UTC). For `json.dumps(default=…)`."""
    if isinstance(value, datetime):
        return iso_utc(value)
    raise TypeError(f"{value!r} is not JSON")


def to_json(rows: Sequence[object]) -> str:
    """Rows of one view as a JSON array."""
    return json.dumps([vars(row) for row in rows], indent=2, default=as_json)


def epoch_html(row: EpochRow) -> Html:
    """One epoch as HTML: the decision, its author and reason, and the result."""
    amounts = (
        ("rows", row.rows),
        ("dropped", row.dropped),
        ("rejected", row.rejected),
        ("lost", row.lost),
        ("files", row.files),
        ("bytes", row.bytes),
    )
    facts: list[tuple[str, object]] = [
        ("state", mark(row.state)),
        ("instant", element("code", row.instant)),
        (
            "decided",
            None if row.outcome is None else f"{row.outcome}{f', {moment(row.decided)}' if row.decided else ''}",
        ),
        ("why", row.reason),
        ("by", None if row.by is None else f"{row.by}, generation {row.generation}"),
        ("requested", moment(row.requested)),
        ("prepared", moment(row.prepared)),
        ("completed", moment(row.completed)),
        *((name, None if amount is None else f"{amount:,}") for name, amount in amounts),
    ]
    return element("div", element("b", f"epoch {row.epoch}"), facts_table(facts))
