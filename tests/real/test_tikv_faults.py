"""Epochs survive the loss of PD and of the store, at every step, and splits of their regions."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import psutil
import pytest

from sinks.base import KeyedWriter
from sinks.tikv.settling import locks_in, settle, settlings
from sinks.tikv.transaction import commit
from tests.conftest import or_absent
from tests.real import tikv_cluster
from tests.real.tikv_cluster import Member, TikvCluster
from tests.real.tikv_epochs import (
    Place,
    committed,
    planned,
    prepared,
    ref,
    rows,
    transaction_of,
    write_bucket,
    written,
)
from tests.waiting import wait_until
from timeline.epoch import EpochRef

pytestmark = pytest.mark.real

MANY = 60_000


@pytest.fixture
def place(tikv: TikvCluster) -> Place:
    return Place.in_(tikv)


@pytest.fixture(scope="module")
def splitting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TikvCluster]:
    """A cluster with small regions, which are split soon."""
    with or_absent(), tikv_cluster.running(tmp_path_factory.mktemp("splitting"), region_bytes=256 << 10) as running:
        yield running


def begun(place: Place, epoch: EpochRef) -> KeyedWriter:
    writer = place.sink().begin(planned(epoch))
    assert isinstance(writer, KeyedWriter)
    return writer


class Work:
    """A call in a thread while the test disturbs it."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:
            self._error = error

    @property
    def is_done(self) -> bool:
        return not self._thread.is_alive()

    def end(self) -> None:
        self._thread.join()
        if self._error is not None:
            raise self._error


def prewriting_while(place: Place, disturb: Callable[[], None]) -> None:
    """An epoch of many rows is committed and whole, despite a disturbance in the middle of its prewrites."""
    sink, epoch = place.sink(), ref(0)
    reports = [written(sink, epoch, rows([0]))]
    work = Work(lambda: reports.append(written(sink, epoch, rows(range(1, MANY), "x" * 50))))
    first, hundredth = place.row_key(1), place.row_key(100)
    wait_until(lambda: work.is_done or bool(locks_in(place.client, first, hundredth)), "rows are locked")
    assert not work.is_done
    disturb()
    work.end()
    part = sink.prepare(epoch, reports)
    assert part.rows == MANY
    sink.commit(part)
    sink.release(epoch, part, final=True)
    assert list(place.reader().texts()) == list(range(MANY))
    assert place.locks() == []


def lost_and_back(member: Member) -> None:
    member.kill()
    member.start()


def frozen(member: Member, seconds: float, is_frozen: threading.Event | None = None) -> None:
    process = psutil.Process(member.process.pid)
    process.suspend()
    if is_frozen is not None:
        is_frozen.set()
    try:
        time.sleep(seconds)
    finally:
        process.resume()


def test_store_that_is_killed_while_an_epoch_is_prewritten(tikv: TikvCluster, place: Place) -> None:
    prewriting_while(place, lambda: lost_and_back(tikv.store))


def test_store_that_is_frozen_while_an_epoch_is_prewritten(tikv: TikvCluster, place: Place) -> None:
    prewriting_while(place, lambda: frozen(tikv.store, 3))


def test_pd_that_is_killed_while_an_epoch_is_prewritten(tikv: TikvCluster, place: Place) -> None:
    prewriting_while(place, lambda: lost_and_back(tikv.pd_process))


@pytest.mark.parametrize("name", ["store", "pd_process"])
def test_member_that_is_killed_between_prepare_and_commit(tikv: TikvCluster, place: Place, name: str) -> None:
    sink, epoch = place.sink(), ref(0)
    part = prepared(sink, epoch, rows(range(2000)))
    lost_and_back(getattr(tikv, name))
    assert place.sink().verify(part) == []
    recovery = place.sink()
    recovery.commit(part)
    recovery.release(epoch, part, final=True)
    assert list(place.reader().texts()) == list(range(2000))
    assert place.locks() == []


def test_store_that_is_killed_between_primary_and_rows(tikv: TikvCluster, place: Place) -> None:
    sink, epoch = place.sink(), ref(0)
    part = prepared(sink, epoch, rows(range(2000)))
    commit(place.client, transaction_of(part))
    lost_and_back(tikv.store)
    recovery = place.sink()
    recovery.commit(part)
    recovery.release(epoch, part, final=True)
    assert list(place.reader().texts()) == list(range(2000))
    assert place.locks() == []


def test_frozen_pd_delays_an_epoch_and_no_more(tikv: TikvCluster, place: Place) -> None:
    sink, epoch = place.sink(), ref(0)
    part = prepared(sink, epoch, rows(range(2000)))
    is_frozen = threading.Event()
    freeze = Work(lambda: frozen(tikv.pd_process, 3, is_frozen))
    assert is_frozen.wait(60)
    sink.commit(part)
    sink.release(epoch, part)
    freeze.end()
    assert list(place.reader().texts()) == list(range(2000))


def grow(cluster: TikvCluster, place: Place, epoch: int, ids: range) -> None:
    """Commit rows by another job, and wait until PD knows more regions than before.

    Args:
        cluster: has small regions.
        place: prefix of the rows.
        epoch: of the other job.
        ids: of the rows.
    """
    before = len(cluster.regions())
    committed(place.sink("another job"), ref(epoch), rows(ids, "y" * 200))
    wait_until(lambda: len(cluster.regions()) > before and cluster.is_whole(), "regions are split")


def test_regions_that_split_between_and_within_all_steps_lose_nothing(splitting: TikvCluster) -> None:
    place = Place.in_(splitting)
    sink, epoch = place.sink(), ref(0)
    own, others = range(0, 40_000, 4), [range(number, 40_000, 8) for number in (1, 2, 3)]
    # In interleaved halves, so that the second half finds regions that were split after the first.
    reports = [written(sink, epoch, rows(own[::2], "own"))]
    grow(splitting, place, 0, others[0])
    reports.append(written(sink, epoch, rows(own[1::2], "own")))
    part = sink.prepare(epoch, reports)
    grow(splitting, place, 1, others[1])
    commit_ts = commit(place.client, transaction_of(part))
    planned_before = settlings(place.client, transaction_of(part).start_ts, commit_ts, place.spans(part))
    grow(splitting, place, 2, others[2])
    for call in planned_before:
        call()
    assert place.locks() == []
    sink.commit(part)
    sink.release(epoch, part)
    found = place.reader().texts()
    assert {number: found[number] for number in own} == dict.fromkeys(own, "own")
    assert len(found) == len(own) + sum(len(each) for each in others)


def test_large_epoch_is_settled_region_by_region_without_a_list_of_keys(splitting: TikvCluster) -> None:
    place, count = Place.in_(splitting), 300_000
    grow(splitting, place, 0, range(0, count, 50))
    sink, epoch = place.sink(), ref(0)
    writer = sink.begin(planned(epoch))
    assert isinstance(writer, KeyedWriter)
    reports = [write_bucket(writer, rows(range(first, first + 100_000)))[0] for first in range(0, count, 100_000)]
    part = sink.prepare(epoch, reports)
    transaction = transaction_of(part)
    commit_ts = commit(place.client, transaction)
    spans = place.spans(part)
    asked = settle(place.client, transaction.start_ts, commit_ts, spans[0][0], spans[-1][1])
    assert 2 <= asked <= len(splitting.regions())
    assert place.locks() == []
    assert len(place.reader().texts()) == count
