"""Epochs are completed while the next one is planned; a failed completion leaves its epoch pending, never lost."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import pytest

from ingest.driver.completion import Completions
from ingest.protocol.events import Completed, EpochResult, LeftPending
from ingest.protocol.job import JobContext
from tests.contract.sink_contract import ref
from tests.unit.ingest.driver.test_loop import Bench, bench
from timeline.active import ActiveTimeline
from timeline.decision import Decision, Outcome
from timeline.epoch import Manifest
from timeline.errors import StoreUnavailableError
from timeline.instant import Action
from timeline.stores.opening import open_store

__all__ = ["bench"]


def result_of(epoch: int) -> EpochResult:
    decision = Decision(epoch, Outcome.COMMIT, ref(epoch).instant, ref(epoch).instant, 1, "me", "written", "token")
    return EpochResult(decision, Manifest(ref(epoch), (), ()), ())


@dataclass
class Told:
    """A listener that records each epoch, and whether it was completed or left pending."""

    events: list[tuple[int, bool]] = field(default_factory=list)

    def __call__(self, event: object) -> None:
        match event:
            case Completed():
                self.events.append((event.result.decision.epoch, True))
            case LeftPending():
                self.events.append((event.ref.epoch, False))


def fail() -> None:
    raise StoreUnavailableError("no route")


@pytest.fixture
def told() -> Told:
    return Told()


def test_work_goes_on_while_an_epoch_is_completed_and_it_is_told_of_once_it_is(told: Told) -> None:
    go_on, began = threading.Event(), threading.Event()

    def complete() -> None:
        began.set()
        assert go_on.wait(60)

    with Completions(told, beside=True) as completions:
        for epoch in range(3):
            completions.start(complete, result_of(epoch))
            assert began.wait(60) and len(told.events) == epoch
            go_on.set()
            completions.wait()
            began.clear()
            go_on.clear()
    assert told.events == [(epoch, True) for epoch in range(3)]


@pytest.mark.parametrize("beside", [True, False])
def test_an_epoch_that_cannot_be_completed_is_told_of_as_pending_and_ends_the_work(told: Told, beside: bool) -> None:
    def work() -> None:
        with Completions(told, beside=beside) as completions:
            completions.start(fail, result_of(0))
            completions.wait()

    with pytest.raises(StoreUnavailableError, match="no route"):
        work()
    assert told.events == [(0, False)]


def test_what_ended_the_work_is_not_hidden_by_an_epoch_that_is_left_pending(told: Told) -> None:
    def work() -> None:
        with Completions(told, beside=True) as completions:
            completions.start(fail, result_of(0))
            raise RuntimeError("what matters")

    with pytest.raises(RuntimeError, match="what matters"):
        work()
    assert told.events == [(0, False)]


def test_an_epoch_that_was_applied_and_not_completed_is_finished_by_the_next_start(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def complete_not(job: JobContext, decision: Decision, manifest: Manifest) -> None:
        fail()

    with monkeypatch.context() as patched:
        patched.setattr("ingest.driver.epoch.complete", complete_not)
        with pytest.raises(StoreUnavailableError, match="no route"):
            bench.run()
    assert [
        instant.action for instant in ActiveTimeline.load(open_store(str(bench.folder / "timeline"))).pending()
    ] == [Action.COMMIT]
    bench.append(4)
    assert bench.run().rows == 1
    assert bench.instants(Action.COMMIT) == 2
    assert bench.instants(Action.ROLLBACK) == 0
