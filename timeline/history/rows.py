"""Rows of a timeline's views, for people, tables and JSON; `timeline.history.epochs` makes them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from timeline.html import Html, element, facts_table, mark, moment

TIDELINE = "tideline"
HUDI = "hudi"
"""Writers of an instant."""


@dataclass(frozen=True)
class InstantRow:
    """One instant; None where nothing says it (yet). Times are UTC.

    Attributes:
        time: when it was requested, as it stands on the timeline.
        action: what it does.
        state: how far it is.
        epoch: its epoch.
        outcome: what was decided for it: commit or rollback.
        reason: why.
        by: the process that decided it, or that planned it while nothing is decided.
        generation: of that process.
        requested: when it was requested.
        prepared: when everything was written, by the store's clock.
        decided: when it was decided.
        completed: when its completed file was put, by the store's clock.
        seconds: from requested to completed.
        rows: rows that the decoder accepted.
        dropped: rows that targets left out: another one has their key, or the query leaves them out.
        rejected: rows quarantined.
        files: data files written, or deleted by a rollback or a clean.
        bytes: size of the data files.
        writer: tideline or hudi.
        archived: whether it is out of the active timeline.
        problems: what could not be read of it.
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
    """One epoch: what was decided and what came of it. Times are UTC.

    Attributes:
        epoch: its number.
        instant: the instant that was decided about, or that waits for a decision.
        state: committed, rolled back, or pending (decided or not, something is still to be done).
        outcome: what was decided; None while that is open.
        reason: why.
        by: the process that decided it, or that planned it.
        generation: of that process.
        requested: when it was planned.
        prepared: when everything was written, by the store's clock.
        decided: when it was decided.
        completed: when every target had it, by the store's clock; of a rolled back one when that was done.
        write_s: seconds from planned to prepared.
        commit_s: seconds from decided to completed.
        read: records read.
        rows: rows accepted.
        dropped: rows that targets left out: another one has their key, or the query leaves them out.
        rejected: rows quarantined.
        files: data files, of all targets.
        bytes: their size.
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
        """In a notebook: what was decided, by whom, why, and what came of it."""
        return epoch_html(self)


@dataclass(frozen=True)
class OffsetRow:
    """What one epoch read of one shard.

    Attributes:
        epoch: the epoch.
        instant: its instant.
        outcome: commit or rollback; None while that is open.
        shard: the shard.
        start: first offset.
        until: first offset after it, where the shard stands once it is committed.
        read: records read.
        accepted: records that became rows.
        rejected: records that were quarantined.
        lost: records that the source no longer had, in words.
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
        outcome: commit, rollback (it is deleted), or None while that is open.
        target: the target that it belongs to; None for another writer's.
        path: below the target's root.
        bytes: its size.
        rows: rows in it.
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
    """How many rows of one epoch and shard went to the quarantine for one reason.

    Attributes:
        epoch: the epoch.
        instant: its instant.
        outcome: commit or rollback; None while that is open.
        shard: the shard; None for rows that a target refused.
        target: the target that refused them; None for records that could not be decoded.
        reason: why, without the values of single rows.
        rows: how many.
    """

    epoch: int
    instant: str
    outcome: str | None
    shard: str | None
    target: str | None
    reason: str
    rows: int


def as_json(value: object) -> object:
    """What JSON has no word for: times as ISO 8601 (UTC). For `json.dumps(default=…)`."""
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    raise TypeError(f"{value!r} is not JSON")


def to_json(rows: Sequence[object]) -> str:
    """Rows of one view as a JSON array."""
    return json.dumps([vars(row) for row in rows], indent=2, default=as_json)


def epoch_html(row: EpochRow) -> Html:
    """One epoch: what was decided, by whom, why, and what came of it."""
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
