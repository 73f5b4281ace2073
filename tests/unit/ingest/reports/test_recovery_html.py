from __future__ import annotations

from dataclasses import replace

import pytest

from ingest.protocol.recovery import RecoveryStep, SettledInstant, StepKind
from ingest.reports.recovery_html import recovery_html, settled_html, step_html
from tests.unit.ingest.reports.made_reports import pending, report
from tests.unit.timeline.well_formed import HOSTILE, elements


def test_recovery_says_what_it_found_and_what_became_of_it() -> None:
    evidence, step = pending(StepKind.CLAIM_ROLLBACK, HOSTILE)
    recovery = report(found=((evidence, step),)).recovery
    assert recovery is not None
    shown = recovery_html(
        replace(recovery, settled=[SettledInstant(evidence, RecoveryStep(StepKind.ROLLBACK, "gone"), True)])
    )
    assert "script" not in elements(shown)
    assert "claim rollback" in shown
    assert "generation 2" in shown
    assert "✕ rolled back" in shown
    assert "nothing is pending" in recovery_html(replace(recovery, found=()))


@pytest.mark.parametrize("kind", StepKind)
def test_every_step_says_why(kind: StepKind) -> None:
    shown = step_html(RecoveryStep(kind, "because"))
    elements(shown)
    assert kind.value in shown
    assert "because" in shown
    evidence, step = pending(kind)
    settled = settled_html(SettledInstant(evidence, step, kind not in (StepKind.WAIT, StepKind.HALT)))
    assert evidence.instant in settled
    assert ("rolled back" in settled) == (kind is StepKind.ROLLBACK)
