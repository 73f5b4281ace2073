"""The Delta sink keeps the sink contract, and handles the faults that only a Delta table has."""

from __future__ import annotations

import datetime
import json
import logging
import os
import shutil
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable, Schema, write_deltalake

from sinks.base import Lookup, Sink, SinkContext, TaskAttempt
from sinks.delta.entry import DeltaLogEntry
from sinks.delta.location import delta_location, delta_storage_options
from sinks.delta.log import DeltaLog
from sinks.delta.sink import DeltaOptions, DeltaSink
from sinks.delta.snapshot import TableSnapshot, read_snapshot
from sinks.partition import PartitionField, Transform
from sinks.sql_types import parse_type
from tests.contract.sink_contract import (
    SCHEMA,
    HoldingContract,
    LakeSinkContract,
    planned,
    prepared,
    ref,
    write,
    write_rows,
)
from tests.real.s3_server import S3Server
from timeline.errors import (
    CommitRejectedError,
    CommitUnknownError,
    ConfigError,
    StoreUnavailableError,
    TargetRefusedError,
)
from timeline.stores.base import ObjectStore, Retry
from timeline.stores.local import LocalStore

AT_ONCE = Retry(attempts=4, sleep=lambda _: None)


@dataclass
class LosingLog(DeltaLog):
    """Loses the replies of the first `losses` puts; `lands` says whether these puts take effect."""

    losses: int = 1
    lands: bool = True

    def create(self, schema: pa.Schema, partition_columns: list[str], entry: DeltaLogEntry) -> None:  # type: ignore[override]
        self._maybe(lambda: super(LosingLog, self).create(schema, partition_columns, entry))

    def append(self, after: TableSnapshot, entry: DeltaLogEntry) -> None:
        self._maybe(lambda: super(LosingLog, self).append(after, entry))

    def _maybe(self, put: Callable[[], None]) -> None:
        if self.losses == 0:
            return put()
        self.losses -= 1
        if self.lands:
            put()
        raise StoreUnavailableError("the reply is lost")


class UnreachableLog(DeltaLog):
    """A log that cannot be read."""

    def load(self) -> TableSnapshot | None:
        raise StoreUnavailableError("no route")


@dataclass
class BlindAfterPut(DeltaLog):
    """Loses the reply of `create`, and cannot be read from then on; `lands` says whether `create` takes effect."""

    lands: bool = True
    blind: bool = field(default=False, init=False)

    def load(self) -> TableSnapshot | None:
        if self.blind:
            raise StoreUnavailableError("no route")
        return super().load()

    def create(self, schema: pa.Schema, partition_columns: list[str], entry: DeltaLogEntry) -> None:  # type: ignore[override]
        if self.lands:
            super().create(schema, partition_columns, entry)
        self.blind = True
        raise StoreUnavailableError("the reply is lost")


def noting(asked: list[str], name: str, call: Callable[..., Any]) -> Callable[..., Any]:
    """A store's method that records each call in `asked`."""

    def noted(store: ObjectStore, path: str, *given: Any, **options: Any) -> Any:
        asked.append(f"{name} {path}")
        return call(store, path, *given, **options)

    return noted


@dataclass
class DeltaRig:
    """A table in a local folder, or at `url`."""

    path: Path
    schema: pa.Schema = SCHEMA
    partition_by: tuple[PartitionField, ...] = ()
    url: str | None = None
    storage: Mapping[str, Any] = field(default_factory=dict)

    def sink(self, app_id: str = "job-a") -> DeltaSink:
        options = DeltaOptions(type="delta", path=self.url or str(self.path))
        sink = DeltaSink.open(options, SinkContext(app_id, self.schema, self.partition_by, self.storage))
        return replace(sink, commit_retry=Retry(attempts=30, first_pause_s=0.005))

    def with_log(self, log: type[DeltaLog], **options: Any) -> DeltaSink:
        sink = self.sink()
        made = log(sink.log.location, sink.store, sink.app_id, sink.log.storage_options, **options)
        return replace(sink, log=made, retry=AT_ONCE, commit_retry=AT_ONCE)

    @property
    def store(self) -> ObjectStore:
        return self.sink().store

    def losing_replies(self) -> Sink:
        return self.with_log(LosingLog)

    def unreachable(self) -> Sink:
        return self.with_log(UnreachableLog)

    def traces(self) -> list[str]:
        return [info.path for info in self.store.list("", recursive=True)]

    def visible(self) -> list[int]:
        log = self.sink().log
        if not DeltaTable.is_deltatable(log.location, dict(log.storage_options)):
            return []
        return sorted(self.table()["id"].to_pylist())

    def table(self) -> pa.Table:
        log = self.sink().log
        return pa.table(DeltaTable(log.location, storage_options=dict(log.storage_options)).scan().read_all())

    @property
    def snapshot(self) -> TableSnapshot:
        loaded = self.sink().log.load()
        assert loaded is not None
        return loaded

    @property
    def versions(self) -> int:
        return DeltaTable(self.path).version() + 1


@pytest.fixture
def table(tmp_path: Path) -> DeltaRig:
    return DeltaRig(tmp_path / "table")


class TestDeltaSink(LakeSinkContract, HoldingContract):
    @pytest.fixture
    def rig(self, tmp_path: Path) -> DeltaRig:
        return DeltaRig(tmp_path / "table")


class TestPartitionedDeltaSink(LakeSinkContract):
    @pytest.fixture
    def rig(self, tmp_path: Path) -> DeltaRig:
        return DeltaRig(tmp_path / "ta ble #ü", partition_by=(PartitionField("text"),))


@pytest.mark.real
class TestDeltaSinkOnS3(LakeSinkContract):
    @pytest.fixture
    def rig(self, s3: S3Server, tmp_path: Path) -> DeltaRig:
        url = f"s3://lake/{uuid.uuid4().hex}/ta ble ü"
        return DeltaRig(tmp_path, url=url, storage=s3.options)


@pytest.mark.real
def test_a_log_on_s3_is_opened_without_delta_rs(s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = DeltaRig(tmp_path, url=f"s3://lake/{uuid.uuid4().hex}/ta ble ü", storage=s3.options)
    sink = rig.sink()
    for epoch in range(3):
        sink.commit(prepared(sink, ref(epoch), [epoch]))
    DeltaTable(sink.log.location, storage_options=dict(sink.log.storage_options)).create_checkpoint()
    sink.commit(prepared(sink, ref(3), [3]))
    monkeypatch.delattr("sinks.delta.log.open_table")
    assert (rig.snapshot.version, rig.snapshot.applied) == (3, 3)


KEYS = ["a b", "a/b=c%d", "%41", "+#?&;", "..", "q\"'", "ü", "[]{}^~|", "a:b", None]


def commit_keys(rig: DeltaRig, keys: list[str | None]) -> dict[int, str]:
    """Commit the keys as partitions twice, with the entry that creates the table and with another; read them, by id."""
    for epoch in range(2):
        sink = rig.sink()
        writer = sink.begin(planned(ref(epoch))).open(TaskAttempt(0, 0, 0))
        ids = [epoch * len(keys) + number for number in range(len(keys))]
        writer.write(pa.RecordBatch.from_pydict({"id": ids, "text": keys}, schema=SCHEMA))
        sink.commit(sink.prepare(ref(epoch), [writer.close()]))
    return {row["id"]: row["text"] for row in rig.table().to_pylist()}


def test_partition_values_of_any_kind_are_found(tmp_path: Path) -> None:
    rig = DeltaRig(tmp_path / "t", partition_by=(PartitionField("text"),))
    assert commit_keys(rig, KEYS) == dict(enumerate(KEYS * 2))
    assert sorted(rig.sink().log.files(rig.snapshot)) == sorted(
        path for path in rig.traces() if path.endswith(".parquet")
    )


@pytest.mark.real
def test_partition_values_of_any_kind_are_found_on_s3(s3: S3Server, tmp_path: Path) -> None:
    by, keys = (PartitionField("text"),), [*KEYS, "x" * 300]
    rig = DeltaRig(tmp_path, partition_by=by, url=f"s3://lake/{uuid.uuid4().hex}/t", storage=s3.options)
    assert commit_keys(rig, keys) == dict(enumerate(keys * 2))


class TestCommit:
    def test_one_log_entry_for_an_epoch_however_often_it_is_committed(self, table: DeltaRig) -> None:
        part = prepared(table.sink(), ref(0), [1])
        for _ in range(3):
            table.sink().commit(part)
        assert table.versions == 1

    def test_the_log_entry_names_epoch_instant_and_generation(self, table: DeltaRig) -> None:
        sink = table.sink()
        sink.commit(prepared(sink, ref(4), [1]))
        newest = DeltaTable(table.path).history(1)[0]
        assert newest["tideline.epoch"] == "4"
        assert newest["tideline.instant"] == ref(4).instant
        assert newest["tideline.generation"] == "1"

    def test_a_put_that_did_not_land_is_put_again(self, table: DeltaRig) -> None:
        part = prepared(table.sink(), ref(0), [1])
        table.with_log(LosingLog, lands=False).commit(part)
        assert table.visible() == [1]

    @pytest.mark.parametrize("lands", [True, False])
    def test_a_put_of_unknown_outcome_is_never_called_rejected(self, table: DeltaRig, lands: bool) -> None:
        part = prepared(table.sink(), ref(0), [1])
        with pytest.raises(CommitUnknownError, match=r"epoch 0 .*may be version 0 of .*recover"):
            table.with_log(BlindAfterPut, lands=lands).commit(part)
        table.sink().commit(part)
        assert table.visible() == [1]

    def test_a_store_that_is_away_from_the_start_is_a_rejection(self, table: DeltaRig) -> None:
        part = prepared(table.sink(), ref(0), [1])
        with pytest.raises(CommitRejectedError, match="Trying again is safe"):
            table.with_log(UnreachableLog).commit(part)

    def test_a_busy_table_rejects_within_the_bounds_of_the_retries(self, table: DeltaRig) -> None:
        @dataclass
        class AlwaysSecond(DeltaLog):
            def append(self, after: TableSnapshot, entry: DeltaLogEntry) -> None:
                _append_foreign(table.path)
                super().append(after, entry)

        sink = table.sink()
        sink.commit(prepared(sink, ref(0), [1]))
        part = prepared(sink, ref(1), [2])
        with pytest.raises(CommitRejectedError):
            table.with_log(AlwaysSecond).commit(part)
        assert 2 not in table.visible()
        table.sink().commit(part)
        assert table.visible().count(2) == 1

    def test_a_foreign_writer_between_epochs_is_no_obstacle(self, table: DeltaRig) -> None:
        sink = table.sink()
        sink.commit(prepared(sink, ref(0), [1]))
        _append_foreign(table.path)
        sink.commit(prepared(sink, ref(1), [2]))
        assert table.visible() == [-1, 1, 2]

    def test_an_epoch_that_another_process_has_committed_meanwhile_is_known(self, table: DeltaRig) -> None:
        sink, other = table.sink(), table.sink()
        sink.commit(prepared(sink, ref(0), [1]))
        part = prepared(other, ref(1), [2])
        other.commit(part)
        assert sink.lookup(ref(1)) is Lookup.COMMITTED
        sink.commit(part)
        assert table.visible() == [1, 2]

    def test_an_epoch_is_committed_by_four_requests_while_nobody_else_writes(
        self, table: DeltaRig, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sink = table.sink()
        sink.commit(prepared(sink, ref(0), [1]))
        sink.commit(prepared(sink, ref(1), [2]))
        part = prepared(sink, ref(2), [3])
        asked: list[str] = []
        for name in ("get", "sizes", "list", "put", "put_if_absent"):
            monkeypatch.setattr(type(table.store), name, noting(asked, name, getattr(type(table.store), name)))
        sink.commit(part)
        log, markers = "_delta_log", f".hoodie/.temp/{ref(2).instant}"
        assert sorted(asked[:2]) == [f"get {log}/{1:020d}.json", f"list {markers}"], "in either order"
        behind_it = f"get {log}/{1:020d}.json"  # was the table replaced since it was read?
        assert asked[2:] == [f"put_if_absent {log}/{2:020d}.json", behind_it]

    def test_more_foreign_commits_than_are_read_one_by_one_are_no_obstacle(
        self, table: DeltaRig, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("sinks.delta.log._MOST_FOLLOWED", 3)
        opened: list[str] = []
        monkeypatch.setattr("sinks.delta.log.read_snapshot", noting(opened, "open", read_snapshot))
        sink = table.sink()
        for epoch in range(3):
            sink.commit(prepared(sink, ref(epoch), [epoch]))
            _append_foreign(table.path)
        assert len(opened) == 3, "to look what is there, to create the table, and to know it"
        for _ in range(5):
            _append_foreign(table.path)
        sink.commit(prepared(sink, ref(3), [3]))
        assert len(opened) == 4
        assert sorted(set(table.visible())) == [-1, 0, 1, 2, 3]
        assert table.versions == 12

    def test_a_version_that_was_the_newest_long_ago_is_not_taken_for_it(self, table: DeltaRig) -> None:
        now = time.time()
        sink = table.with_log(DeltaLog, wall_clock=lambda: now)
        for epoch in (0, 1):
            sink.commit(prepared(sink, ref(epoch), [epoch]))
        _clean_up_behind(table, version=1)
        now += 86_400
        sink.commit(prepared(sink, ref(2), [2]))
        assert table.visible() == [-1, -1, -1, 0, 1, 2]

    def test_an_entry_that_a_stopped_process_puts_into_a_gap_is_put_again(
        self, table: DeltaRig, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        now = time.time()
        sink = table.with_log(DeltaLog, wall_clock=lambda: now)
        sink = replace(sink, commit_retry=Retry(attempts=3, first_pause_s=0))
        for epoch in (0, 1):
            sink.commit(prepared(sink, ref(epoch), [epoch]))
        put = type(table.store).put_if_absent

        def stopped_for_a_day(store: ObjectStore, path: str, body: bytes) -> None:
            nonlocal now
            if "_delta_log" in path:
                monkeypatch.undo()
                _clean_up_behind(table, version=1)
                now += 86_400
            put(store, path, body)

        monkeypatch.setattr(type(table.store), "put_if_absent", stopped_for_a_day)
        sink.commit(prepared(sink, ref(2), [2]))
        assert (table.path / "_delta_log" / f"{2:020d}.json").exists(), "the first put was into the gap"
        assert table.visible() == [-1, -1, -1, 0, 1, 2]

    def test_what_others_took_out_is_unknown_where_the_log_is_cleaned_meanwhile(
        self, table: DeltaRig, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sink = table.sink()
        sink.commit(prepared(sink, ref(0), [1]))
        newest = table.path / "_delta_log" / f"{0:020d}.json"
        newest.write_text(newest.read_text() + "\n\n")
        assert sink.log.removed() == frozenset()
        listed = sink.store.list("_delta_log")
        newest.unlink()
        monkeypatch.setattr(type(sink.store), "list", lambda *given, **options: listed)
        assert sink.log.removed() is None

    def test_the_first_version_is_durable_too(self, table: DeltaRig, monkeypatch: pytest.MonkeyPatch) -> None:
        durable: list[str] = []
        monkeypatch.setattr(LocalStore, "make_durable", lambda store, paths: durable.extend(paths))
        sink = table.sink()
        sink.commit(prepared(sink, ref(0), [1]))
        assert durable == [f"_delta_log/{0:020d}.json", "_delta_log", ""]

    def test_a_job_of_another_timeline_does_not_pass_for_this_one(self, table: DeltaRig) -> None:
        mine, other = table.sink("job-a"), table.sink("job-b")
        mine.commit(prepared(mine, ref(0), [1]))
        other.commit(prepared(other, ref(7), [2]))
        assert mine.lookup(ref(7)) is Lookup.NOT_COMMITTED
        assert table.sink("job-a").lookup(ref(7)) is Lookup.NOT_COMMITTED

    def test_an_entry_that_is_not_written_to_its_end_is_not_passed_over(self, table: DeltaRig) -> None:
        sink = replace(table.sink(), retry=AT_ONCE)
        sink.commit(prepared(sink, ref(0), [1]))
        (table.path / "_delta_log" / f"{1:020d}.json").write_text('{"txn": {"appId": ')
        assert sink.lookup(ref(1)) is Lookup.UNKNOWN

    def test_a_table_that_was_deleted_and_made_again_is_not_taken_for_the_old_one(self, table: DeltaRig) -> None:
        sink = table.sink()
        for epoch in range(5):
            sink.commit(prepared(sink, ref(epoch), [epoch]))
        shutil.rmtree(table.path)
        assert sink.lookup(ref(4)) is Lookup.NOT_COMMITTED
        for epoch in range(5, 7):
            other = table.sink()
            other.commit(prepared(other, ref(epoch), [epoch]))
        assert sink.lookup(ref(7)) is Lookup.NOT_COMMITTED
        with pytest.raises(TargetRefusedError, match=r"was made anew \(.*\): epochs 0-4 are gone from it"):
            sink.commit(prepared(sink, ref(7), [7]))
        assert table.visible() == [5, 6]

    def test_a_schema_that_changes_between_epochs_refuses_the_part(self, table: DeltaRig) -> None:
        sink = table.sink()
        for epoch in range(3):
            sink.commit(prepared(sink, ref(epoch), [epoch]))
        part = prepared(sink, ref(3), [3])
        write_deltalake(table.path, pa.table({"id": ["x"]}), mode="overwrite", schema_mode="overwrite")
        with pytest.raises(TargetRefusedError) as refused:
            sink.commit(part)
        assert "column id: the table has string, the job writes bigint" in str(refused.value)
        assert "column text: the table does not have it" in str(refused.value)

    def test_checkpoints_keep_the_log_short_to_read(self, table: DeltaRig) -> None:
        sink = table.sink()
        part = prepared(sink, ref(0), [1])
        for epoch in range(101):
            sink.commit(replace(part, epoch=ref(epoch)))
        sink.log.checkpoints.wait()
        assert list((table.path / "_delta_log").glob("*.checkpoint.parquet"))
        assert table.sink().lookup(ref(100)) is Lookup.COMMITTED
        assert table.sink().lookup(ref(101)) is Lookup.NOT_COMMITTED

    def test_the_table_says_how_often_it_wants_a_checkpoint(self, table: DeltaRig) -> None:
        configuration = {"delta.checkpointInterval": "4"}
        DeltaTable.create(table.path, Schema.from_arrow(SCHEMA), configuration=configuration)
        sink = table.sink()
        part = prepared(sink, ref(0), [1])
        for epoch in range(9):
            sink.commit(replace(part, epoch=ref(epoch)))
            sink.log.checkpoints.wait()
        found = sorted(path.name for path in (table.path / "_delta_log").glob("*.checkpoint.parquet"))
        assert found == [f"{version:020d}.checkpoint.parquet" for version in (4, 8)]

    def test_a_checkpoint_that_fails_does_not_fail_the_commit(
        self, table: DeltaRig, caplog: pytest.LogCaptureFixture
    ) -> None:
        configuration = {"delta.checkpointInterval": "1"}
        DeltaTable.create(table.path, Schema.from_arrow(SCHEMA), configuration=configuration)
        (table.path / "_delta_log" / f"{1:020d}.checkpoint.parquet").mkdir()
        sink = table.sink()
        sink.commit(prepared(sink, ref(0), [1]))
        sink.log.checkpoints.wait()
        assert table.visible() == [1]
        assert "no checkpoint of version 1" in caplog.text

    def test_the_marker_survives_a_checkpoint_and_log_cleanup(self, table: DeltaRig) -> None:
        sink = table.sink()
        part = prepared(sink, ref(0), [1])
        sink.commit(part)
        _append_foreign(table.path)
        DeltaTable(table.path).create_checkpoint()
        for entry in (table.path / "_delta_log").glob("*0.json"):
            entry.unlink()
        fresh = table.sink()
        assert fresh.lookup(ref(0)) is Lookup.COMMITTED
        fresh.commit(part)
        sink.commit(part)
        assert table.visible() == [-1, 1]


class TestTimestampNtz:
    """delta-rs refuses to read a table that has timestamps without a time zone and does not name their feature."""

    @pytest.mark.parametrize(
        "kind",
        [
            "timestamp_ntz",
            "array<array<timestamp_ntz>>",
            "struct<a:struct<b:timestamp_ntz>>",
            "map<string,timestamp_ntz>",
            "map<timestamp_ntz,int>",
            "array<map<string,struct<a:array<timestamp_ntz>>>>",
        ],
    )
    def test_a_table_with_them_at_any_depth_is_read_by_delta_rs_and_appended_to(
        self, tmp_path: Path, kind: str
    ) -> None:
        schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("c", parse_type(kind))])
        sink = DeltaSink.open(DeltaOptions(type="delta", path=f"{tmp_path}/t"), SinkContext("a" * 32, schema))
        for epoch in range(3):
            sink.ensure()
            batch = pa.RecordBatch.from_pylist([{"id": epoch, "c": None}], schema)
            part = sink.prepare(ref(epoch), [write_rows(sink.begin(planned(ref(epoch))), batch)])
            sink.commit(part)
            sink.commit(part)
        table = DeltaTable(f"{tmp_path}/t")
        assert sorted(table.to_pyarrow_table()["id"].to_pylist()) == [0, 1, 2]
        protocol = table.protocol()
        assert (protocol.min_reader_version, protocol.min_writer_version) == (3, 7)
        assert protocol.reader_features == ["timestampNtz"]
        assert sorted(protocol.writer_features or []) == ["appendOnly", "invariants", "timestampNtz"]
        assert table.metadata().partition_columns == []

    def test_a_table_that_someone_else_makes_meanwhile_is_not_overwritten(self, tmp_path: Path) -> None:
        schema = pa.schema([("id", pa.int64()), ("c", parse_type("map<string,timestamp_ntz>"))])
        log = DeltaSink.open(DeltaOptions(type="delta", path=f"{tmp_path}/t"), SinkContext("a" * 32, schema)).log
        entry = DeltaLogEntry(0, (), {}, 0)
        log.create(schema, [], entry)
        made = (tmp_path / "t" / "_delta_log" / f"{0:020}.json").read_bytes()
        with pytest.raises(StoreUnavailableError, match="someone else has made the table"):
            log.create(schema, [], entry)
        assert (tmp_path / "t" / "_delta_log" / f"{0:020}.json").read_bytes() == made


class TestEnsure:
    def test_a_folder_of_foreign_files_is_refused(self, table: DeltaRig) -> None:
        table.path.mkdir()
        pq.write_table(pa.table({"id": [1]}), table.path / "old.parquet")
        with pytest.raises(TargetRefusedError, match=r"1 object \(first: old.parquet\)"):
            table.sink().ensure()

    def test_the_folder_of_the_timeline_is_accepted(self, table: DeltaRig) -> None:
        (table.path / ".hoodie").mkdir(parents=True)
        (table.path / ".hoodie" / "hoodie.properties").write_text("hoodie.table.version=9\n")
        write(table.sink(), ref(0), [1])
        table.sink().ensure()

    def test_a_damaged_log_is_neither_a_table_nor_none(self, table: DeltaRig) -> None:
        sink = table.sink()
        sink.commit(prepared(sink, ref(0), [1]))
        (table.path / "_delta_log" / f"{0:020d}.json").write_text('{"add": ')
        fast = replace(table.sink(), retry=AT_ONCE)
        assert fast.lookup(ref(0)) is Lookup.UNKNOWN
        with pytest.raises(StoreUnavailableError):
            fast.ensure()

    @pytest.mark.parametrize(
        ("schema", "line"),
        [
            (
                pa.schema([("id", pa.int32()), ("text", pa.string())]),
                "column id: the table has int, the job writes bigint",
            ),
            (pa.schema([("ID", pa.int64()), ("text", pa.string())]), "column id: the table calls it ID"),
            (pa.schema([("text", pa.string())]), "column id: the table does not have it"),
            (
                pa.schema([pa.field("id", pa.int64(), nullable=False), ("text", pa.string())]),
                "column id: the table has not null, the job's rows may hold null",
            ),
            (
                pa.schema([("id", pa.int64()), ("text", pa.string()), pa.field("more", pa.int64(), nullable=False)]),
                "column more: the table has it as not null, the job does not write it",
            ),
        ],
    )
    def test_another_schema_is_refused_with_the_difference(self, table: DeltaRig, schema: pa.Schema, line: str) -> None:
        DeltaTable.create(table.path, Schema.from_arrow(schema))
        with pytest.raises(TargetRefusedError) as refused:
            table.sink().ensure()
        assert f"\n  {line}\n" in str(refused.value)

    @pytest.mark.parametrize(
        "schema",
        [
            SCHEMA,
            pa.schema([("text", pa.string()), ("id", pa.int64())]),
            pa.schema([("id", pa.int64()), ("text", pa.string()), ("more", pa.list_(pa.int64()))]),
        ],
    )
    def test_a_table_that_allows_the_rows_is_accepted(self, table: DeltaRig, schema: pa.Schema) -> None:
        DeltaTable.create(table.path, Schema.from_arrow(schema))
        sink = table.sink()
        sink.ensure()
        sink.commit(prepared(sink, ref(0), [1]))
        assert table.visible() == [1]

    def test_nullability_inside_a_column_counts(self, tmp_path: Path) -> None:
        def inner(nullable: bool) -> pa.Schema:
            item = pa.field("element", pa.int64(), nullable=nullable)
            nested = pa.struct([pa.field("x", pa.list_(item))])
            return pa.schema([("id", pa.int64()), ("l", pa.list_(item)), ("s", nested)])

        DeltaTable.create(tmp_path / "strict", Schema.from_arrow(inner(False)))
        DeltaTable.create(tmp_path / "loose", Schema.from_arrow(inner(True)))
        with pytest.raises(TargetRefusedError) as refused:
            DeltaRig(tmp_path / "strict", inner(True)).sink().ensure()
        assert str(refused.value).count("nulls inside") == 2
        DeltaRig(tmp_path / "loose", inner(False)).sink().ensure()

    def test_another_partitioning_is_refused(self, table: DeltaRig) -> None:
        DeltaTable.create(table.path, Schema.from_arrow(SCHEMA), partition_by=["text"])
        with pytest.raises(TargetRefusedError, match=r"partitioning: the table has \(text\), the job has none"):
            table.sink().ensure()

    @pytest.mark.parametrize(
        ("configuration", "line"),
        [
            ({"delta.setTransactionRetentionDuration": "interval 1 day"}, "forgets which epochs it has"),
            ({"delta.logRetentionDuration": "interval 5 minutes"}, "an hour is the least"),
            ({"delta.constraints.positive": "id > 0"}, "a check constraint"),
        ],
    )
    def test_a_table_property_that_breaks_the_promise_is_refused(
        self, table: DeltaRig, configuration: dict[str, str], line: str
    ) -> None:
        DeltaTable.create(table.path, Schema.from_arrow(SCHEMA))
        _put_metadata(table.path, configuration)
        with pytest.raises(TargetRefusedError, match=line):
            table.sink().ensure()

    @pytest.mark.parametrize(
        ("key", "value"),
        [
            ("delta.appendOnly", "true"),
            ("delta.enableChangeDataFeed", "true"),
            ("delta.enableDeletionVectors", "true"),
            ("delta.logRetentionDuration", "interval 7 days"),
            ("delta.logRetentionDuration", "interval 60 minutes"),
        ],
    )
    def test_a_table_property_that_appends_obey_is_accepted(self, table: DeltaRig, key: str, value: str) -> None:
        DeltaTable.create(table.path, Schema.from_arrow(SCHEMA), configuration={key: value})
        sink = table.sink()
        sink.ensure()
        sink.commit(prepared(sink, ref(0), [1]))
        assert table.visible() == [1]


class TestPlace:
    def test_a_path_that_delta_rs_gets_wrong_is_refused(self, tmp_path: Path) -> None:
        for name in ("per%20cent", "back\\slash"):
            with pytest.raises(ConfigError, match="choose another"):
                DeltaRig(tmp_path / name).sink()

    @pytest.mark.parametrize("place", ["s3://lake/a#b", "s3a://lake/a?b", "s3://lake/../a", "s3://lake/./a"])
    def test_a_place_on_s3_that_delta_rs_takes_for_another_is_refused(self, place: str) -> None:
        with pytest.raises(ConfigError, match=r"choose another|names other than"):
            delta_location(place)

    def test_other_schemes_are_refused(self) -> None:
        with pytest.raises(ConfigError, match="allowed are local paths and s3:// URLs"):
            delta_location("memory://x")

    def test_a_relative_path_is_absolute_and_s3a_is_s3(self) -> None:
        assert delta_location("lake/x") == os.path.abspath("lake/x")
        assert delta_location("file:///lake/x") == "/lake/x"
        assert delta_location("s3a://bucket/a/") == "s3://bucket/a"

    def test_s3_options_mean_the_same_to_both_clients(self) -> None:
        client = {"endpoint_url": "http://127.0.0.1:1", "region_name": "r"}
        storage = {"key": "K", "secret": "S", "client_kwargs": client}
        assert delta_storage_options("s3://b/t", storage) == {
            "AWS_ACCESS_KEY_ID": "K",
            "AWS_SECRET_ACCESS_KEY": "S",
            "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
            "AWS_REGION": "r",
            "AWS_ALLOW_HTTP": "true",
            "aws_conditional_put": "etag",
        }
        assert "AWS_ALLOW_HTTP" not in delta_storage_options("s3://b/t", {"endpoint_url": "https://s3.example"})
        assert delta_storage_options("/local", storage) == {}

    def test_secrets_are_in_no_repr(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.DEBUG)
        context = SinkContext("job", SCHEMA, storage={"key": "open", "secret": "hidden"})
        sink = DeltaSink.open(DeltaOptions(type="delta", path="s3://bucket/t"), context)
        assert "hidden" not in repr(sink) + repr(sink.begin(planned(ref(0)))) + caplog.text


def test_partition_columns_are_in_the_table(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us", "UTC"))])
    by = (PartitionField("ts", Transform.DATE), PartitionField("ts", Transform.HOUR))
    rig = DeltaRig(tmp_path / "table", schema, by)
    sink = rig.sink()
    writer = sink.begin(planned(ref(0))).open(TaskAttempt(0, 0, 0))
    writer.write(pa.RecordBatch.from_pydict({"id": [1, 2], "ts": [0, None]}, schema=schema))
    sink.commit(sink.prepare(ref(0), [writer.close()]))
    assert sorted(rig.table().select(["id", "ts_date", "ts_hour"]).to_pylist(), key=lambda row: row["id"]) == [
        {"id": 1, "ts_date": datetime.date(1970, 1, 1), "ts_hour": "1970-01-01-00"},
        {"id": 2, "ts_date": None, "ts_hour": None},
    ]


def _append_foreign(path: Path) -> None:
    write_deltalake(
        path,
        pa.table({"id": [-1], "text": ["foreign"]}),
        mode="append",
        commit_properties=CommitProperties(max_commit_retries=5),
    )


def _clean_up_behind(table: DeltaRig, version: int) -> None:
    """Other writers append, make a checkpoint and clean up the log before it, except the entry of `version`."""
    for _ in range(3):
        _append_foreign(table.path)
    DeltaTable(table.path).create_checkpoint()
    log = table.path / "_delta_log"
    kept = {f"{version:020d}.json", max(log.glob("*.json")).name}
    for entry in log.glob("*.json"):
        if entry.name not in kept:
            entry.unlink()


def _put_metadata(path: Path, configuration: dict[str, str]) -> None:
    """Put a metadata action as another engine would write it; delta-rs itself validates the properties that it sets."""
    entry = (path / "_delta_log" / f"{0:020d}.json").read_text()
    for line in entry.splitlines():
        if (action := json.loads(line)).get("metaData"):
            action["metaData"]["configuration"] = configuration
            (path / "_delta_log" / f"{1:020d}.json").write_text(json.dumps(action) + "\n")


_TEXTS = [
    " ",
    "a ",
    "__HIVE_DEFAULT_PARTITION__",
    "null",
    "%",
    "%41",
    "a/b",
    "a=b",
    "..",
    ".",
    "a\\b",
    "\0",
    "\n",
    "\r",
    "\x7f",
]
_TEXTS += [
    "e\u0301",
    "\u00e9",
    "\u2028",
    "\ufeff",
    "\uffff",
    "\N{GRINNING FACE}",
    "+",
    "#",
    "?",
    '"',
    "~",
    "_x",
    ".x",
    "2020-01-01",
]
_TEXTS += ["x" * 300, "x" * 301, "\u00e4" * 300, "x" * 4000]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.string(), _TEXTS),
        (pa.int8(), [-128, 0, 127]),
        (pa.int64(), [-(2**63), 2**63 - 1]),
        (pa.bool_(), [True, False]),
        (pa.date32(), [datetime.date.min, datetime.date(1969, 12, 31), datetime.date.max]),
        (pa.decimal128(38, 10), [Decimal("0E-10"), Decimal("0.0000000001"), Decimal("9" * 28 + "." + "9" * 10)]),
    ],
)
def test_partition_values_are_read_back_as_they_were_written(
    tmp_path: Path, kind: pa.DataType, values: list[Any]
) -> None:
    schema = pa.schema([("n", pa.int64()), ("p", kind)])
    sink = DeltaRig(tmp_path, schema, (PartitionField("p"),)).sink()
    sink.ensure()
    wanted = [*values, None]
    batch = pa.RecordBatch.from_arrays([pa.arange(0, len(wanted)), pa.array(wanted, kind)], schema=schema)
    sink.commit(sink.prepare(ref(0), [write_rows(sink.begin(planned(ref(0))), batch)]))
    found = DeltaTable(tmp_path).to_pyarrow_table().sort_by("n")
    assert found.column("p").to_pylist() == wanted
