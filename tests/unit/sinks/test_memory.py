"""Beyond the sink contract: which of the two commit errors the memory sink raises, and clean-up of an aborted task."""

from __future__ import annotations

import pyarrow as pa
import pytest

from sinks.base import Lookup, TaskAttempt
from sinks.memory import MemorySink
from tests.contract.sink_contract import planned
from tests.unit.timeline.scripted_store import AT_ONCE, Call, ScriptedStore, delayed, lost_reply, no_answer
from timeline.epoch import EpochRef, Part
from timeline.errors import CommitRejectedError, CommitUnknownError
from timeline.stores.base import size_of

REF = EpochRef(0, "20240101000000000", 1)
ROWS = pa.record_batch({"number": pa.array([1, 2], pa.int64())})


@pytest.fixture
def store() -> ScriptedStore:
    return ScriptedStore()


def prepared(sink: MemorySink, ref: EpochRef = REF) -> Part:
    writer = sink.begin(planned(ref)).open(TaskAttempt(0, 0, 0))
    writer.write(ROWS)
    return sink.prepare(ref, [writer.close()])


def sink_on(store: ScriptedStore, app_id: str = "app") -> MemorySink:
    return MemorySink("memory", app_id, store, AT_ONCE)


def test_a_log_that_cannot_be_read_before_anything_was_put_is_a_rejection(store: ScriptedStore) -> None:
    sink = sink_on(store)
    part = prepared(sink)
    store.fail("list", *[no_answer] * AT_ONCE.attempts)
    with pytest.raises(CommitRejectedError, match=r"memory: epoch 0 .*is not committed"):
        sink.commit(part)
    assert sink.lookup(REF) is Lookup.NOT_COMMITTED
    sink.commit(part)
    assert sink.read().num_rows == 2


def test_a_put_that_nobody_answered_is_unknown_and_may_land_later(store: ScriptedStore) -> None:
    sink = sink_on(store)
    part = prepared(sink)
    later: list[Call] = []
    store.fail("put_if_absent", *[delayed(later)] * AT_ONCE.attempts)
    with pytest.raises(CommitUnknownError, match="may be committed"):
        sink.commit(part)
    later[0]()
    assert sink.lookup(REF) is Lookup.COMMITTED
    sink.commit(part)
    assert sink.read().num_rows == 2


def test_a_lost_reply_is_no_error(store: ScriptedStore) -> None:
    sink = sink_on(store)
    part = prepared(sink)
    store.fail("put_if_absent", lost_reply)
    sink.commit(part)
    assert sink.read().num_rows == 2


def test_a_version_lost_to_another_job_for_good_is_a_rejection_when_the_log_then_goes_silent(
    store: ScriptedStore,
) -> None:
    sink, other = sink_on(store), sink_on(store, "other")
    part, theirs = prepared(sink), prepared(other, EpochRef(0, "20240101000000007", 1))

    def other_is_faster(call: Call) -> None:
        other.commit(theirs)
        store.fail("list", *[no_answer] * AT_ONCE.attempts)
        call()

    store.fail("put_if_absent", other_is_faster)
    with pytest.raises(CommitRejectedError):
        sink.commit(part)
    sink.commit(part)
    assert sink.read().num_rows == 4


def test_an_attempt_aborted_after_it_was_closed_leaves_no_file(store: ScriptedStore) -> None:
    writer = sink_on(store).begin(planned(REF)).open(TaskAttempt(0, 0, 0))
    writer.write(ROWS)
    (file,) = writer.close().files
    assert size_of(store, file.path) is not None
    store.fail("delete", no_answer)
    writer.abort()
    writer.abort()
    assert size_of(store, file.path) is None
