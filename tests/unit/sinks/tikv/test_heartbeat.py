"""A heartbeat runs while its transaction is open, and no longer."""

from __future__ import annotations

import itertools
import threading
import time
from contextlib import closing

import pytest
from google.protobuf.message import Message

from sinks.tikv import tikv_pb2 as pb
from sinks.tikv.client import Endpoint, TikvClient
from sinks.tikv.heartbeat import SAFE_POINT_TTL_S, Heartbeat
from sinks.tikv.transaction import Transaction
from tests.unit.sinks.tikv.scripted_cluster import scripted

BEATS = 3


def test_heartbeat_that_is_stopped_beats_no_more() -> None:
    with scripted() as cluster, closing(TikvClient(Endpoint(tuple(cluster.leaders)))) as client:
        has_beaten = threading.Semaphore(0)

        def alive(request: Message) -> Message:
            has_beaten.release()
            return pb.TxnHeartBeatResponse()

        cluster.says("KvTxnHeartBeat", *[alive] * 100)
        heartbeat = Heartbeat(client, Transaction(7, b"t-primary", 30), "tests", began_s=time.monotonic())
        for _ in range(BEATS):
            assert has_beaten.acquire(timeout=60)
        heartbeat.stop()
        while has_beaten.acquire(blocking=False):
            pass  # sent before the stop
        under_way = [has_beaten.acquire(timeout=0.3) for _ in range(BEATS)]
        assert sum(under_way) <= 1


def test_heartbeat_stopped_while_it_keeps_versions_has_kept_them_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    is_asked, is_answered = threading.Event(), threading.Event()
    order: list[str] = []

    def keep(*_: object) -> None:
        is_asked.set()
        is_answered.wait(timeout=60)
        order.append("kept")

    def stop() -> None:
        heartbeat.stop()
        order.append("stopped")

    monkeypatch.setattr("sinks.tikv.heartbeat.keep_versions", keep)
    with scripted() as cluster, closing(TikvClient(Endpoint(tuple(cluster.leaders)))) as client:
        days = itertools.count(0, SAFE_POINT_TTL_S)
        heartbeat = Heartbeat(
            client, Transaction(7, b"t-primary", 30), "tests", began_s=0, monotonic=lambda: float(next(days))
        )
        assert is_asked.wait(timeout=60)
        stopping = threading.Thread(target=stop)
        stopping.start()
        stopping.join(timeout=0.3)
        is_answered.set()
        stopping.join(timeout=60)
    assert order == ["kept", "stopped"]
