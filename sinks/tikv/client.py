"""Requests to the store that leads a key's region, made again until they are answered or the time is up.

::

    key ─► region, leader, address ─► request ─┬► answer without region error ─► caller
            ▲                                  ├► NotLeader, EpochNotMatch, …: learn, wait a little ─┐
            │                                  ├► ServerIsBusy: wait as long as it asks for ─────────┤
            └──────────────────────────────────┴► no answer: forget the region ──────────────────────┘

Every request here is idempotent in TiKV, so one that may have been done is made again. What a key
says (locked, conflict, …) is the answer, and the caller's to judge.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import grpc
from google.protobuf.message import Message

from sinks.tikv import tikv_pb2 as pb
from sinks.tikv.backoff import Backoff, RetryReason
from sinks.tikv.channels import Channels, PendingCall, Tls, told
from sinks.tikv.pd import CachedRegion, PdClient, cached_region
from sinks.tikv.regions import RegionCache
from timeline.errors import TargetRefusedError
from timeline.units import count

_TIMEOUT_S = 20.0
_SHORTEST_TIMEOUT_S = 0.1

Answer: TypeAlias = (
    pb.GetResponse
    | pb.BatchGetResponse
    | pb.ScanResponse
    | pb.PrewriteResponse
    | pb.CommitResponse
    | pb.BatchRollbackResponse
    | pb.CheckTxnStatusResponse
    | pb.TxnHeartBeatResponse
    | pb.ResolveLockResponse
    | pb.ScanLockResponse
)
TAnswer = TypeVar("TAnswer", bound=Answer)


@dataclass(frozen=True)
class Endpoint:
    """How a cluster is reached; picklable.

    Attributes:
        pd: ``host:port`` of PD's members.
        tls: files of the connections, None in the clear.
        patience_s: how long one request is made again before it counts as failed.
    """

    pd: tuple[str, ...]
    tls: Tls | None = None
    patience_s: float = 60.0


@dataclass(frozen=True)
class RequestTarget:
    """Where one request goes.

    Attributes:
        region: the region.
        peer: the replica that is taken for its leader.
        address: the store.
    """

    region: CachedRegion
    peer: pb.Peer
    address: str

    @property
    def context(self) -> pb.Context:
        """What the store checks before it does anything."""
        conf_ver, version = self.region.epoch
        return pb.Context(
            region_id=self.region.id, region_epoch=pb.RegionEpoch(conf_ver=conf_ver, version=version), peer=self.peer
        )


@functools.lru_cache(maxsize=16)
def connection(endpoint: Endpoint) -> TikvClient:
    """This process' connection to a cluster: made once, kept for all tasks that it runs."""
    return TikvClient(endpoint)


class TikvClient:
    """One process' connection to a cluster. Threads may share it."""

    def __init__(self, endpoint: Endpoint, channels: Channels | None = None) -> None:
        """Nothing is connected yet.

        Args:
            endpoint: the cluster.
            channels: connections; new ones by default.
        """
        self.endpoint = endpoint
        self._channels = channels or Channels(endpoint.tls)
        self.pd = PdClient(endpoint.pd, self._channels, self.backoff)
        self._regions = RegionCache(self.pd)

    def backoff(self) -> Backoff:
        """The waits of one request, from now on."""
        return Backoff(self.endpoint.patience_s)

    def target(self, key: bytes, backoff: Backoff) -> RequestTarget:
        """Where requests for a key go.

        Raises:
            StoreUnavailableError: nobody knows.
        """
        while True:
            region = self._regions.locate(key)
            if region is None or not region.peers:
                backoff.wait(RetryReason.REGION_MOVED, f"PD knows no region for key {key!r:.60}")
                continue
            peer = region.leader or region.peers[0]
            address = self._regions.address(peer.store_id)
            if address is not None:
                return RequestTarget(region, peer, address)
            self._regions.forget(region)
            backoff.wait(RetryReason.NO_LEADER, f"store {peer.store_id} of region {region.id} is gone")

    def start(
        self, target: RequestTarget, name: str, request: bytes, answer: type[TAnswer], timeout_s: float = _TIMEOUT_S
    ) -> PendingCall[TAnswer]:
        """Send a request's bytes, its context included; `settled` judges what comes back."""
        return self._channels.start(target.address, f"/tikvpb.Tikv/{name}", request, answer, timeout_s)

    def settled(self, target: RequestTarget, call: PendingCall[TAnswer], backoff: Backoff) -> TAnswer | None:
        """The answer to a request, waited for; None where it has to be made again, to whatever `target` says then.

        Raises:
            StoreUnavailableError: the store did not answer in time.
            TargetRefusedError: a row is larger than TiKV takes.
        """
        try:
            answer = call.result()
        except grpc.RpcError as failure:
            self._regions.forget(target.region)
            backoff.wait(RetryReason.UNREACHABLE, f"store {target.address}: {told(failure)}")
            return None
        if not answer.HasField("region_error"):
            return answer
        self._learn_from(answer.region_error, target, backoff)
        return None

    def ask(
        self, key: bytes, name: str, make: Callable[[pb.Context], Message], answer: type[TAnswer], backoff: Backoff
    ) -> TAnswer:
        """Make a request to the region of a key until it is answered.

        Args:
            key: decides the region.
            name: of the RPC.
            make: makes the request for a region's context.
            answer: the message that comes back.
            backoff: how long.
        """
        while True:
            target = self.target(key, backoff)
            # A server that hangs is not waited for beyond the time limit.
            timeout_s = min(_TIMEOUT_S, max(_SHORTEST_TIMEOUT_S, backoff.left_s))
            call = self.start(target, name, make(target.context).SerializeToString(), answer, timeout_s)
            given = self.settled(target, call, backoff)
            if given is not None:
                return given

    def close(self) -> None:
        """Close all connections."""
        self.pd.close()
        self._channels.close()

    def _learn_from(self, error: pb.RegionError, target: RequestTarget, backoff: Backoff) -> None:
        """Take in why a region did not take a request, and wait as long as that needs."""
        region, why = target.region, f"region {target.region.id} at {target.address}: {error.message or error}".strip()
        if error.HasField("not_leader"):
            if error.not_leader.leader.id:
                self._regions.lead_by(region, error.not_leader.leader)
                backoff.wait(RetryReason.REGION_MOVED, why)
            else:
                self._regions.forget(region)
                backoff.wait(RetryReason.NO_LEADER, why)
        elif error.HasField("epoch_not_match") and error.epoch_not_match.current_regions:
            if _lags(error.epoch_not_match.current_regions, region):
                backoff.wait(RetryReason.NO_LEADER, why)
                return
            stays = target.peer.store_id
            self._regions.forget(region)
            self._regions.replace(
                cached_region(each, next((peer for peer in each.peers if peer.store_id == stays), None))
                for each in error.epoch_not_match.current_regions
            )
            backoff.wait(RetryReason.REGION_MOVED, why)
        elif error.HasField("server_is_busy"):
            backoff.wait(RetryReason.BUSY, why, at_least_s=error.server_is_busy.backoff_ms / 1000)
        elif error.HasField("stale_command"):
            backoff.wait(RetryReason.REGION_MOVED, why)
        elif error.HasField("raft_entry_too_large"):
            # Requests are far smaller than TiKV's limit, so one row alone is larger: no attempt can do better.
            raise TargetRefusedError(
                f"{why}: a row of {count(error.raft_entry_too_large.entry_size, 'byte')} is more than TiKV takes "
                "(raftstore.raft-entry-max-size, 8 MiB by default): raise it, or leave large columns out of this target"
            )
        else:
            # Region or key elsewhere, another store behind the address, a merge or a recovery under way.
            self._regions.forget(region)
            backoff.wait(RetryReason.NO_LEADER, why)


def is_oversized(call: PendingCall[TAnswer]) -> bool:
    """Whether a request asked for more than one message may hold, at the store or here: wait, then ask for less.

    TiKV sends messages of up to ``server.max-grpc-send-msg-len``, 10 MiB by default.
    """
    try:
        call.result()
    except grpc.RpcError as failure:
        return "message larger than max" in told(failure)
    return False


def _lags(found: Iterable[pb.Region], region: CachedRegion) -> bool:
    """Whether a replica knows less of a region than PD has told: it will catch up, PD's word stays."""
    return any(
        each.id == region.id
        and (each.region_epoch.conf_ver < region.epoch[0] or each.region_epoch.version < region.epoch[1])
        for each in found
    )
