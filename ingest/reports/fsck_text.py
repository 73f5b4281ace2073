"""Output of `tideline fsck`, human-readable and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict

from ingest.driver.fsck import FsckResult
from sinks.audit import Finding, Problem
from timeline.formatting import count, size

_SHOWN = 20
"""Findings of one kind that are printed; `--json` has all."""

_ADVICE = {
    Problem.ORPHAN: "invisible to readers; --fix deletes them",
    Problem.MISSING: "readers fail or lose rows: restore these files from the store's versions or a backup",
    Problem.WRONG_SIZE: "something else wrote to these files: restore them",
    Problem.DAMAGED: "readers get wrong rows or fail: restore these files from the store's versions or a backup",
    Problem.WRONG_ROWS: "keep the timeline as it is and report this; nothing was changed",
    Problem.UNDECIDED: "readers see rows that no epoch committed: take these files out of the table",
    Problem.NOT_APPLIED: "committed rows that readers do not see; where to have them: tideline replay CONF --dry-run",
    Problem.AHEAD: "the timeline is older than its target: restore its newest objects before anything else runs",
    Problem.UNKNOWN: "not known to this timeline, so left alone",
    Problem.BROKEN_CHAIN: "objects of the timeline were deleted or changed: restore them before anything else runs",
    Problem.UNREADABLE: "not readable by this version, or damaged",
    Problem.PENDING: "not damage: recovery settles it",
}


def fsck_lines(found: FsckResult) -> Iterator[str]:
    """Human-readable lines: what was compared, the findings by kind, and the advice for each kind."""
    if not found.checked and not found.findings:
        yield "nothing was ingested yet"
        return
    yield f"{count(found.epochs, 'completed epoch')} with {count(found.rows, 'row')}"
    for target, checked in found.checked.items():
        yield f"  {target}: {checked}"
    for finding in found.fixed:
        yield f"deleted: {_line(finding)}"
    for problem in Problem:
        of_kind = [finding for finding in found.findings if finding.problem is problem]
        if of_kind:
            yield from _kind(problem, of_kind)
    if found.is_moving:
        yield "the job went on meanwhile: what is named above may be of that moment only; look again"
    yield "clean" if found.is_clean else count(_problems(found), "problem")


def _kind(problem: Problem, findings: Sequence[Finding]) -> Iterator[str]:
    total = sum(finding.bytes for finding in findings)
    of = f", {size(total)}" if total else ""
    yield f"{problem.value}: {len(findings):,}{of}: {_ADVICE[problem]}"
    for finding in findings[:_SHOWN]:
        yield f"  {_line(finding)}"
    if len(findings) > _SHOWN:
        yield f"  … and {len(findings) - _SHOWN:,} more (--json has all)"


def _line(finding: Finding) -> str:
    return f"{finding.where}: {finding.what}: {finding.detail}"


def _problems(found: FsckResult) -> int:
    return sum(finding.problem is not Problem.PENDING for finding in found.findings)


def fsck_json(found: FsckResult) -> dict[str, object]:
    """The result as one JSON object."""
    return {
        "epochs": found.epochs,
        "rows": found.rows,
        "clean": found.is_clean,
        "moving": found.is_moving,
        "checked": found.checked,
        "findings": [_json(finding) for finding in found.findings],
        "fixed": [_json(finding) for finding in found.fixed],
    }


def _json(finding: Finding) -> dict[str, object]:
    return {**asdict(finding), "problem": finding.problem.value}
