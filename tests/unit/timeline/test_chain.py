"""The chain of epochs: a bounded number of reads, no gap, no overlap, no hole."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.timeline.scripted_store import AT_ONCE, ScriptedStore, no_answer
from timeline.active import ActiveTimeline
from timeline.chain import SNAPSHOT, Chain, PositionSnapshot, load_chain, snapshot_path, write_snapshot
from timeline.decision import DECISION, Decision, Outcome, decision_path
from timeline.epoch import OffsetRange, Position
from timeline.errors import FormatError, InvariantError, StoreUnavailableError
from timeline.hudi.layout import commit_body
from timeline.instant import commit_completed, format_time
from timeline.stores.base import size_of

EPOCHS = 250


def decision(epoch: int) -> Decision:
    """Every seventh epoch is rolled back; each of the others moves the shard ``a`` and adds a new shard."""
    time, completed = format_time(epoch * 1000), format_time(epoch * 1000 + 1)
    if epoch % 7 == 6:
        return Decision(epoch, Outcome.ROLLBACK, time, completed, 1, "test", "why", f"token {epoch}")
    moved = {"a": Position(10 * (epoch + 1), {"etag": str(epoch)}), f"new-{epoch}": Position(5)}
    return Decision(epoch, Outcome.COMMIT, time, completed, 1, "test", "why", f"token {epoch}", 10, 0, moved)


def history(epochs: int, *, snapshots: tuple[int, ...] = (), completed_to: int | None = None) -> ScriptedStore:
    """A timeline's objects after `epochs` epochs; commits are completed up to `completed_to` (default: all)."""
    store = ScriptedStore()
    chain = Chain()
    for epoch in range(epochs):
        decided = decision(epoch)
        store.put(decision_path(epoch), DECISION.dump(decided))
        chain = chain.advanced(decided)
        if epoch in snapshots:
            write_snapshot(store, chain, AT_ONCE)
        if decided.outcome is Outcome.COMMIT and (completed_to is None or epoch <= completed_to):
            instant = commit_completed(decided.instant, decided.completion_time)
            store.put(instant.path, commit_body((), {"tideline.epoch": str(epoch)}))
    store.calls.clear()
    return store


def load(store: ScriptedStore, *, requests_at_once: int = 1, repair: bool = False) -> Chain:
    store.traits = replace(store.traits, requests_at_once=requests_at_once)
    return load_chain(store, ActiveTimeline.load(store, AT_ONCE), AT_ONCE, repair=repair)


def replayed(epochs: int) -> Chain:
    chain = Chain()
    for epoch in range(epochs):
        chain = chain.advanced(decision(epoch))
    return chain


def test_a_new_timeline_begins_with_epoch_0_and_no_position() -> None:
    assert load(ScriptedStore()) == Chain(0, {}, None)


@pytest.mark.parametrize("requests_at_once", [1, 8])
@pytest.mark.parametrize("snapshots", [(), (99,), (99, 199), (199,)])
def test_positions_are_those_of_all_decisions_however_they_are_read(
    requests_at_once: int, snapshots: tuple[int, ...]
) -> None:
    chain = load(history(EPOCHS, snapshots=snapshots), requests_at_once=requests_at_once)
    assert chain == replayed(EPOCHS)
    assert chain.next_epoch == EPOCHS
    assert chain.positions["a"] == Position(10 * EPOCHS, {"etag": str(EPOCHS - 1)})
    assert chain.last == decision(EPOCHS - 1)


@pytest.mark.parametrize(("epochs", "decisions"), [(250, 50), (201, 1), (200, 1), (299, 99)])
def test_a_start_reads_the_decisions_since_the_last_snapshot_and_two_objects_more(epochs: int, decisions: int) -> None:
    store = history(epochs, snapshots=(99, 199, 299))
    assert load(store).next_epoch == epochs
    # The newest completed body, the first open epoch's decision, one snapshot, the decisions (at least the newest).
    assert store.calls["get"] == 1 + 1 + 1 + decisions
    assert store.calls["list"] == 1
    assert store.calls["put"] == 0


def test_epochs_decided_behind_the_newest_completed_one_are_found_one_by_one() -> None:
    store = history(EPOCHS, snapshots=(99, 199), completed_to=240)
    assert load(store) == replayed(EPOCHS)
    assert store.calls["get"] == 1 + 10 + 1 + 50


def test_a_chain_without_any_completed_instant_is_found_from_its_decisions() -> None:
    assert load(history(5, completed_to=-1)) == replayed(5)


def test_a_snapshot_that_a_crash_kept_from_being_written_is_repaired_by_the_next_writer_only() -> None:
    store = history(EPOCHS, snapshots=(99,))
    assert load(store).next_epoch == EPOCHS
    assert size_of(store, snapshot_path(199)) is None
    assert load(store, repair=True) == replayed(EPOCHS)
    body = store.get(snapshot_path(199))
    assert SNAPSHOT.load("s", body) == PositionSnapshot(199, replayed(200).positions)
    store.calls.clear()
    assert load(store) == replayed(EPOCHS)
    assert store.calls["get"] == 1 + 1 + 1 + 50


def test_whoever_writes_a_snapshot_writes_the_same_bytes() -> None:
    store = history(EPOCHS, snapshots=(99, 199))
    before = store.get(snapshot_path(199))
    store.delete([snapshot_path(199)])
    load(store, repair=True)
    assert store.get(snapshot_path(199)) == before
    store.delete([snapshot_path(99)])
    store.delete([snapshot_path(199)])
    load(store, repair=True)
    assert store.get(snapshot_path(199)) == before


def test_snapshots_are_written_behind_each_hundredth_epoch_and_nowhere_else() -> None:
    store = ScriptedStore()
    for epochs in (0, 1, 99, 101):
        write_snapshot(store, Chain(epochs), AT_ONCE)
    assert store.list(".hoodie/offsets") == []
    write_snapshot(store, Chain(100), AT_ONCE)
    assert [info.path for info in store.list(".hoodie/offsets")] == [".hoodie/offsets/00000000000000000099.json"]


@pytest.mark.parametrize("requests_at_once", [1, 8])
def test_a_missing_decision_below_an_existing_one_stops_everything(requests_at_once: int) -> None:
    store = history(EPOCHS, snapshots=(99, 199))
    store.delete([decision_path(220)])
    with pytest.raises(InvariantError, match=r"00220\.json is missing, though epoch 249 is decided.*restore"):
        load(store, requests_at_once=requests_at_once)


def test_a_damaged_snapshot_is_not_taken_for_an_empty_one() -> None:
    store = history(EPOCHS, snapshots=(99, 199))
    store.put(snapshot_path(199), b"{")
    with pytest.raises(FormatError, match=r"offsets/0*199\.json"):
        load(store)


def test_a_store_that_does_not_answer_is_not_taken_for_an_open_epoch() -> None:
    store = history(5)
    store.fail("get", *[no_answer] * AT_ONCE.attempts)
    with pytest.raises(StoreUnavailableError):
        load(store)


@pytest.mark.parametrize("epoch", [2, 4])
def test_only_the_next_epochs_decision_advances_the_chain(epoch: int) -> None:
    with pytest.raises(InvariantError, match=rf"epoch {epoch} follows epoch 2"):
        replayed(3).advanced(decision(epoch))


def test_a_rollback_consumes_its_number_and_no_offsets() -> None:
    assert replayed(7).next_epoch == 7
    assert replayed(7).positions == replayed(6).positions


AT_5 = Chain(3, {"a": Position(5)})


@pytest.mark.parametrize(
    "ranges",
    [
        (),
        (OffsetRange("a", 5, 9),),
        (OffsetRange("a", 5, 5),),
        (OffsetRange("b", 0, 9),),
        (OffsetRange("b", 7, 9), OffsetRange("a", 5, 6)),
    ],
)
def test_ranges_that_continue_what_is_committed_are_taken(ranges: tuple[OffsetRange, ...]) -> None:
    AT_5.check(ranges)


@pytest.mark.parametrize(
    ("ranges", "message"),
    [
        ((OffsetRange("a", 6, 9),), r"epoch 3: a\[6, 9\) does not continue the committed offset 5"),
        ((OffsetRange("a", 4, 9),), r"epoch 3: a\[4, 9\) does not continue the committed offset 5"),
        ((OffsetRange("a", 0, 9),), r"epoch 3: a\[0, 9\) does not continue the committed offset 5"),
        ((OffsetRange("b", -1, 9),), r"epoch 3: b\[-1, 9\) does not continue the committed offset None"),
        ((OffsetRange("a", 5, 4),), r"epoch 3: a\[5, 4\) ends before it starts"),
        ((OffsetRange("a", 5, 6), OffsetRange("a", 6, 7)), r"epoch 3: a shard is planned twice: \['a', 'a'\]"),
    ],
)
def test_a_gap_or_an_overlap_is_refused_with_the_range(ranges: tuple[OffsetRange, ...], message: str) -> None:
    with pytest.raises(InvariantError, match=message):
        AT_5.check(ranges)


def test_a_shard_that_was_read_to_offset_0_is_not_a_new_one() -> None:
    with pytest.raises(InvariantError):
        Chain(1, {"a": Position(0)}).check((OffsetRange("a", 3, 4),))


def test_the_newest_commit_is_known_behind_a_rollback() -> None:
    store = history(7)
    chain = load_chain(store, ActiveTimeline.load(store, AT_ONCE), AT_ONCE)
    assert chain.last is not None and chain.last.outcome is Outcome.ROLLBACK
    assert chain.committed == decision(5)


def rolled_back(epoch: int, *, is_crash: bool) -> Decision:
    time = format_time(epoch * 1000)
    return Decision(epoch, Outcome.ROLLBACK, time, time, 1, "test", "why", f"token {epoch}", is_crash=is_crash)


def test_crashes_are_counted_until_an_epoch_is_committed_whatever_else_rolled_epochs_back_between() -> None:
    store, chain = ScriptedStore(), Chain()
    for epoch, is_crash in enumerate([True, False, True]):
        decided = rolled_back(epoch, is_crash=is_crash)
        store.put(decision_path(epoch), DECISION.dump(decided))
        chain = chain.advanced(decided)
    assert chain.crashes == load(store).crashes == 2
    assert chain.advanced(replace(decision(0), epoch=3)).crashes == 0


def test_a_crash_right_before_a_snapshot_is_counted() -> None:
    store = history(99)
    store.put(decision_path(99), DECISION.dump(rolled_back(99, is_crash=True)))
    write_snapshot(store, replayed(99).advanced(rolled_back(99, is_crash=True)), AT_ONCE)
    assert load(store).crashes == 1
