"""The lag of each shard, between epochs and within long ones.

A plan has the ranges that it takes and the number of units that it leaves, but not which shards hold those. While it
leaves any, a scrape has the source asked for each shard's end, in a thread and over a connection of its own, so that
neither an epoch nor the scrape waits for the answer: the next scrape shows it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from ingest.sources.base import ShardEnd, SourcePlan
from ingest.sources.lag import Lag, LagProbe
from timeline.epoch import Position
from timeline.errors import TidelineError

log = logging.getLogger(__name__)

LOOK_EVERY_S = 15.0
"""Least seconds between two requests to the source, Prometheus' usual scrape interval."""

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
        self._ends: Ends | None = None
        self._probe = LagProbe(self._ask, every_s=look_every_s)
        self._lag: Lag | None = None
        self._plan: SourcePlan | None = None
        self._positions: Mapping[str, Position] = {}
        self._is_asked = False
        """Whether the last plan left units behind, so that the source knows more than the plan."""

    @property
    def lag(self) -> Lag | None:
        """The current lag; None before the first plan. Has the source asked where a request is due."""
        if self._is_asked:
            self._probe.latest()
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
        self._is_asked = plan.behind > 0
        if self._is_asked:
            self._probe.latest()

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
        self._is_asked = False
        if self._lag is not None:
            self._lag = Lag(self._lag.unit, 0, 0)

    def close(self) -> None:
        """Stop asking; a running request is not waited for."""
        self._is_asked = False

    def _ask(self) -> None:
        try:
            self._ends = self._ends or self._open_ends()
            self._look(self._ends)
        except (TidelineError, OSError) as error:
            # The loop asks the same source and reports its errors.
            log.debug("lag of single shards is not known: %s", error)

    def _look(self, ends: Ends) -> None:
        found = ends(self._positions)
        lag = self._lag
        if lag is not None and self._is_asked:
            self._lag = Lag.of(lag.unit, found)
