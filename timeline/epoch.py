"""An epoch's offset ranges, and the bodies that carry an epoch through its states: plan and manifest.

::

    <t>.commit.requested   Plan       what will be read, by whom
    <t>.inflight           (empty)    data may be written from now on
    <t>.inflight           Manifest   what was written: enough to commit without the writer

Both are JSON with a format version. A reader refuses a newer version instead of guessing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

Json: TypeAlias = "None | bool | int | float | str | Sequence[Json] | Mapping[str, Json]"


@dataclass(frozen=True)
class Position:
    """How far a shard has been read.

    Attributes:
        offset: the first offset that is not read yet, in the shard's unit (bytes, records).
        detail: what the source needs to find and check the place again.
    """

    offset: int
    detail: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True)
class OffsetRange:
    """Consecutive records ``[start, until)`` of one shard.

    Attributes:
        shard: the independently ordered part of the source.
        start: first offset.
        until: first offset after it.
        detail: what a reader needs to read exactly these records (path, compression, …).
        after: detail of the position behind the range.
    """

    shard: str
    start: int
    until: int
    detail: Mapping[str, Json] = field(default_factory=dict)
    after: Mapping[str, Json] = field(default_factory=dict)

    @property
    def end(self) -> Position:
        """The shard's position once this range is committed."""
        return Position(self.until, self.after)
