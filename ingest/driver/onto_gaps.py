"""Pending epochs that are completed though targets have lost others, or data files of these very ones.

::

    pending, decided ─┬─ data files are there ─► committed; its log entry names the epochs that are missing before it
                      └─ are gone ─────────────► completed without the target, which lacks it then as one that lost it

Only `tideline replay` does so, which puts back at once what is missing: a start refuses such epochs. Killed in
between, what is missing is still known: by the log entry, or by the target's marker, which stands before the epoch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from ingest.driver.losses import TargetLoss
from ingest.protocol.committed import CommittedRows
from ingest.protocol.evidence import gather
from ingest.protocol.gaps import MissingEpochs
from ingest.protocol.gone_files import gone_words
from ingest.protocol.job import JobContext
from ingest.protocol.recovery import pending_commits
from sinks.held import contents_of, spans
from timeline.active import ActiveTimeline
from timeline.epoch import Manifest
from timeline.lease import LeaseState


def with_pending(job: JobContext, losses: Sequence[TargetLoss]) -> list[TargetLoss]:
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
            contents = contents_of(job.sink(target))
            if contents is None:
                continue
            how = f"has lost data files of an epoch that is decided ({gone_words({target: problems})})"
            loss = found.get(target) or TargetLoss(target, how, (), contents.held())
            (part,) = (part for part in evidence.manifest.parts if part.target == target)
            lost = CommittedRows(evidence.plan, evidence.manifest, part)
            found[target] = replace(loss, epochs=(*loss.epochs, lost), pending=(*loss.pending, part.epoch.epoch))
    return [*(loss for loss in losses if loss.is_left_out), *found.values()]


def onto_gaps(job: JobContext, losses: Sequence[TargetLoss]) -> JobContext:
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
    gaps = {target: MissingEpochs(spans(epochs), tuple(without_files[target])) for target, epochs in missing.items()}
    return replace(job, gaps=gaps)
