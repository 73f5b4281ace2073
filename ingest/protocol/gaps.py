"""Epochs that a target lacks while pending ones are completed, until `tideline replay` has replayed them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sinks.base import Sink
from sinks.held import Span, contents_of, with_base
from timeline.epoch import Part

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class MissingEpochs:
    """Epochs that one target has lost. The next commit to the target records them, so that they stay known as missing.

    Attributes:
        missing: ranges of these epochs.
        without_files: pending epochs among them whose data files are missing; these are not committed to the target.
    """

    missing: tuple[Span, ...] = ()
    without_files: tuple[int, ...] = ()

    def bridged(self, sink: Sink, part: Part) -> Part | None:
        """The part to commit to the target instead of `part`; None if it is not committed.

        Args:
            sink: the target.
            part: its part of a pending epoch.
        """
        if part.epoch.epoch in self.without_files:
            log.warning("%s: %s is not committed here: its data files are gone", sink.target, part.epoch)
            return None
        contents = contents_of(sink)
        if not part.rows or contents is None:
            return part
        base = replace(contents.held().base, missing=spans_before(part.epoch.epoch, self.missing))
        return replace(part, detail=with_base(part.detail, base))


def spans_before(epoch: int, among: Sequence[Span]) -> tuple[Span, ...]:
    """The epochs of some ranges that lie before an epoch, as ranges."""
    return tuple((first, min(last, epoch - 1)) for first, last in among if first < epoch)
