"""Mode and summary of a run."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ingest.protocol.counts import TargetRows, rows_read
from ingest.protocol.events import EpochResult


class Mode(enum.Enum):
    """Condition that ends the loop: no new records, a stop only, or one replay."""

    ONCE = "once"
    CONTINUOUS = "continuous"
    REJECTED = "rejected"
    """One epoch of records that were rejected before; the source's new records wait."""


@dataclass(frozen=True)
class Summary:
    """Results of one run of the loop.

    Attributes:
        epochs: epochs completed.
        read: records read.
        rows: rows that the decoder accepted.
        rejected: rows quarantined, by the decoder and by targets.
        is_stopped: whether a signal ended the run, and not the source's end.
        exit_message: outcome of the epoch that was open at the signal; "" where none was.
        targets: row counts of each target, the quarantine included.
    """

    epochs: int = 0
    read: int = 0
    rows: int = 0
    rejected: int = 0
    is_stopped: bool = False
    exit_message: str = ""
    targets: Mapping[str, TargetRows] = field(default_factory=dict)

    def after(self, result: EpochResult) -> Summary:
        """The summary with one more epoch."""
        parts = {part.target: TargetRows.of(part) for part in result.manifest.parts}
        return replace(
            self,
            epochs=self.epochs + 1,
            read=self.read + rows_read(result.manifest),
            rows=self.rows + result.decision.rows,
            rejected=self.rejected + result.decision.rejected,
            targets={target: self.targets.get(target, TargetRows()) + rows for target, rows in parts.items()},
        )
