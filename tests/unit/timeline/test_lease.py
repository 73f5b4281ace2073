"""Leases under fake monotonic clocks: waiting, takeover, and detection of a takeover."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from tests.unit.timeline.scripted_store import AT_ONCE, Call, ScriptedStore, lost_reply, no_answer
from timeline.errors import FencedError, StoreUnavailableError, WriterBusyError
from timeline.lease import (
    WRITER,
    LeaseObserver,
    LeaseState,
    WriterLease,
    WriterRecord,
    latest_writer,
    take_lease,
    writer_path,
)
from timeline.process import ProcessId
from timeline.stores.base import ObjectInfo, size_of

TTL_MS = 6_000


def process(number: int) -> ProcessId:
    return ProcessId(f"host-{number}", "boot", number, 1, "ns")


@dataclass
class World:
    """One store, one monotonic clock, and the processes that are known to have ended."""

    store: ScriptedStore = field(default_factory=ScriptedStore)
    now_s: float = 1000.0
    gone: set[ProcessId] = field(default_factory=set)

    def observer(self) -> LeaseObserver:
        return LeaseObserver(
            self.store, AT_ONCE, monotonic=lambda: self.now_s, process_is_gone=lambda found: found in self.gone
        )

    def take(
        self,
        number: int,
        *,
        force: bool = False,
        meanwhile: Callable[[], None] = lambda: None,
        observer: LeaseObserver | None = None,
    ) -> WriterLease:
        def sleep(pause_s: float) -> None:
            self.now_s += pause_s
            meanwhile()

        return take_lease(
            observer or self.observer(),
            job="web",
            ttl_ms=TTL_MS,
            force=force,
            process=lambda: process(number),
            sleep=sleep,
        )


@pytest.fixture
def world() -> World:
    return World()


def test_the_first_writer_waits_for_nobody(world: World) -> None:
    assert world.observer().look() is LeaseState.NONE
    lease = world.take(1)
    assert (lease.generation, lease.process, world.now_s) == (1, process(1), 1000.0)
    record = latest_writer(world.store, AT_ONCE)
    assert record is not None
    assert (record.generation, record.job, record.ttl_ms, record.released) == (1, "web", TTL_MS, False)


def test_a_body_unchanged_for_a_ttl_is_expired_and_not_before(world: World) -> None:
    world.take(1)
    observer = world.observer()
    assert observer.look() is LeaseState.LIVE
    assert observer.remaining_s() == TTL_MS / 1000
    world.now_s += TTL_MS / 1000 - 0.01
    assert observer.look() is LeaseState.LIVE
    world.now_s += 0.01
    assert observer.remaining_s() == 0.0
    assert observer.look() is LeaseState.EXPIRED
    assert not observer.has_beaten


def test_each_heartbeat_starts_the_ttl_anew(world: World) -> None:
    lease, observer = world.take(1), world.observer()
    for _ in range(5):
        assert observer.look() is LeaseState.LIVE
        world.now_s += TTL_MS / 1000 * 0.9
        lease.send_heartbeat()
    assert observer.look() is LeaseState.LIVE
    assert observer.has_beaten


def test_a_heartbeat_after_expiry_makes_the_lease_live_again(world: World) -> None:
    lease, observer = world.take(1), world.observer()
    observer.look()
    world.now_s += 60
    assert observer.look() is LeaseState.EXPIRED
    lease.send_heartbeat()
    assert observer.look() is LeaseState.LIVE


def test_no_observer_trusts_what_happened_before_it_looked(world: World) -> None:
    world.take(1)
    world.now_s += 3600
    assert world.observer().look() is LeaseState.LIVE


def test_a_store_that_answers_slowly_does_not_make_a_writer_look_silent(world: World) -> None:
    """The record is known to be unchanged only up to the start of the request."""
    lease, observer = world.take(1), world.observer()
    observer.look()
    world.now_s += 1

    def slow(call: Call) -> None:
        world.now_s += 3600

    world.store.fail("get", slow)
    assert observer.look() is LeaseState.LIVE
    lease.send_heartbeat()
    assert observer.look() is LeaseState.LIVE


def test_a_released_lease_is_expired_at_once(world: World) -> None:
    lease, observer = world.take(1), world.observer()
    assert observer.look() is LeaseState.LIVE
    lease.release()
    assert observer.look() is LeaseState.EXPIRED
    assert world.take(2).generation == 2
    assert world.now_s == 1000.0


def test_the_lease_of_a_process_that_is_gone_is_expired_at_once(world: World) -> None:
    world.take(1)
    world.gone.add(process(1))
    assert world.observer().look() is LeaseState.EXPIRED
    assert world.take(2).generation == 2
    assert world.now_s == 1000.0


def test_a_silent_writer_is_waited_for_no_longer_than_its_ttl(world: World) -> None:
    world.take(1)
    assert world.take(2).generation == 2
    assert 1000.0 + TTL_MS / 1000 <= world.now_s < 1000.0 + TTL_MS / 1000 + 0.6


def test_a_live_writer_is_not_taken_over_and_is_named(world: World) -> None:
    first = world.take(1)
    with pytest.raises(WriterBusyError, match=r"job 'web' .*process 1 on host-1, generation 1.*alive"):
        world.take(2, meanwhile=first.send_heartbeat)
    assert world.now_s < 1000.0 + TTL_MS / 1000, "one heartbeat is proof enough"
    assert not first.is_lost


def test_force_takes_over_a_live_writer_which_notices(world: World) -> None:
    first = world.take(1)
    first.send_heartbeat()
    first.check()
    second = world.take(2, force=True)
    assert second.generation == 2
    assert world.now_s == 1000.0
    first.send_heartbeat()
    assert first.is_lost
    with pytest.raises(FencedError, match="generation 1 was taken over"):
        first.check()
    second.send_heartbeat()
    second.check()


def test_a_writer_that_slept_through_many_takeovers_notices_although_its_successor_was_pruned(world: World) -> None:
    first = world.take(1)
    for number in range(2, 15):
        world.take(number, force=True)
    assert size_of(world.store, writer_path(2)) is None
    first.send_heartbeat()
    assert first.is_lost
    assert latest_writer(world.store, AT_ONCE) is not None
    record = latest_writer(world.store, AT_ONCE)
    assert record is not None and record.generation == 14, "the late heartbeat does not make it the writer again"


def test_a_lost_lease_is_not_released_over_the_later_one(world: World) -> None:
    first = world.take(1)
    world.take(2, force=True)
    first.send_heartbeat()
    puts = world.store.calls["put"]
    first.release()
    assert world.store.calls["put"] == puts
    record = latest_writer(world.store, AT_ONCE)
    assert record is not None and (record.generation, record.released) == (2, False)


def test_two_takers_at_once_get_different_generations(world: World) -> None:
    world.take(1).release()
    start = threading.Barrier(4)
    leases: list[WriterLease] = []
    busy: list[WriterBusyError] = []

    def contend(number: int) -> None:
        start.wait()
        try:
            leases.append(world.take(number))
        except WriterBusyError as error:
            busy.append(error)

    threads = [threading.Thread(target=contend, args=(number,)) for number in range(2, 6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    generations = [lease.generation for lease in leases]
    assert len(set(generations)) == len(generations) >= 1
    assert len(leases) + len(busy) == 4


def test_the_loser_of_a_race_for_a_generation_waits_for_the_winner(world: World) -> None:
    world.take(1).release()
    winner = WriterRecord(2, process(9), "other", TTL_MS, 0, False, "another token")

    def another_is_faster(call: Call) -> None:
        world.store.inner.put_if_absent(writer_path(2), WRITER.dump(winner))
        call()

    def beat() -> None:
        world.store.inner.put(writer_path(2), WRITER.dump(replace(winner, beat=1)))

    world.store.fail("put_if_absent", another_is_faster)
    with pytest.raises(WriterBusyError, match=r"'other'.*host-9, generation 2"):
        world.take(3, meanwhile=beat)


def test_a_taker_whose_reply_is_lost_has_its_lease(world: World) -> None:
    world.store.fail("put_if_absent", lost_reply)
    assert world.take(1).generation == 1
    assert [info.path for info in world.store.list(".hoodie/writers")] == [writer_path(1)]


def test_a_new_generation_that_appears_while_watching_is_watched_from_its_beginning(world: World) -> None:
    world.take(1)
    observer = world.observer()
    observer.look()
    world.now_s += TTL_MS / 1000 * 0.9
    world.take(2, force=True)
    assert observer.look() is LeaseState.LIVE
    assert not observer.has_beaten, "another writer's record is no sign of life of this one"
    world.now_s += TTL_MS / 1000 * 0.9
    assert observer.look() is LeaseState.LIVE
    world.now_s += TTL_MS / 1000 * 0.2
    assert observer.look() is LeaseState.EXPIRED


def test_a_record_that_vanishes_while_it_is_watched_ends_the_wait(world: World) -> None:
    world.take(1)
    assert world.take(2, meanwhile=lambda: world.store.delete([writer_path(1)])).generation == 2


def test_old_generations_are_pruned_and_the_last_ones_kept(world: World) -> None:
    for number in range(1, 31):
        assert world.take(number, force=True).generation == number
    kept = [info.path for info in world.store.list(".hoodie/writers")]
    assert kept == [writer_path(generation) for generation in range(22, 31)]


def test_a_store_that_does_not_prune_or_release_stops_nobody(world: World, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(1, 12):
        world.take(number, force=True)
    world.store.fail("delete", no_answer)
    lease = world.take(12, force=True)
    world.store.fail("put", *[no_answer] * AT_ONCE.attempts)
    with caplog.at_level(logging.WARNING, logger="timeline.lease"):
        lease.release()
    assert "generation 12 not released" in caplog.text


def test_a_heartbeat_thread_survives_an_outage_and_ends_with_the_release() -> None:
    store = ScriptedStore()
    store.fail("put", no_answer, no_answer)
    observer = LeaseObserver(store, AT_ONCE)
    lease = take_lease(observer, job="web", ttl_ms=30, process=lambda: process(1))
    lease.start_heartbeats()
    beats = 0
    while beats < 2:
        record = latest_writer(store, AT_ONCE)
        assert record is not None
        beats = record.beat
    lease.release()
    record = latest_writer(store, AT_ONCE)
    assert record is not None and record.released
    assert not [thread for thread in threading.enumerate() if thread.name == "tideline-lease"]


def test_a_store_that_never_answers_is_no_expiry(world: World) -> None:
    world.take(1)
    observer = world.observer()
    observer.look()
    world.now_s += 60
    world.store.fail("list", *[no_answer] * AT_ONCE.attempts)
    with pytest.raises(StoreUnavailableError):
        observer.look()


class ListsNothing(ScriptedStore):
    """Stores objects and lists none of them, like a server that takes ``a//b`` for ``a/b``."""

    def list(self, folder: str, *, recursive: bool = False, after: str = "", limit: int = 0) -> list[ObjectInfo]:
        return []


def test_a_store_that_does_not_list_what_it_holds_ends_the_wait_with_a_word() -> None:
    world = World(store=ListsNothing())
    world.take(1)
    with pytest.raises(StoreUnavailableError, match=r"writers/0+1.json exists, but 10 listings .* do not show it"):
        world.take(2)
