"""The three kinds of writers that a sink's `begin` returns, separated for the tasks that use them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sinks.base import KeyedWriter, PartitionWriter, RefusingWriter, SelectiveWriter


@dataclass(frozen=True)
class WritersByKind:
    """Names and writers of an epoch's targets, in the order of the targets.

    Attributes:
        plain: writers that take rows where they are read.
        selective: the same, for targets that may refuse rows.
        keyed: writers whose rows are sent to the task of their key first.
    """

    plain: tuple[tuple[str, PartitionWriter], ...]
    selective: tuple[tuple[str, SelectiveWriter], ...]
    keyed: tuple[tuple[str, KeyedWriter], ...]

    @classmethod
    def of(cls, begun: Mapping[str, PartitionWriter | SelectiveWriter | KeyedWriter]) -> WritersByKind:
        """Sort the writers that `Sink.begin` returned, by target, into their kinds."""
        plain: list[tuple[str, PartitionWriter]] = []
        selective: list[tuple[str, SelectiveWriter]] = []
        keyed: list[tuple[str, KeyedWriter]] = []
        for name, writer in begun.items():
            if isinstance(writer, KeyedWriter):
                keyed.append((name, writer))
            elif isinstance(writer, SelectiveWriter):
                selective.append((name, writer))
            else:
                plain.append((name, writer))
        return cls(tuple(plain), tuple(selective), tuple(keyed))


def refusing(writer: PartitionWriter) -> RefusingWriter | None:
    """The writer if it may refuse rows, else None."""
    return writer if isinstance(writer, RefusingWriter) and writer.may_refuse else None
