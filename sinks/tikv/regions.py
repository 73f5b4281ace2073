"""Cache of regions and store addresses; PD is asked for missing entries."""

from __future__ import annotations

import bisect
import threading
from collections.abc import Iterable, Sequence
from typing import Protocol

from sinks.tikv import tikv_pb2 as pb
from sinks.tikv.pd import CachedRegion

_ASKED_AHEAD = 64


class RegionDirectory(Protocol):
    """Source of all regions and store addresses: PD."""

    def regions(self, start: bytes, end: bytes, limit: int) -> Sequence[CachedRegion]:
        """See PdClient."""

    def store_address(self, store_id: int) -> str | None:
        """See PdClient."""


class RegionCache:
    """Regions by key; entries that a store contradicts are dropped and requested again. Thread-safe."""

    def __init__(self, pd: RegionDirectory) -> None:
        """Start with an empty cache."""
        self._pd = pd
        self._lock = threading.Lock()
        self._starts: list[bytes] = []
        self._regions: list[CachedRegion] = []
        self._addresses: dict[int, str] = {}

    @property
    def known(self) -> Sequence[CachedRegion]:
        """The cached regions, in key order; no two overlap."""
        with self._lock:
            return tuple(self._regions)

    def locate(self, key: bytes) -> CachedRegion | None:
        """The region that holds a key; None where PD knows none, as during a split.

        Raises:
            StoreUnavailableError: PD does not answer.
        """
        found = self._known(key)
        if found is None:
            self._learn(self._pd.regions(key, b"", _ASKED_AHEAD))
            found = self._known(key)
        return found

    def address(self, store_id: int) -> str | None:
        """Address of a store; None where the store was removed for good."""
        with self._lock:
            known = self._addresses.get(store_id)
        if known is None:
            known = self._pd.store_address(store_id)
            if known is not None:
                with self._lock:
                    self._addresses[store_id] = known
        return known

    def forget(self, region: CachedRegion) -> None:
        """Drop a region that a store contradicts, and the addresses of its stores."""
        with self._lock:
            self._remove(region.start, region.end)
            for peer in region.peers:
                self._addresses.pop(peer.store_id, None)

    def set_leader(self, region: CachedRegion, leader: pb.Peer) -> None:
        """Set the leader of a region, as a store reports it."""
        with self._lock:
            at = bisect.bisect_right(self._starts, region.start) - 1
            if at >= 0 and self._regions[at].id == region.id:
                known = self._regions[at]
                self._regions[at] = CachedRegion(known.id, known.start, known.end, known.epoch, known.peers, leader)

    def replace(self, regions: Iterable[CachedRegion]) -> None:
        """Cache the regions that a store reports after a split or merge."""
        self._learn(regions)

    def _known(self, key: bytes) -> CachedRegion | None:
        with self._lock:
            at = bisect.bisect_right(self._starts, key) - 1
            return self._regions[at] if at >= 0 and self._regions[at].covers(key) else None

    def _learn(self, regions: Iterable[CachedRegion]) -> None:
        with self._lock:
            for region in regions:
                self._remove(region.start, region.end)
                at = bisect.bisect_left(self._starts, region.start)
                self._starts.insert(at, region.start)
                self._regions.insert(at, region)

    def _remove(self, start: bytes, end: bytes) -> None:
        """Drop every region that overlaps a range."""
        first = max(0, bisect.bisect_right(self._starts, start) - 1)
        if first < len(self._regions) and self._regions[first].end and self._regions[first].end <= start:
            first += 1
        last = len(self._starts) if not end else bisect.bisect_left(self._starts, end)
        del self._starts[first:last]
        del self._regions[first:last]
