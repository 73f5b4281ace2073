"""A Kafka source read epoch by epoch, as by the ingest loop, without an engine and without a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from ingest.sources.base import SourcePlan
from ingest.sources.decode.options import UnknownField
from ingest.sources.kafka.options import KafkaOptions
from ingest.sources.kafka.source import KafkaSource
from sinks.sql_types import parse_type
from tests.real.kafka_server import KafkaServer
from timeline.chain import Chain
from timeline.epoch import OffsetRange

WHOLE = 1 << 40


def source_of(
    kafka: KafkaServer, *, accept_loss: bool = False, on_unknown_field: UnknownField = UnknownField.DROP, **options: Any
) -> KafkaSource:
    """A source on a broker with these options; the format is JSON by default."""
    return KafkaSource(
        KafkaOptions.model_validate({"bootstrap_servers": kafka.bootstrap_servers, "format": "json"} | options),
        accept_loss=accept_loss,
        on_unknown_field=on_unknown_field,
    )


@dataclass
class Reading:
    """A source, the rows read from it, and the chain of its committed positions.

    Attributes:
        source: plans, reads and decodes.
        columns: of the values; None: inferred in the first epoch.
        chain: committed positions.
        rows: accepted rows, with ``_shard`` and ``_offset``.
        rejected: rejected rows.
    """

    source: KafkaSource
    columns: Mapping[str, str] | None = None
    chain: Chain = field(default_factory=Chain)
    rows: list[dict[str, Any]] = field(default_factory=list)
    rejected: list[dict[str, Any]] = field(default_factory=list)
    schema: pa.Schema | None = None

    def epoch(self, most: int = WHOLE) -> SourcePlan:
        """Plan, read in pieces of about `most` records, and commit one epoch."""
        plan = self.source.plan(self.chain.positions)
        self.chain.check(plan.ranges)
        for offsets in plan.ranges:
            pieces = self.source.split(offsets, most)
            assert (pieces[0].start, pieces[-1].until) == (offsets.start, offsets.until)
            for piece in pieces:
                self.read(piece, plan)
        if plan.ranges:
            committed = {offsets.shard: offsets.end for offsets in plan.ranges}
            self.chain = Chain(self.chain.next_epoch + 1, {**self.chain.positions, **committed})
            self.source.completed(committed)
        return plan

    def all(self, most: int = WHOLE) -> None:
        """Run epochs until the source has nothing new."""
        while self.epoch(most).ranges:
            pass

    def read(self, offsets: OffsetRange, plan: SourcePlan) -> None:
        """Read and decode one range."""
        decoder = self.source.decoder(self._schema(plan), lineage=True)
        for block in self.source.reader().read(offsets):
            decoded = decoder.decode(block)
            decoded.accepted.validate(full=True)
            assert decoded.offsets is not None
            assert decoded.accepted.num_rows + decoded.rejected.num_rows == block.rows
            assert all(offsets.start <= offset < offsets.until for offset in decoded.offsets.to_pylist())
            self.rows += [
                {**row, "_shard": block.shard, "_offset": offset}
                for row, offset in zip(decoded.accepted.to_pylist(), decoded.offsets.to_pylist(), strict=True)
            ]
            self.rejected += decoded.rejected.to_pylist()

    def restarted(self, source: KafkaSource) -> Reading:
        """The same timeline in a new process, with another source."""
        return replace(self, source=source, rows=[*self.rows], rejected=[*self.rejected])

    def values(self, column: str) -> list[Any]:
        """A column of all rows, in the order in which they were read."""
        return [row[column] for row in self.rows]

    def _schema(self, plan: SourcePlan) -> pa.Schema:
        if self.schema is None:
            if self.columns is None:
                self.schema = self.source.infer_schema(plan)
            else:
                columns = [(name, parse_type(kind)) for name, kind in self.columns.items()]
                self.schema = pa.schema([*columns, *self.source.options.added_columns])
        return self.schema
