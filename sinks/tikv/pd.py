"""Client of PD, the cluster's directory: PD's leader, timestamps, regions, and addresses of stores.

All requests go to PD's leader. If it does not answer or no longer leads, the client searches for the
leader among all members: the given ones and those that they name.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import TimeoutError as NotAnswered
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import grpc
from google.protobuf.message import Message

from sinks.tikv import tikv_pb2 as pb
from sinks.tikv.backoff import Backoff, RetryReason
from sinks.tikv.channels import Channels, is_untrusted, rpc_error_text
from sinks.tikv.key_codec import from_memcomparable, memcomparable
from sinks.tikv.tso import TsoStream
from timeline.errors import ConfigError, StoreUnavailableError, UntrustedStoreError

_TIMEOUT_S = 5.0


_Answer: TypeAlias = pb.ScanRegionsResponse | pb.GetStoreResponse | pb.UpdateServiceGCSafePointResponse
TAnswer = TypeVar("TAnswer", bound=_Answer)


@dataclass(frozen=True)
class CachedRegion:
    """One region as PD or a store reports it; keys as they are stored, without PD's encoding.

    Attributes:
        id: the region.
        start: first key.
        end: end key, exclusive; empty: unbounded.
        epoch: changes with every split, merge and move.
        peers: its replicas.
        leader: the replica that takes requests; None where PD knows none.
    """

    id: int
    start: bytes
    end: bytes
    epoch: tuple[int, int]
    peers: tuple[pb.Peer, ...]
    leader: pb.Peer | None

    def covers(self, key: bytes) -> bool:
        """Whether a key lies in the region."""
        return self.start <= key and (not self.end or key < self.end)


def cached_region(region: pb.Region, leader: pb.Peer | None) -> CachedRegion:
    """A region from PD's or a store's message."""
    return CachedRegion(
        region.id,
        from_memcomparable(region.start_key) if region.start_key else b"",
        from_memcomparable(region.end_key) if region.end_key else b"",
        (region.region_epoch.conf_ver, region.region_epoch.version),
        tuple(region.peers),
        leader if leader is not None and leader.id else None,
    )


class PdClient:
    """One process' client of PD. Thread-safe."""

    def __init__(self, endpoints: Sequence[str], channels: Channels, backoff: Callable[[], Backoff]) -> None:
        """Create the client; connects on first use.

        Args:
            endpoints: ``host:port`` of members; one that answers is enough.
            channels: connections.
            backoff: creates the back-off of one request.
        """
        self._given = tuple(map(_address, endpoints))
        self._channels = channels
        self._backoff = backoff
        self._lock = threading.Lock()
        self._known: tuple[str, ...] = self._given
        self._leader: str | None = None
        self._cluster_id = 0
        self._tso: TsoStream | None = None

    @property
    def cluster_id(self) -> int:
        """The cluster's id.

        Raises:
            StoreUnavailableError: no member answers.
        """
        if not self._cluster_id:
            self._find_leader(self._backoff())
        return self._cluster_id

    def check_endpoints(self) -> None:
        """Check that all given endpoints belong to one cluster; some of them may be down.

        Raises:
            ConfigError: they belong to several clusters.
            UntrustedStoreError: no endpoint has a trusted certificate.
            StoreUnavailableError: no endpoint answers.
        """
        clusters: dict[int, str] = {}
        failed: list[str] = []
        untrusted = 0
        for endpoint in self._given:
            try:
                cluster = self._members(endpoint).header.cluster_id
                if cluster:
                    clusters.setdefault(cluster, endpoint)
                else:
                    failed.append(f"{endpoint} (is just starting)")
            except grpc.RpcError as error:
                advice = self._channels.advice(error)
                failed.append(f"{endpoint} ({rpc_error_text(error)}{'; ' + advice if advice else ''})")
                untrusted += is_untrusted(error)
        if not clusters:
            kind = UntrustedStoreError if untrusted == len(failed) else StoreUnavailableError
            raise kind(f"no PD answers: {', '.join(failed)}; check pd and tls of the target")
        if len(clusters) > 1:
            found = ", ".join(f"{endpoint} is of cluster {cluster}" for cluster, endpoint in clusters.items())
            raise ConfigError(f"pd: endpoints of several clusters: {found}; name those of one")

    def timestamp(self) -> int:
        """A timestamp later than all that PD issued before.

        Raises:
            StoreUnavailableError: PD issued none before the deadline.
        """
        backoff = self._backoff()
        while True:
            stream = self._stream(backoff)
            try:
                return stream.ask().result(timeout=_TIMEOUT_S)
            except (ConnectionError, NotAnswered) as error:
                stream.close()
                self._forget_leader()
                backoff.wait(RetryReason.UNREACHABLE, f"PD gave no timestamp: {str(error) or 'no answer'}")

    def regions(self, start: bytes, end: bytes, limit: int) -> Sequence[CachedRegion]:
        """Regions from the one that holds `start` on, in order.

        Args:
            start: a key.
            end: end key, exclusive; empty: unbounded.
            limit: largest number of regions.
        """
        request = pb.ScanRegionsRequest(
            header=self._header(),
            start_key=memcomparable(start),
            end_key=memcomparable(end) if end else b"",
            limit=limit,
        )
        answer = self._ask("ScanRegions", request, pb.ScanRegionsResponse)
        return [cached_region(*pair) for pair in zip(answer.region_metas, answer.leaders, strict=True)]

    def store_address(self, store_id: int) -> str | None:
        """Address of a store; None where the store was removed for good (a tombstone)."""
        request = pb.GetStoreRequest(header=self._header(), store_id=store_id)
        store = self._ask("GetStore", request, pb.GetStoreResponse).store
        return store.address if store.state != pb.StoreState.Tombstone else None

    def keep_safe_point(self, service: str, safe_point: int, ttl_s: int) -> int:
        """Set the safe point of a service, so that GC keeps the versions of a transaction; a TTL of 0 releases it.

        Args:
            service: name of the service; its latest call counts.
            safe_point: versions at this timestamp and later are kept.
            ttl_s: seconds for which they are kept.

        Returns:
            the smallest safe point of all services; above `safe_point` the call came too late.
        """
        request = pb.UpdateServiceGCSafePointRequest(
            header=self._header(), service_id=service.encode(), TTL=ttl_s, safe_point=safe_point
        )
        return self._ask("UpdateServiceGCSafePoint", request, pb.UpdateServiceGCSafePointResponse).min_safe_point

    def close(self) -> None:
        """Close the stream of timestamps."""
        with self._lock:
            if self._tso is not None:
                self._tso.close()

    def _header(self) -> pb.RequestHeader:
        return pb.RequestHeader(cluster_id=self.cluster_id)

    def _ask(self, name: str, request: Message, answer: type[TAnswer]) -> TAnswer:
        backoff = self._backoff()
        while True:
            leader = self._find_leader(backoff)
            try:
                given = self._channels.call(leader, f"/pdpb.PD/{name}", request, answer, _TIMEOUT_S)
            except grpc.RpcError as error:
                why = f"PD's leader {leader}: {rpc_error_text(error)}"
            else:
                if given.header.error.type == pb.PdErrorType.OK:
                    return given
                why = f"PD's leader {leader}: {given.header.error.message}"
            self._forget_leader()
            backoff.wait(RetryReason.UNREACHABLE, why)

    def _stream(self, backoff: Backoff) -> TsoStream:
        leader = self._find_leader(backoff)
        with self._lock:
            if self._tso is None or self._tso.is_broken:
                self._tso = TsoStream(
                    pb.RequestHeader(cluster_id=self._cluster_id),
                    lambda requests: self._channels.stream(leader, "/pdpb.PD/Tso", requests, pb.TsoResponse),
                )
            return self._tso

    def _find_leader(self, backoff: Backoff) -> str:
        while True:
            with self._lock:
                if self._leader is not None:
                    return self._leader
                known = self._known
            failed = []
            for endpoint in known:
                try:
                    members = self._members(endpoint)
                except grpc.RpcError as error:
                    failed.append(f"{endpoint} ({rpc_error_text(error)})")
                    continue
                if self._learn(members):
                    break
                failed.append(f"{endpoint} (knows no leader)")
            else:
                backoff.wait(RetryReason.UNREACHABLE, f"no PD answers: {', '.join(failed)}")

    def _members(self, endpoint: str) -> pb.GetMembersResponse:
        request = pb.GetMembersRequest()
        return self._channels.call(endpoint, "/pdpb.PD/GetMembers", request, pb.GetMembersResponse, _TIMEOUT_S)

    def _learn(self, members: pb.GetMembersResponse) -> bool:
        """Record a member's answer; return whether it names a leader."""
        cluster = members.header.cluster_id
        if not cluster:
            return False  # the member is just starting
        if self._cluster_id and cluster != self._cluster_id:
            raise ConfigError(f"PD was of cluster {self._cluster_id} and now says {cluster}: is it another cluster's?")
        urls = [_address(url) for member in members.members for url in member.client_urls]
        with self._lock:
            self._cluster_id = cluster
            self._known = tuple(dict.fromkeys([*self._given, *urls]))
            self._leader = next(map(_address, members.leader.client_urls), None)
            return self._leader is not None

    def _forget_leader(self) -> None:
        with self._lock:
            self._leader = None


def _address(url: str) -> str:
    """Host and port of a URL, so that an endpoint that is also listed as a member is asked once."""
    return url.rpartition("//")[2].rstrip("/")
