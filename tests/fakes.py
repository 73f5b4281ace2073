"""Fakes that keep the real contracts: a sink that takes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from sinks.base import Lookup, ParallelRunner, SinkContext, TargetOptions, TaskAttempt, sequential
from timeline.epoch import EpochRef, Part, Plan, WriteReport


@dataclass(frozen=True)
class EmptySink:
    """A quarantine for runs without bad rows; it never touches a store."""

    target: str = "quarantine"

    Options = TargetOptions

    @classmethod
    def open(cls, options: TargetOptions, context: SinkContext) -> EmptySink:
        return cls()

    def ensure(self) -> None: ...

    def begin(self, plan: Plan) -> EmptyWriter:
        return EmptyWriter()

    def prepare(self, epoch: EpochRef, reports: Sequence[WriteReport]) -> Part:
        return Part(self.target, epoch, 0, 0)

    def verify(self, part: Part) -> Sequence[str]:
        return ()

    def commit(self, part: Part, parallel: ParallelRunner = sequential) -> None:
        assert part.rows == 0

    def lookup(self, epoch: EpochRef) -> Lookup:
        return Lookup.NOT_COMMITTED

    def abort(self, epoch: EpochRef, part: Part | None) -> Sequence[str]:
        return ()

    def release(self, epoch: EpochRef, part: Part | None, *, final: bool = False) -> None: ...

    def unreleased(self) -> Sequence[str]:
        return ()


@dataclass(frozen=True)
class EmptyWriter:
    """Writer of an `EmptySink`: rows are an error."""

    def open(self, attempt: TaskAttempt) -> EmptyWriter:
        return self

    def write(self, batch: pa.RecordBatch) -> None:
        raise AssertionError(f"{batch.num_rows} rows for a sink that takes none")

    def close(self) -> WriteReport:
        return WriteReport(0, 0)

    def abort(self) -> None: ...
