"""One instant of Hudi's archive, with its bodies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from timeline.instant import Instant, State

_PROGRESS = {State.REQUESTED: 0, State.INFLIGHT: 1, State.COMPLETED: 2}


@dataclass(frozen=True)
class Archived:
    """An archived instant with its bodies.

    Attributes:
        instant: it, in the furthest state that the archive knows.
        request: what was planned; None where nothing says it.
        completed: body of the completed instant.
        completed_ms: when it was completed, where only the archive tells; 0 where nothing does.
        problems: what could not be read of it, and why.
    """

    instant: Instant
    request: Mapping[str, Any] | None = None
    completed: Mapping[str, Any] | None = None
    completed_ms: int = 0
    problems: tuple[str, ...] = ()

    def merged(self, other: Archived) -> Archived:
        """One instant of two records of it: each state has a record of its own in layout 1."""
        further, before = (self, other) if _progress(self) >= _progress(other) else (other, self)
        return replace(
            further,
            request=further.request or before.request,
            completed=further.completed or before.completed,
            completed_ms=further.completed_ms or before.completed_ms,
            problems=tuple(dict.fromkeys(before.problems + further.problems)),
        )


def _progress(archived: Archived) -> int:
    return _PROGRESS[archived.instant.state]


Parse = Callable[[str, bytes, bool], Iterator[Archived]]
"""From where it was read, a file's bytes and whether bodies are wanted to what it holds, as far as it can be read."""
