"""Shares a limit fairly: everyone gets the same, and what one does not need goes to those who need more."""

from __future__ import annotations

from collections.abc import Sequence


def share(needs: Sequence[int], limit: int) -> list[int]:
    """How much each gets of a limit.

    Nobody gets more than it needs, and whoever needs anything gets something: where the limit is smaller
    than the number of those, each gets 1 and the limit is exceeded. Otherwise all of the limit, or of the
    needs, is given away, and two whose needs are not met differ by 1 at most.

    Args:
        needs: what each could take, 0 or more.
        limit: how much there is for all.
    """
    given = [0] * len(needs)
    left = max(limit, sum(need > 0 for need in needs))
    ordered = sorted((at for at, need in enumerate(needs) if need > 0), key=lambda at: needs[at])
    for number, at in enumerate(ordered):
        given[at] = min(needs[at], left // (len(ordered) - number))
        left -= given[at]
    return given
