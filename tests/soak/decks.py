"""Random orders in which no item waits for long."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def deck(cards: Iterable[T], draw: random.Random) -> Iterator[T]:
    """Cards without end: shuffled rounds, each with every card once."""
    cards = list(cards)
    while True:
        yield from draw.sample(cards, len(cards))
