"""Epochs of a TiKV target on a running cluster, step by step, and their rows as read by another client."""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from tikv_client.asynchronous import TransactionClient

from sinks.base import REJECTED_SCHEMA, KeyedWriter, SinkContext, TaskAttempt
from sinks.tikv.client import Endpoint, TikvClient, connection
from sinks.tikv.key_codec import own_range, row_range
from sinks.tikv.minibatch import MinibatchSink
from sinks.tikv.options import TikvOptions
from sinks.tikv.records import PREPARED, scan
from sinks.tikv.settling import Span, locks_in
from sinks.tikv.sink import TransactionSink
from sinks.tikv.transaction import Transaction
from tests.real.tikv_clients import patiently
from tests.real.tikv_cluster import TikvCluster
from timeline.epoch import EpochRef, Part, Plan, WriteReport

SCHEMA = pa.schema([pa.field("id", pa.int64()), pa.field("text", pa.string())])

# Keys per scan: tikv-client's limit for an answer is 4 MiB.
_PAGE = 10_000

_prefixes = (f"tepochs{number}_" for number in itertools.count())
_instants = itertools.count()


def ref(epoch: int) -> EpochRef:
    """An epoch with a new instant."""
    return EpochRef(epoch, f"20240101{next(_instants):09d}", 1)


def planned(epoch: EpochRef) -> Plan:
    """A plan for an epoch, without ranges, which the target does not read."""
    return Plan(epoch, "job", "test", (), (), {}, "token")


def rows(ids: Iterable[int], text: str = "text") -> pa.RecordBatch:
    """A batch of rows with these ids."""
    numbers = pa.array(list(ids), pa.int64())
    return pa.record_batch([numbers, pa.array([text] * len(numbers), pa.string())], schema=SCHEMA)


@dataclass(frozen=True)
class Place:
    """A prefix of its own in a cluster.

    Attributes:
        pd: the cluster's endpoints.
        prefix: of the target.
    """

    pd: tuple[str, ...]
    prefix: str

    @classmethod
    def in_(cls, cluster: TikvCluster) -> Place:
        """A place with the next unused prefix."""
        return cls(tuple(cluster.pd), next(_prefixes))

    def options(self, **block: Any) -> TikvOptions:
        """The target's block of a job file."""
        return TikvOptions.model_validate(
            {"type": "tikv", "pd": self.pd, "prefix": self.prefix, "key": ["id"], "patience": 30} | block
        )

    def sink(self, app_id: str = "job", schema: pa.Schema = SCHEMA, **block: Any) -> TransactionSink:
        """The target, opened as by a new process."""
        return TransactionSink.open(self.options(**block), SinkContext(app_id, schema))

    def minibatch(self, **block: Any) -> MinibatchSink:
        """The target with small transactions, opened as by a new process."""
        return MinibatchSink.open(self.options(transaction="minibatch", **block), SinkContext("job", SCHEMA))

    @property
    def client(self) -> TikvClient:
        """A connection to the cluster."""
        return connection(Endpoint(self.pd, patience_s=30))

    def locks(self) -> list[bytes]:
        """All locked keys below the prefix."""
        start, end = own_range(self.prefix.encode())[0], row_range(self.prefix.encode())[1]
        return [lock.key for lock in locks_in(self.client, start, end)]

    def row_key(self, number: int) -> bytes:
        """The key of a row."""
        return bytes(self.sink().stager.keys.encode(rows([number]))[0].as_py())

    def spans(self, part: Part) -> list[Span]:
        """Key ranges of a part's rows."""
        return [
            (bytes.fromhex(start), bytes.fromhex(end))
            for task in PREPARED.validate_python(part.detail).spans
            for start, end in task
        ]

    def reader(self) -> Reader:
        """A reader that uses another client."""
        return Reader(self)


class Reader:
    """A reader by tikv-client; each read is one snapshot."""

    def __init__(self, place: Place) -> None:
        """Nothing is read yet."""
        self._place = place
        self._stager = place.sink().stager

    def texts(self) -> dict[int, str]:
        """Id → text of each row now.

        Raises:
            Exception: a lock of a live transaction blocks the read.
        """
        with closing(asyncio.new_event_loop()) as loop:
            pairs = patiently(lambda: loop.run_until_complete(self._pairs()))
        keys, values = ([pair[side] for pair in pairs] for side in (0, 1))
        table = pa.table({"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())})
        read = self._stager.restore(table)
        return dict(zip(read.column("id").to_pylist(), read.column("text").to_pylist(), strict=True))

    async def _pairs(self) -> list[tuple[bytes, bytes]]:
        client = await TransactionClient.connect(list(self._place.pd))
        snapshot = client.snapshot(await client.current_timestamp(), False)
        start, end = row_range(self._place.prefix.encode())
        pairs: list[tuple[bytes, bytes]] = []
        while page := await snapshot.scan(start, end, _PAGE, True, False):
            pairs += page
            start = page[-1][0] + b"\0"
        return pairs


class PassingReader(Reader):
    """A reader that does not wait for open transactions: it makes them commit after its own timestamp."""

    async def _pairs(self) -> list[tuple[bytes, bytes]]:
        return list(scan(self._place.client, *row_range(self._place.prefix.encode())))


def staged(writer: KeyedWriter, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Rows as staged for the task that writes them."""
    return writer.stage(batch, "shard", pa.array(range(batch.num_rows), pa.int64())).rows


def write_bucket(writer: KeyedWriter, batch: pa.RecordBatch) -> tuple[WriteReport, pa.RecordBatch]:
    """Write rows in one task attempt; returns its report, and the rows that the target refused."""
    bucket = writer.open(TaskAttempt(0, 0, 0))
    bucket.write(staged(writer, batch))
    refused = pa.concat_batches(list(bucket.settle()))
    assert refused.schema == REJECTED_SCHEMA
    return bucket.close(), refused


def written(sink: TransactionSink, epoch: EpochRef, batch: pa.RecordBatch) -> WriteReport:
    """Prewrite rows in the epoch's transaction, which is begun if necessary."""
    writer = sink.begin(planned(epoch))
    assert isinstance(writer, KeyedWriter)
    return write_bucket(writer, batch)[0]


def prepared(sink: TransactionSink, epoch: EpochRef, batch: pa.RecordBatch) -> Part:
    """Write and prepare an epoch with one task."""
    return sink.prepare(epoch, [written(sink, epoch, batch)])


def committed(sink: TransactionSink, epoch: EpochRef, batch: pa.RecordBatch) -> Part:
    """Run an epoch from begin to release, with one task."""
    part = prepared(sink, epoch, batch)
    sink.commit(part)
    sink.release(epoch, part)
    return part


def transaction_of(part: Part) -> Transaction:
    """The transaction that a part was prepared in."""
    return PREPARED.validate_python(part.detail).transaction


def safe_points(cluster: TikvCluster) -> dict[str, int]:
    """Service → its safe point in PD, without PD's own `gc_worker`, which appears with the first service."""
    with urllib.request.urlopen(f"http://{cluster.pd_leader().address}/pd/api/v1/gc/safepoint", timeout=10) as answer:
        found = json.load(answer)["service_gc_safe_points"] or []
    return {each["service_id"]: int(each["safe_point"]) for each in found if each["service_id"] != "gc_worker"}


@contextmanager
def meanwhile(*actions: Callable[[], None]) -> Iterator[None]:
    """Repeat each action in a thread until the block ends; the first error of any is raised then."""
    ended = threading.Event()
    errors: list[BaseException] = []

    def repeat(action: Callable[[], None]) -> None:
        try:
            while not ended.is_set():
                action()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=repeat, args=(action,)) for action in actions]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    if errors:
        raise errors[0]


def together(actions: Sequence[Callable[[], None]]) -> None:
    """Run all actions concurrently; the first error is raised after all have ended."""
    errors: list[BaseException] = []
    start = threading.Barrier(len(actions))

    def run(action: Callable[[], None]) -> None:
        start.wait()
        try:
            action()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(action,)) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
