"""`tideline fsck`: compares timeline, targets and quarantine with each other.

::

    timeline ─► what should be there ─► each target: what is there ─► findings ─► fix: delete what was decided against

A running job changes timeline and targets meanwhile; the comparison is repeated until the timeline did not
change, a few times at most.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from ingest.driver.build import TimelineHandle, build_job, lost_timeline
from ingest.driver.losses import find_losses, newest_completed, targets_ahead
from ingest.protocol.committed import CommittedEpoch, as_named_today, settled_for
from ingest.protocol.counts import TargetRows, count_mismatches
from ingest.protocol.job import JobContext
from ingest.protocol.missing_files import without_files
from ingest.protocol.names import part_of, quarantine_of
from ingest.sources.replays import is_replay
from sinks.audit import Audit, Expected, Finding, InstantState, Problem, auditor_of, fixable
from sinks.base import Sink
from sinks.held import in_spans, span_text
from timeline.active import ActiveTimeline, states_before
from timeline.chain import load_chain
from timeline.decision import Outcome, decision_path
from timeline.epoch import Manifest
from timeline.errors import ConfigError, InvariantError, TargetRefusedError
from timeline.history.entry import Entry
from timeline.history.epochs import History
from timeline.history.timeline import Timeline
from timeline.instant import TIMELINE_FOLDER, Action
from timeline.lease import LeaseObserver, LeaseState, WriterRecord
from timeline.units import count
from timeline.wholeness import MissingObject, missing

TIMELINE = "timeline"
"""The `where` of findings that belong to no target."""

_MOST_COMPARISONS = 3


@dataclass(frozen=True)
class FsckResult:
    """Scope and findings of a comparison.

    Attributes:
        epochs: number of completed epochs compared.
        rows: accepted rows of these epochs.
        checked: for each target, a text on what was compared.
        findings: differences found.
        is_moving: whether the timeline changed during every comparison: some findings may be transient.
        fixed: findings that were repaired.
    """

    epochs: int
    rows: int
    checked: dict[str, str]
    findings: Sequence[Finding]
    is_moving: bool = False
    fixed: Sequence[Finding] = ()

    @property
    def is_clean(self) -> bool:
        """Whether no finding is left; pending instants do not count, recovery settles them."""
        return all(finding.problem is Problem.PENDING for finding in self.findings)


def check(opened: TimelineHandle, *, is_deep: bool = False) -> FsckResult:
    """Compare timeline, targets and quarantine; reads only.

    Args:
        opened: the job's timeline.
        is_deep: whether every data file is decoded and checked by its checksums and statistics.

    Raises:
        StoreUnavailableError: an object could not be read or listed.
    """
    if opened.identity is None:
        gone = [*_of_gone(missing(opened.store, ActiveTimeline.load(opened.store, opened.retry), opened.retry))]
        lost = lost_timeline(opened) if not gone else None
        gone += [Finding(Problem.BROKEN_CHAIN, TIMELINE, opened.store.url, lost)] if lost is not None else []
        return FsckResult(0, 0, {}, tuple(gone))
    job = build_job(opened)
    for _ in range(_MOST_COMPARISONS):
        before = ActiveTimeline.load(job.store, job.retry)
        found = _compare(job, before, is_deep=is_deep)
        if ActiveTimeline.load(job.store, job.retry) == before:
            return found
    return FsckResult(found.epochs, found.rows, found.checked, found.findings, is_moving=True)


def fix(
    opened: TimelineHandle, *, force: bool = False, on_wait: Callable[[WriterRecord], None] | None = None
) -> FsckResult:
    """Delete data that was decided against, as the timeline's writer; everything else stays as it is.

    Args:
        opened: the job's timeline.
        force: do not wait for a writer that may be alive.
        on_wait: called before a silent writer's lease is watched.

    Raises:
        ConfigError: instants are pending; run recovery first.
        WriterBusyError: another process writes this timeline.
        StoreUnavailableError: an object could not be read or deleted; every deletion so far was allowed.
    """
    if opened.identity is None:
        return check(opened)
    observer = LeaseObserver(opened.store, opened.retry)
    may_live = observer.look() is LeaseState.LIVE
    if on_wait is not None and may_live and observer.writer is not None and not force:
        on_wait(observer.writer)
    lease = opened.take_lease(observer, force=force)
    lease.start_heartbeats()
    try:
        job = build_job(opened)
        if len(ActiveTimeline.load(job.store, job.retry).pending()):
            raise ConfigError(f"{opened.store.url}: instants are pending; settle them first: tideline recover")
        found = check(opened)
        wanted = list(fixable(found.findings))
        for sink in job.sinks:
            own = [finding for finding in wanted if finding.where == sink.target]
            auditor = auditor_of(sink)
            if own and auditor is not None:
                lease.check()
                auditor.delete(own)
        after = check(opened)
    finally:
        lease.release()
    left = set(after.findings)
    fixed = [finding for finding in wanted if finding not in left]
    return FsckResult(after.epochs, after.rows, after.checked, after.findings, after.is_moving, fixed)


def _compare(job: JobContext, timeline: ActiveTimeline, *, is_deep: bool) -> FsckResult:
    history = Timeline(timeline).history()
    committed = [entry for entry in history.entries if entry.manifest is not None and not entry.instant.is_pending]
    lacking = missing(job.store, timeline, job.retry)
    findings = [*_of_timeline(job, timeline, history, lacking), *_of_pending(job, history), *_of_rows(committed)]
    written = [(entry.plan, entry.manifest) for entry in committed if entry.manifest is not None]
    past = as_named_today(job, sorted(written, key=lambda read: read[1].ref.epoch))
    fates = dict(_fates(history))
    checked: dict[str, str] = {}
    audits: list[Finding] = []
    readable: list[Sink] = []
    for sink in job.sinks:
        parts = [part for read in past if (part := part_of(read.manifest, sink.target)) is not None]
        try:
            audit = _audit(sink, Expected(parts, fates, is_deep, _settled(past, sink.target)))
            readable.append(sink)
        except TargetRefusedError as error:
            audit = Audit("nothing: it cannot be opened", [Finding(Problem.UNREADABLE, sink.target, "log", str(error))])
        checked[sink.target] = audit.checked
        audits += audit.findings
    can_be_asked = replace(job, sinks=tuple(readable))
    told: set[tuple[str, str]] = set()
    more = dict(targets_ahead(can_be_asked))
    findings += (Finding(Problem.AHEAD, TIMELINE, "decisions", words) for words in more.values())
    if not more:
        findings += _of_losses(can_be_asked, lacking, past, told)
    findings += (
        _of_lost_epochs(each) if each.where in more else each
        for each in audits
        if each.problem is not Problem.NOT_APPLIED or (each.where, each.what) not in told
    )
    # A replay holds rows of earlier epochs.
    first = (entry for entry in committed if entry.plan is None or not is_replay(entry.plan))
    rows = sum(entry.manifest.rows for entry in first if entry.manifest)
    return FsckResult(len(committed), rows, checked, findings)


def _audit(sink: Sink, expected: Expected) -> Audit:
    auditor = auditor_of(sink)
    return Audit("nothing: it has no way to be compared", ()) if auditor is None else auditor.audit(expected)


def _settled(past: Sequence[CommittedEpoch], target: str) -> frozenset[str]:
    """Instants whose rows a replay has put back in a target, or that were given up for the target."""
    found = settled_for(target, past)
    refs = (read.manifest.ref for read in past)
    return frozenset(ref.instant for ref in refs if in_spans(ref.epoch, found))


def _fates(history: History) -> Iterator[tuple[str, InstantState]]:
    """State of each commit instant; a rolled back instant is known by its rollback alone."""
    for entry in history.entries:
        instant = entry.instant
        if instant.action is Action.ROLLBACK:
            for time in entry.undone:
                yield time, InstantState.PENDING if instant.is_pending else InstantState.ROLLED_BACK
        elif instant.action is Action.COMMIT:
            yield instant.time, InstantState.PENDING if instant.is_pending else InstantState.COMMITTED


def _of_timeline(
    job: JobContext, timeline: ActiveTimeline, history: History, lacking: Sequence[MissingObject]
) -> Iterator[Finding]:
    """Compare instants, decisions and offsets with each other."""
    known = frozenset(gone.path for gone in lacking)
    yield from _of_gone(lacking)
    for name in timeline.unreadable:
        yield Finding(Problem.UNREADABLE, TIMELINE, name, "no instant that this version knows")
    for entry in history.entries:
        time = entry.instant.time
        for problem in entry.problems:
            yield Finding(Problem.UNREADABLE, TIMELINE, time, problem)
        if entry.instant.is_pending:
            state = f"{entry.instant.action.value} {entry.instant.state.value}"
            yield Finding(Problem.PENDING, TIMELINE, time, f"{state}: tideline recover settles it")
        elif entry.instant.action is Action.COMMIT and entry.is_tideline:
            yield from _of_completed(entry, known)
    try:
        load_chain(job.store, timeline, job.retry)
    except InvariantError as error:
        if not any(path in str(error) for path in known):
            yield Finding(Problem.BROKEN_CHAIN, TIMELINE, "decisions", str(error))
    yield from _of_offsets(history)


def _of_pending(job: JobContext, history: History) -> Iterator[Finding]:
    """Missing data files of decided, pending epochs, which recovery refuses to commit without them."""
    targets = {sink.target for sink in job.sinks}
    for entry in history.entries:
        if not entry.instant.is_pending or entry.manifest is None or entry.outcome is not Outcome.COMMIT:
            continue
        parts = tuple(part for part in entry.manifest.parts if part.target in targets)
        for target, problems in without_files(job, replace(entry.manifest, parts=parts)).items():
            for problem in problems:
                detail = f"{problem}: it is decided to commit; restore the file, or tideline replay"
                yield Finding(Problem.MISSING, target, f"epoch {entry.epoch}", detail)


def _of_losses(
    job: JobContext, lacking: Sequence[MissingObject], past: Sequence[CommittedEpoch], told: set[tuple[str, str]]
) -> Iterator[Finding]:
    """Epochs that targets have lost, also where their markers still name them.

    Args:
        job: the job.
        lacking: missing objects of the timeline; other findings report them.
        past: every completed epoch.
        told: gets a pair of target and instant, or target and file, for everything that these findings report.
    """
    try:
        losses = find_losses(job, newest_completed(job), past)
    except InvariantError as error:
        if not any(gone.path in str(error) for gone in lacking):
            yield Finding(Problem.BROKEN_CHAIN, TIMELINE, "decisions", str(error))
        return
    for loss in losses:
        for each in loss.epochs:
            told.add((loss.target, each.part.epoch.instant))
            told.update((loss.target, file.path) for file in each.part.files)
        what = span_text(loss.numbers) if loss.epochs else "epochs"
        yield Finding(Problem.NOT_APPLIED, loss.target, what, str(loss))


def _of_lost_epochs(finding: Finding) -> Finding:
    """A finding in a target that is ahead: visible undecided data may be of committed epochs that the timeline lost."""
    return replace(finding, problem=Problem.AHEAD) if finding.problem is Problem.UNDECIDED else finding


def _of_gone(lacking: Iterable[MissingObject]) -> Iterator[Finding]:
    for gone in lacking:
        yield Finding(Problem.BROKEN_CHAIN, TIMELINE, gone.path, gone.words)


def _of_completed(entry: Entry, known: Container[str]) -> Iterator[Finding]:
    """Findings of a completed commit: a missing object, or a decision for another instant.

    Args:
        entry: the commit.
        known: paths of missing objects that other findings report.
    """
    time, decision = entry.instant.time, entry.decision
    plan, manifest = (f"{TIMELINE_FOLDER}/{name}" for name in states_before(entry.instant))
    if decision is None:
        if decision_path(entry.epoch or 0) not in known:
            yield Finding(Problem.BROKEN_CHAIN, TIMELINE, time, f"completed, but epoch {entry.epoch} has no decision")
    elif not decision.commits(time):
        detail = f"completed, but epoch {entry.epoch} is decided: {decision.outcome.value} of {decision.instant}"
        yield Finding(Problem.BROKEN_CHAIN, TIMELINE, time, detail)
    elif entry.manifest is None and manifest not in known:
        yield Finding(Problem.BROKEN_CHAIN, TIMELINE, time, "completed, but its manifest is gone")
    if entry.plan is None and plan not in known:
        yield Finding(Problem.BROKEN_CHAIN, TIMELINE, time, "completed, but its plan is gone")


def _of_offsets(history: History) -> Iterator[Finding]:
    """Gaps and overlaps between each shard's committed ranges."""
    stands: dict[str, tuple[int, int]] = {}
    committed = [entry for entry in history.entries if entry.outcome is Outcome.COMMIT and entry.plan is not None]
    for entry in sorted(committed, key=lambda entry: entry.epoch or 0):
        assert entry.plan is not None
        epoch = entry.plan.ref.epoch
        for offsets in entry.plan.ranges:
            until, before = stands.get(offsets.shard, (offsets.start, epoch))
            if offsets.start != until:
                what = "again" if offsets.start < until else "behind a gap"
                detail = f"epoch {epoch} reads {offsets} {what}: epoch {before} ends at {until}"
                yield Finding(Problem.BROKEN_CHAIN, TIMELINE, entry.instant.time, detail)
            stands[offsets.shard] = (offsets.until, epoch)


def _of_rows(committed: Sequence[Entry]) -> Iterator[Finding]:
    """Row counts that do not add up in a manifest, or differ between manifest, decision and completed instant."""
    for entry in committed:
        assert entry.manifest is not None
        for detail in _sums(entry.manifest):
            yield Finding(Problem.WRONG_ROWS, TIMELINE, entry.instant.time, detail)
        told = [("decision", entry.decision.rows)] if entry.decision is not None else []
        if "tideline.rows" in entry.extra:
            told.append(("completed instant", int(entry.extra["tideline.rows"])))
        for who, rows in told:
            if rows != entry.manifest.rows:
                detail = f"the {who} says {count(rows, 'row')}, the manifest {entry.manifest.rows:,}"
                yield Finding(Problem.WRONG_ROWS, TIMELINE, entry.instant.time, detail)


def _sums(manifest: Manifest) -> Iterator[str]:
    taken = {part.target: TargetRows.of(part) for part in manifest.parts}
    yield from count_mismatches(manifest.counts, taken, quarantine_of(manifest))
    for part in manifest.parts:
        in_files = sum(file.rows for file in part.files)
        if part.files and in_files != part.rows:
            yield f"{part.target}: {count(in_files, 'row')} in its files, {part.rows:,} in all"
