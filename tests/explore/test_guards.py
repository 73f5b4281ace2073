"""Each guard of the protocol is removed from the real code: the explorer finds the fault."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass

import pytest

import ingest.protocol.recovery
import ingest.protocol.steps
from ingest.check_store.numbers import NumberSource
from ingest.protocol.job import JobContext
from ingest.protocol.steps import claim_rollback
from sinks.base import ParallelRunner, Sink, sequential
from sinks.memory import LOG_ENTRY, AppliedEpoch, MemorySink
from tests.explore.explorer import World
from tests.explore.protocol_world import NEVER_AGAIN, check_recovered, check_visible, writer
from tests.explore.stepped import HashedStore
from tests.fakes import EmptySink
from timeline.decision import DECISION, Decision, decision_path
from timeline.epoch import EpochRef, Part
from timeline.errors import InvariantError
from timeline.stores.base import ObjectStore, Retry
from timeline.stores.memory import MemoryStore

pytestmark = pytest.mark.timeout(900)

CAUGHT = (AssertionError, InvariantError)


def explore_two_writers(
    records: int,
    *,
    store_type: type[HashedStore] = HashedStore,
    sinks: Callable[[ObjectStore, Callable[[], str]], tuple[Sink, ...]] | None = None,
) -> None:
    source = NumberSource({"s": records})
    body = writer(1, source, sinks) if sinks else writer(1, source)

    def recovered(store: MemoryStore) -> None:
        check_recovered(store, sinks) if sinks else check_recovered(store)

    with closing(World([body, body], check=check_visible, recover=recovered, store_type=store_type)) as world:
        world.explore()


@dataclass
class OverwritingStore(HashedStore):
    """A store whose put-if-absent is a plain put."""

    def put_if_absent(self, path: str, body: bytes) -> None:
        self.put(path, body)


@dataclass(frozen=True)
class ForgetfulSink(MemorySink):
    """A target without an idempotent marker."""

    def commit(self, part: Part, parallel: ParallelRunner = sequential) -> None:
        if part.rows:
            version = len(self.store.list("_log"))
            entry = AppliedEpoch(
                self.app_id,
                part.epoch.epoch,
                part.epoch.instant,
                tuple(file.path for file in part.files),
                self.new_id(),
            )
            self.store.put_if_absent(f"_log/{version:020d}.json", LOG_ENTRY.dump(entry))


def forgetful(store: ObjectStore, new_id: Callable[[], str]) -> tuple[Sink, ...]:
    return (ForgetfulSink("table", "app", store, NEVER_AGAIN, new_id), EmptySink())


def test_without_put_if_absent_a_fault_is_found() -> None:
    with pytest.raises(CAUGHT):
        explore_two_writers(1, store_type=OverwritingStore)


def test_without_the_decision_check_a_fault_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def decide_blindly(store: ObjectStore, wanted: Decision, retry: Retry) -> Decision:
        store.put(decision_path(wanted.epoch), DECISION.dump(wanted))
        return wanted

    monkeypatch.setattr(ingest.protocol.steps, "decide", decide_blindly)
    with pytest.raises(CAUGHT):
        explore_two_writers(1)


def test_without_the_targets_marker_a_fault_is_found() -> None:
    with pytest.raises(CAUGHT):
        explore_two_writers(1, sinks=forgetful)


def test_without_the_order_of_epochs_a_fault_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing_before(job: JobContext, epoch: int, applied_through: int) -> Sequence[Decision]:
        return ()

    monkeypatch.setattr(ingest.protocol.steps, "decided_before", nothing_before)
    with pytest.raises(CAUGHT):
        explore_two_writers(2)


def test_deleting_before_the_decision_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def delete_first(job: JobContext, ref: EpochRef, generation: int, reason: str, *, is_crash: bool) -> Decision:
        for sink in job.sinks:
            sink.abort(ref, None)
        return claim_rollback(job, ref, generation, reason, is_crash=is_crash)

    monkeypatch.setattr(ingest.protocol.recovery, "claim_rollback", delete_first)
    with pytest.raises(CAUGHT):
        explore_two_writers(1)
