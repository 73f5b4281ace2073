"""The Parquet writer: every row once, files within their limits, bounded memory, no partial files."""

from __future__ import annotations

import datetime
import io
import pickle
import subprocess
import sys
import threading
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sinks.base import TaskAttempt
from sinks.parquet.markers import Markers
from sinks.parquet.partition_rows import with_partition_columns
from sinks.parquet.partition_writer import ParquetPartitionWriter
from sinks.parquet.table_files import ParquetSettings
from sinks.partition import (
    PartitionField,
    Transform,
    parse_partition,
    partition_folder,
    partitioned_schema,
)
from timeline.epoch import WrittenFile
from timeline.errors import ConfigError, DataError, InvariantError, StoreUnavailableError, TargetRefusedError
from timeline.stores.base import ObjectStore, ObjectWriter, size_of
from timeline.stores.memory import MemoryStore
from timeline.stores.opening import open_store

INSTANT = "20240101000000000"
SCHEMA = pa.schema([("id", pa.int64()), ("key", pa.string()), ("ts", pa.timestamp("us", "UTC"))])
ATTEMPT = TaskAttempt(task=4, stage=2, attempt=1)


def writer(store: ObjectStore, *by: str, schema: pa.Schema = SCHEMA, **settings: Any) -> ParquetPartitionWriter:
    fields = tuple(parse_partition(text) for text in by)
    return ParquetPartitionWriter(Markers(store, "app"), INSTANT, schema, fields, ParquetSettings(**settings))


def batch(ids: range, key: str | None = "k", schema: pa.Schema = SCHEMA) -> pa.RecordBatch:
    moment = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
    return pa.RecordBatch.from_pylist([{"id": each, "key": key, "ts": moment} for each in ids], schema=schema)


def read(store: ObjectStore, file: WrittenFile) -> pa.Table:
    return pq.read_table(io.BytesIO(store.get(file.path)), partitioning=None)


def data_files(store: ObjectStore) -> list[str]:
    return [info.path for info in store.list("", recursive=True) if info.path.endswith(".parquet")]


@dataclass
class CountingStore(MemoryStore):
    """Counts open uploads, and records the order of calls."""

    events: list[tuple[str, str]] = field(default_factory=list)
    most_open: int = 0
    open_now: int = 0
    fail_after_bytes: int | None = None
    fail_on_close: str | None = None  # text within the paths that fail
    meet_on_close: threading.Barrier | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def put(self, path: str, body: bytes) -> None:
        self.events.append(("put", path))
        super().put(path, body)

    def open_write(self, path: str) -> ObjectWriter:
        self.events.append(("open", path))
        self.count_open(1)
        return CountingWriter(self, path, super().open_write(path))

    def count_open(self, change: int) -> None:
        with self._lock:
            self.open_now += change
            self.most_open = max(self.most_open, self.open_now)


class FailingBuffer(io.BytesIO):
    def __init__(self, limit: int | None) -> None:
        super().__init__()
        self._limit = limit

    def write(self, data: Any) -> int:
        if self._limit is not None and self.tell() + memoryview(data).nbytes > self._limit:
            raise OSError(28, "No space left on device")
        return super().write(data)


class CountingWriter:
    def __init__(self, store: CountingStore, path: str, inner: ObjectWriter) -> None:
        self._store, self._path, self._inner = store, path, inner
        self._sink = FailingBuffer(store.fail_after_bytes)

    @property
    def sink(self) -> BinaryIO:
        return self._sink

    def close(self) -> int:
        if self._store.meet_on_close is not None:
            self._store.meet_on_close.wait()
        if self._store.fail_on_close is not None and self._store.fail_on_close in self._path:
            raise StoreUnavailableError("no answer")
        self._store.count_open(-1)
        self._inner.sink.write(self._sink.getvalue())
        return self._inner.close()

    def discard(self) -> None:
        self._store.count_open(-1)
        self._store.events.append(("discard", self._path))
        self._sink.close()
        self._inner.discard()


# ── rows and files ────────────────────────────────────────────────────────────────────────────────


def test_every_row_is_in_one_file_in_its_order() -> None:
    store = MemoryStore()
    open_writer = writer(store).open(ATTEMPT)
    for start in range(0, 1_000, 100):
        open_writer.write(batch(range(start, start + 100)))
    report = open_writer.close()
    assert [read(store, file)["id"].to_pylist() for file in report.files] == [list(range(1_000))]
    assert (report.rows, report.bytes) == (1_000, size_of(store, report.files[0].path))
    assert report.files[0].stats["numRecords"] == 1_000


def test_files_are_named_as_hudi_names_them_and_announced_before_they_are_opened() -> None:
    store = CountingStore()
    open_writer = writer(store, "key").open(ATTEMPT)
    open_writer.write(batch(range(3), "a/b"))
    (file,) = open_writer.close().files
    assert file.path.startswith("key=a%2Fb/")
    assert file.path.endswith(f"-0_4-2-1_{INSTANT}.parquet")
    marker = f".hoodie/.temp/{INSTANT}/{file.path}.marker.CREATE"
    assert store.events[:2] == [("put", marker), ("open", file.path)]
    assert store.get(marker) == b""


def test_no_rows_make_no_file_and_no_marker() -> None:
    store = MemoryStore()
    open_writer = writer(store).open(ATTEMPT)
    open_writer.write(batch(range(0)))
    assert open_writer.close().files == ()
    assert store.objects == {}


def test_files_roll_at_the_target_size() -> None:
    store = MemoryStore()
    open_writer = writer(store, target_file_bytes=20_000, row_group_bytes=20_000, compression="none").open(ATTEMPT)
    for start in range(0, 20_000, 500):
        open_writer.write(batch(range(start, start + 500)))
    report = open_writer.close()
    assert len(report.files) > 5
    assert all(20_000 <= file.size <= 60_000 for file in sorted(report.files, key=lambda file: file.size)[1:])
    ids = [each for file in report.files for each in read(store, file)["id"].to_pylist()]
    assert sorted(ids) == list(range(20_000))


def test_files_are_zstd_with_microseconds_and_small_decimals_as_integers() -> None:
    store = MemoryStore()
    schema = pa.schema([("ts", pa.timestamp("us", "UTC")), ("n", pa.timestamp("us")), ("d", pa.decimal128(9, 2))])
    open_writer = writer(store, schema=schema).open(ATTEMPT)
    open_writer.write(pa.RecordBatch.from_pydict({"ts": [1], "n": [1], "d": [Decimal("1.25")]}, schema=schema))
    (file,) = open_writer.close().files
    metadata = pq.read_metadata(io.BytesIO(store.get(file.path)))
    columns = [metadata.row_group(0).column(index) for index in range(3)]
    assert {column.compression for column in columns} == {"ZSTD"}
    assert [column.physical_type for column in columns] == ["INT64", "INT64", "INT32"]
    assert read(store, file).schema.equals(schema)


# ── partitions ────────────────────────────────────────────────────────────────────────────────────


def test_rows_go_to_their_partition_and_keep_their_columns() -> None:
    store = MemoryStore()
    open_writer = writer(store, "date(ts)", "key").open(ATTEMPT)
    rows = [
        {"id": index, "key": key, "ts": None if day is None else datetime.datetime(2024, 1, day, tzinfo=datetime.UTC)}
        for index, (key, day) in enumerate([("a", 1), ("b", 1), ("a", 2), (None, 1), ("", 1), ("a", None), ("a", 1)])
    ]
    open_writer.write(pa.RecordBatch.from_pylist(rows, schema=SCHEMA))
    found = {tuple(file.partition.values()): read(store, file) for file in open_writer.close().files}
    assert {key: table["id"].to_pylist() for key, table in found.items()} == {
        ("2024-01-01", "a"): [0, 6],
        ("2024-01-01", "b"): [1],
        ("2024-01-02", "a"): [2],
        ("2024-01-01", None): [3, 4],
        (None, "a"): [5],
    }
    assert found["2024-01-01", None]["key"].to_pylist() == [None, None], "file and log agree on an empty string"
    assert found["2024-01-02", "a"]["ts_date"].to_pylist() == [datetime.date(2024, 1, 2)]


def test_an_empty_string_cannot_vanish_from_a_not_null_partition_column() -> None:
    schema = pa.schema([("id", pa.int64()), pa.field("key", pa.string(), nullable=False)])
    open_writer = writer(MemoryStore(), "key", schema=schema).open(ATTEMPT)
    with pytest.raises(DataError, match="partition column 'key' is not null"):
        open_writer.write(pa.RecordBatch.from_pydict({"id": [1], "key": [""]}, schema=schema))


@pytest.mark.parametrize(
    ("moment", "day", "hour"),
    [
        (-1, "1969-12-31", "1969-12-31-23"),
        (0, "1970-01-01", "1970-01-01-00"),
        (1_709_251_199_999_999, "2024-02-29", "2024-02-29-23"),
        (-62_135_596_800_000_000, "0001-01-01", "0001-01-01-00"),
    ],
)
@pytest.mark.parametrize("zone", [None, "UTC"])
def test_dates_and_hours_are_those_of_utc(moment: int, day: str, hour: str, zone: str | None) -> None:
    schema = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us", zone))])
    rows = pa.RecordBatch.from_pydict({"id": [1], "ts": [moment]}, schema=schema)
    made = with_partition_columns(rows, (PartitionField("ts", Transform.DATE), PartitionField("ts", Transform.HOUR)))
    assert made.column("ts_hour").to_pylist() == [hour]
    assert made.column("ts_date").cast(pa.string()).to_pylist() == [day]


@pytest.mark.parametrize(
    ("kind", "value", "folder"),
    [
        (pa.bool_(), True, "key=true"),
        (pa.int8(), -7, "key=-7"),
        (pa.date32(), datetime.date(2024, 2, 29), "key=2024-02-29"),
        (pa.decimal128(20, 8), Decimal("1E-8"), "key=0.00000001"),
        (pa.string(), "ü ~+&,;()@!$", "key=ü ~+&,;()@!$"),
        (pa.string(), "..", "key=.."),
        (pa.string(), 'a/b=c%d:e?f#g"h\\i\n', "key=a%2Fb%3Dc%25d%3Ae%3Ff%23g%22h%5Ci%0A"),
        (pa.string(), "__HIVE_DEFAULT_PARTITION__", "key=__HIVE_DEFAULT_PARTITION__"),
    ],
)
def test_a_partition_value_is_one_folder(kind: pa.DataType, value: object, folder: str) -> None:
    store = MemoryStore()
    schema = pa.schema([("id", pa.int64()), ("key", kind)])
    open_writer = writer(store, "key", schema=schema).open(ATTEMPT)
    open_writer.write(pa.RecordBatch.from_pydict({"id": [1], "key": [value]}, schema=schema))
    (file,) = open_writer.close().files
    assert file.path.rpartition("/")[0] == folder
    assert read(store, file)["key"].to_pylist() == [value]


@given(st.text(min_size=1, max_size=400))
def test_a_folder_name_fits_every_file_system(value: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError:
        return
    folder = partition_folder({"key": value})
    assert len(folder.encode()) <= 255
    assert "/" not in folder
    assert "\x00" not in folder


def test_long_values_with_the_same_beginning_keep_their_own_folders() -> None:
    assert partition_folder({"k": "x" * 300 + "1"}) != partition_folder({"k": "x" * 300 + "2"})


keys = st.tuples(st.none() | st.sampled_from(["a", "b", "", "%"]), st.none() | st.integers(-3, 3))


@settings(max_examples=60)
@given(
    st.lists(st.lists(keys, max_size=9), max_size=6),
    st.integers(1, 4),
    st.sampled_from([1, 5_000, 30_000]),
)
def test_no_row_is_lost_or_doubled_however_rows_are_cut(
    batches: list[list[tuple[str | None, int | None]]], max_open_files: int, waiting_bytes: int
) -> None:
    schema = pa.schema([("id", pa.int64()), ("a", pa.string()), ("b", pa.int32())])
    store = CountingStore()
    cuts = {"max_open_files": max_open_files, "waiting_bytes": waiting_bytes, "target_file_bytes": 900}
    open_writer = writer(store, "a", "b", schema=schema, **cuts).open(ATTEMPT)
    wanted: list[tuple[int, str | None, int | None]] = []
    for rows in batches:
        numbered = [(len(wanted) + index, a, b) for index, (a, b) in enumerate(rows)]
        wanted += numbered
        columns = list(zip(*numbered, strict=True)) or [(), (), ()]
        open_writer.write(pa.RecordBatch.from_pydict(dict(zip(schema.names, columns, strict=True)), schema=schema))
    report = open_writer.close()
    found = []
    for file in report.files:
        for row in read(store, file).to_pylist():
            found.append((row["id"], row["a"], row["b"]))
            assert file.partition == {"a": row["a"], "b": None if row["b"] is None else str(row["b"])}
    assert sorted(found) == [(index, a or None, b) for index, a, b in wanted] == sorted(found)
    assert report.rows == len(wanted)
    assert store.most_open <= max_open_files
    assert store.open_now == 0


def test_at_most_so_many_files_are_open_and_the_least_used_goes_first() -> None:
    store = CountingStore()
    open_writer = writer(store, "key", max_open_files=2, waiting_bytes=1).open(ATTEMPT)
    for key in ("a", "b", "a", "c", "a"):
        open_writer.write(batch(range(1), key))
    report = open_writer.close()
    assert store.most_open == 2
    assert sorted((file.partition["key"], file.rows) for file in report.files) == [("a", 3), ("b", 1), ("c", 1)]


def test_files_of_several_partitions_are_closed_at_the_same_time() -> None:
    store = CountingStore(meet_on_close=threading.Barrier(3, timeout=30))
    open_writer = writer(store, "key").open(ATTEMPT)
    for key in ("a", "b", "c"):
        open_writer.write(batch(range(2), key))
    report = open_writer.close()
    assert sorted((file.partition["key"], file.rows) for file in report.files) == [("a", 2), ("b", 2), ("c", 2)]


def test_a_file_of_many_that_cannot_be_closed_leaves_none_of_them_behind() -> None:
    store = CountingStore()
    open_writer = writer(store, "key", max_open_files=4, waiting_bytes=1).open(ATTEMPT)
    for key in range(10, 30):
        open_writer.write(batch(range(2), str(key)))
    # Files that were closed to make room for others exist already.
    store.fail_on_close = "key=27"
    with pytest.raises(StoreUnavailableError, match="no answer"):
        open_writer.close()
    open_writer.abort()
    assert store.open_now == 0
    assert data_files(store) == []


def test_rows_of_a_rare_partition_do_not_hold_the_batches_they_came_in() -> None:
    schema = pa.schema([("key", pa.string()), ("text", pa.string())])
    open_writer = writer(MemoryStore(), "key", schema=schema, waiting_bytes=1 << 20).open(ATTEMPT)
    before = pa.total_allocated_bytes()
    for _ in range(200):
        keys = ["often"] * 999 + ["rare"]
        open_writer.write(pa.RecordBatch.from_pydict({"key": keys, "text": ["x" * 500] * 1_000}, schema=schema))
    assert pa.total_allocated_bytes() - before < 8 << 20
    open_writer.abort()


def test_rows_that_wait_are_bounded_over_all_partitions() -> None:
    schema = pa.schema([("key", pa.int32()), ("text", pa.string())])
    open_writer = writer(MemoryStore(), "key", schema=schema, waiting_bytes=1 << 20).open(ATTEMPT)
    before = pa.total_allocated_bytes()
    for _ in range(20):
        rows = {"key": list(range(200)), "text": ["x" * 2_000] * 200}
        open_writer.write(pa.RecordBatch.from_pydict(rows, schema=schema))
    assert pa.total_allocated_bytes() - before < 4 << 20
    assert open_writer.close().rows == 4_000


# ── refusals ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("by", "message"),
    [
        (("nothing",), "no column 'nothing'; columns are id, key, ts"),
        (("ts",), r"use date\(ts\) or hour\(ts\)"),
        (("date(key)",), "'key' is string; allowed are timestamp, date"),
        (("key", "key"), "named twice"),
        (("date(ts)", "date(ts)"), "'ts_date', which is there already"),
    ],
)
def test_an_impossible_partitioning_is_named(by: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        partitioned_schema(SCHEMA, [parse_partition(text) for text in by])


def test_a_table_needs_a_column_that_is_no_partition_column() -> None:
    with pytest.raises(ConfigError, match="a table needs one that is not"):
        partitioned_schema(pa.schema([("key", pa.string())]), [PartitionField("key")])


@pytest.mark.parametrize("kind", [pa.float64(), pa.binary(), pa.list_(pa.int64()), pa.struct([("x", pa.int64())])])
def test_a_type_that_no_folder_can_name_is_no_partition_column(kind: pa.DataType) -> None:
    with pytest.raises(ConfigError, match="allowed are string, integers"):
        partitioned_schema(pa.schema([("id", pa.int64()), ("key", kind)]), [PartitionField("key")])


def test_a_batch_of_another_schema_is_refused_with_the_difference() -> None:
    open_writer = writer(MemoryStore()).open(ATTEMPT)
    other = pa.RecordBatch.from_pydict({"id": pa.array([1], pa.int32()), "key": ["a"], "more": [1]})
    with pytest.raises(TargetRefusedError) as refused:
        open_writer.write(other)
    assert "id: found int32, wanted int64" in str(refused.value)
    assert "ts: found None" in str(refused.value)
    assert "more: found int64, wanted None" in str(refused.value)


def test_columns_are_taken_by_name_and_metadata_is_dropped() -> None:
    store = MemoryStore()
    rows = batch(range(2)).select(["ts", "id", "key"]).replace_schema_metadata({"pandas": "x"})
    open_writer = writer(store).open(ATTEMPT)
    open_writer.write(rows)
    (file,) = open_writer.close().files
    assert read(store, file).schema.equals(SCHEMA, check_metadata=True)


NOT_NULL_STRUCT = pa.struct([pa.field("x", pa.int64(), nullable=False)])
NOT_NULL_LIST = pa.list_(pa.field("element", pa.int64(), nullable=False))


@pytest.mark.parametrize(
    ("column", "nulls"),
    [
        (pa.field("c", pa.int64(), nullable=False), pa.array([None], pa.int64())),
        (
            pa.field("c", NOT_NULL_STRUCT),
            pa.Array.from_buffers(NOT_NULL_STRUCT, 1, [None], children=[pa.nulls(1, pa.int64())]),
        ),
        (
            pa.field("c", NOT_NULL_LIST),
            pa.Array.from_buffers(
                NOT_NULL_LIST, 1, [None, pa.array([0, 1], pa.int32()).buffers()[1]], children=[pa.nulls(1, pa.int64())]
            ),
        ),
    ],
)
def test_a_null_where_none_is_allowed_is_an_error_and_no_row(column: pa.Field, nulls: pa.Array) -> None:
    store = MemoryStore()
    open_writer = writer(store, schema=pa.schema([column])).open(ATTEMPT)
    with pytest.raises(DataError):
        open_writer.write(pa.RecordBatch.from_arrays([nulls], schema=pa.schema([column])))
        open_writer.close()
    open_writer.abort()
    assert data_files(store) == []


# ── failures ──────────────────────────────────────────────────────────────────────────────────────


def test_a_full_disk_is_a_store_error_and_abort_leaves_nothing() -> None:
    store = CountingStore(fail_after_bytes=2_000)
    open_writer = writer(store, row_group_bytes=1).open(ATTEMPT)
    with pytest.raises(StoreUnavailableError, match="No space left"):
        for start in range(0, 100_000, 1_000):
            open_writer.write(batch(range(start, start + 1_000)))
    open_writer.abort()
    assert data_files(store) == []
    assert store.open_now == 0


def test_a_close_without_an_answer_is_an_error_and_abort_leaves_nothing() -> None:
    store = CountingStore()
    open_writer = writer(store, "key").open(ATTEMPT)
    open_writer.write(batch(range(3), "a"))
    open_writer.write(batch(range(3), "b"))
    store.fail_on_close = ""
    with pytest.raises(StoreUnavailableError):
        open_writer.close()
    open_writer.abort()
    assert data_files(store) == []


def test_abort_deletes_files_that_were_already_closed_and_keeps_their_markers() -> None:
    store = MemoryStore()
    open_writer = writer(store, target_file_bytes=1, row_group_bytes=1).open(ATTEMPT)
    for start in range(5):
        open_writer.write(batch(range(start, start + 1)))
    assert len(data_files(store)) == 5
    open_writer.abort()
    assert data_files(store) == []
    assert len(store.list(f".hoodie/.temp/{INSTANT}", recursive=True)) == 5


@pytest.mark.parametrize("end", ["close", "abort"])
def test_a_writer_that_ended_takes_no_more_rows(end: str) -> None:
    open_writer = writer(MemoryStore()).open(ATTEMPT)
    getattr(open_writer, end)()
    with pytest.raises(InvariantError):
        open_writer.write(batch(range(1)))
    with pytest.raises(InvariantError):
        open_writer.close()


def test_the_writer_travels_and_writes_from_there(tmp_path: Any) -> None:
    there = pickle.loads(pickle.dumps(writer(open_store(str(tmp_path)), "date(ts)")))
    open_writer = there.open(ATTEMPT)
    open_writer.write(batch(range(3)))
    assert open_writer.close().rows == 3
    assert replace(there, instant="x").instant == "x"


# ── memory ────────────────────────────────────────────────────────────────────────────────────────

_WRITE_MUCH = """
import resource, sys
import pyarrow as pa
from sinks.base import TaskAttempt
from sinks.parquet.markers import Markers
from sinks.parquet.partition_writer import ParquetPartitionWriter
from sinks.parquet.table_files import ParquetSettings
from sinks.partition import parse_partition
from timeline.stores.opening import open_store

root, megabytes, by = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
schema = pa.schema([("id", pa.int64()), ("key", pa.string()), ("text", pa.string())])
settings = ParquetSettings(target_file_bytes=8 << 20, row_group_bytes=4 << 20, waiting_bytes=16 << 20)
markers = Markers(open_store(root), "app")
made = ParquetPartitionWriter(markers, "20240101000000000", schema, tuple(map(parse_partition, by)), settings)
out = made.open(TaskAttempt(0, 0, 0))
written = 0
while written < megabytes << 20:
    rows = range(written, written + 4_000)
    batch = pa.RecordBatch.from_pydict(
        {"id": rows, "key": [f"k{row % 20}" for row in rows], "text": [f"{row:0>250}" for row in rows]}, schema=schema
    )
    out.write(batch)
    written += batch.nbytes
out.close()
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


def _peak_megabytes(root: str, megabytes: int, *by: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", _WRITE_MUCH, root, str(megabytes), *by], check=True, capture_output=True, text=True
    )
    return int(done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("by", [(), ("key",)])
def test_memory_does_not_grow_with_the_rows(tmp_path: Any, by: tuple[str, ...]) -> None:
    little = _peak_megabytes(str(tmp_path / "little"), 60, *by)
    much = _peak_megabytes(str(tmp_path / "much"), 400, *by)
    assert much - little < 60, f"{little} MiB for 60 MiB of rows, {much} MiB for 400"
