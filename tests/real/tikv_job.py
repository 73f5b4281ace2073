"""A job with a TiKV target in a folder of its own, and the rows and locks below its prefixes."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from ingest.cli.read import readable_target
from ingest.config.load import load_config
from ingest.driver.build import open_timeline
from sinks.tikv.client import Endpoint, TikvClient, connection
from sinks.tikv.key_codec import own_range, row_range
from sinks.tikv.mutations import Mutations
from sinks.tikv.reader import read_rows
from sinks.tikv.settling import locks_in, settle
from sinks.tikv.table import TikvTable
from sinks.tikv.transaction import Transaction, prewrite, roll_back
from tests.job import Job
from tests.real.tikv_cluster import TikvCluster

PAD = "x" * 1000
"""Fills a line up to 1 kB without being a column: few rows are enough for two tasks."""

_prefixes = (f"tjob{number}_" for number in itertools.count())


class TikvJob(Job):
    """A job that writes JSON lines to a Delta table, and below prefixes of its own in a cluster."""

    def __init__(self, folder: Path, cluster: TikvCluster) -> None:
        super().__init__(folder)
        self.cluster = cluster
        self.prefix = next(_prefixes)

    def target(self, **options: Any) -> dict[str, Any]:
        """A target's block of the job file; its prefix is the job's own by default."""
        block = {"type": "tikv", "name": "keyed", "pd": self.cluster.pd, "prefix": self.prefix, "key": ["id"]}
        return block | {"patience": "20s"} | options

    def write_job(self, *targets: Mapping[str, Any], **changes: Any) -> None:
        """Write the job file: a Delta table, then these targets."""
        delta = {"type": "delta", "name": "lake", "path": f"{self.folder}/lake"}
        self.write(targets=[delta, *map(dict, targets)], **{"writer": {"lease_ttl": "1s"}} | changes)

    def put(self, name: str, rows: Iterable[Mapping[str, Any]], *, pad: str = "") -> None:
        """Create a whole log file atomically."""
        more = {"pad": pad} if pad else {}
        (self.folder / "new").write_text("".join(json.dumps(dict(row) | more) + "\n" for row in rows))
        (self.folder / "new").rename(self.folder / "logs" / name)

    def place(self, name: str | None = None) -> TikvTable:
        """A target, opened as by a new process."""
        sink = readable_target(open_timeline(load_config(self.file)), name)
        assert isinstance(sink, TikvTable)
        return sink

    def rows(self, name: str | None = None) -> list[dict[str, Any]]:
        """A target's rows as another client reads them, ordered by key."""
        return [row for batch in read_rows(self.place(name)) for row in batch.to_pylist()]

    def quarantined(self) -> list[dict[str, Any]]:
        """Rows of the quarantine, ordered by shard and offset."""
        table = self.table("lake_quarantine")
        rows = table.to_pyarrow_table().to_pylist() if table is not None else []
        return sorted(rows, key=lambda row: (row["shard"], row["offset"]))

    @property
    def client(self) -> TikvClient:
        """A connection of this process."""
        return connection(Endpoint(tuple(self.cluster.pd), patience_s=20))

    def row_locks(self, prefix: str | None = None) -> list[int]:
        """Start timestamps of the transactions that lock rows below a prefix, one for each locked row."""
        start, end = row_range((prefix or self.prefix).encode())
        return [lock.lock_version for lock in locks_in(self.client, start, end)]

    def locks(self, prefix: str | None = None) -> list[bytes]:
        """Locked keys below a prefix, rows or not."""
        whole = (prefix or self.prefix).encode()
        return [lock.key for lock in locks_in(self.client, own_range(whole)[0], row_range(whole)[1])]

    def is_settled(self) -> bool:
        """Whether no instant is pending, and no stray data file or lock exists."""
        return super().is_settled() and not self.locks()

    @contextmanager
    def held(self, ids: Sequence[int]) -> Iterator[int]:
        """Lock rows by another writer's transaction until the block ends: tasks that write these rows wait."""
        rows = pa.record_batch({name: pa.array(ids, pa.int64()) for name in ("id",)})
        keys = pa.array(sorted(self.place().stager.keys.encode(rows).to_pylist()), pa.binary())
        transaction = Transaction(self.client.pd.timestamp(), keys[0].as_py(), 120_000)
        prewrite(self.client, transaction, Mutations.of(keys, pa.array([b"held"] * len(keys)), inserts=False))
        try:
            yield transaction.start_ts
        finally:
            roll_back(self.client, transaction)
            settle(self.client, transaction.start_ts, 0, keys[0].as_py(), keys[-1].as_py() + b"\0")
