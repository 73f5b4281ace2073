"""Pending epochs that are completed though targets have lost others, or data files of these very ones.

::

    pending, decided ─┬─ data files are there ─► committed; its log entry names the epochs that are missing before it
                      └─ are gone ─────────────► completed without the target, which lacks it then as one that lost it

Only `tideline replay` does so, which puts back at once what is missing: a start refuses such epochs. Killed in
between, what is missing is still known: by the log entry, or by the target's marker, which stands before the epoch.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ingest.driver.losses import Loss, holding
from ingest.protocol.committed import Committed
from ingest.protocol.evidence import gather
from ingest.protocol.gone_files import gone_words
from ingest.protocol.job import Job
from ingest.protocol.recovery import pending_commits
from ingest.protocol.watched_sink import WatchedSink
from sinks.base import Spread, in_turn
from sinks.held import Span, spans, with_base
from timeline.active import ActiveTimeline
from timeline.epoch import Manifest, Part
from timeline.lease import LeaseState

log = logging.getLogger(__name__)


def with_pending(job: Job, losses: Sequence[Loss]) -> list[Loss]:
    """Losses, with the pending epochs that are decided and whose data files are gone.

    Targets that cannot tell which epochs they have are left out: they would not tell later that they lack one.

    Args:
        job: the job.
        losses: what the targets lack of all that is completed.

    Raises:
        StoreUnavailableError: a target or the timeline cannot be looked at.
    """
    found = {loss.target: loss for loss in losses if not loss.is_left_out}
    for instant in pending_commits(job, ActiveTimeline.recent(job.store, job.retry)):
        evidence = gather(job, instant, LeaseState.MINE)
        for target, problems in evidence.gone.items():
            assert isinstance(evidence.manifest, Manifest)
            holder = holding(job.sink(target))
            if holder is None:
                continue
            how = f"has lost data files of an epoch that is decided ({gone_words({target: problems})})"
            loss = found.get(target) or Loss(target, how, (), holder.held())
            (part,) = (part for part in evidence.manifest.parts if part.target == target)
            lost = Committed(evidence.plan, evidence.manifest, part)
            found[target] = replace(loss, epochs=(*loss.epochs, lost), pending=(*loss.pending, part.epoch.epoch))
    return [*(loss for loss in losses if loss.is_left_out), *found.values()]


def onto_gaps(job: Job, losses: Sequence[Loss]) -> Job:
    """The job, whose pending epochs are completed though its targets lack what is about to be put back.

    Args:
        job: the job.
        losses: see `with_pending`.
    """
    missing: dict[str, list[int]] = defaultdict(list)
    without_files: dict[str, list[int]] = defaultdict(list)
    for loss in losses:
        missing[loss.target] += (each.part.epoch.epoch for each in loss.epochs)
        without_files[loss.target] += loss.pending
    sinks = (
        _OntoGap(sink, lambda event: None, spans(missing[sink.target]), tuple(without_files[sink.target]))
        if sink.target in missing
        else sink
        for sink in job.sinks
    )
    return replace(job, sinks=tuple(sinks))


@dataclass(frozen=True)
class _OntoGap(WatchedSink):
    """A target that has lost epochs: what is committed to it says which, so that they are still known to be missing.

    Attributes:
        missing: those.
        without_files: those of them that are pending, and are not committed.
    """

    missing: tuple[Span, ...] = field(default=())
    without_files: tuple[int, ...] = field(default=())

    def verify(self, part: Part) -> Sequence[str]:
        """See Sink: nothing is asked of a part that is not committed."""
        return () if part.epoch.epoch in self.without_files else self.sink.verify(part)

    def commit(self, part: Part, spread: Spread = in_turn) -> None:
        """See Sink."""
        if part.epoch.epoch in self.without_files:
            log.warning("%s: %s is not committed here: its data files are gone", self.target, part.epoch)
            return
        holder = holding(self.sink)
        if part.rows and holder is not None:
            base = replace(holder.held().base, missing=before(part.epoch.epoch, self.missing))
            part = replace(part, detail=with_base(part.detail, base))
        self.sink.commit(part, spread)


def before(epoch: int, among: Sequence[Span]) -> tuple[Span, ...]:
    """What of some ranges lies before an epoch."""
    return tuple((first, min(last, epoch - 1)) for first, last in among if first < epoch)
