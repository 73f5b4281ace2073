"""Selection of instants by age, state, action, epoch or name; bodies are read only where names do not suffice."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime

from timeline.errors import ConfigError, FormatError
from timeline.history.timeline import Timeline
from timeline.instant import Action, Instant, format_time, parse_time
from timeline.units import count, parse_duration

_DIGITS = {8, 14, 17}
"""yyyyMMdd, yyyyMMddHHmmss, yyyyMMddHHmmssSSS."""

_AGE = re.compile(r"\d+(\.\d+)?\s*[A-Za-z]+", re.ASCII)
_MOST_NAMED = 5


@dataclass(frozen=True)
class Selection:
    """Filter of instants; all conditions must hold.

    Attributes:
        since: an instant time; only instants requested or completed at it or later; None: any age.
        is_pending: only pending instants.
        actions: only instants of these actions; empty: all.
        epoch: only instants of this epoch; None: all.
        limit: only the newest, at most this number; 0: all.
    """

    since: str | None = None
    is_pending: bool = False
    actions: Collection[Action] = ()
    epoch: int | None = None
    limit: int = 0


def parse_since(text: str, now_ms: int) -> str:
    """Instant time of a ``--since`` value: an age, a moment, or an instant time itself.

    Args:
        text: ``2h``, ``2026-03-01T10:15Z`` (UTC where it names no zone) or ``20260301101530123``.
        now_ms: milliseconds since 1970.

    Raises:
        ConfigError: the text is none of these.
    """
    try:
        if text.isascii() and text.isdigit():
            if len(text) not in _DIGITS:
                raise ValueError(f"{count(len(text), 'digit')}; 8, 14 or 17 are allowed")
            time = text.ljust(17, "0")
            parse_time(time)
            return time
        if _AGE.fullmatch(text):
            return format_time(max(0, now_ms - round(parse_duration(text) * 1000)))
        moment = datetime.fromisoformat(text)
        aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return format_time(max(0, round(aware.timestamp() * 1000)))
    except (ValueError, OverflowError, FormatError) as error:
        raise ConfigError(
            f"--since {text}: {error}; allowed are an age (30m, 2h, 3d), a moment (2026-03-01T10:15, UTC where it "
            "names no zone) and an instant time (20260301101530123)"
        ) from None


def select(timeline: Timeline, wanted: Selection) -> tuple[Timeline, int]:
    """The selected instants, and the number of older ones that the limit leaves out.

    Reads no body unless an epoch is selected, see `Timeline.by_epoch`.
    """
    chosen = timeline.pending() if wanted.is_pending else timeline
    if wanted.actions:
        chosen = chosen.by_action(*wanted.actions)
    if wanted.since is not None:
        since = wanted.since
        chosen = chosen.where(lambda each: max(each.time, each.completion_time or "") >= since)
    if wanted.epoch is not None:
        chosen = of_epoch(chosen, wanted.epoch)
    hidden = max(0, len(chosen) - wanted.limit) if wanted.limit else 0
    kept = set(chosen.instants[hidden:])
    return chosen.where(kept.__contains__), hidden


def of_epoch(timeline: Timeline, epoch: int) -> Timeline:
    """One epoch's instants: its commit, and the rollbacks of its attempts in any state."""
    found = set(timeline.by_epoch(epoch))
    for instant in timeline.pending().by_action(Action.ROLLBACK):
        if timeline.entry(instant).epoch == epoch:
            found.add(instant)
    return timeline.where(found.__contains__)


def find_instant(timeline: Timeline, wanted: str) -> Instant:
    """The one instant that a command's argument names.

    Args:
        timeline: the whole timeline.
        wanted: ``latest``, ``epoch:7``, an instant time or a unique prefix of one. A rolled-back commit is no longer on
            the timeline: its full time finds its rollback.

    Raises:
        ConfigError: no instant matches, or several do.
    """
    if not len(timeline):
        raise ConfigError(f"instant {wanted}: the timeline has no instants yet")
    if wanted == "latest":
        return timeline.instants[-1]
    if wanted.startswith("epoch:"):
        return _instant_of_epoch(timeline, wanted)
    if not (wanted.isascii() and wanted.isdigit() and len(wanted) <= 17):
        raise ConfigError(
            f"instant {wanted!r}: allowed are latest, epoch:N, and an instant time or the beginning of one "
            f"({timeline.instants[-1].time} is the latest)"
        )
    found = [instant for instant in timeline if instant.time.startswith(wanted)]
    if len({instant.time for instant in found}) > 1:
        named = ", ".join(instant.time for instant in found[-_MOST_NAMED:])
        raise ConfigError(
            f"instant {wanted}: {len(found)} instants begin so ({'… ' if len(found) > _MOST_NAMED else ''}{named}); "
            "give more digits"
        )
    rollback = None if found else _rollback_of(timeline, wanted)
    if not found and rollback is None:
        raise ConfigError(f"instant {wanted}: there is none on the timeline; tideline show CONF lists what there is")
    return rollback or found[0]


def _instant_of_epoch(timeline: Timeline, wanted: str) -> Instant:
    number = wanted.removeprefix("epoch:")
    if not (number.isascii() and number.isdigit()):
        raise ConfigError(f"instant {wanted}: epoch:N with a number is allowed, epoch:7 for example")
    found = of_epoch(timeline, int(number))
    if not len(found):
        raise ConfigError(
            f"instant {wanted}: the timeline has no instant of epoch {number}; tideline show CONF lists what there is"
        )
    commits = found.by_action(Action.COMMIT)
    return (commits if len(commits) else found).instants[-1]


def _rollback_of(timeline: Timeline, time: str) -> Instant | None:
    """The rollback that undid a commit, by the commit's time; reads the bodies of later rollbacks."""
    for instant in timeline.by_action(Action.ROLLBACK):
        if len(time) == 17 and instant.time > time and time in timeline.entry(instant).undone:
            return instant
    return None
