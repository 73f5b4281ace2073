"""The lag of a job: records or bytes of its shards beyond the committed offsets."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, field

from ingest.sources.base import ShardEnd, Unit


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
