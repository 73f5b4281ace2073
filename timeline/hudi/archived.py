"""One instant of Hudi's archive, with its bodies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from timeline.instant import Instant


@dataclass(frozen=True)
class Archived:
    """An archived instant with its bodies.

    Attributes:
        instant: the instant in its furthest archived state.
        request: its plan, the body of the requested instant; None if the archive has none.
        completed: body of the completed instant.
        completed_ms: completion time in milliseconds since 1970 if only the archive records it; else 0.
        problems: read errors, one message each.
    """

    instant: Instant
    request: Mapping[str, Any] | None = None
    completed: Mapping[str, Any] | None = None
    completed_ms: int = 0
    problems: tuple[str, ...] = ()

    def merged(self, other: Archived) -> Archived:
        """Two records of one instant as one: layout 1 has a record for each state."""
        further, before = (self, other) if _progress(self) >= _progress(other) else (other, self)
        return replace(
            further,
            request=further.request or before.request,
            completed=further.completed or before.completed,
            completed_ms=further.completed_ms or before.completed_ms,
            problems=tuple(dict.fromkeys(before.problems + further.problems)),
        )


def _progress(archived: Archived) -> int:
    return archived.instant.state.rank


Parse = Callable[[str, bytes, bool], Iterator[Archived]]
"""Parser of an archive file: takes the path for messages, the file's bytes, and whether to read bodies.

Yields records until a FormatError.
"""
