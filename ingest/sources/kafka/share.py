"""Shares a limit fairly: equal shares, and the part that a smaller need leaves over goes to larger needs."""

from __future__ import annotations

from collections.abc import Sequence


def share(needs: Sequence[int], limit: int) -> list[int]:
    """The share of each need in a limit.

    No share exceeds its need, and every need above 0 has a share: where the limit is smaller than the number
    of needs above 0, each of their shares is 1 and the limit is exceeded. Otherwise the shares add up to the
    limit, or to the needs, and shares below their needs differ by 1 at most.

    Args:
        needs: units that each could take, 0 or more.
        limit: units for all needs.
    """
    given = [0] * len(needs)
    left = max(limit, sum(need > 0 for need in needs))
    ordered = sorted((at for at, need in enumerate(needs) if need > 0), key=lambda at: needs[at])
    for number, at in enumerate(ordered):
        given[at] = min(needs[at], left // (len(ordered) - number))
        left -= given[at]
    return given
