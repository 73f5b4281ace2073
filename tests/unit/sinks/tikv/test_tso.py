"""Timestamps: many in a request, several requests in flight, none twice, and a broken stream is replaced."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import grpc
import pytest
from google.protobuf.message import Message

from sinks.tikv import tikv_pb2 as pb
from sinks.tikv.backoff import Backoff
from sinks.tikv.channels import Channels
from sinks.tikv.pd import PdClient
from sinks.tikv.tso import TsoStream, physical_ms
from tests.unit.sinks.tikv.scripted_cluster import scripted
from timeline.errors import StoreUnavailableError

WAIT_S = 30.0


class Wire:
    """The server end of a stream: the test decides when a request is taken and answered."""

    def __init__(self) -> None:
        self._requests: Iterator[Message] = iter(())
        self._answers: queue.Queue[pb.TsoResponse | Exception | None] = queue.Queue()
        self.is_cancelled = False

    def open(self, requests: Iterator[Message]) -> Wire:
        self._requests = requests
        return self

    def take(self) -> int:
        """Take the next request; returns the number of timestamps that it asks for."""
        request = next(self._requests)
        assert isinstance(request, pb.TsoRequest)
        return request.count

    def give(self, count: int, last: int, suffix_bits: int = 0) -> None:
        timestamp = pb.Timestamp(physical=7, logical=last, suffix_bits=suffix_bits)
        self._answers.put(pb.TsoResponse(count=count, timestamp=timestamp))

    def end(self, error: Exception | pb.TsoResponse | None = None) -> None:
        self._answers.put(error)

    def __iter__(self) -> Iterator[pb.TsoResponse]:
        while (answer := self._answers.get()) is not None:
            if isinstance(answer, Exception):
                raise answer
            yield answer

    def cancel(self) -> bool:
        self.is_cancelled = True
        self._answers.put(grpc.RpcError("cancelled"))
        return True


@pytest.fixture
def wire() -> Wire:
    return Wire()


@pytest.fixture
def stream(wire: Wire) -> Iterator[TsoStream]:
    stream = TsoStream(pb.RequestHeader(), wire.open)
    yield stream
    stream.close()


def results(futures: list[Future[int]]) -> list[int]:
    return [future.result(WAIT_S) for future in futures]


def test_all_that_wait_share_a_request(wire: Wire, stream: TsoStream) -> None:
    futures = [stream.ask() for _ in range(100)]
    assert wire.take() == 100
    wire.give(100, last=100)
    assert results(futures) == [(7 << 18) + number for number in range(1, 101)]
    assert physical_ms(futures[0].result()) == 7


def test_timestamps_of_one_pd_among_several_keep_its_suffix(wire: Wire, stream: TsoStream) -> None:
    """Two PDs with 4 bits for their numbers, 3 and 5: each counts in steps of 16."""
    drawn = []
    for suffix in (3, 5):
        futures = [stream.ask() for _ in range(10)]
        assert wire.take() == 10
        wire.give(10, last=(10 << 4) + suffix, suffix_bits=4)
        drawn.append(results(futures))
    assert drawn == [[(7 << 18) + (number << 4) + suffix for number in range(1, 11)] for suffix in (3, 5)]
    assert not set(drawn[0]) & set(drawn[1])


def test_next_request_leaves_before_the_last_is_answered(wire: Wire, stream: TsoStream) -> None:
    first = [stream.ask() for _ in range(2)]
    assert wire.take() == 2
    second = [stream.ask() for _ in range(3)]
    assert wire.take() == 3
    assert not any(future.done() for future in [*first, *second])
    wire.give(2, last=2)
    wire.give(3, last=5)
    assert results([*first, *second]) == [(7 << 18) + number for number in range(1, 6)]


def test_what_is_asked_for_while_enough_requests_are_under_way_is_one_request(wire: Wire, stream: TsoStream) -> None:
    futures = []
    for _ in range(4):
        futures.append(stream.ask())
        assert wire.take() == 1
    with ThreadPoolExecutor(1) as pool:
        futures += [stream.ask() for _ in range(50)]
        fifth = pool.submit(wire.take)
        assert not fifth.done()
        wire.give(1, last=1)
        assert fifth.result(WAIT_S) == 50
    for last in (2, 3, 4):
        wire.give(1, last=last)
    wire.give(50, last=54)
    assert results(futures) == [(7 << 18) + number for number in range(1, 55)]


BREAKS: list[tuple[Callable[[Wire], None], str]] = [
    (lambda wire: wire.end(), "ended the stream"),
    (lambda wire: wire.end(grpc.RpcError("reset")), "broke: reset"),
    (lambda wire: wire.give(1, last=1), "gave 1 timestamp where 3 were asked for"),
    (lambda wire: wire.end(_refusal()), "not leader"),
]


def _refusal() -> pb.TsoResponse:
    return pb.TsoResponse(header=pb.ResponseHeader(error=pb.PdError(message="not leader")))


@pytest.mark.parametrize(("broken", "why"), BREAKS, ids=["ended", "reset", "too few", "refused"])
def test_broken_stream_fails_all_who_wait_and_all_who_come(
    wire: Wire, stream: TsoStream, broken: Callable[[Wire], None], why: str
) -> None:
    under_way = [stream.ask() for _ in range(3)]
    assert wire.take() == 3
    waiting = stream.ask()
    broken(wire)
    for future in [*under_way, waiting]:
        with pytest.raises(ConnectionError, match=why):
            future.result(WAIT_S)
    assert stream.is_broken
    with pytest.raises(ConnectionError, match=why):
        stream.ask().result(WAIT_S)


def test_answer_that_nobody_asked_for_breaks_the_stream(wire: Wire, stream: TsoStream) -> None:
    wire.give(1, last=1)
    wire.end()
    while not stream.is_broken:
        threading.Event().wait(0.001)
    with pytest.raises(ConnectionError, match="0 were asked for"):
        stream.ask().result(WAIT_S)


def pd_client(endpoints: list[str], channels: Channels, patience_s: float = WAIT_S) -> PdClient:
    return PdClient(endpoints, channels, lambda: Backoff(patience_s))


def test_timestamps_are_unique_and_increase_for_each_of_many_threads() -> None:
    with scripted() as cluster:
        channels = Channels()
        pd = pd_client(cluster.leaders, channels)
        start = threading.Barrier(32)

        def draw(_: int) -> list[int]:
            start.wait(WAIT_S)
            return [pd.timestamp() for _ in range(50)]

        with ThreadPoolExecutor(32) as pool:
            drawn = list(pool.map(draw, range(32)))
        pd.close()
        channels.close()
    assert all(each == sorted(set(each)) for each in drawn)
    assert len({timestamp for each in drawn for timestamp in each}) == 32 * 50
    # Four requests are in flight, and each thread waits for its own: the next one carries those of the other threads.
    assert cluster.asked_pd.count("Tso") < 32 * 50 / 2


def test_timestamps_from_a_pd_with_a_suffix_are_unique_for_many_threads() -> None:
    with scripted() as cluster:
        cluster.suffix_bits = 3
        channels = Channels()
        pd = pd_client(cluster.leaders, channels)
        start = threading.Barrier(16)

        def draw(_: int) -> list[int]:
            start.wait(WAIT_S)
            return [pd.timestamp() for _ in range(20)]

        with ThreadPoolExecutor(16) as pool:
            drawn = [timestamp for each in pool.map(draw, range(16)) for timestamp in each]
        pd.close()
        channels.close()
    given = {(1000 << 18) + (number << 3) + 1 for number in range(1, cluster.timestamps + 1)}
    assert len(set(drawn)) == len(drawn) and set(drawn) <= given, "each is one that PD gave out"


def test_stream_that_breaks_is_followed_by_one_that_works() -> None:
    with scripted() as cluster:
        channels = Channels()
        pd = pd_client(cluster.leaders, channels)
        before = pd.timestamp()
        cluster.tso_fails = 2
        assert pd.timestamp() > before
        pd.close()
        channels.close()


def test_timestamps_go_on_where_another_pd_leads() -> None:
    with scripted(pds=3) as cluster:
        channels = Channels()
        pd = pd_client(cluster.leaders[:1], channels)
        before = pd.timestamp()
        cluster.leaders.append(cluster.leaders.pop(0))
        assert pd.timestamp() > before
        assert pd.store_address(1) == cluster.addresses[1]
        pd.close()
        channels.close()


def test_pd_that_gives_no_timestamps_is_named() -> None:
    with scripted() as cluster:
        channels = Channels()
        pd = pd_client(cluster.leaders, channels, patience_s=0.5)
        cluster.tso_fails = 1000
        with pytest.raises(StoreUnavailableError, match=r"PD gave no timestamp.*UNAVAILABLE: scripted"):
            pd.timestamp()
        pd.close()
        channels.close()
