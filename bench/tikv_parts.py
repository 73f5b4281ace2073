"""Cost of the client's own work on a row, by part, without a network: the encoder.

An epoch in one process does all this and the requests; its CPU less the sum of these parts is the cost of gRPC and of
the requests' bookkeeping.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from bench.tikv_rows import MadeRows, schema
from bench.tikv_ways import NoQuarantine
from ingest.execution.shuffle import BucketBuffer, Chunk, ShuffleConfig, send
from ingest.execution.task import Outputs, TaskSpec
from sinks.base import TaskAttempt
from sinks.tikv.client import Endpoint
from sinks.tikv.dedup import Rule, pick
from sinks.tikv.mutations import Mutations
from sinks.tikv.options import OnRow
from sinks.tikv.staged import Stager
from sinks.tikv.transaction import Transaction
from sinks.tikv.writer import RowRules, TransactionWriter
from timeline.epoch import OffsetRange

_BUCKETS = 2


def encoder_parts(key: str, rows: int) -> dict[str, float]:
    """CPU microseconds for each row, by part, of two reading and two writing tasks in this process.

    Args:
        key: type of the key column.
        rows: number of rows of each reading task.
    """
    made = MadeRows(key)
    stager = Stager.of(schema(key), prefix=b"tbench_parts_", key=["id"], rule=Rule())
    rules = RowRules("parts", stager, inserts=False, on_existing=OnRow.FAIL, on_null_key=OnRow.FAIL)
    writer = TransactionWriter(Endpoint(()), Transaction(1, b"", 1), rules)
    outputs = Outputs.of({"quarantine": NoQuarantine(), "tikv": writer}, "quarantine")
    buffers = [BucketBuffer() for _ in range(_BUCKETS)]
    parts = _Parts()
    for task in range(2):
        offsets = OffsetRange("made", task * rows, (task + 1) * rows)
        blocks = list(made.read(offsets))
        with parts.part("make rows (not in the sum)"):
            list(made.read(offsets))
        with parts.part("stage: keys, values, duplicates of a block"):
            for block in blocks:
                decoded = made.decode(block)
                assert decoded.offsets is not None
                writer.stage(decoded.accepted, block.shard, decoded.offsets)
        with parts.part("send"):
            spec = TaskSpec((offsets,), made, made, outputs, 0, lineage=False)
            for bucket, content in send(spec, TaskAttempt(task, 0, 0), task, ShuffleConfig(_BUCKETS)):
                if isinstance(content, Chunk):
                    buffers[bucket].put(content)
    for buffer in buffers:
        with parts.part("unpack"), buffer:
            table = pa.Table.from_batches([batch for _, batch in buffer.batches()], stager.schema)
        with parts.part("sort, duplicates of a bucket"):
            picked = pick(table, stager.rule)
        with parts.part("frame the requests"):
            keys, values = (picked.column(name).combine_chunks() for name in ("key", "value"))
            Mutations.of(keys, values, inserts=False)
    spent = {name: 1e6 * took_s / (2 * rows) for name, took_s in parts.cpu_s.items()}
    staged = sum(took for name, took in spent.items() if name.startswith(("make", "stage")))
    spent["split by bucket, pack, unpack"] = max(0.0, spent.pop("send") - staged) + spent.pop("unpack")
    return spent


class _Parts:
    """CPU seconds of this process, by part."""

    def __init__(self) -> None:
        self.cpu_s: dict[str, float] = defaultdict(float)

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        began = time.process_time()
        yield
        self.cpu_s[name] += time.process_time() - began
