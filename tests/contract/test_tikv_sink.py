"""The TiKV sink keeps the sink contract, on a real PD and a store that speaks TiKV's protocol."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NoReturn, TypeVar

import grpc
import pytest
from google.protobuf.message import Message

from sinks.base import Sink, SinkContext
from sinks.tikv.channels import Channels, PendingCall
from sinks.tikv.client import Endpoint, TikvClient, connection
from sinks.tikv.key_codec import own_range, row_range
from sinks.tikv.options import TikvOptions
from sinks.tikv.reader import read_rows
from sinks.tikv.records import scan
from sinks.tikv.settling import locks_in
from sinks.tikv.sink import TransactionSink
from tests.contract.sink_contract import SCHEMA, SinkContract
from tests.real.processes import HOST, on_free_ports
from tests.real.tikv_cluster import TikvCluster

pytestmark = pytest.mark.real

TResponse = TypeVar("TResponse", bound=Message)

PREFIXES = (f"tcontract{number}_" for number in itertools.count())


class Unanswered:
    """A completed call whose reply is lost."""

    def result(self) -> NoReturn:
        raise grpc.RpcError("the answer was lost")

    def cancel(self) -> bool:
        return False


class LosingChannels(Channels):
    """Loses the reply of the first commit."""

    def __init__(self) -> None:
        super().__init__()
        self.has_lost = False

    def start(
        self, address: str, method: str, request: bytes, answer: type[TResponse], timeout_s: float
    ) -> PendingCall[TResponse]:
        call = super().start(address, method, request, answer, timeout_s)
        if method.endswith("/KvCommit") and not self.has_lost:
            self.has_lost = True
            call.result()
            return Unanswered()
        return call


@dataclass
class ThroughClient(TransactionSink):
    """The sink with a client of its own."""

    own_client: TikvClient | None = None

    @property
    def client(self) -> TikvClient:
        assert self.own_client is not None
        return self.own_client


@dataclass
class TikvRig:
    """A target with a key prefix of its own in the session's cluster."""

    pd: tuple[str, ...]
    prefix: str

    def sink(self, app_id: str = "job-a") -> TransactionSink:
        return TransactionSink.open(self.options, SinkContext(app_id, SCHEMA))

    @property
    def options(self) -> TikvOptions:
        return TikvOptions(type="tikv", pd=self.pd, prefix=self.prefix, key=("id",), patience=20)

    def losing_replies(self) -> Sink:
        sink = ThroughClient.open(self.options, SinkContext("job-a", SCHEMA))
        return replace(sink, own_client=TikvClient(sink.endpoint, LosingChannels()))

    def unreachable(self) -> Sink:
        nobody = on_free_ports(1, lambda ports: f"{HOST}:{ports[0]}")
        sink = self.sink()
        return replace(sink, endpoint=Endpoint((nobody,), patience_s=0.3))

    def visible(self) -> list[int]:
        return sorted(row for batch in read_rows(self.sink()) for row in batch.column("id").to_pylist())

    def traces(self) -> list[str]:
        client, prefix = connection(Endpoint(self.pd)), self.prefix.encode()
        start, end = own_range(prefix)[0], row_range(prefix)[1]
        locked = [f"lock on {lock.key!r}" for lock in locks_in(client, start, end)]
        return [repr(key) for key, _ in scan(client, start, end)] + locked


class TestTikvSink(SinkContract):
    @pytest.fixture
    def rig(self, tikv: TikvCluster) -> Iterator[TikvRig]:
        yield TikvRig(tuple(tikv.pd), next(PREFIXES))
