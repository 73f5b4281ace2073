"""A job in the protocol: a timeline, targets in order, and external dependencies."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ingest.protocol.gaps import MissingEpochs
from sinks.base import ParallelRunner, Sink, sequential
from timeline.clock import InstantClock
from timeline.epoch import Manifest, Part
from timeline.errors import HaltError
from timeline.hudi.layout import TableIdentity
from timeline.stores.base import ObjectStore, Retry


def new_token() -> str:
    """A token that no other process draws."""
    return uuid.uuid4().hex


class Rewrite(Protocol):
    """Writes an epoch's rows to one target again."""

    def __call__(self, job: JobContext, manifest: Manifest, part: Part) -> Part:
        """Write a part that the target has lost again, from the records of the epoch.

        Args:
            job: timeline and targets.
            manifest: manifest of the epoch, which is decided to be committed.
            part: the lost part.

        Returns:
            a part with the same rows, prepared.
        """


@dataclass(frozen=True)
class JobContext:
    """A job's timeline, targets and dependencies, for every step of the protocol.

    Attributes:
        name: the job's name.
        store: the timeline's base path.
        identity: properties fixed at the timeline's creation.
        sinks: targets in the order of application, the quarantine last.
        quarantine: name of the target that takes rejected rows.
        base_target: name of the lake target whose files lie at the timeline's base path, if any:
            Hudi's readers find its files by the timeline.
        by: this process, human-readable.
        clock: draws instant times.
        retry: bounds of every retry.
        token: draws tokens.
        parallel: runs concurrent work of a target's commit.
        partitions: folders known to be marked as partitions for Hudi.
        reading: keys of the job file that determine the values of records, and their settings.
        rewrite: writes a part again that a target has lost; None in a process that reads no source.
        gaps: epochs that targets have lost, by target; only `tideline replay` completes pending epochs in spite of
            them.
    """

    name: str
    store: ObjectStore
    identity: TableIdentity
    sinks: tuple[Sink, ...]
    quarantine: str
    base_target: str | None
    by: str
    clock: InstantClock = field(default_factory=InstantClock)
    retry: Retry = field(default_factory=Retry)
    token: Callable[[], str] = new_token
    parallel: ParallelRunner = sequential
    partitions: set[str] = field(default_factory=set, compare=False)
    reading: Mapping[str, str] = field(default_factory=dict)
    rewrite: Rewrite | None = None
    gaps: Mapping[str, MissingEpochs] = field(default_factory=dict)

    def sink(self, target: str) -> Sink:
        """The sink of a target that a manifest names.

        Raises:
            HaltError: the job file no longer has the target.
        """
        for sink in self.sinks:
            if sink.target == target:
                return sink
        raise HaltError(
            f"an epoch of job {self.name!r} is prepared for target {target!r}, which the job file does not have "
            f"(it has {', '.join(sink.target for sink in self.sinks)}): put it back, recover, then remove it"
        )

    def problems_of(self, target: str, part: Part) -> Sequence[str]:
        """Missing or damaged data of a part, human-readable; empty for a part that will not be committed.

        Args:
            target: the target's name today.
            part: a prepared part.

        Raises:
            HaltError: the job file no longer has the target.
            StoreUnavailableError: the target cannot be read.
        """
        gap = self.gaps.get(target)
        return () if gap is not None and part.epoch.epoch in gap.without_files else self.sink(target).verify(part)
