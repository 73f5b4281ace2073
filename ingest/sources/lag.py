"""The lag of a job: records or bytes of its shards beyond the committed offsets."""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from ingest.sources.base import ShardEnd, Unit

T = TypeVar("T")


@dataclass(frozen=True)
class Lag:
    """The lag of a job.

    Attributes:
        unit: unit of the offsets.
        units: records or bytes that exist and are not committed.
        shards: shards with new records.
        by_shard: lag of each shard, as far as it is known.
    """

    unit: Unit
    units: int
    shards: int
    by_shard: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, unit: Unit, ends: Mapping[str, ShardEnd]) -> Lag:
        """The lag by the ends of all shards."""
        by_shard = {shard: end.lag for shard, end in ends.items() if end.lag}
        return cls(unit, sum(by_shard.values()), len(by_shard), by_shard)

    def largest(self, most: int) -> list[tuple[str, int]]:
        """The `most` shards with the largest lags, the largest first, each with its lag."""
        return heapq.nlargest(most, self.by_shard.items(), key=lambda entry: (entry[1], entry[0]))


class LagProbe(Generic[T]):
    """Measures the lag in a thread of its own, at most once in a period; `latest` never waits for it."""

    def __init__(self, measure: Callable[[], T], *, every_s: float) -> None:
        """Measure nothing before the first `latest`.

        Args:
            measure: one measurement; called from one thread at a time, raises nothing.
            every_s: least seconds between the starts of two measurements.
        """
        self._measure = measure
        self._every_s = every_s
        self._latest: T | None = None
        self._thread: threading.Thread | None = None
        self._next_at = 0.0

    def latest(self) -> T | None:
        """The latest measurement; starts the next one when it is due."""
        now = time.monotonic()
        if (self._thread is None or not self._thread.is_alive()) and now >= self._next_at:
            self._next_at = now + self._every_s
            # A daemon thread: a source that does not answer must not keep the process from ending.
            self._thread = threading.Thread(target=self._run, name="tideline-lag", daemon=True)
            self._thread.start()
        return self._latest

    def wait(self, timeout_s: float | None = None) -> None:
        """Wait for the running measurement, if there is one."""
        if self._thread is not None:
            self._thread.join(timeout_s)

    def _run(self) -> None:
        self._latest = self._measure()
