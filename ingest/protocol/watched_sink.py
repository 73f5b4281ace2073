"""A target that says which data it deletes, for metrics; in all else it is the target itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Self

from ingest.protocol.events import Deleted, Listener
from sinks.base import (
    EpochRef,
    KeyedWriter,
    Lookup,
    Part,
    PartitionWriter,
    Plan,
    SelectiveWriter,
    Sink,
    SinkContext,
    Spread,
    SweepingSink,
    Swept,
    TargetOptions,
    WriteReport,
    in_turn,
)


@dataclass(frozen=True)
class WatchedSink:
    """See `sinks.base.Sink`.

    Attributes:
        sink: the target.
        tell: told what it deletes.
    """

    sink: Sink
    tell: Listener
    _told: Swept = field(default_factory=Swept, init=False, repr=False)

    Options = TargetOptions

    @classmethod
    def open(cls, options: TargetOptions, context: SinkContext) -> Self:
        """See Sink; no job file names this one."""
        raise NotImplementedError("a target is opened first, and watched then")

    @property
    def target(self) -> str:
        """See Sink."""
        return self.sink.target

    def ensure(self) -> None:
        """See Sink."""
        self.sink.ensure()

    def begin(self, plan: Plan) -> PartitionWriter | SelectiveWriter | KeyedWriter:
        """See Sink."""
        return self.sink.begin(plan)

    def prepare(self, epoch: EpochRef, reports: Sequence[WriteReport]) -> Part:
        """See Sink."""
        with self._sweeping():
            return self.sink.prepare(epoch, reports)

    def verify(self, part: Part) -> Sequence[str]:
        """See Sink."""
        return self.sink.verify(part)

    def commit(self, part: Part, spread: Spread = in_turn) -> None:
        """See Sink."""
        with self._sweeping():
            self.sink.commit(part, spread)

    def lookup(self, epoch: EpochRef) -> Lookup:
        """See Sink."""
        return self.sink.lookup(epoch)

    def abort(self, epoch: EpochRef, part: Part | None) -> Sequence[str]:
        """See Sink."""
        with self._sweeping():
            return self.sink.abort(epoch, part)

    def release(self, epoch: EpochRef, part: Part | None, *, final: bool = False) -> None:
        """See Sink."""
        with self._sweeping():
            self.sink.release(epoch, part, final=final)

    def leftovers(self) -> Sequence[str]:
        """See Sink."""
        return self.sink.leftovers()

    @contextmanager
    def _sweeping(self) -> Iterator[None]:
        """Tell what is deleted meanwhile, also where that ends with an error."""
        if not isinstance(self.sink, SweepingSink):
            yield
            return
        swept, told = self.sink.swept, self._told
        try:
            yield
        finally:
            files, size = swept.files - told.files, swept.bytes - told.bytes
            if files:
                told.files, told.bytes = swept.files, swept.bytes
                self.tell(Deleted(self.target, files, size))


def unwatched(sink: Sink) -> Sink:
    """The target itself."""
    return sink.sink if isinstance(sink, WatchedSink) else sink
