"""A cluster with scripted replies: PD and stores as gRPC servers of this process, on free ports.

For replies that a real store gives rarely. Requests are recorded; a store replies from its script, and with success
after the end of the script.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

import grpc
from google.protobuf.message import Message

from sinks.tikv import tikv_pb2 as pb
from sinks.tikv.key_codec import memcomparable
from sinks.tikv.tikv_pb2 import PrewriteRequest

HOST = "127.0.0.1"
REQUESTS: dict[str, type[Message]] = {
    "KvGet": pb.GetRequest,
    "KvBatchGet": pb.BatchGetRequest,
    "KvScan": pb.ScanRequest,
    "KvPrewrite": PrewriteRequest,
    "KvCommit": pb.CommitRequest,
    "KvCheckTxnStatus": pb.CheckTxnStatusRequest,
    "KvResolveLock": pb.ResolveLockRequest,
    "KvBatchRollback": pb.BatchRollbackRequest,
    "KvTxnHeartBeat": pb.TxnHeartBeatRequest,
    "KvScanLock": pb.ScanLockRequest,
}
ANSWERS: dict[str, type[Message]] = {
    "KvGet": pb.GetResponse,
    "KvBatchGet": pb.BatchGetResponse,
    "KvScan": pb.ScanResponse,
    "KvPrewrite": pb.PrewriteResponse,
    "KvCommit": pb.CommitResponse,
    "KvCheckTxnStatus": pb.CheckTxnStatusResponse,
    "KvResolveLock": pb.ResolveLockResponse,
    "KvBatchRollback": pb.BatchRollbackResponse,
    "KvTxnHeartBeat": pb.TxnHeartBeatResponse,
    "KvScanLock": pb.ScanLockResponse,
}

Reply: TypeAlias = Message | grpc.StatusCode | Callable[[Message], Message]
"""A reply of a store: a message, a connection error, or a function from the request to a message."""


@dataclass(frozen=True)
class Request:
    """A request to a store.

    Attributes:
        store: id of the store.
        name: name of the method.
        body: the message.
        region: id of the region that the request is for.
        epoch: the region's epoch as known to the sender: configuration version, version.
    """

    store: int
    name: str
    body: Message
    region: int
    epoch: tuple[int, int]


def region(
    number: int, start: bytes = b"", end: bytes = b"", *, version: int = 1, stores: Sequence[int] = (1, 2)
) -> pb.Region:
    """A region as PD and stores describe it.

    Args:
        number: id of the region.
        start: first key; empty: from the lowest key on.
        end: key after the last one; empty: without end.
        version: version of the region's epoch.
        stores: ids of the stores with a replica.
    """
    return pb.Region(
        id=number,
        start_key=memcomparable(start) if start else b"",
        end_key=memcomparable(end) if end else b"",
        region_epoch=pb.RegionEpoch(conf_ver=1, version=version),
        peers=[peer(number, store) for store in stores],
    )


def peer(number: int, store: int) -> pb.Peer:
    """The replica of a region at a store."""
    return pb.Peer(id=number * 10 + store, store_id=store)


@dataclass
class ScriptedCluster:
    """The state of PD, and the scripts of the stores.

    Attributes:
        addresses: addresses of the stores, by id.
        regions: the regions as PD reports them; the first replica of each leads.
        script: the next replies of the stores, by method.
        requests: all requests to stores.
        asked_pd: methods of all requests to PD.
        leaders: addresses of the PDs, the leader first.
        timestamps: number of timestamps issued so far.
        cluster_id: the id that PD reports.
        starting: number of member requests that PD still answers with "server not started".
        tso_fails: number of timestamp streams that break at their next request.
        suffix_bits: bits of a timestamp for the number of the PD that issues it; that number is 1.
    """

    addresses: dict[int, str] = field(default_factory=dict)
    regions: list[pb.Region] = field(default_factory=lambda: [region(1)])
    script: dict[str, deque[Reply]] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)
    asked_pd: list[str] = field(default_factory=list)
    leaders: list[str] = field(default_factory=list)
    timestamps: int = 0
    cluster_id: int = 4711
    starting: int = 0
    tso_fails: int = 0
    suffix_bits: int = 0

    def says(self, name: str, *replies: Reply) -> None:
        """Add replies to the script of a method, for its next requests to any store."""
        self.script.setdefault(name, deque()).extend(replies)

    def asked(self, name: str) -> list[Request]:
        """The requests to stores by a method, in order."""
        return [request for request in self.requests if request.name == name]

    def answer_store(self, store: int, name: str, body: bytes, context: grpc.ServicerContext) -> bytes:
        """Answer a request to a store."""
        request = REQUESTS[name].FromString(body)
        at: pb.Context = request.context  # type: ignore[attr-defined]
        epoch = (at.region_epoch.conf_ver, at.region_epoch.version)
        self.requests.append(Request(store, name, request, at.region_id, epoch))
        replies = self.script.get(name)
        reply = replies.popleft() if replies else ANSWERS[name]()
        if isinstance(reply, grpc.StatusCode):
            context.abort(reply, "scripted")
        return (reply if isinstance(reply, Message) else reply(request)).SerializeToString()

    def answer_pd(self, name: str, body: bytes, own: str) -> bytes:
        """Answer a request to a PD."""
        self.asked_pd.append(name)
        header = pb.ResponseHeader(cluster_id=self.cluster_id)
        answer: Message
        match name:
            case "GetMembers" if self.starting:
                self.starting -= 1
                header = pb.ResponseHeader()
                header.error.type = pb.PdErrorType.UNKNOWN
                header.error.message = "server not started"
                answer = pb.GetMembersResponse(header=header)
            case "GetMembers":
                members = [pb.Member(client_urls=[f"http://{address}"]) for address in self.leaders]
                answer = pb.GetMembersResponse(header=header, members=members, leader=members[0])
            case _ if own != self.leaders[0]:
                header.error.type = pb.PdErrorType.UNKNOWN
                header.error.message = "not leader"
                answer = pb.GetStoreResponse(header=header)
            case "GetStore":
                store = pb.GetStoreRequest.FromString(body).store_id
                state = pb.StoreState.Up if store in self.addresses else pb.StoreState.Tombstone
                answer = pb.GetStoreResponse(
                    header=header, store=pb.Store(id=store, address=self.addresses.get(store, ""), state=state)
                )
            case "ScanRegions":
                start = pb.ScanRegionsRequest.FromString(body).start_key
                found = [each for each in self.regions if not each.end_key or each.end_key > start]
                answer = pb.ScanRegionsResponse(
                    header=header, region_metas=found, leaders=[each.peers[0] for each in found]
                )
            case _:
                raise NotImplementedError(name)
        return answer.SerializeToString()

    def answer_timestamps(self, requests: Iterator[bytes], own: str, context: grpc.ServicerContext) -> Iterator[bytes]:
        """Answer a stream of timestamp requests."""
        for body in requests:
            if own != self.leaders[0]:
                context.abort(grpc.StatusCode.UNKNOWN, "not leader")
            if self.tso_fails:
                self.tso_fails -= 1
                context.abort(grpc.StatusCode.UNAVAILABLE, "scripted")
            request = pb.TsoRequest.FromString(body)
            self.asked_pd.append("Tso")
            self.timestamps += request.count
            logical = (self.timestamps << self.suffix_bits) + (1 if self.suffix_bits else 0)
            yield pb.TsoResponse(
                header=pb.ResponseHeader(cluster_id=self.cluster_id),
                count=request.count,
                timestamp=pb.Timestamp(physical=1000, logical=logical, suffix_bits=self.suffix_bits),
            ).SerializeToString()


class _Handler(grpc.GenericRpcHandler):
    """One server: a PD, a store, or both."""

    def __init__(self, cluster: ScriptedCluster, store: int) -> None:
        self._cluster = cluster
        self._store = store
        self.address = ""

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes] | None:
        service, _, name = str(handler_call_details.method).lstrip("/").partition("/")
        cluster = self._cluster
        if service == "tikvpb.Tikv":
            return grpc.unary_unary_rpc_method_handler(
                lambda body, context: cluster.answer_store(self._store, name, body, context)
            )
        if name == "Tso":
            return grpc.stream_stream_rpc_method_handler(
                lambda requests, context: cluster.answer_timestamps(requests, self.address, context)
            )
        return grpc.unary_unary_rpc_method_handler(lambda body, _: cluster.answer_pd(name, body, self.address))


# TiKV's default, ``server.max-grpc-send-msg-len``.
_OPTIONS = [("grpc.max_send_message_length", 10 << 20)]


@contextmanager
def scripted(*, stores: Sequence[int] = (1, 2), pds: int = 1) -> Iterator[ScriptedCluster]:
    """A cluster that runs until the block ends.

    Args:
        stores: ids of the stores.
        pds: number of PDs; the first one leads.
    """
    cluster = ScriptedCluster()
    servers = []
    try:
        for number in range(max(pds, len(stores))):
            handler = _Handler(cluster, stores[number] if number < len(stores) else 0)
            server = grpc.server(ThreadPoolExecutor(16), handlers=[handler], options=_OPTIONS)
            handler.address = f"{HOST}:{server.add_insecure_port(f'{HOST}:0')}"
            server.start()
            servers.append(server)
            if number < len(stores):
                cluster.addresses[stores[number]] = handler.address
            if number < pds:
                cluster.leaders.append(handler.address)
        yield cluster
    finally:
        for server in servers:
            server.stop(grace=None).wait()
