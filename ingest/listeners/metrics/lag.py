"""The lag of each shard, between epochs and within long ones.

A plan has the ranges that it takes and the number of units that it leaves, but not which shards hold those. While it
leaves any, a thread asks the source for each shard's end, over a connection of its own, so that an epoch never waits
for the answer.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping

from ingest.sources.base import ShardEnd, SourcePlan
from ingest.sources.lag import Lag
from timeline.epoch import Position
from timeline.errors import TidelineError

log = logging.getLogger(__name__)

LOOK_EVERY_S = 15.0
"""Seconds between two requests to the source, Prometheus' usual scrape interval."""

WORST = 20
"""Shards that have a lag of their own in the metrics; a source may have a million."""

Ends = Callable[[Mapping[str, Position]], Mapping[str, ShardEnd]]
"""See `ingest.sources.base.Source.ends`."""


class LagWatch:
    """Current lag of a job. The loop calls the methods; they return at once."""

    def __init__(self, open_ends: Callable[[], Ends], *, look_every_s: float = LOOK_EVERY_S) -> None:
        """Create the watch; the first request follows the first plan that leaves units behind.

        Args:
            open_ends: opens the source; called once, in the thread that asks it.
            look_every_s: seconds between two requests.
        """
        self._open_ends = open_ends
        self._look_every_s = look_every_s
        self._lag: Lag | None = None
        self._plan: SourcePlan | None = None
        self._positions: Mapping[str, Position] = {}
        self._wanted = threading.Event()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def lag(self) -> Lag | None:
        """The current lag; None before the first plan."""
        return self._lag

    def planned(self, plan: SourcePlan, positions: Mapping[str, Position]) -> None:
        """Record the plan of an epoch.

        Args:
            plan: ranges of the epoch, and the units that it leaves.
            positions: committed position of every shard before the epoch.
        """
        taken = {offsets.shard: offsets.until - offsets.start for offsets in plan.ranges}
        known = self._lag.by_shard if self._lag is not None and plan.behind else {}
        by_shard = {**known, **{shard: max(units, known.get(shard, 0)) for shard, units in taken.items()}}
        shards = max(len(by_shard), plan.behind_shards)
        self._lag = Lag(plan.unit, sum(taken.values()) + plan.behind, shards, by_shard)
        self._plan, self._positions = plan, positions
        if plan.behind:
            self._wanted.set()
            self._start()
        else:
            self._wanted.clear()

    def completed(self) -> None:
        """Record that the epoch planned last is committed to every target."""
        plan, lag = self._plan, self._lag
        if plan is None or lag is None:
            return
        taken = {offsets.shard: offsets.until - offsets.start for offsets in plan.ranges}
        left = {shard: units - taken.get(shard, 0) for shard, units in lag.by_shard.items()} if plan.behind else {}
        by_shard = {shard: units for shard, units in left.items() if units > 0}
        self._positions = {**self._positions, **{offsets.shard: offsets.end for offsets in plan.ranges}}
        self._lag = Lag(plan.unit, plan.behind, plan.behind_shards, by_shard)

    def caught_up(self) -> None:
        """Record that the source has no new records."""
        self._wanted.clear()
        if self._lag is not None:
            self._lag = Lag(self._lag.unit, 0, 0)

    def close(self) -> None:
        """Stop asking; a running request is not waited for."""
        self._ended.set()
        self._wanted.set()

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="tideline-lag", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        ends: Ends | None = None
        while True:
            self._wanted.wait()
            if self._ended.is_set():
                return
            try:
                ends = ends or self._open_ends()
                self._look(ends)
            except (TidelineError, OSError) as error:
                # The loop asks the same source and reports its errors.
                log.debug("lag of single shards is not known: %s", error)
            if self._ended.wait(self._look_every_s):
                return

    def _look(self, ends: Ends) -> None:
        found = ends(self._positions)
        lag = self._lag
        if lag is not None and self._wanted.is_set():
            self._lag = Lag.of(lag.unit, found)
