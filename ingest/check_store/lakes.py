"""Targets of rehearsed jobs: two Delta tables wherever delta-rs can write, two tables of objects elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from ingest.check_store.numbers import NUMBER_SCHEMA
from ingest.execution.task import QUARANTINE_SCHEMA
from sinks.base import Sink, SinkContext
from sinks.delta.location import delta_location, delta_storage_options, trusted_authorities, trusting
from sinks.delta.sink import DeltaOptions, DeltaSink
from sinks.delta.snapshot import LOG_FOLDER
from sinks.memory import LOG_ENTRY, MemorySink
from timeline.stores.base import ObjectStore
from timeline.stores.opening import open_store

_SCHEMAS = {"table": NUMBER_SCHEMA, "quarantine": QUARANTINE_SCHEMA}


class DeltaLake:
    """Two Delta tables, written by the real sinks; the timeline lies in the first one."""

    def __init__(self, url: str, storage: Mapping[str, Any] | None = None) -> None:
        """Touches no storage.

        Args:
            url: the tables' common folder, a local path or an ``s3://`` URL.
            storage: fsspec options; may hold secrets.
        """
        self._storage = storage or {}
        self._paths = {name: f"{url}/{name}" for name in _SCHEMAS}
        # Opened once: a connection holds no state of an epoch, and costs some 100 ms.
        self._stores = {name: open_store(path, self._storage) for name, path in self._paths.items()}

    def timeline_store(self) -> ObjectStore:
        """See Lake."""
        return self._stores["table"]

    def sinks(self, reach_store: Callable[[ObjectStore], ObjectStore]) -> tuple[Sink, ...]:
        """See Lake."""
        sinks: list[Sink] = []
        for name, schema in _SCHEMAS.items():
            options = DeltaOptions(type="delta", name=name, path=self._paths[name])
            sink = DeltaSink.open(options, SinkContext("app", schema, storage=self._storage))
            sink.log.store, sink.store = self._stores[name], reach_store(self._stores[name])
            sinks.append(sink)
        return tuple(sinks)

    def rows(self) -> list[int]:
        """See Lake."""
        return _values(self._table("table").to_pyarrow_table(), "number")

    def rejected(self) -> list[int]:
        """See Lake."""
        return _values(self._table("quarantine").to_pyarrow_table(), "offset")

    def orphans(self) -> Sequence[str]:
        """See Lake; found by listing the folders, not by the markers."""
        found: list[str] = []
        for name, store in self._stores.items():
            visible = {uri.rpartition("/")[2] for uri in self._table(name).file_uris()}
            listed = (info.path for info in store.list("", recursive=True))
            files = [path for path in listed if path.endswith(".parquet") and not path.startswith(LOG_FOLDER)]
            found += [f"{name}/{path}" for path in files if path.rpartition("/")[2] not in visible]
        return found

    def _table(self, name: str) -> DeltaTable:
        location = delta_location(self._paths[name])
        with trusting(trusted_authorities(location, self._storage)):
            return DeltaTable(location, storage_options=delta_storage_options(location, self._storage) or None)


@dataclass(frozen=True)
class ObjectLake:
    """Two tables of `sinks.memory`, for stores that delta-rs does not support.

    Attributes:
        table: root of the table and the timeline.
        quarantine: root of the quarantine.
    """

    table: ObjectStore
    quarantine: ObjectStore

    def timeline_store(self) -> ObjectStore:
        """See Lake."""
        return self.table

    def sinks(self, reach_store: Callable[[ObjectStore], ObjectStore]) -> tuple[Sink, ...]:
        """See Lake."""
        return (
            MemorySink("table", "app", reach_store(self.table)),
            MemorySink("quarantine", "app", reach_store(self.quarantine)),
        )

    def rows(self) -> list[int]:
        """See Lake."""
        return _values(MemorySink("table", "app", self.table).read(), "number")

    def rejected(self) -> list[int]:
        """See Lake."""
        return _values(MemorySink("quarantine", "app", self.quarantine).read(), "offset")

    def orphans(self) -> Sequence[str]:
        """See Lake."""
        found: list[str] = []
        for store in (self.table, self.quarantine):
            logs = [LOG_ENTRY.load(info.path, store.get(info.path)) for info in store.list("_log")]
            visible = {path for entry in logs for path in entry.files}
            listed = (info.path for info in store.list("", recursive=True))
            found += [path for path in listed if path.endswith(".arrow") and path not in visible]
        return found


def _values(table: pa.Table, column: str) -> list[int]:
    return sorted(table[column].to_pylist()) if table.num_rows else []
