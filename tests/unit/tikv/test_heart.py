"""A heart beats while its transaction is open, and no longer."""

from __future__ import annotations

import threading
import time
from contextlib import closing

from google.protobuf.message import Message

from sinks.tikv import tikv_pb2 as pb
from sinks.tikv.client import Endpoint, TikvClient
from sinks.tikv.heart import Heart
from sinks.tikv.transaction import Transaction
from tests.unit.tikv.scripted_cluster import scripted

BEATS = 3


def test_heart_that_is_stopped_beats_no_more() -> None:
    with scripted() as cluster, closing(TikvClient(Endpoint(tuple(cluster.leaders)))) as client:
        has_beaten = threading.Semaphore(0)

        def alive(request: Message) -> Message:
            has_beaten.release()
            return pb.TxnHeartBeatResponse()

        cluster.says("KvTxnHeartBeat", *[alive] * 100)
        heart = Heart(client, Transaction(7, b"t-primary", 30), "tests", began_s=time.monotonic())
        for _ in range(BEATS):
            assert has_beaten.acquire(timeout=60)
        heart.stop()
        under_way = [has_beaten.acquire(timeout=0.3) for _ in range(BEATS)]
        assert sum(under_way) <= 1
