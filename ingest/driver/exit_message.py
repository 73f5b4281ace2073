"""The last line of a run that an error ends: the error, the outcome of its epoch, the next command."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ingest.protocol.events import Completed, EpochOpened, Event, LeftPending, Phase, PhaseDone, RolledBack
from timeline.epoch import EpochRef
from timeline.errors import FencedError, ReplayNeededError, TidelineError
from timeline.formatting import shortened
from timeline.redact import shown_error

_LONGEST_ERROR = 500
"""Maximum characters of an error in a lease's record."""

_NEXT = "Next: "
"""Prefix of the next command, in error messages too."""


class ExitMessage:
    """Remembers the epoch that an error is about; a `Listener`."""

    def __init__(self, conf: Path) -> None:
        """Remember no epoch yet; `conf` is the run's job file."""
        self._conf = conf
        self._last: RolledBack | LeftPending | Completed | None = None
        self._opened: EpochRef | None = None

    def __call__(self, event: Event) -> None:
        """See `ingest.protocol.events.Listener`."""
        match event:
            case EpochOpened(plan):
                self._opened = plan.ref
            case RolledBack(ref) if self._opened is not None and ref.instant == self._opened.instant:
                # Where another process has already rolled it back, storage no longer has its epoch number.
                self._last = replace(event, ref=self._opened)
            case RolledBack() | LeftPending():
                self._last = event
            case Completed() if event.is_recovered:
                self._last = event
            case Completed() | PhaseDone(Phase.RECOVER):
                self._last = None
            case _:
                pass

    @property
    def ref(self) -> EpochRef | None:
        """The epoch that the error ended; None where none was open."""
        match self._last:
            case None:
                return None
            case Completed(result):
                return result.manifest.ref
            case _:
                return self._last.ref

    def after(self, error: Exception, message: str) -> str:
        """An error's message with the outcome of the epoch and the next command."""
        said = message.rstrip()
        if self._last is None:
            return said
        fate = self._fate(error)
        if _NEXT in said:  # the error's next command is more specific
            fate = fate.partition(f" {_NEXT}")[0]
        return f"{said}{'' if said.endswith(('.', '!', '?')) else '.'} {fate}"

    def _fate(self, error: Exception) -> str:
        match self._last:
            case RolledBack(ref) if isinstance(error, FencedError):
                return (
                    f"{_named(ref)} was rolled back here. Nothing to do: the other process goes on; "
                    f"tideline show {self._conf} tells who"
                )
            case RolledBack(ref):
                return f"{_named(ref)} was rolled back. Next: tideline run {self._conf} reads its records again"
            case Completed(result):
                return (
                    f"{_named(result.manifest.ref)} was completed all the same. Next: tideline run {self._conf} goes on"
                )
            case LeftPending(ref, True) if isinstance(error, ReplayNeededError):
                return f"{_named(ref)} is committed and pending. Next: tideline run {self._conf} writes it there again"
            case LeftPending(ref, True, True):
                return f"{_named(ref)} is in every target. Next: tideline run {self._conf} (or recover) completes it"
            case LeftPending(ref, True):
                return (
                    f"{_named(ref)} is committed, and pending because not every target has it yet. "
                    f"Next: tideline run {self._conf} (or recover) applies it once the cause is mended"
                )
            case LeftPending(ref):
                return (
                    f"{_named(ref)} is pending, and nothing of it is visible. "
                    f"Next: tideline recover {self._conf} (or run) settles it once the store answers"
                )
            case None:
                return ""


def _named(ref: EpochRef) -> str:
    return str(ref).capitalize() if ref.epoch >= 0 else f"Instant {ref.instant}"


def last_error(error: Exception) -> str:
    """Text of the error that ends a writer, for its lease's record."""
    text = shown_error(error)
    # The text of a foreign error is its class already.
    kind = f"{type(error).__name__}: " if isinstance(error, TidelineError) else ""
    return shortened(f"{kind}{text}", _LONGEST_ERROR)
