"""Committed epochs of the timeline, and the share of each target.

::

    decision ─► plan, manifest ─┬─ has a part of the target: what it was given
                                └─ has none: the target was left out, if there was something to give
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from ingest.protocol.job import JobContext
from ingest.protocol.names import has_files_of, named_today, part_of, quarantine_of
from ingest.protocol.steps import manifest_of, read_manifest, read_plan
from ingest.sources.replays import REPLAY_SHARD, Spans, given_up_by, replayed_by, settled_by
from sinks.held import Held, Span, base_of, in_spans
from timeline.concurrency import map_concurrently
from timeline.decision import Outcome, decision_path, read_decision
from timeline.epoch import Manifest, Part, Plan
from timeline.errors import InvariantError


@dataclass(frozen=True)
class CommittedRows:
    """A committed epoch with rows for a target.

    Attributes:
        plan: its plan; None if the plan was deleted.
        manifest: its manifest.
        part: the target's share; if the target was left out, the share that it would have had, as far as others' shares
            tell.
        is_left_out: whether the target was left out of the epoch.
    """

    plan: Plan | None
    manifest: Manifest
    part: Part
    is_left_out: bool = False


@dataclass(frozen=True)
class CommittedEpoch:
    """A committed epoch, read from the timeline.

    Attributes:
        plan: its plan; None if the plan was deleted.
        manifest: its manifest, under the current names of its targets.
        then: by a target's current name, the name that it had in this epoch.
    """

    plan: Plan | None
    manifest: Manifest
    then: Mapping[str, str]


def committed_in(job: JobContext, target: str, among: Sequence[Span], newest: int) -> Iterator[CommittedRows]:
    """Committed epochs with rows for a target in some ranges, except those replayed or given up since; oldest first.

    Args:
        job: the job.
        target: the target's name.
        among: ranges of epochs.
        newest: the newest committed epoch.

    Raises:
        InvariantError: a decision or manifest of these epochs is missing: their rows are unknown.
    """
    if not among:
        return
    found = read_committed(job, min(first for first, _ in among), newest)
    settled = settled_for(target, found)
    for each in found:
        epoch = each.manifest.ref.epoch
        part = part_of(each.manifest, target)
        if part is not None and part.rows and in_spans(epoch, among) and not in_spans(epoch, settled):
            yield CommittedRows(each.plan, each.manifest, part)


def left_out(
    job: JobContext, target: str, found: Sequence[CommittedEpoch], among: Sequence[Span], held: Held
) -> Iterator[CommittedRows]:
    """Committed epochs that a target was left out of: others have rows of them, and it has no part.

    Epochs that only replay rows for others, and epochs replayed or given up for this target since, are left out.

    Args:
        job: the job.
        target: the target's name.
        found: committed epochs, including all later ones.
        among: ranges of epochs.
        held: the target's current state. Its epochs up to the newest one that its marker names may have an earlier name
            of the target, or be of the table that it was copied from.
    """
    applied = -1 if held.newest is None else held.newest
    settled = settled_for(target, found)
    names = {sink.target for sink in job.sinks}
    for each in found:
        manifest = each.manifest
        epoch = manifest.ref.epoch
        if part_of(manifest, target) is not None or not in_spans(epoch, among) or in_spans(epoch, settled):
            continue
        may_be_renamed = any(part.target not in names for part in manifest.parts)
        if epoch <= applied and (may_be_renamed or _is_copied(job, target, held, manifest)):
            continue
        share = _share(job, target, manifest)
        if share.rows:
            yield CommittedRows(each.plan, manifest, share, is_left_out=True)


def _is_copied(job: JobContext, target: str, held: Held, manifest: Manifest) -> bool:
    """Whether a target's table is a copy of one that an epoch was committed to: both have one id, or its files."""
    for part in manifest.parts:
        base = base_of(part)
        if base is None or base.table is None:
            if has_files_of(job, target, part):
                return True
        elif base.table == held.table:
            return True
    return False


def rows_for(job: JobContext, target: str, epoch: CommittedEpoch) -> CommittedRows:
    """A target's rows of a committed epoch, or those that it would have had if it had not been left out.

    Args:
        job: the job.
        target: the target's current name.
        epoch: the committed epoch.
    """
    part = part_of(epoch.manifest, target)
    share = _share(job, target, epoch.manifest) if part is None else part
    return CommittedRows(epoch.plan, epoch.manifest, share, is_left_out=part is None)


def carried_by(lost: CommittedRows, target: str, past: Sequence[CommittedEpoch]) -> list[Span]:
    """Epochs whose rows a replay holds for a target; none for an ordinary epoch.

    Args:
        lost: the replay.
        target: the target's current name.
        past: committed epochs, the replay among them.
    """
    among = [each for each in past if each.manifest.ref == lost.manifest.ref]
    return _spans_of(replayed_by, target, among)


def _share(job: JobContext, target: str, manifest: Manifest) -> Part:
    """The part that a target would have had if it had not been left out."""
    if any(count.shard == REPLAY_SHARD for count in manifest.counts):
        return Part(target, manifest.ref, 0, 0)  # rows that other targets had lost
    if target == job.quarantine:
        return Part(target, manifest.ref, manifest.rejected, 0)
    if not manifest.rows:
        return Part(target, manifest.ref, 0, 0)
    others = [part for part in manifest.parts if part.target not in (job.quarantine, quarantine_of(manifest))]
    like = next((part for part in others if part.files), None)
    if like is not None:  # every table takes the same rows
        return Part(target, manifest.ref, like.rows, 0, dropped=like.dropped, rejected=like.rejected)
    is_given = any(part.rows for part in others)
    return Part(target, manifest.ref, manifest.rows if is_given else 0, 0)


def settled_for(target: str, found: Sequence[CommittedEpoch]) -> list[Span]:
    """Epochs that one of these has replayed for a target, or given up for it."""
    return _spans_of(settled_by, target, found)


def given_up(job: JobContext, found: Sequence[CommittedEpoch]) -> dict[str, list[CommittedRows]]:
    """Committed epochs whose rows a person has given up, by target, oldest first; targets without any are omitted.

    Args:
        job: the job.
        found: committed epochs, including all later ones.
    """
    by_target: dict[str, list[CommittedRows]] = {}
    for sink in job.sinks:
        among = _spans_of(given_up_by, sink.target, found)
        for each in found:
            rows = rows_for(job, sink.target, each)
            if rows.part.rows and in_spans(each.manifest.ref.epoch, among):
                by_target.setdefault(sink.target, []).append(rows)
    return by_target


def _spans_of(told_by: Callable[[Plan, str], Spans], target: str, found: Sequence[CommittedEpoch]) -> list[Span]:
    """Epochs that plans record for a target, each under the name that the target had then."""
    plans = ((each.plan, each.then.get(target)) for each in found)
    return [span for plan, then in plans if plan is not None and then is not None for span in told_by(plan, then)]


def read_committed(job: JobContext, first: int, last: int, *, is_strict: bool = True) -> list[CommittedEpoch]:
    """The committed epochs of a range, oldest first.

    Args:
        job: the job.
        first: the first epoch.
        last: the last epoch.
        is_strict: whether a missing decision or manifest is an error; otherwise its epoch is left out.

    Raises:
        InvariantError: a decision or manifest is missing.
    """
    read = partial(_read, job, is_strict)
    found = map_concurrently(read, range(first, last + 1), job.store.traits.requests_at_once)
    return as_named_today(job, [each for each in found if each is not None])


def as_named_today(job: JobContext, found: Sequence[tuple[Plan | None, Manifest]]) -> list[CommittedEpoch]:
    """Committed epochs, oldest first, under the current names of their targets; see `ingest.protocol.names`."""
    named = named_today(job, [manifest for _, manifest in found])
    return [CommittedEpoch(plan, each.manifest, each.then) for (plan, _), each in zip(found, named, strict=True)]


def _read(job: JobContext, is_strict: bool, epoch: int) -> tuple[Plan | None, Manifest] | None:
    decision = read_decision(job.store, epoch, job.retry)
    if decision is None and is_strict:
        # Skipping it would lose its rows for good: a replay of later epochs counts as a replay of all lost ones.
        raise InvariantError(
            f"epoch {epoch} is decided, and its decision {decision_path(epoch)} is gone: restore it, then replay"
        )
    if decision is None or decision.outcome is not Outcome.COMMIT:
        return None
    manifest = manifest_of(job, decision) if is_strict else read_manifest(job, decision.instant)
    return None if manifest is None else (read_plan(job, decision.instant), manifest)
