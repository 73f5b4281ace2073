"""Completes pending epochs although targets have lost other epochs, or data files of the pending ones.

::

    pending, decided ─┬─ data files are there ─► committed; its log entry names the epochs that are missing before it
                      └─ are gone ─────────────► completed without the target, which lacks it then as one that lost it

For `tideline replay` only, which puts the missing epochs back at once: a start refuses such epochs. After a kill in
between, the missing epochs are still known: by the log entry, or by the target's marker, which is before the epoch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from ingest.driver.losses import TargetLoss
from ingest.protocol.committed import CommittedRows
from ingest.protocol.evidence import gather
from ingest.protocol.gaps import MissingEpochs
from ingest.protocol.job import JobContext
from ingest.protocol.missing_files import missing_files_text
from ingest.protocol.recovery import pending_commits
from sinks.held import contents_of, spans
from timeline.active import ActiveTimeline
from timeline.epoch import Manifest
from timeline.lease import LeaseState


def with_pending(job: JobContext, losses: Sequence[TargetLoss]) -> list[TargetLoss]:
    """Losses, together with the decided pending epochs whose data files are missing.

    Targets that cannot list their epochs are left out: a missing epoch would not be found there later.

    Args:
        job: the job.
        losses: losses among completed epochs.

    Raises:
        StoreUnavailableError: a target or the timeline cannot be read.
    """
    found = {loss.target: loss for loss in losses if not loss.is_left_out}
    for instant in pending_commits(job, ActiveTimeline.recent(job.store, job.retry)):
        evidence = gather(job, instant, LeaseState.MINE)
        for target, problems in evidence.gone.items():
            assert isinstance(evidence.manifest, Manifest)
            contents = contents_of(job.sink(target))
            if contents is None:
                continue
            how = f"has lost data files of an epoch that is decided ({missing_files_text({target: problems})})"
            loss = found.get(target) or TargetLoss(target, how, (), contents.held())
            (part,) = (part for part in evidence.manifest.parts if part.target == target)
            lost = CommittedRows(evidence.plan, evidence.manifest, part)
            found[target] = replace(loss, epochs=(*loss.epochs, lost), pending=(*loss.pending, part.epoch.epoch))
    return [*(loss for loss in losses if loss.is_left_out), *found.values()]


def with_gaps(job: JobContext, losses: Sequence[TargetLoss]) -> JobContext:
    """The job, set to complete pending epochs although its targets lack the epochs about to be put back.

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
