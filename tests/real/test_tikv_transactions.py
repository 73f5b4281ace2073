"""Percolator's guarantees on a real cluster: an epoch is visible whole or not at all, despite dead or late writers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pytest
from google.protobuf.message import Message

from sinks.base import KeyedWriter, Lookup, SelectiveBatchWriter, SelectiveWriter, SinkContext, TaskAttempt
from sinks.tikv import tikv_pb2 as pb
from sinks.tikv.channels import Channels, PendingCall
from sinks.tikv.client import Endpoint, TikvClient
from sinks.tikv.heartbeat import keep_versions
from sinks.tikv.locks import OpenTxn, RolledBackTxn, look_up
from sinks.tikv.mutations import Mutations, mutation
from sinks.tikv.reader import read_rows
from sinks.tikv.settling import settlings
from sinks.tikv.staged import MAX_ROW_BYTES
from sinks.tikv.transaction import Transaction, commit, prewrite, roll_back, write_mutations
from tests.conftest import or_absent
from tests.contract.test_tikv_sink import ThroughClient
from tests.real import tikv_cluster
from tests.real.tikv_cluster import TikvCluster
from tests.real.tikv_epochs import (
    SCHEMA,
    PassingReader,
    Place,
    Reader,
    committed,
    meanwhile,
    planned,
    prepared,
    ref,
    rows,
    safe_points,
    staged,
    together,
    transaction_of,
    write_bucket,
    written,
)
from tests.waiting import wait_until
from timeline.epoch import EpochRef, Part
from timeline.errors import (
    CommitUnknownError,
    DataError,
    FormatError,
    InvariantError,
    ReplayNeededError,
    StoreUnavailableError,
    TargetBusyError,
    TargetRefusedError,
)
from timeline.failpoints import arm

pytestmark = pytest.mark.real

FEW = range(300)
FOREVER_S = (1 << 63) - 1


@pytest.fixture
def place(tikv: TikvCluster) -> Place:
    return Place.in_(tikv)


TResponse = TypeVar("TResponse", bound=Message)


def texts(place: Place) -> dict[int, str]:
    """Id → text of each row; see `Reader.texts`."""
    return place.reader().texts()


def encoded(place: Place, batch: pa.RecordBatch) -> Mutations:
    """Rows as mutations in the order of their keys, for writers without an epoch."""
    staged = place.sink().stager.stage(batch, "shard", pa.array(range(batch.num_rows), pa.int64())).rows
    ordered = pa.Table.from_batches([staged]).sort_by("key")
    keys, values = (ordered.column(name).combine_chunks() for name in ("key", "value"))
    return Mutations.of(keys, values, inserts=False)


def begun(sink: object, epoch: EpochRef) -> KeyedWriter:
    writer = sink.begin(planned(epoch))  # type: ignore[attr-defined]
    assert isinstance(writer, KeyedWriter)
    return writer


# ── readers ───────────────────────────────────────────────────────────────────────────────────────


class Died(BaseException):
    """The simulated process died here, without clean-up."""


class Watch:
    """A reader that is called repeatedly, for rows into which every epoch writes its own text."""

    def __init__(self, reader: Reader, ids: range) -> None:
        self._reader = reader
        self._ids = ids
        self.seen: list[str] = []

    def look(self) -> None:
        try:
            found = self._reader.texts()
        except Exception as error:
            # A live transaction's lock blocks the read, which shows nothing.
            assert "resolve lock" in str(error), error
            return
        different = {found[number] for number in self._ids}
        assert len(different) == 1, f"parts of several epochs in one snapshot: {different}"
        self.seen += different


def run_until(place: Place, epoch: EpochRef, batch: pa.RecordBatch, last: str) -> Part | None:
    """Run an epoch in a process that dies at a step; returns its part if it was prepared.

    Args:
        place: the target.
        epoch: the epoch.
        batch: its rows.
        last: crash point to die at; ``prepared``: end before the commit.
    """

    def die(name: str) -> None:
        if name == last:
            raise Died

    sink, part = place.sink(), None
    arm(die)
    try:
        part = prepared(sink, epoch, batch)
        if last != "prepared":
            sink.commit(part)
    except Died:
        pass
    finally:
        arm(None)
    return part


@pytest.fixture(scope="module")
def own_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TikvCluster]:
    """A cluster with small regions, and without open epochs of other tests."""
    with or_absent(), tikv_cluster.running(tmp_path_factory.mktemp("own"), region_bytes=64 << 10) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def split_place(own_cluster: TikvCluster) -> Place:
    """Rows 0 to 3999 over several regions."""
    place = Place.in_(own_cluster)
    before = len(own_cluster.regions())
    committed(place.sink(), ref(0), rows(range(4000), "the first epoch" * 6))
    wait_until(lambda: len(own_cluster.regions()) >= before + 3 and own_cluster.is_whole(), "regions are split")
    return place


@pytest.mark.parametrize(("kind", "first"), [(Reader, 1), (PassingReader, 21)])
def test_reader_never_sees_part_of_an_epoch(split_place: Place, kind: type[Reader], first: int) -> None:
    place, ids = split_place, range(0, 4000, 10)
    watch = Watch(kind(place), ids)
    watch.look()
    visible = list(watch.seen)
    steps = ("transaction-begun", "prepared", "part-committing", "primary-committed", "never")
    regions: set[int] = set()
    with meanwhile(watch.look):
        for number, last in enumerate([*steps, *steps], start=1):
            epoch, text = ref(first + number), f"epoch {first + number} until {last}"
            part = run_until(place, epoch, rows(ids, text), last)
            recovery = place.sink()
            if part is None or (last == "prepared" and number > len(steps)):
                recovery.abort(epoch, part)
            else:
                regions.add(len(place.spans(part)))
                visible.append(text)
                recovery.commit(part)
            recovery.release(epoch, part, final=True)
            watch.look()
    assert set(watch.seen) == set(visible)
    # In the order of their commits, and no epoch reappears.
    assert list(dict.fromkeys(watch.seen)) == visible
    assert min(regions) > 2
    assert place.locks() == []


class DyingChannels(Channels):
    """Channels of a process that dies instead of sending a commit."""

    def start(
        self, address: str, method: str, request: bytes, answer: type[TResponse], timeout_s: float
    ) -> PendingCall[TResponse]:
        if method.endswith("/KvCommit"):
            raise Died
        return super().start(address, method, request, answer, timeout_s)


def test_nothing_of_an_epoch_is_visible_where_its_writer_dies_with_the_primary_uncommitted(split_place: Place) -> None:
    place, ids, epoch = split_place, range(0, 4000, 10), ref(50)
    before = PassingReader(place).texts()
    part = prepared(place.sink(), epoch, rows(ids, "never committed"))
    writer = ThroughClient.open(place.options(), SinkContext("job", SCHEMA))
    dying = replace(writer, own_client=TikvClient(writer.endpoint, DyingChannels()))
    with pytest.raises(Died):
        dying.commit(part)
    assert PassingReader(place).texts() == before
    recovery = place.sink()
    recovery.abort(epoch, part)
    assert texts(place) == before
    recovery.release(epoch, part, final=True)


def test_epoch_whose_settling_stopped_halfway_is_visible_as_a_whole(split_place: Place) -> None:
    place, ids = split_place, range(0, 4000, 10)
    epoch = ref(100)
    # A short TTL: tikv-client resolves a lock only past its TTL.
    part = prepared(place.sink(lock_ttl=1), epoch, rows(ids, "half settled"))
    commit_ts = commit(place.client, transaction_of(part))
    pieces = [span for call in settlings(place.client, 1, 1, place.spans(part)) for span in call.spans]
    (first,) = settlings(place.client, transaction_of(part).start_ts, commit_ts, pieces[: len(pieces) // 2])
    first()
    assert 0 < len(place.locks()) < len(ids)
    wait_until(lambda: readable(place), "its locks are past their TTL", 20)
    found = texts(place)
    assert {found[number] for number in ids} == {"half settled"}
    place.sink().release(epoch, part, final=True)
    assert place.locks() == []


def test_commit_whose_locks_could_not_all_be_resolved_says_so_and_another_process_goes_on(place: Place) -> None:
    epoch, batch = ref(100), rows(range(10), "decided")
    sink = place.sink()
    part = prepared(sink, epoch, batch)

    def executors_are_gone(calls: Sequence[Callable[[], None]]) -> None:
        raise StoreUnavailableError("no executor answers")

    with pytest.raises(CommitUnknownError, match="is committed, its locks are not all resolved: no executor answers"):
        sink.commit(replace(part, rows=1_000_000), executors_are_gone)  # many: settled by executors
    assert place.locks()
    place.sink().commit(part)
    assert place.locks() == []
    assert set(texts(place).values()) == {"decided"}


def readable(place: Place) -> bool:
    try:
        place.reader().texts()
    except Exception as error:
        assert "resolve lock" in str(error), error
        return False
    return True


def test_lock_of_a_dead_writer_stops_readers_until_its_ttl_and_no_longer(place: Place) -> None:
    committed(place.sink(), ref(0), rows(FEW, "before"))
    client = place.client
    began_s = time.monotonic()
    dead = Transaction(client.pd.timestamp(), place.sink().records.epoch_key(1), 2000)
    prewrite(client, dead, mutation(dead.primary, b"record"))
    prewrite(client, dead, encoded(place, rows(FEW, "never")))
    wait_until(lambda: readable(place), "its locks are past their TTL", 30)
    assert time.monotonic() - began_s > 1.0
    assert set(texts(place).values()) == {"before"}
    assert look_up(client, dead.primary, dead.start_ts) == RolledBackTxn()
    with pytest.raises(ReplayNeededError):
        commit(client, dead)
    assert set(texts(place).values()) == {"before"}


# ── an epoch that others have rolled back ─────────────────────────────────────────────────────────


def test_prepared_epoch_that_others_rolled_back_is_named_before_the_decision(place: Place) -> None:
    sink, epoch = place.sink(), ref(0)
    part = prepared(sink, epoch, rows(FEW))
    assert place.sink().verify(part) == []
    roll_back(place.client, transaction_of(part))
    (problem,) = place.sink().verify(part)
    assert f"transaction {transaction_of(part).start_ts} was rolled back" in problem


def test_decided_epoch_that_others_rolled_back_is_written_again_and_only_then_visible(place: Place) -> None:
    sink, epoch = place.sink(), ref(0)
    lost = prepared(sink, epoch, rows(range(400), "lost"))
    roll_back(place.client, transaction_of(lost))
    for process in (sink, place.sink()):
        with pytest.raises(ReplayNeededError, match=r"Nothing of it is visible.*tideline run does that"):
            process.commit(lost)
        assert process.lookup(epoch) is Lookup.NOT_COMMITTED
    again = place.sink()
    part = prepared(again, epoch, rows(FEW, "again"))
    again.commit(part)
    assert again.lookup(epoch) is Lookup.COMMITTED
    again.release(epoch, part, final=True)
    assert texts(place) == dict.fromkeys(FEW, "again")
    assert place.locks() == []


def test_zombie_cannot_commit_what_was_rolled_back(place: Place) -> None:
    zombie, epoch = place.sink(), ref(0)
    late = prepared(zombie, epoch, rows(FEW, "zombie"))
    recovery = place.sink()
    recovery.abort(epoch, late)
    with pytest.raises(ReplayNeededError):
        zombie.commit(late)
    recovery.release(epoch, late, final=True)
    committed(place.sink(), ref(1), rows(range(10), "new"))
    # A later epoch is applied: its writer has settled this one.
    zombie.commit(late)
    assert texts(place) == dict.fromkeys(range(10), "new")
    assert place.locks() == []


def test_two_writers_of_one_epoch_meet_at_its_primary(place: Place) -> None:
    first, second, epoch = place.sink(), place.sink(), ref(0)
    part = prepared(first, epoch, rows(FEW, "first"))
    refused: list[str] = []

    def begin() -> None:
        with pytest.raises(TargetBusyError) as raised:
            second.begin(planned(ref(0)))
        refused.append(str(raised.value))

    def commit_first() -> None:
        wait_until(lambda: len(place.sink().records.attempts()) == 2, "the second writer has begun", 30)
        first.commit(part)

    together([begin, commit_first])
    assert "was changed by another writer" in refused[0]
    assert set(texts(place).values()) == {"first"}


# ── commit timestamps ─────────────────────────────────────────────────────────────────────────────


def test_two_processes_that_race_with_a_commit_settle_at_the_same_timestamp(place: Place) -> None:
    with closing(TikvClient(Endpoint(place.pd))) as one, closing(TikvClient(Endpoint(place.pd))) as other:
        for number in range(20):
            batch = encoded(place, rows(range(number * 10, number * 10 + 10)))
            transaction = Transaction(one.pd.timestamp(), batch.first_key, 20_000)
            prewrite(one, transaction, batch)
            found: list[int] = []
            race: list[Callable[[], None]] = [
                lambda c=client, t=transaction, f=found: f.append(commit(c, t))  # type: ignore[misc]
                for client in (one, other)
            ]
            together(race)
            # A much later commit returns the same timestamp.
            found.append(commit(other, transaction))
            assert len(set(found)) == 1
            for call in settlings(other, transaction.start_ts, found[-1], [(batch.first_key, batch.last_key + b"\0")]):
                call()
            for version, is_there in ((found[0], True), (found[0] - 1, False)):
                assert [value_at(one, key, version) for key in batch.keys.to_pylist()] == [is_there] * len(batch)


def value_at(client: TikvClient, key: bytes, version: int) -> bool:
    answer = client.ask(
        key,
        "KvGet",
        lambda context: pb.GetRequest(context=context, key=key, version=version),
        pb.GetResponse,
        client.backoff(),
    )
    assert not answer.HasField("error"), answer
    return not answer.not_found


# ── late copies of tasks ──────────────────────────────────────────────────────────────────────────


def test_late_copy_of_a_task_changes_nothing_of_a_committed_epoch(place: Place) -> None:
    sink, epoch = place.sink(), ref(0)
    copy = begun(sink, epoch)
    part = prepared(sink, epoch, rows(FEW, "once"))
    sink.commit(part)
    with pytest.raises(TargetBusyError, match="is over meanwhile"):
        write_bucket(copy, rows(FEW, "late"))
    sink.release(epoch, part, final=True)
    assert texts(place) == dict.fromkeys(FEW, "once")
    assert place.locks() == []


def test_late_copy_of_a_task_of_a_rolled_back_epoch_is_cleaned_up_at_the_end(place: Place) -> None:
    committed(place.sink(), ref(0), rows(FEW, "before"))
    sink, epoch = place.sink(lock_ttl=1), ref(1)
    copy = begun(sink, epoch)
    sink.abort(epoch, None)
    sink.release(epoch, None)
    # Its first writes to these keys: no record there says that the transaction is over.
    write_bucket(copy, rows(FEW, "late"))
    assert len(place.locks()) == len(FEW)
    assert place.sink().unreleased() == [epoch.instant]
    wait_until(lambda: readable(place), "its locks are past their TTL", 20)
    assert set(texts(place).values()) == {"before"}
    write_bucket(copy, rows(range(1000, 1100), "late"))
    assert len(place.locks()) >= 100
    place.sink().release(epoch, None, final=True)
    assert place.locks() == []
    assert place.sink().unreleased() == []


# ── other writers ─────────────────────────────────────────────────────────────────────────────────


def test_competing_writer_that_holds_a_key_is_waited_for_and_named(place: Place) -> None:
    other = Transaction(place.client.pd.timestamp(), place.row_key(7), 20_000)
    prewrite(place.client, other, encoded(place, rows([7], "other")))
    own = Transaction(place.client.pd.timestamp(), b"tepochs-primary", 20_000)
    with pytest.raises(
        TargetBusyError, match=f"locked by another writer's transaction.*start {other.start_ts}"
    ) as busy:
        prewrite(place.client, own, encoded(place, rows(FEW)), lock_wait_s=1.5)
    assert repr(place.row_key(7))[:40] in str(busy.value)
    roll_back(place.client, other)


def test_competing_writer_that_ends_in_time_is_not_in_the_way(place: Place) -> None:
    other = Transaction(place.client.pd.timestamp(), place.row_key(7), 20_000)
    prewrite(place.client, other, encoded(place, rows([7], "other")))
    timer = threading.Timer(0.3, lambda: roll_back(place.client, other))
    timer.start()
    committed(place.sink(), ref(0), rows(FEW, "own"))
    timer.join()
    assert set(texts(place).values()) == {"own"}


def test_competing_writer_that_commits_meanwhile_is_named_and_nothing_of_it_is_lost(place: Place) -> None:
    sink, epoch = place.sink(), ref(0)
    writer = begun(sink, epoch)
    write_mutations(place.client, encoded(place, rows([7], "other")), 20_000)
    with pytest.raises(TargetBusyError, match="was changed by another writer") as busy:
        write_bucket(writer, rows(FEW, "own"))
    assert repr(place.row_key(7))[:40] in str(busy.value)
    sink.abort(epoch, None)
    sink.release(epoch, None, final=True)
    assert texts(place) == {7: "other"}
    assert place.locks() == []


# ── heartbeats and the safe point ─────────────────────────────────────────────────────────────────


def hearts() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "tikv-heartbeat"}


def test_heartbeats_keep_an_epoch_alive_far_beyond_its_ttl_and_end_with_it(place: Place) -> None:
    before = hearts()
    sink, epoch = place.sink(lock_ttl=8), ref(0)
    part = prepared(sink, epoch, rows(FEW, "slow"))
    (heartbeat,) = hearts() - before
    transaction = transaction_of(part)
    end_s = time.monotonic() + 17.0
    while time.monotonic() < end_s:
        # As a reader does that finds a lock: it may roll back a transaction past its TTL.
        assert isinstance(met(place.client, transaction), OpenTxn)
        time.sleep(0.1)
    sink.commit(part)
    heartbeat.join(10)
    assert not heartbeat.is_alive()
    assert set(texts(place).values()) == {"slow"}


def met(client: TikvClient, transaction: Transaction) -> object:
    """Status of a transaction, as for a reader that finds its lock now."""
    now = client.pd.timestamp()
    answer = client.ask(
        transaction.primary,
        "KvCheckTxnStatus",
        lambda context: pb.CheckTxnStatusRequest(
            context=context, primary_key=transaction.primary, lock_ts=transaction.start_ts, current_ts=now
        ),
        pb.CheckTxnStatusResponse,
        client.backoff(),
    )
    return look_up(client, transaction.primary, transaction.start_ts) if answer.lock_ttl else RolledBackTxn()


DRIVER = """
import sys, time
from tests.real.tikv_epochs import Place, planned, ref, rows, written
place = Place((sys.argv[1],), sys.argv[2])
sink, epoch = place.sink(lock_ttl=1), ref(0)
report = written(sink, epoch, rows(range(100), "frozen"))
print("begun", flush=True)
sys.stdin.readline()
until = time.monotonic() + 20
while time.monotonic() < until:
    try:
        sink.prepare(epoch, [report])
    except Exception as error:
        print(type(error).__name__, error, flush=True)
        break
    time.sleep(0.05)
"""


def test_target_that_is_dropped_without_an_end_keeps_no_lock_alive(place: Place) -> None:
    def hearts() -> set[threading.Thread]:
        return {thread for thread in threading.enumerate() if thread.name == "tikv-heartbeat" and thread.is_alive()}

    before = hearts()
    sink = place.sink(lock_ttl=1)
    begun(sink, ref(0))
    (heartbeat,) = hearts() - before
    del sink
    heartbeat.join(timeout=60)
    assert not heartbeat.is_alive()


def test_driver_that_was_frozen_beyond_the_ttl_learns_that_its_epoch_is_lost(place: Place) -> None:
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", DRIVER, place.pd[0], place.prefix]
    with subprocess.Popen(command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as driver:
        try:
            assert driver.stdout is not None
            assert driver.stdout.readline() == "begun\n"
            os.kill(driver.pid, signal.SIGSTOP)
            wait_until(lambda: readable(place), "a reader has rolled its epoch back", 30)
            assert texts(place) == {}
            os.kill(driver.pid, signal.SIGCONT)
            said, _ = driver.communicate("\n", timeout=60)
        finally:
            driver.kill()
    assert "TargetBusyError" in said
    assert "was rolled back by others: its heartbeats did not get through; raise lock_ttl" in said


def test_versions_that_an_open_epoch_needs_are_kept_until_it_is_released(own_cluster: TikvCluster) -> None:
    place, epoch = Place.in_(own_cluster), ref(0)
    sink = place.sink()
    before = set(safe_points(own_cluster))
    part = prepared(sink, epoch, rows(FEW))
    start_ts = transaction_of(part).start_ts
    (service,) = set(safe_points(own_cluster)) - before
    assert safe_points(own_cluster)[service] == start_ts
    # The garbage collection cannot advance its safe point.
    assert place.client.pd.keep_safe_point("gc_worker", place.client.pd.timestamp(), FOREVER_S) == start_ts
    sink.commit(part)
    sink.release(epoch, part)
    assert service not in safe_points(own_cluster)


def test_a_writer_that_ends_its_epoch_late_lets_go_of_nothing_that_its_successor_needs(
    own_cluster: TikvCluster,
) -> None:
    place, before = Place.in_(own_cluster), safe_points(own_cluster)
    late, successor = place.sink(), place.sink()
    first, second = ref(0), ref(1)
    begun(late, first)
    part = prepared(successor, second, rows(FEW))
    late.abort(first, None)
    late.release(first, None)
    found = safe_points(own_cluster)
    assert [found[name] for name in found.keys() - before.keys()] == [transaction_of(part).start_ts]
    successor.abort(second, part)
    successor.release(second, part)
    assert safe_points(own_cluster).keys() == before.keys()


def test_transaction_that_is_older_than_the_safe_point_is_not_begun(own_cluster: TikvCluster) -> None:
    place = Place.in_(own_cluster)
    old = Transaction(place.client.pd.timestamp(), b"t-primary", 1000)
    place.client.pd.keep_safe_point("gc_worker", place.client.pd.timestamp(), FOREVER_S)
    with pytest.raises(InvariantError, match=f"transaction {old.start_ts} is older than the cluster's GC safe point"):
        keep_versions(place.client, "late", old)


def test_bucket_that_is_written_in_rounds_is_one_transaction(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sinks.tikv.writer.ROUND_BYTES", 10_000)
    committed(place.sink(), ref(0), rows(range(0, 2000, 2), "there"))
    sink, epoch = place.sink(mode="insert"), ref(1)
    writer = begun(sink, epoch)
    bucket = writer.open(TaskAttempt(0, 0, 0))
    for ids in (range(2000), range(1500)):
        bucket.write(staged(writer, rows(ids, "new")))
    refused = list(bucket.settle())
    report = bucket.close()
    assert len(refused) > 10
    assert (report.rows, report.dropped, report.rejected) == (1000, 1500, 1000)
    assert sum(batch.num_rows for batch in refused) == 1000
    part = sink.prepare(epoch, [report])
    sink.commit(part)
    assert texts(place) == {number: "new" if number % 2 else "there" for number in range(2000)}


# ── modes ─────────────────────────────────────────────────────────────────────────────────────────


def test_insert_sets_existing_keys_aside_and_writes_the_rest(place: Place) -> None:
    committed(place.sink(), ref(0), rows(range(0, 6000, 2), "there"))
    sink, epoch = place.sink(mode="insert"), ref(1)
    report, refused = write_bucket(begun(sink, epoch), rows(range(6000), "new"))
    assert (report.rows, report.rejected) == (3000, 3000)
    assert sorted(refused.column("offset").to_pylist()) == list(range(0, 6000, 2))
    part = sink.prepare(epoch, [report])
    sink.commit(part)
    assert texts(place) == {number: "new" if number % 2 else "there" for number in range(6000)}


def test_insert_of_an_existing_key_stops_the_job_where_that_is_asked_for(place: Place) -> None:
    committed(place.sink(), ref(0), rows([5], "there"))
    sink, epoch = place.sink(mode="insert", on_existing="fail"), ref(1)
    with pytest.raises(DataError, match="rows whose key exists already: 1, the first at shard offset 3"):
        write_bucket(begun(sink, epoch), rows([2, 3, 4, 5]))
    sink.abort(epoch, None)
    sink.release(epoch, None, final=True)
    assert place.locks() == []


def test_key_that_somebody_else_inserts_meanwhile_is_no_row_of_ours(place: Place) -> None:
    sink, epoch = place.sink(mode="insert"), ref(0)
    writer = begun(sink, epoch)
    write_mutations(place.client, encoded(place, rows([7], "other")), 20_000)
    with pytest.raises(TargetBusyError, match="another writer"):
        write_bucket(writer, rows(FEW))
    sink.abort(epoch, None)


def test_task_that_runs_again_finds_its_own_inserts_new(place: Place) -> None:
    sink, epoch = place.sink(mode="insert"), ref(0)
    writer = begun(sink, epoch)
    reports = [write_bucket(writer, rows(FEW))[0] for _ in range(2)]
    assert [(report.rows, report.rejected) for report in reports] == [(300, 0)] * 2


def test_marked_rows_delete_their_keys(place: Place) -> None:
    schema = SCHEMA.append(pa.field("gone", pa.bool_()))
    committed(place.sink(), ref(0), rows(FEW, "there"))
    batch = pa.record_batch(
        [pa.array([1, 2, 9999]), pa.array(["a", "b", "c"]), pa.array([True, None, True])], schema=schema
    )
    sink, epoch = place.sink(schema=schema, delete_marker="gone"), ref(1)
    sink.ensure()
    part = committed(sink, epoch, batch)
    assert part.rows == 3
    expected = dict.fromkeys(FEW, "there") | {2: "b"}
    del expected[1]
    assert texts(place) == expected


def test_row_of_another_program_that_no_tikv_client_reads_is_named(place: Place) -> None:
    committed(place.sink(), ref(1), rows([1]))
    write_mutations(place.client, mutation(place.row_key(2), b"x" * (5 << 20)), 20_000)
    with pytest.raises(FormatError, match=f"first row from key 0x{place.row_key(1).hex()}00 on is larger than"):
        list(read_rows(place.sink()))


# ── small transactions ────────────────────────────────────────────────────────────────────────────


def small_writer(place: Place, **block: object) -> SelectiveWriter:
    return place.minibatch(**block).begin(planned(ref(0)))


def take(task: SelectiveBatchWriter, batch: pa.RecordBatch, first: int = 0) -> list[dict[str, Any]]:
    """Pass rows with offsets from `first` on to a task; returns the refused rows."""
    offsets = pa.array(range(first, first + batch.num_rows), pa.int64())
    refused: list[dict[str, Any]] = task.take(batch, "shard", offsets).to_pylist()
    return refused


def test_minibatch_is_visible_before_the_epoch_is_committed(place: Place) -> None:
    sink, epoch = place.minibatch(max_rows=10, max_interval=1000), ref(0)
    task = sink.begin(planned(epoch)).open_selective(TaskAttempt(0, 0, 0))
    assert not take(task, rows(range(25)))
    assert list(texts(place)) == list(range(20))
    part = sink.prepare(epoch, [task.close()])
    assert list(texts(place)) == list(range(25))
    assert sink.lookup(epoch) is Lookup.NOT_COMMITTED
    sink.commit(part)
    assert sink.lookup(epoch) is Lookup.COMMITTED


def test_minibatch_does_not_wait_longer_than_its_interval(place: Place) -> None:
    task = small_writer(place, max_rows=1_000_000, max_interval=0.05).open_selective(TaskAttempt(0, 0, 0))
    assert not take(task, rows([1]))
    assert texts(place) == {}
    time.sleep(0.1)
    assert not take(task, rows([2]))
    assert list(texts(place)) == [1, 2]


def test_minibatches_that_are_written_twice_are_there_once(place: Place) -> None:
    for _ in range(2):
        task = small_writer(place, max_rows=7).open_selective(TaskAttempt(0, 0, 0))
        assert not take(task, rows(range(30), "same"))
        assert task.close().rows == 30
    assert texts(place) == dict.fromkeys(range(30), "same")


def test_minibatch_keeps_one_row_of_each_key(place: Place) -> None:
    task = small_writer(place, max_rows=100).open_selective(TaskAttempt(0, 0, 0))
    assert not take(task, rows([1, 1, 2], "first"))
    assert not take(task, rows([1], "last"), 3)
    report = task.close()
    assert (report.rows, report.dropped) == (2, 2)
    assert texts(place) == {1: "last", 2: "first"}


def test_minibatch_stops_at_a_row_without_a_key(place: Place) -> None:
    task = small_writer(place).open_selective(TaskAttempt(0, 0, 0))
    with pytest.raises(DataError, match="key column 'id' is null in 1 row, the first at shard offset 1"):
        take(task, pa.record_batch([pa.array([1, None], pa.int64()), pa.array(["a", "b"])], schema=SCHEMA))
    assert texts(place) == {}


def test_minibatch_refuses_rows_that_it_cannot_write_alone(place: Place) -> None:
    task = small_writer(place, on_null_key="quarantine", max_rows=2).open_selective(TaskAttempt(0, 0, 0))
    large = "x" * MAX_ROW_BYTES
    numbers, words = pa.array([1, None, 3, 4, 5], pa.int64()), pa.array(["a", "b", large, "d", large])
    refused = take(task, pa.record_batch([numbers, words], schema=SCHEMA))
    assert [(row["shard"], row["offset"]) for row in refused] == [("shard", 1), ("shard", 2), ("shard", 4)]
    assert json.loads(refused[1]["raw"]) == {"id": 3, "text": large}
    report = task.close()
    assert (report.rows, report.dropped, report.rejected) == (2, 0, 3)
    assert texts(place) == {1: "a", 4: "d"}


def test_minibatches_of_tasks_that_share_keys_do_not_stop_each_other(place: Place) -> None:
    def run(number: int) -> None:
        task = small_writer(place, max_rows=5).open_selective(TaskAttempt(number, 0, 0))
        assert not take(task, rows([*range(20)] * 3, f"task {number}"))
        task.close()

    together([lambda: run(1), lambda: run(2), lambda: run(3)])
    assert list(texts(place)) == list(range(20))


# ── layout ────────────────────────────────────────────────────────────────────────────────────────

WIDE = SCHEMA.append(pa.field("more", pa.int64()))


@pytest.mark.parametrize(
    ("schema", "key", "words"),
    [
        (SCHEMA, ["text"], "the key is text string, not id int64"),
        (pa.schema([SCHEMA.field("id"), WIDE.field("more"), SCHEMA.field("text")]), ["id"], "append, never change"),
        (pa.schema([SCHEMA.field("id"), pa.field("text", pa.int64())]), ["id"], "the columns are text int64, not text"),
    ],
    ids=["other key", "reordered", "other type"],
)
def test_rows_of_another_layout_are_refused_before_anything_is_written(
    place: Place, schema: pa.Schema, key: list[str], words: str
) -> None:
    committed(place.sink(), ref(0), rows(FEW))
    with pytest.raises(TargetRefusedError, match=words) as refused:
        place.sink("another job", schema=schema, key=key).ensure()
    assert "Write to another prefix" in str(refused.value)


def test_appended_columns_are_taken_and_old_rows_read_with_nulls(place: Place) -> None:
    committed(place.sink(), ref(0), rows([1], "old"))
    sink = place.sink(schema=WIDE)
    sink.ensure()
    new = pa.record_batch([pa.array([2]), pa.array(["new"]), pa.array([7])], schema=WIDE)
    committed(sink, ref(1), new)
    read = pa.Table.from_batches(read_rows(sink)).to_pylist()
    assert read == [{"id": 1, "text": "old", "more": None}, {"id": 2, "text": "new", "more": 7}]
    place.sink().ensure()


def test_rows_that_fill_more_than_an_answer_are_read_in_smaller_pages(place: Place) -> None:
    committed(place.sink(), ref(0), rows(range(1500), "x" * 6000))
    assert sum(batch.num_rows for batch in read_rows(place.sink())) == 1500
    assert sum(batch.num_rows for batch in read_rows(place.sink(), limit=1200)) == 1200


def test_several_tasks_of_an_epoch_are_one_transaction(place: Place) -> None:
    sink, epoch = place.sink(), ref(0)
    reports = [written(sink, epoch, rows(range(first, first + 100))) for first in (0, 100, 200)]
    assert texts_or_none(place) is None
    part = sink.prepare(epoch, reports)
    sink.commit(part)
    assert list(texts(place)) == list(FEW)


def texts_or_none(place: Place) -> dict[int, str] | None:
    return texts(place) if readable(place) else None
