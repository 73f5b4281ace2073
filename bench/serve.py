"""A system as a process of its own: it starts once, then does one round after another on request.

::

    parent ── {"do": "round", …}\\n ──▶ stdin  │ system │ stdout ── {"ok": true, …}\\n ──▶ parent
                                              │        │ stderr ──▶ a log

So compared systems can take turns while the others idle, each with its own session, and their cost is measured from
outside. Needs the standard library only: Hudi's environment has nothing else.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from typing import Any, Protocol

_PR_SET_CHILD_SUBREAPER = 36
"""See prctl(2)."""

Work = Mapping[str, Any]
"""A request, JSON values. ``target`` is its output; a script and its systems agree on all other keys."""


class Served(Protocol):
    """A system whose session runs."""

    def round(self, work: Work) -> Mapping[str, float]:
        """Do the work once, into a new target; returns figures that only the system itself knows."""

    def count(self, work: Work) -> int:
        """Number of rows in the target of a round, as its readers see it."""

    def close(self) -> None:
        """End the session."""


def serve(start: Callable[[Work], Served]) -> None:
    """Serve the parent's requests until it closes stdin, or ends.

    Args:
        start: starts the session, with the settings of the first line.
    """
    _keep_orphans()
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    # Output of a session belongs to the log, not between the answers.
    os.dup2(2, 1)
    served: Served | None = None
    try:
        for line in sys.stdin:
            asked: Work = json.loads(line)
            try:
                answer: dict[str, Any] = {"ok": True}
                if served is None:
                    served = start(asked)
                elif asked["do"] == "round":
                    answer |= served.round(asked)
                else:
                    answer["rows"] = served.count(asked)
            except Exception as error:  # the process's edge: the parent decides what to do
                traceback.print_exc()
                answer = {"ok": False, "error": f"{type(error).__name__}: {str(error)[:2000]}"}
            answers.write(json.dumps(answer) + "\n")
            answers.flush()
    finally:
        if served is not None:
            served.close()


def _keep_orphans() -> None:
    """Become the parent of all processes below this one whose parent has ended.

    Spark ends the parent of idle Python workers, and the workers with it: their CPU time would be in no sum.
    """
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
