"""Missing data files of a decided epoch that a target lacks: no process commits the epoch without them.

A writer that has just written an epoch does not check its files. A process that finds an epoch decided does, because a
log entry of missing files makes a table that readers cannot open.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ingest.protocol.job import JobContext
from sinks.base import Lookup, Sink
from sinks.held import REPLAY, base_of, contents_of, lost_since
from timeline.epoch import EpochRef, Manifest, Part
from timeline.errors import TargetRefusedError


def without_files(job: JobContext, manifest: Manifest) -> dict[str, Sequence[str]]:
    """Targets to which an epoch can no longer be committed, because data files of their parts are missing.

    A target that has the epoch is left out, even if its files were deleted since: others compact tables.

    Args:
        job: the job.
        manifest: manifest of a decided epoch.

    Returns:
        by target, problems of the files, human-readable.

    Raises:
        HaltError: the job file no longer has one of the targets.
        StoreUnavailableError: a target cannot be read.
    """
    found: dict[str, Sequence[str]] = {}
    for part in manifest.parts:
        sink = job.sink(part.target)
        if part.files and sink.lookup(part.epoch) is Lookup.NOT_COMMITTED:
            problems = job.problems_of(part.target, part)
            if problems:
                found[part.target] = [f"{_changed(sink, part)}{problems[0]}", *problems[1:]]
    return found


def _changed(sink: Sink, part: Part) -> str:
    """The loss of a target since an epoch was prepared for it, as a prefix of a message; "" if there is none."""
    contents, base = contents_of(sink), base_of(part)
    gone = lost_since(base, contents.held(base)) if contents is not None and base is not None else None
    return f"it {gone.how}; " if gone is not None else ""


def missing_files_error(epoch: EpochRef, gone: Mapping[str, Sequence[str]]) -> TargetRefusedError:
    """The error for a decided epoch that cannot be committed; see `without_files`."""
    return TargetRefusedError(
        f"{epoch} is decided: commit, and data files of it are gone: {missing_files_text(gone)}. Restore them from the "
        f"store's versions or a backup, and run again. {REPLAY}"
    )


def missing_files_text(gone: Mapping[str, Sequence[str]]) -> str:
    """Missing data files, human-readable: of each target the first."""
    more = {target: f", and {len(each) - 1:,} more" if len(each) > 1 else "" for target, each in gone.items()}
    return "; ".join(f"{target}: {each[0]}{more[target]}" for target, each in gone.items())
