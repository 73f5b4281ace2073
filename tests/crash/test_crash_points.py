"""Every crash point, alone and in pairs: after the next start every row is there once and nothing is left over."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from ingest.task import QUARANTINE_SCHEMA
from sinks.base import Sink, SinkContext
from sinks.delta import DeltaOptions, DeltaSink
from sinks.memory import LOG_ENTRY, MemorySink
from tests.crash.crash_world import QUICK, CrashAt, Lake, check_exact, run_process
from tests.fakes import NUMBER_SCHEMA, NumberSource
from timeline.failpoints import CRASH_POINTS
from timeline.fsspec_store import open_store
from timeline.store import MemoryStore, ObjectStore

SOURCE = NumberSource({"a": 4, "b": 4}, most=2, bad_every=2)
"""Two epochs of two shards; every second record is malformed."""


class MemoryLake:
    """A table and a quarantine in memory."""

    def __init__(self) -> None:
        self._table, self._quarantine = MemoryStore("memory://table"), MemoryStore("memory://quarantine")

    def timeline_store(self) -> ObjectStore:
        return self._table

    def sinks(self, reach_store: Callable[[ObjectStore], ObjectStore]) -> tuple[Sink, ...]:
        return (
            MemorySink("table", "app", reach_store(self._table), QUICK),
            MemorySink("quarantine", "app", reach_store(self._quarantine), QUICK),
        )

    def rows(self) -> list[int]:
        return _values(MemorySink("table", "app", self._table).read(), "number")

    def rejected(self) -> list[int]:
        return _values(MemorySink("quarantine", "app", self._quarantine).read(), "offset")

    def orphans(self) -> Sequence[str]:
        found: list[str] = []
        for store in (self._table, self._quarantine):
            logs = [LOG_ENTRY.load(path, body) for path, body in store.objects.items() if path.startswith("_log/")]
            visible = {path for entry in logs for path in entry.files}
            found += [path for path in store.objects if path.endswith(".arrow") and path not in visible]
        return found


class DeltaLake:
    """Two Delta tables on the local file system, written by the real sinks."""

    def __init__(self, folder: Path) -> None:
        self._paths = {"table": folder / "table", "quarantine": folder / "quarantine"}

    def timeline_store(self) -> ObjectStore:
        return open_store(str(self._paths["table"]))

    def sinks(self, reach_store: Callable[[ObjectStore], ObjectStore]) -> tuple[Sink, ...]:
        sinks: list[Sink] = []
        for (name, path), schema in zip(self._paths.items(), (NUMBER_SCHEMA, QUARANTINE_SCHEMA), strict=True):
            options = DeltaOptions(type="delta", name=name, path=str(path))
            sink = DeltaSink.open(options, SinkContext("app", schema))
            sink.store = reach_store(sink.store)
            sinks.append(sink)
        return tuple(sinks)

    def rows(self) -> list[int]:
        return _values(DeltaTable(self._paths["table"]).to_pyarrow_table(), "number")

    def rejected(self) -> list[int]:
        return _values(DeltaTable(self._paths["quarantine"]).to_pyarrow_table(), "offset")

    def orphans(self) -> Sequence[str]:
        found: list[str] = []
        for path in self._paths.values():
            visible = set(DeltaTable(path).file_uris())
            found += [str(file) for file in path.rglob("*.parquet") if str(file) not in visible]
        return [name for name in found if "_delta_log" not in name]


def _values(table: pa.Table, column: str) -> list[int]:
    return sorted(table[column].to_pylist()) if table.num_rows else []


def crash_and_recover(lake: Lake, crashes: Sequence[CrashAt]) -> int:
    """Processes that die one after the other, then one that lives; returns how many died."""
    died = 0
    for number, crash in enumerate(crashes):
        died += not run_process(lake, SOURCE, number, crash)
    assert run_process(lake, SOURCE, 99)
    check_exact(lake, SOURCE)
    return died


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("point", CRASH_POINTS)
def test_a_crash_at_any_point_leaves_every_row_once(point: str, count: int) -> None:
    crash_and_recover(MemoryLake(), [CrashAt(point, count)])


@pytest.mark.parametrize("first", CRASH_POINTS)
def test_a_crash_of_the_recovery_of_a_crash_leaves_every_row_once(first: str) -> None:
    for second, count in itertools.product(CRASH_POINTS, (1, 2)):
        crash_and_recover(MemoryLake(), [CrashAt(first, count), CrashAt(second)])


def test_every_crash_point_is_passed_by_some_process() -> None:
    passed = set()
    for first, second in itertools.product(("begun", "manifest", "decided"), CRASH_POINTS):
        if crash_and_recover(MemoryLake(), [CrashAt(first), CrashAt(second)]) == 2:
            passed.add(second)
    assert passed == set(CRASH_POINTS)


@pytest.mark.slow
@pytest.mark.parametrize("point", CRASH_POINTS)
def test_a_crash_at_any_point_leaves_every_row_once_in_delta(point: str, tmp_path: Path) -> None:
    for count in (1, 2):
        crash_and_recover(DeltaLake(tmp_path / str(count)), [CrashAt(point, count)])


@pytest.mark.slow
@pytest.mark.parametrize("first", CRASH_POINTS)
def test_a_crash_of_the_recovery_of_a_crash_leaves_every_row_once_in_delta(first: str, tmp_path: Path) -> None:
    for second in CRASH_POINTS:
        crash_and_recover(DeltaLake(tmp_path / second), [CrashAt(first), CrashAt(second)])
