"""Comparison of a target with the timeline, for ``tideline fsck``: findings, and which of them may be deleted.

Only a decision allows deletion: of data of a rolled-back instant, and of data of a committed instant that its manifest
does not name. Data of an instant that is pending, or that the timeline does not know, is never touched.
"""

from __future__ import annotations

import enum
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from sinks.base import Sink
from timeline.epoch import Part


class InstantState(enum.Enum):
    """State of an instant according to the timeline."""

    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"
    PENDING = "pending"


class Problem(enum.Enum):
    """Kinds of problems. See docs/cli.md."""

    AHEAD = "ahead"
    """An epoch in a target that the timeline has not decided to commit, or files of that epoch."""

    ORPHAN = "orphan"
    """Data that a decision excludes: invisible to readers, it only costs storage."""

    MISSING = "missing"
    """Data that the target names to readers, and that does not exist."""

    WRONG_SIZE = "wrong size"
    """A file of another size than was written."""

    DAMAGED = "damaged"
    """A file of the right size, with other bytes than were written."""

    WRONG_ROWS = "wrong rows"
    """Row counts that do not add up."""

    UNDECIDED = "undecided"
    """Data that readers see without a decision."""

    NOT_APPLIED = "not applied"
    """A completed epoch that a target does not have."""

    UNKNOWN = "unknown"
    """Data of this job that belongs to no instant of the timeline; it is left alone."""

    BROKEN_CHAIN = "broken chain"
    """Decisions, instants or offsets that contradict each other."""

    UNREADABLE = "unreadable"
    """An object of the timeline that cannot be read."""

    PENDING = "pending"
    """Work that is left for recovery."""


@dataclass(frozen=True)
class Finding:
    """One problem found.

    Attributes:
        problem: its kind.
        where: the target's name, or "timeline".
        what: path, key or instant.
        detail: human-readable description.
        bytes: storage that it occupies, if that is its cost.
        is_fixable: whether a decision allows its deletion.
    """

    problem: Problem
    where: str
    what: str
    detail: str
    bytes: int = 0
    is_fixable: bool = False


@dataclass(frozen=True)
class Expected:
    """Content that a target should have, according to the timeline.

    Attributes:
        parts: its parts of completed epochs, oldest first.
        fates: state of every instant that the timeline knows, by time.
        is_deep: whether the data itself is checked too.
        settled: instants whose rows the target need not have: a later epoch has them, or they were given up.
    """

    parts: Sequence[Part]
    fates: Mapping[str, InstantState]
    is_deep: bool = False
    settled: Container[str] = ()


@dataclass(frozen=True)
class Audit:
    """Result of comparing a target with the timeline.

    Attributes:
        checked: amount compared, human-readable, for example "12 files".
        findings: problems found.
    """

    checked: str
    findings: Sequence[Finding]


class TargetAuditor(Protocol):
    """Compares one target with the timeline."""

    def audit(self, expected: Expected) -> Audit:
        """Compare the target with the timeline; reads only.

        Raises:
            StoreUnavailableError: the target cannot be read.
        """

    def delete(self, findings: Sequence[Finding]) -> None:
        """Delete the data of fixable findings of this target. The caller is the timeline's writer."""


@runtime_checkable
class AuditedSink(Protocol):
    """A sink whose target can be compared with the timeline."""

    def auditor(self) -> TargetAuditor:
        """The target's auditor; touches no storage."""


def auditor_of(sink: Sink) -> TargetAuditor | None:
    """The auditor of a sink's target; None if the sink has none."""
    return sink.auditor() if isinstance(sink, AuditedSink) else None


def fixable(findings: Sequence[Finding]) -> Iterator[Finding]:
    """Findings whose data may be deleted."""
    return (finding for finding in findings if finding.is_fixable)
