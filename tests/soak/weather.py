"""Weather: spells of faults between the job and its object store, made by the fault proxy while strikes go on."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from tests.real.fault_proxy import Fault, FaultProxy, Rule
from tests.soak.decks import deck
from tests.soak.diary import Diary

Spell: TypeAlias = Callable[[random.Random], Sequence[Rule]]


def _some(fault: Fault, most: float, longest_s: float = 0.0, status: int = 500) -> Spell:
    """A fault on a share of all requests, drawn anew for each spell."""

    def spell(draw: random.Random) -> Sequence[Rule]:
        probability, seconds = draw.uniform(most / 4, most), draw.uniform(0.1, max(0.1, longest_s))
        return [Rule(fault, probability=probability, seconds=seconds, status=status)]

    return spell


def _twice(draw: random.Random) -> Sequence[Rule]:
    seconds = draw.uniform(0.0, 8.0)
    return [Rule(Fault.DUPLICATE, method, probability=0.5, seconds=seconds) for method in ("PUT", "POST", "DELETE")]


def _narrow(draw: random.Random) -> Sequence[Rule]:
    return [Rule(Fault.THROTTLE, bytes_per_s=draw.randrange(10_000, 100_000))]


SPELLS: Mapping[str, Spell] = {
    "throttling, 503": _some(Fault.REFUSE, 0.6, status=503),
    "errors, 500": _some(Fault.REFUSE, 0.6, status=500),
    "outage": lambda draw: [Rule(Fault.REFUSE, status=503)],
    "lost requests": _some(Fault.DROP_REQUEST, 0.4),
    "lost answers": _some(Fault.DROP_ANSWER, 0.4),
    "done, and 500 said": _some(Fault.SPOIL_ANSWER, 0.4),
    "late answers": _some(Fault.DELAY_ANSWER, 0.4, 4.0),
    "late requests": _some(Fault.DELAY_REQUEST, 0.4, 4.0),
    "twice": _twice,
    "narrow": _narrow,
    "silence": _some(Fault.HANG, 0.3),
}
"""Faults of each spell."""


def run(proxy: FaultProxy, draw: random.Random, diary: Diary, stop: threading.Event) -> int:
    """Run spells, with fair weather between them, until `stop` is set; returns their number.

    Args:
        proxy: makes the faults.
        draw: for order, rules and durations.
        diary: records spells.
        stop: ends the weather.
    """
    spells = 0
    for name in deck(SPELLS, draw):
        if stop.wait(draw.uniform(1.0, 5.0)):
            break
        spells += 1
        rules = SPELLS[name](draw)
        diary.note(f"weather: {name}: {'; '.join(map(_in_words, rules))}")
        proxy.arm(*rules)
        stop.wait(draw.uniform(2.0, 6.0))
        proxy.disarm()
        diary.note("weather: fair")
    return spells


def _in_words(rule: Rule) -> str:
    what = f"{rule.bytes_per_s} bytes/s" if rule.fault is Fault.THROTTLE else f"{rule.seconds:.1f} s"
    return f"{rule.method or 'any'} with p={rule.probability:.2f}, {what}"
