"""Looks at a folder in which files are renamed meanwhile: one may miss a file under both of its names."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

MOST_LOOKS = 5
"""Looks until a file that is not there counts as gone."""

_FIRST_PAUSE_S = 0.01
"""Between the second look and the third; each further one is twice as long. A rotation takes some milliseconds."""


def look_again(look: Callable[[], T], last: Callable[[], T], *fleeting: type[Exception]) -> T:
    """What a look gives, made again while it raises what a rotation may be to blame for.

    Args:
        look: one look.
        last: the last one, whose error stands.
        fleeting: errors that the next look may not have.
    """
    for number in range(MOST_LOOKS - 1):
        try:
            return look()
        except fleeting:
            if number:
                time.sleep(_FIRST_PAUSE_S * 2 ** (number - 1))
    return last()
