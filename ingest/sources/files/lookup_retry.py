"""Retries of lookups in a folder whose files are being renamed: one lookup may miss a file under both of its names."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

MOST_LOOKUPS = 5
"""Lookups before an absent file counts as missing."""

_FIRST_PAUSE_S = 0.01
"""Pause between the second lookup and the third; each further pause doubles. A rotation takes some milliseconds."""


def retry_lookup(look: Callable[[], T], last: Callable[[], T], *fleeting: type[Exception]) -> T:
    """Result of a lookup, which is retried while it raises an error that a rotation may have caused.

    Args:
        look: one lookup.
        last: the last lookup, whose error is raised.
        fleeting: errors to retry on.
    """
    for number in range(MOST_LOOKUPS - 1):
        try:
            return look()
        except fleeting:
            if number:
                time.sleep(_FIRST_PAUSE_S * 2 ** (number - 1))
    return last()
