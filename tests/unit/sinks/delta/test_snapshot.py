"""A job reads the same snapshot from a table's log as delta-rs, without reading data files."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from sinks.delta.log import DeltaLog
from sinks.delta.snapshot import TableSnapshot, UnfamiliarLogError, read_snapshot
from sinks.delta.table import table_files
from timeline.errors import NotFoundError, StoreUnavailableError, TargetRefusedError
from timeline.stores.local import LocalStore

ROWS = pa.table({"id": pa.array([1, 2], pa.int64()), "text": ["a", "b"]})
NESTED = pa.table(
    {
        "at": pa.array([1], pa.timestamp("us")),
        "many": pa.array([[{"x": 1.5, "y": None}]], pa.list_(pa.struct([("x", pa.float64()), ("y", pa.string())]))),
        "map": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int32())),
        "price": pa.array([None], pa.decimal128(38, 9)),
        "day": ["2024-05-06"],
    }
)


def append(path: Path, epoch: int, rows: pa.Table = ROWS, app_id: str = "job", **options: Any) -> None:
    properties = CommitProperties(app_transactions=[Transaction(app_id, epoch)])
    write_deltalake(path, rows, mode="append", commit_properties=properties, **options)


def entries(path: Path) -> list[Path]:
    return sorted((path / "_delta_log").glob("*.json"))


def last_checkpoint(path: Path) -> Path:
    return path / "_delta_log" / "_last_checkpoint"


def short(path: Path) -> None:
    append(path, 0)
    append(path, 7, app_id="other job")


def checkpointed(path: Path) -> None:
    for epoch in range(4):
        append(path, epoch)
    append(path, 9, app_id="other job")
    DeltaTable(path).create_checkpoint()


def behind_a_checkpoint(path: Path) -> None:
    checkpointed(path)
    for epoch in range(4, 17):
        append(path, epoch)


def changed_behind_a_checkpoint(path: Path) -> None:
    checkpointed(path)
    wider = ROWS.append_column("more", pa.array([None, 1.5]))
    append(path, 4, wider, schema_mode="merge")
    DeltaTable(path).alter.set_table_properties({"delta.appendOnly": "true"})
    append(path, 5, wider)


def cleaned_up(path: Path) -> None:
    checkpointed(path)
    for entry in entries(path):
        entry.unlink()


def untouched_by_the_job(path: Path) -> None:
    write_deltalake(path, ROWS)
    DeltaTable(path).create_checkpoint()


def told_of_late(path: Path) -> None:
    checkpointed(path)
    told = last_checkpoint(path).read_text()
    append(path, 4)
    DeltaTable(path).create_checkpoint()
    append(path, 5)
    last_checkpoint(path).write_text(told)


def of_every_kind(path: Path) -> None:
    configuration = {"delta.minWriterVersion": "7", "delta.logRetentionDuration": "interval 2 days"}
    append(path, 0, NESTED, partition_by=["day"], configuration=configuration)
    append(path, 1, NESTED)
    DeltaTable(path).create_checkpoint()
    append(path, 2, NESTED)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ta ble"


def log_of(path: Path) -> DeltaLog:
    return DeltaLog(str(path), LocalStore(str(path)), "job")


def familiar(path: Path) -> TableSnapshot | None:
    return read_snapshot(LocalStore(str(path)), partial(table_files, str(path), {}, None), "job")


@pytest.mark.parametrize(
    "make",
    [
        short,
        checkpointed,
        behind_a_checkpoint,
        changed_behind_a_checkpoint,
        cleaned_up,
        told_of_late,
        untouched_by_the_job,
        of_every_kind,
    ],
)
def test_a_log_is_read_as_delta_rs_reads_it(
    path: Path, make: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    make(path)
    mine = familiar(path)

    def refuse(*_: object) -> NoReturn:
        raise UnfamiliarLogError("refused")

    monkeypatch.setattr("sinks.delta.log.read_snapshot", refuse)
    assert mine == log_of(path).load()
    assert mine is not None and mine.version == DeltaTable(path).version()


def test_a_table_is_loaded_without_delta_rs(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    behind_a_checkpoint(path)
    monkeypatch.delattr("sinks.delta.log.open_table")
    loaded = log_of(path).load()
    assert loaded is not None and (loaded.version, loaded.applied) == (17, 16)


def test_no_log_is_no_table(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("sinks.delta.log.open_table")
    assert log_of(path).load() is None
    (path / "_delta_log").mkdir(parents=True)
    assert log_of(path).load() is None


def with_parts(path: Path) -> None:
    told = json.loads(last_checkpoint(path).read_text())
    last_checkpoint(path).write_text(json.dumps({**told, "parts": 2}))


def told_badly(path: Path) -> None:
    last_checkpoint(path).write_text('{"version": ')


def with_sidecars(path: Path) -> None:
    (file,) = (path / "_delta_log").glob("*.checkpoint.parquet")
    whole = pq.read_table(file)
    sidecars = pa.array([{"path": "x.parquet"}] + [None] * (len(whole) - 1))
    pq.write_table(whole.set_column(whole.schema.get_field_index("sidecar"), "sidecar", sidecars), file)


def without_its_checkpoint(path: Path) -> None:
    (file,) = (path / "_delta_log").glob("*.checkpoint.parquet")
    file.unlink()


def that_is_no_parquet(path: Path) -> None:
    (file,) = (path / "_delta_log").glob("*.checkpoint.parquet")
    file.write_bytes(b"PAR1")


def with_a_hole(path: Path) -> None:
    entries(path)[-2].unlink()


def without_what_tells_of_its_checkpoint(path: Path) -> None:
    last_checkpoint(path).unlink()
    entries(path)[0].unlink()


def put_entry(path: Path, action: dict[str, Any]) -> None:
    entry = path / "_delta_log" / f"{len(entries(path)):020d}.json"
    entry.write_text(json.dumps(action))


def newer_than_its_readers_know(path: Path) -> None:
    put_entry(path, {"protocol": {"minReaderVersion": 4, "minWriterVersion": 7}})


def newer_than_its_writers_know(path: Path) -> None:
    put_entry(path, {"protocol": {"minReaderVersion": 3, "minWriterVersion": 8}})


def with_a_property_that_is_no_text(path: Path) -> None:
    metadata = {"schemaString": '{"type": "struct", "fields": []}', "configuration": {"delta.appendOnly": True}}
    put_entry(path, {"metaData": metadata})


def damaged_in_the_middle(path: Path) -> None:
    entries(path)[-2].write_text('{"add": ')


def with_a_checkpoint_that_nothing_tells_of(path: Path) -> None:
    told = last_checkpoint(path).read_text()
    DeltaTable(path).create_checkpoint()
    last_checkpoint(path).write_text(told)
    for entry in entries(path)[5:]:
        entry.unlink()


@pytest.mark.parametrize(
    "spoil",
    [
        with_parts,
        told_badly,
        with_sidecars,
        without_its_checkpoint,
        that_is_no_parquet,
        with_a_hole,
        without_what_tells_of_its_checkpoint,
        newer_than_its_readers_know,
        newer_than_its_writers_know,
        with_a_property_that_is_no_text,
        damaged_in_the_middle,
        with_a_checkpoint_that_nothing_tells_of,
    ],
)
def test_what_is_unfamiliar_is_for_delta_rs_to_judge(
    path: Path, spoil: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    behind_a_checkpoint(path)
    spoil(path)
    with pytest.raises(UnfamiliarLogError):
        familiar(path)
    asked: list[str] = []

    def ask(location: str, *_: object) -> NoReturn:
        asked.append(location)
        raise StoreUnavailableError("what delta-rs says")

    monkeypatch.setattr("sinks.delta.log.open_table", ask)
    with pytest.raises((StoreUnavailableError, TargetRefusedError)) as raised:
        log_of(path).load()
    said = "of its log is gone" if spoil is with_a_hole else "what delta-rs says"
    assert said in str(raised.value)
    assert asked == [str(path)]


def test_an_entry_that_is_cleaned_up_meanwhile_is_for_delta_rs_to_miss(path: Path) -> None:
    behind_a_checkpoint(path)

    class Cleaning(LocalStore):
        def get(self, path: str) -> bytes:
            if path.endswith("7.json"):
                raise NotFoundError(path)
            return super().get(path)

    with pytest.raises(UnfamiliarLogError, match="an entry is gone"):
        read_snapshot(Cleaning(str(path)), partial(table_files, str(path), {}, None), "job")


def test_a_newest_entry_that_is_not_written_to_its_end_is_named(path: Path) -> None:
    behind_a_checkpoint(path)
    newest = entries(path)[-1]
    newest.write_bytes(newest.read_bytes()[:-9])
    with pytest.raises(StoreUnavailableError, match=f"_delta_log/{newest.name}: .*cannot be read"):
        familiar(path)


def test_of_two_markers_in_one_entry_the_last_counts(path: Path) -> None:
    short(path)
    lines = [{"txn": {"appId": "job", "version": version}} for version in (3, 5)]
    entry = path / "_delta_log" / f"{len(entries(path)):020d}.json"
    entry.write_text("\n\n".join(json.dumps(line) for line in [*lines, {"txn": None}]))
    found = familiar(path)
    assert found is not None and found.applied == 5
