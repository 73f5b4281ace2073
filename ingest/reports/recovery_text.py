"""Output of `tideline recover`: the evidence, the reason and the result, human-readable and as JSON."""

from __future__ import annotations

from collections.abc import Iterator

from ingest.driver.takeover import Recovery
from ingest.protocol.evidence import Damaged, Evidence, Unknown
from ingest.protocol.recovery import RecoveryStep, SettledInstant, StepKind
from timeline.decision import Decision
from timeline.epoch import Json, Manifest
from timeline.lease import LeaseState, WriterRecord
from timeline.units import count

WOULD = {
    StepKind.RECOMMIT: "apply it to every target that lags, then complete it",
    StepKind.REPLAY: "leave it pending; tideline run CONF writes it to that target again",
    StepKind.ROLLBACK: "delete what it wrote, and record that",
    StepKind.CLAIM_COMMIT: "claim the decision to commit, apply, complete",
    StepKind.CLAIM_ROLLBACK: "claim the decision to roll back, delete, record",
    StepKind.REFUSE: "touch nothing; tideline replay CONF puts it back from the source, or gives it up",
    StepKind.WAIT: "wait",
    StepKind.HALT: "halt: touch nothing",
}
"""Action of recovery for each kind of step."""


def recovery_lines(recovery: Recovery, *, dry_run: bool) -> Iterator[str]:
    """Lines for a terminal."""
    if recovery.writer is not None:
        writer = recovery.writer
        state = "released" if writer.released else "not released"
        yield f"last writer: generation {writer.generation}, {writer.process}, lease {state}"
    if not recovery.found:
        yield "nothing is pending"
    for evidence, step in recovery.found:
        epoch = f"epoch {evidence.plan.ref.epoch}" if evidence.plan else "no plan"
        yield f"instant {evidence.instant} ({epoch})"
        yield f"  decision  {_decision(evidence)}"
        yield f"  lease     {_lease(evidence)}"
        yield f"  manifest  {_manifest(evidence)}"
        yield f"  → {step.kind.value}: {step.reason}"
        if dry_run:
            yield f"    would: {WOULD[step.kind]}"
    for settled in recovery.settled:
        result = "rolled back" if settled.step.kind is StepKind.ROLLBACK else "committed"
        yield f"instant {settled.evidence.instant}: {result}"
    for waiting in recovery.replays:
        yield f"instant {waiting.evidence.instant}: decided and pending: {waiting.step.reason}"
    if recovery.replays:
        yield "an epoch has to be written to a target again: tideline run CONF does it, from the epoch's own offsets"
    yield from recovery.losses
    if recovery.losses:
        yield "no epoch is added behind a gap: tideline replay CONF --dry-run says where lost rows can be had"
    if recovery.unreleased:
        verb = "would look after" if dry_run else "looked after"
        yield f"{verb} late files of {count(len(recovery.unreleased), 'settled instant')}"
    if recovery.is_waiting:
        yield "waiting for a writer that may be alive: run again later, or use --force"


def recovery_json(recovery: Recovery, *, dry_run: bool) -> Json:
    """The recovery as one JSON object."""
    return {
        "dry_run": dry_run,
        "waiting": recovery.is_waiting,
        "writer": None
        if recovery.writer is None
        else {
            "generation": recovery.writer.generation,
            "process": str(recovery.writer.process),
            "released": recovery.writer.released,
        },
        "found": [_found_json(evidence, step) for evidence, step in recovery.found],
        "settled": [_settled_json(settled) for settled in recovery.settled],
        "replays": [_settled_json(settled) for settled in recovery.replays],
        "leftovers": list(recovery.unreleased),
        "losses": list(recovery.losses),
    }


def _settled_json(settled: SettledInstant) -> Json:
    return {"instant": settled.evidence.instant, "step": settled.step.kind.value, "reason": settled.step.reason}


def _found_json(evidence: Evidence, step: RecoveryStep) -> Json:
    return {
        "instant": evidence.instant,
        "epoch": evidence.plan.ref.epoch if evidence.plan else None,
        "decision": _decision(evidence),
        "lease": _lease(evidence),
        "manifest": _manifest(evidence),
        "step": step.kind.value,
        "reason": step.reason,
    }


def _decision(evidence: Evidence) -> str:
    match evidence.decision:
        case Unknown(why):
            return f"unknown: {why}"
        case Decision() as decision:
            return f"{decision.outcome.value} of instant {decision.instant}, by {decision.by}"
        case None:
            return "none"


def _lease(evidence: Evidence) -> str:
    match evidence.lease:
        case Unknown(why):
            return f"unknown: {why}"
        case LeaseState() as state:
            return state.value


def _manifest(evidence: Evidence) -> str:
    match evidence.manifest:
        case Unknown(why):
            return f"unknown: {why}"
        case Damaged(problems):
            return f"damaged: {'; '.join(problems)}"
        case Manifest() as manifest:
            files = sum(len(part.files) for part in manifest.parts)
            return f"prepared: {count(manifest.rows, 'row')}, {manifest.rejected} rejected, {count(files, 'file')}"
        case None:
            return "none"


def waiting_text(writer: WriterRecord) -> str:
    """Text shown while recovery waits for the lease of a writer that may be alive."""
    return (
        f"{writer.process} (generation {writer.generation}) may be alive: "
        f"watching its lease for up to {writer.ttl_ms / 1000:.0f} s; --force takes over at once"
    )
