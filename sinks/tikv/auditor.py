"""Compares a TiKV target with the timeline: every lock below its prefix must belong to an open epoch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sinks.audit import Audit, Expected, Finding, InstantState, Problem
from sinks.tikv.key_codec import own_range, row_range
from sinks.tikv.records import Attempt
from sinks.tikv.settling import locks_in
from sinks.tikv.table import TikvTable
from timeline.units import count


@dataclass(frozen=True)
class TikvAuditor:
    """See `sinks.audit.TargetAuditor`.

    Attributes:
        table: the target.
        end: ends an attempt's transaction and resolves its locks.
    """

    table: TikvTable
    end: Callable[[Attempt], int | None]

    def audit(self, expected: Expected) -> Audit:
        """See TargetAuditor; every lock below the prefix must belong to an open epoch."""
        parts = (part for part in reversed(expected.parts) if part.epoch.instant not in expected.settled)
        last = next((part for part in parts if part.rows), None)
        found: list[Finding] = []
        if last is not None and not self.table.is_applied(last.epoch):
            detail = (
                f"epoch {last.epoch.epoch} is completed, but its record is not below the prefix {self.table.prefix!r}"
            )
            found.append(Finding(Problem.NOT_APPLIED, self.table.target, last.epoch.instant, detail))
        attempts = {attempt.start_ts: attempt for attempt in self.table.records.attempts()}
        everything = (own_range(self.table.prefix)[0], row_range(self.table.prefix)[1])
        locks = Counter(lock.lock_version for lock in locks_in(self.table.client, *everything))
        for start_ts, held in sorted(locks.items()):
            attempt = attempts.get(start_ts)
            fate = expected.fates.get(attempt.instant) if attempt is not None else None
            what = f"transaction {start_ts}"
            if attempt is None:
                detail = (
                    f"{count(held, 'lock')} of a transaction that is not this job's: another writer's, or a dead one's"
                )
                found.append(Finding(Problem.UNKNOWN, self.table.target, what, detail))
            elif fate is not InstantState.PENDING:
                became = fate.value if fate else "not on the timeline"
                detail = f"{count(held, 'lock')} of {attempt.instant}, which is {became}"
                problem = Problem.ORPHAN if fate is not None else Problem.UNKNOWN
                found.append(Finding(problem, self.table.target, what, detail, is_fixable=fate is not None))
        return Audit(f"{count(sum(locks.values()), 'lock')} of {count(len(locks), 'transaction')}", found)

    def delete(self, findings: Sequence[Finding]) -> None:
        """See TargetAuditor; ends the locks' transactions: rolled back, or committed where the primary is."""
        named = {finding.what for finding in findings if finding.is_fixable}
        for attempt in self.table.records.attempts():
            if f"transaction {attempt.start_ts}" in named:
                self.end(attempt)
