"""The contents of a Delta table: the job's epochs in it, and the data files that its log names."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sinks.delta.log import DeltaLog
from sinks.delta.snapshot import TableSnapshot
from sinks.held import Base, Held
from timeline.epoch import Part
from timeline.errors import TargetRefusedError
from timeline.stores.base import ObjectStore, Retry


@contextlib.contextmanager
def naming_target(target: str, before: str = "", after: str = "") -> Iterator[None]:
    """Put the target's name before the message of a refusal.

    Args:
        target: the target's name.
        before: text between the name and the message.
        after: text after the message.
    """
    try:
        yield
    except TargetRefusedError as error:
        raise TargetRefusedError(f"{target}: {before}{error}{after}") from error


@dataclass
class DeltaContents:
    """Reads one table; see `sinks.held.TargetContents`.

    Attributes:
        target: the target's name.
        store: the table's folder.
        log: the table's log.
        retry: bounds of each read.
        base: the table's state that the next epoch relies on; None before the first `held`.
    """

    target: str
    store: ObjectStore
    log: DeltaLog
    retry: Retry
    base: Base | None = None

    @property
    def place(self) -> str:
        """See TargetContents."""
        return self.log.location

    def load(self) -> TableSnapshot | None:
        """The table's newest snapshot; None if there is no table.

        Raises:
            TargetRefusedError: the log cannot be read, or asks for more than this version knows.
            StoreUnavailableError: the store did not answer.
        """
        with naming_target(self.target):
            return self.log.load()

    def held(self, known: Base | None = None) -> Held:
        """See TargetContents."""
        table = self.retry.call(self.load)
        held = Held(None) if table is None else self.retry.call(lambda: self.log.held(table, known))
        self.base = held.base
        return held

    def has_all(self, part: Part) -> bool:
        """See TargetContents."""
        table = self.retry.call(self.load)
        seen = self.log.files(table) if table is not None else {}
        return all(file.path in seen for file in part.files)

    def missing_files(self) -> Sequence[str]:
        """See TargetContents."""
        table = self.retry.call(self.load)
        named = self.log.files(table) if table is not None else {}
        existing = self.retry.call(lambda: self.store.sizes(list(named)))
        return sorted(named.keys() - existing.keys())
