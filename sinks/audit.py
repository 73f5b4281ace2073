"""A target compared with what the timeline says of it, for ``tideline fsck``: what is found, and what may be deleted.

A decision is what allows to delete: data of an instant that was decided against, and data of a committed
instant that its manifest does not name. Of an instant that is pending, or that the timeline does not
know, nothing is ever touched.
"""

from __future__ import annotations

import enum
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from sinks.base import Sink
from timeline.epoch import Part


class InstantState(enum.Enum):
    """What the timeline says became of an instant."""

    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"
    PENDING = "pending"


class Problem(enum.Enum):
    """What can be wrong. See docs/cli.md."""

    AHEAD = "ahead"
    """An epoch that a target has, and that the timeline has not decided to commit; files of such epochs."""

    ORPHAN = "orphan"
    """Data that a decision was made against: invisible, it only costs storage."""

    MISSING = "missing"
    """Data that readers are told to read, and that is not there."""

    WRONG_SIZE = "wrong size"
    """A file with other bytes than were written."""

    DAMAGED = "damaged"
    """A file whose bytes are not those that were written, though they are as many."""

    WRONG_ROWS = "wrong rows"
    """Numbers of rows that do not add up."""

    UNDECIDED = "undecided"
    """Data that readers see though nothing was decided for it."""

    NOT_APPLIED = "not applied"
    """A completed epoch that a target does not have."""

    UNKNOWN = "unknown"
    """Data of this job of which the timeline does not know what it is of; it is left alone."""

    BROKEN_CHAIN = "broken chain"
    """Decisions, instants or offsets that contradict each other."""

    UNREADABLE = "unreadable"
    """An object of the timeline that cannot be read."""

    PENDING = "pending"
    """Something is to be done that recovery does."""


@dataclass(frozen=True)
class Finding:
    """One thing that is not as it should be.

    Attributes:
        problem: of what kind.
        where: the target's name, or "timeline".
        what: path, key or instant.
        detail: what is wrong, for people.
        bytes: how much storage it takes, where that is what it costs.
        is_fixable: whether a decision allows to delete it.
    """

    problem: Problem
    where: str
    what: str
    detail: str
    bytes: int = 0
    is_fixable: bool = False


@dataclass(frozen=True)
class Expected:
    """What a target should have, as the timeline says it.

    Attributes:
        parts: its parts of completed epochs, oldest first.
        fates: of every instant that the timeline knows.
        is_deep: whether the data itself is to be looked into.
        settled: instants whose rows the target need not have: a later epoch has them, or they were given up.
    """

    parts: Sequence[Part]
    fates: Mapping[str, InstantState]
    is_deep: bool = False
    settled: Container[str] = ()


@dataclass(frozen=True)
class Audit:
    """What was found in a target.

    Attributes:
        checked: what was compared, in words, such as "12 files".
        findings: what is not as it should be.
    """

    checked: str
    findings: Sequence[Finding]


class TargetAuditor(Protocol):
    """Compares one target with the timeline."""

    def audit(self, expected: Expected) -> Audit:
        """Compare; reads only.

        Raises:
            StoreUnavailableError: the target cannot be read.
        """

    def delete(self, findings: Sequence[Finding]) -> None:
        """Delete what fixable findings of this target name. The caller is the timeline's writer."""


@runtime_checkable
class AuditedSink(Protocol):
    """A sink whose target can be compared with the timeline."""

    def auditor(self) -> TargetAuditor:
        """The target's auditor; touches no storage."""


def auditor_of(sink: Sink) -> TargetAuditor | None:
    """The auditor of a sink's target; None where it cannot be compared with the timeline."""
    return sink.auditor() if isinstance(sink, AuditedSink) else None


def fixable(findings: Sequence[Finding]) -> Iterator[Finding]:
    """Those that may be deleted."""
    return (finding for finding in findings if finding.is_fixable)
