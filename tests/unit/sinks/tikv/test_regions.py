"""The region cache never holds two regions for one key, and only regions that PD or a store reported."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sinks.tikv import tikv_pb2 as pb
from sinks.tikv.pd import CachedRegion
from sinks.tikv.regions import RegionCache

KEYS = st.binary(max_size=3)


def place(number: int, start: bytes, end: bytes, version: int = 1) -> CachedRegion:
    peers = tuple(pb.Peer(id=number * 10 + store, store_id=store) for store in (1, 2))
    return CachedRegion(number, start, end, (1, version), peers, peers[0])


class Directory:
    """A fake PD: regions that cover all keys, and addresses of stores."""

    def __init__(self) -> None:
        self.places = [place(1, b"", b"")]
        self.addresses = {1: "store-1", 2: "store-2"}
        self.asked = 0
        self.hidden: set[int] = set()

    def regions(self, start: bytes, end: bytes, limit: int) -> Sequence[CachedRegion]:
        self.asked += 1
        known = [each for each in self.places if each.id not in self.hidden]
        return [each for each in known if not each.end or each.end > start][:limit]

    def store_address(self, store_id: int) -> str | None:
        self.asked += 1
        return self.addresses.get(store_id)

    def holder(self, key: bytes) -> CachedRegion:
        (found,) = [each for each in self.places if each.covers(key)]
        return found


class RegionCacheAgainstModel(RuleBasedStateMachine):
    """Regions split, merge and move while the cache learns from PD and from stores."""

    @initialize()
    def begin(self) -> None:
        self.pd = Directory()
        self.cache = RegionCache(self.pd)
        self.ids = itertools.count(2)
        self.told: dict[tuple[int, int], CachedRegion] = {(1, 1): self.pd.places[0]}

    @rule(key=KEYS)
    def split(self, key: bytes) -> None:
        old = self.pd.holder(key)
        if old.start == key:
            return
        version = old.epoch[1] + 1
        self._put([old], [place(next(self.ids), old.start, key, version), place(old.id, key, old.end, version)])

    @precondition(lambda self: len(self.pd.places) > 1)
    @rule(data=st.data())
    def merge(self, data: st.DataObject) -> None:
        at = data.draw(st.integers(0, len(self.pd.places) - 2))
        left, right = self.pd.places[at : at + 2]
        version = max(left.epoch[1], right.epoch[1]) + 1
        self._put([left, right], [place(left.id, left.start, right.end, version)])

    def _put(self, gone: list[CachedRegion], come: list[CachedRegion]) -> None:
        at = self.pd.places.index(gone[0])
        self.pd.places[at : at + len(gone)] = come
        self.told |= {(each.id, each.epoch[1]): each for each in come}

    @rule(key=KEYS)
    def locate(self, key: bytes) -> None:
        found = self.cache.locate(key)
        assert found is not None
        assert found.covers(key)
        self._check_was_told(found)

    @rule(key=KEYS)
    def store_contradicts(self, key: bytes) -> None:
        """After a store has refused a region, `locate` returns PD's current region."""
        found = self.cache.locate(key)
        assert found is not None
        self.cache.forget(found)
        assert self.cache.locate(key) == self.pd.holder(key)

    @rule(key=KEYS)
    def store_tells_of_a_split(self, key: bytes) -> None:
        found = self.cache.locate(key)
        assert found is not None
        now = [each for each in self.pd.places if _overlap(each, found)]
        self.cache.replace(now)
        asked = self.pd.asked
        assert self.cache.locate(key) == self.pd.holder(key)
        assert self.pd.asked == asked

    @rule(key=KEYS)
    def store_tells_who_leads(self, key: bytes) -> None:
        found = self.cache.locate(key)
        assert found is not None
        self.cache.set_leader(found, found.peers[1])
        led = self.cache.locate(key)
        assert led is not None
        assert led.leader == found.peers[1]
        assert (led.id, led.start, led.end, led.epoch) == (found.id, found.start, found.end, found.epoch)

    @rule(key=KEYS)
    def place_that_is_forgotten_already_may_be_led_by_anybody(self, key: bytes) -> None:
        found = self.cache.locate(key)
        assert found is not None
        self.cache.forget(found)
        self.cache.set_leader(found, found.peers[1])
        assert self.cache.locate(key) == self.pd.holder(key)

    @rule(key=KEYS)
    def region_that_pd_does_not_know_is_none(self, key: bytes) -> None:
        self.pd.hidden = {self.pd.holder(key).id}
        found = self.cache.locate(key)
        assert found is None or found.covers(key)
        self.pd.hidden = set()

    @invariant()
    def no_key_has_two_regions(self) -> None:
        known = self.cache.known
        for left, right in itertools.pairwise(known):
            assert left.end and left.end <= right.start

    def _check_was_told(self, found: CachedRegion) -> None:
        told = self.told[found.id, found.epoch[1]]
        assert (found.start, found.end) == (told.start, told.end)


def _overlap(one: CachedRegion, other: CachedRegion) -> bool:
    return (not one.end or other.start < one.end) and (not other.end or one.start < other.end)


TestRegionCacheAgainstModel = RegionCacheAgainstModel.TestCase


def test_known_region_is_not_asked_for_again() -> None:
    pd = Directory()
    cache = RegionCache(pd)
    for key in (b"a", b"b", b"", b"\xff"):
        cache.locate(key)
    assert pd.asked == 1


def test_address_of_a_store_is_kept_until_one_of_its_regions_is_refused() -> None:
    pd = Directory()
    cache = RegionCache(pd)
    assert cache.address(1) == "store-1"
    pd.addresses[1] = "elsewhere"
    assert cache.address(1) == "store-1"
    cache.forget(pd.places[0])
    assert cache.address(1) == "elsewhere"


def test_store_that_is_gone_for_good_has_no_address() -> None:
    assert RegionCache(Directory()).address(9) is None
