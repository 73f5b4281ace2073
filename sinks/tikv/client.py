"""Requests to the store that leads a key's region, retried until they are answered or the deadline has passed.

::

    key ─► region, leader, address ─► request ─┬► answer without region error ─► caller
            ▲                                  ├► NotLeader, EpochNotMatch, …: learn, wait a little ─┐
            │                                  ├► ServerIsBusy: wait as long as it asks for ─────────┤
            └──────────────────────────────────┴► no answer: forget the region ──────────────────────┘

Every request here is idempotent in TiKV, so a request that may have been executed is retried. Errors
of a key (locked, conflict, …) are part of the answer, and handled by the caller.
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
from sinks.tikv.channels import Channels, PendingCall, Tls, rpc_error_text
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
    """Address of a cluster; picklable.

    Attributes:
        pd: ``host:port`` of PD's members.
        tls: TLS files; None: no TLS.
        patience_s: seconds for which one request is retried before it fails.
    """

    pd: tuple[str, ...]
    tls: Tls | None = None
    patience_s: float = 60.0


@dataclass(frozen=True)
class RequestTarget:
    """Destination of one request.

    Attributes:
        region: the region.
        peer: the replica that is assumed to lead the region.
        address: address of the replica's store.
    """

    region: CachedRegion
    peer: pb.Peer
    address: str

    @property
    def context(self) -> pb.Context:
        """The request context, which the store checks first."""
        conf_ver, version = self.region.epoch
        return pb.Context(
            region_id=self.region.id, region_epoch=pb.RegionEpoch(conf_ver=conf_ver, version=version), peer=self.peer
        )


@functools.lru_cache(maxsize=16)
def connection(endpoint: Endpoint) -> TikvClient:
    """This process' client of a cluster: created once, shared by all tasks of the process."""
    return TikvClient(endpoint)


class TikvClient:
    """One process' client of a cluster. Thread-safe."""

    def __init__(self, endpoint: Endpoint, channels: Channels | None = None) -> None:
        """Create the client; connects on first use.

        Args:
            endpoint: the cluster.
            channels: connections; new ones by default.
        """
        self.endpoint = endpoint
        self._channels = channels or Channels(endpoint.tls)
        self.pd = PdClient(endpoint.pd, self._channels, self.backoff)
        self._regions = RegionCache(self.pd)

    def backoff(self) -> Backoff:
        """A new back-off for one request; its deadline counts from now."""
        return Backoff(self.endpoint.patience_s)

    def target(self, key: bytes, backoff: Backoff) -> RequestTarget:
        """Destination of requests for a key.

        Raises:
            StoreUnavailableError: no region or store was found before the deadline.
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
        """Send a serialized request; pass the call to `settled`.

        Args:
            target: the destination.
            name: name of the RPC.
            request: the message's bytes, its context included.
            answer: class of the response message.
            timeout_s: seconds until the call fails.
        """
        return self._channels.start(target.address, f"/tikvpb.Tikv/{name}", request, answer, timeout_s)

    def settled(self, target: RequestTarget, call: PendingCall[TAnswer], backoff: Backoff) -> TAnswer | None:
        """Wait for the answer to a request; None where the caller has to ask `target` again and retry.

        Args:
            target: destination of the request.
            call: the request.
            backoff: waits before the retry.

        Raises:
            StoreUnavailableError: the deadline has passed.
            TargetRefusedError: a row is larger than TiKV accepts.
        """
        try:
            answer = call.result()
        except grpc.RpcError as failure:
            self._regions.forget(target.region)
            backoff.wait(RetryReason.UNREACHABLE, f"store {target.address}: {rpc_error_text(failure)}")
            return None
        if not answer.HasField("region_error"):
            return answer
        self._learn_from(answer.region_error, target, backoff)
        return None

    def ask(
        self, key: bytes, name: str, make: Callable[[pb.Context], Message], answer: type[TAnswer], backoff: Backoff
    ) -> TAnswer:
        """Send a request to a key's region, and retry until it is answered.

        Args:
            key: a key of the region.
            name: name of the RPC.
            make: builds the request for a region's context.
            answer: class of the response message.
            backoff: waits between retries, and the deadline.
        """
        while True:
            target = self.target(key, backoff)
            # A server that hangs must not delay the caller beyond the deadline.
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
        """Update the region cache from a region error, and wait as long as the error requires."""
        region, why = target.region, f"region {target.region.id} at {target.address}: {error.message or error}".strip()
        if error.HasField("not_leader"):
            if error.not_leader.leader.id:
                self._regions.set_leader(region, error.not_leader.leader)
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
            # Requests are far smaller than TiKV's limit, so a single row exceeds it: a retry cannot succeed.
            raise TargetRefusedError(
                f"{why}: a row of {count(error.raft_entry_too_large.entry_size, 'byte')} is more than TiKV takes "
                "(raftstore.raft-entry-max-size, 8 MiB by default): raise it, or leave large columns out of this target"
            )
        else:
            # Region or key elsewhere, another store behind the address, a merge or a recovery in progress.
            self._regions.forget(region)
            backoff.wait(RetryReason.NO_LEADER, why)


def is_oversized(call: PendingCall[TAnswer]) -> bool:
    """Whether an answer exceeds the message limit of the store or of this client; waits for the call.

    The caller then asks for less. TiKV sends messages of up to ``server.max-grpc-send-msg-len``, 10 MiB by default.
    """
    try:
        call.result()
    except grpc.RpcError as failure:
        return "message larger than max" in rpc_error_text(failure)
    return False


def _lags(found: Iterable[pb.Region], region: CachedRegion) -> bool:
    """Whether a replica reports an older region epoch than the cached one: it will catch up, the cache stays."""
    return any(
        each.id == region.id
        and (each.region_epoch.conf_ver < region.epoch[0] or each.region_epoch.version < region.epoch[1])
        for each in found
    )
