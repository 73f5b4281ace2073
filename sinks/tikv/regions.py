"""Where keys are: regions and stores as this process knows them, asked from PD where it does not."""

from __future__ import annotations

import bisect
import threading
from collections.abc import Iterable, Sequence
from typing import Protocol

from sinks.tikv import tikv_pb2 as pb
from sinks.tikv.pd import CachedRegion

_ASKED_AHEAD = 64


class Directory(Protocol):
    """Who knows it all: PD."""

    def regions(self, start: bytes, end: bytes, limit: int) -> Sequence[CachedRegion]:
        """See PdClient."""

    def store_address(self, store_id: int) -> str | None:
        """See PdClient."""


class RegionCache:
    """Regions by key. What a store contradicts is forgotten and asked again. Threads may share it."""

    def __init__(self, pd: Directory) -> None:
        """Nothing is known yet."""
        self._pd = pd
        self._lock = threading.Lock()
        self._starts: list[bytes] = []
        self._regions: list[CachedRegion] = []
        self._addresses: dict[int, str] = {}

    @property
    def known(self) -> Sequence[CachedRegion]:
        """What is known now, in the order of keys; no two overlap."""
        with self._lock:
            return tuple(self._regions)

    def locate(self, key: bytes) -> CachedRegion | None:
        """The region that holds a key; None where PD knows none, as in the middle of a split.

        Raises:
            StoreUnavailableError: PD does not answer.
        """
        found = self._known(key)
        if found is None:
            self._learn(self._pd.regions(key, b"", _ASKED_AHEAD))
            found = self._known(key)
        return found

    def address(self, store_id: int) -> str | None:
        """Where a store takes requests; None where it is gone for good."""
        with self._lock:
            known = self._addresses.get(store_id)
        if known is None:
            known = self._pd.store_address(store_id)
            if known is not None:
                with self._lock:
                    self._addresses[store_id] = known
        return known

    def forget(self, region: CachedRegion) -> None:
        """A store says that it is not so any more."""
        with self._lock:
            self._remove(region.start, region.end)
            for peer in region.peers:
                self._addresses.pop(peer.store_id, None)

    def lead_by(self, region: CachedRegion, leader: pb.Peer) -> None:
        """A store says who leads the region."""
        with self._lock:
            at = bisect.bisect_right(self._starts, region.start) - 1
            if at >= 0 and self._regions[at].id == region.id:
                known = self._regions[at]
                self._regions[at] = CachedRegion(known.id, known.start, known.end, known.epoch, known.peers, leader)

    def replace(self, regions: Iterable[CachedRegion]) -> None:
        """A store says into what a region was split or merged."""
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
        """Forget every region that overlaps a range."""
        first = max(0, bisect.bisect_right(self._starts, start) - 1)
        if first < len(self._regions) and self._regions[first].end and self._regions[first].end <= start:
            first += 1
        last = len(self._starts) if not end else bisect.bisect_left(self._starts, end)
        del self._starts[first:last]
        del self._regions[first:last]
