"""Findings and steps of recovery as HTML, for notebooks and pages."""

from __future__ import annotations

from typing import cast

from ingest.driver.takeover import Recovery
from ingest.protocol.evidence import Evidence
from ingest.protocol.recovery import RecoveryStep, SettledInstant, StepKind
from ingest.reports.recovery_text import WOULD, recovery_json
from timeline.html import Html, element, mark, table

_HEADS = ("instant", "epoch", "decision", "lease", "manifest", "step", "why", "recover would")


def found_html(recovery: Recovery, **attributes: object) -> Html:
    """Each pending instant with the evidence, and the step that follows from it."""
    # The texts of `recover --json`, so that page and command agree.
    words = cast("dict[str, list[dict[str, object]]]", recovery_json(recovery, dry_run=True))["found"]
    rows = [
        (
            element("code", evidence.instant),
            _epoch(evidence),
            said["decision"],
            said["lease"],
            said["manifest"],
            element("b", step.kind.value),
            step.reason,
            WOULD[step.kind],
        )
        for (evidence, step), said in zip(recovery.found, words, strict=True)
    ]
    return table(_HEADS, rows, **attributes)


def recovery_html(recovery: Recovery) -> Html:
    """Findings of recovery, and the result for each instant."""
    parts = []
    if recovery.writer is not None:
        writer = recovery.writer
        state = "ended by itself" if writer.released else "did not say that it ended"
        parts.append(element("div", f"last writer: {writer.process}, generation {writer.generation}; it {state}"))
    parts.append(found_html(recovery) if recovery.found else element("div", "nothing is pending"))
    parts += [settled_html(settled) for settled in (*recovery.settled, *recovery.replays)]
    parts += [element("div", loss) for loss in recovery.losses]
    if recovery.is_waiting:
        parts.append(element("div", "a writer that may be alive is waited for"))
    return element("div", *parts)


def step_html(step: RecoveryStep) -> Html:
    """One line: the step and its reason."""
    return element("div", element("b", step.kind.value), f": {step.reason}")


def settled_html(settled: SettledInstant) -> Html:
    """One line: the result of settling an instant; pending where it is not done."""
    became = "rolled back" if settled.step.kind is StepKind.ROLLBACK else "committed"
    shown = mark(became if settled.is_done else "pending")
    instant = element("code", settled.evidence.instant)
    epoch = f" (epoch {_epoch(settled.evidence)})" if settled.evidence.plan is not None else ""
    return element("div", shown, " instant ", instant, f"{epoch}: {settled.step.reason}")


def _epoch(evidence: Evidence) -> str:
    return str(evidence.plan.ref.epoch) if evidence.plan is not None else ""
