"""Random orders in which nothing waits for long."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def deck(cards: Iterable[T], draw: random.Random) -> Iterator[T]:
    """Cards for ever, each once before any comes again, shuffled anew each time."""
    cards = list(cards)
    while True:
        yield from draw.sample(cards, len(cards))
