"""A folder of files that Spark writes is announced, reported and deleted, whatever files are left in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sinks.delta import spark_files
from sinks.delta.footers import footer_reader
from sinks.delta.spark_files import CLOSED_DETAIL, FOLDER_DETAIL, SparkFolder
from sinks.parquet.markers import Markers, marker_path
from sinks.partition import PartitionField, Transform
from timeline.epoch import EpochRef, Part, WriteReport
from timeline.errors import InvariantError, StoreUnavailableError
from timeline.stores.local import LocalStore

INSTANT = "20260301101500000"
REF = EpochRef(3, INSTANT, 1)
SCHEMA = pa.schema(
    [("n", pa.int64()), ("x", pa.float64()), ("ts", pa.timestamp("us", tz="UTC")), ("name", pa.string())]
)
BY_DATE = (PartitionField("ts", Transform.DATE), PartitionField("name"))


@pytest.fixture
def folder(tmp_path: Path) -> SparkFolder:
    folder = SparkFolder(Markers(LocalStore(str(tmp_path)), "job"), INSTANT)
    folder.announce()
    return folder


def root(folder: SparkFolder) -> Path:
    store = folder.markers.store
    assert isinstance(store, LocalStore)
    return Path(store.root)


def write(folder: SparkFolder, name: str, rows: int = 2, **columns: object) -> Path:
    path = root(folder) / folder.path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"n": pa.array(range(rows), pa.int64()), **columns}), path)
    return path


def files_in(folder: SparkFolder) -> set[str]:
    return {str(path.relative_to(root(folder))) for path in (root(folder) / folder.path).rglob("*")}


def report(folder: SparkFolder, schema: pa.Schema, by: tuple[PartitionField, ...] = ()) -> WriteReport:
    return folder.report(schema, by, footer_reader(str(root(folder)), {}))


def part_of(folder: SparkFolder, written: WriteReport, **detail: bool) -> Part:
    return Part("t", REF, written.rows, written.bytes, written.files, detail={FOLDER_DETAIL: folder.path, **detail})


def test_only_what_spark_has_committed_is_reported_and_the_rest_goes(folder: SparkFolder) -> None:
    kept = write(folder, "part-00000-a-c000.zstd.parquet", 3)
    write(folder, "_temporary/0/_temporary/attempt_1/part-00001-a-c000.zstd.parquet")
    write(folder, "part-00002-a-c000.zstd.parquet", 0)
    for name in (".part-00000-a-c000.zstd.parquet.crc", "_SUCCESS"):
        (kept.parent / name).touch()
    written = report(folder, pa.schema([("n", pa.int64())]))
    assert (written.rows, written.bytes) == (3, kept.stat().st_size)
    assert [file.path for file in written.files] == [f"{folder.path}/{kept.name}"]
    assert written.files[0].stats["maxValues"] == {"n": 2}
    assert files_in(folder) == {f"{folder.path}/{kept.name}"}


def test_floats_get_no_bounds_from_a_footer_that_passes_over_nan(folder: SparkFolder) -> None:
    write(folder, "part-0.parquet", 2, x=pa.array([float("nan"), 1.0]))
    stats = report(folder, pa.schema([("n", pa.int64()), ("x", pa.float64())])).files[0].stats
    assert stats["minValues"] == {"n": 0} and stats["nullCount"] == {"n": 0, "x": 0}


def test_partition_values_are_read_back_from_folders(folder: SparkFolder) -> None:
    columns = {"x": pa.array([1.0, 2.0]), "ts": pa.array([0, 1], pa.timestamp("us", tz="UTC"))}
    write(folder, "ts_date=2026-03-01/name=a%2Fb%25 é/part-0.parquet", **columns)
    write(folder, "ts_date=__HIVE_DEFAULT_PARTITION__/name=__HIVE_DEFAULT_PARTITION__/part-0.parquet", **columns)
    found = {file.path: file.partition for file in report(folder, SCHEMA, BY_DATE).files}
    assert sorted(found.values(), key=repr) == [
        {"ts_date": "2026-03-01", "name": "a/b% é"},
        {"ts_date": None, "name": None},
    ]


@pytest.mark.parametrize(("segment", "value"), [("0E-18", "0.000000000000000000"), ("-1.50", "-1.50")])
def test_decimals_are_said_without_exponents(folder: SparkFolder, segment: str, value: str) -> None:
    write(folder, f"d={segment}/part-0.parquet")
    schema = pa.schema([("n", pa.int64()), ("d", pa.decimal128(38, 18))])
    (file,) = report(folder, schema, (PartitionField("d"),)).files
    assert file.partition == {"d": value} and Decimal(value) == Decimal(segment)


@pytest.mark.parametrize("name", ["part-0.parquet", "name=a/part-0.parquet", "ts_date=2026-03-01/name=a/x=1/p.parquet"])
def test_a_layout_that_was_not_asked_for_is_refused(folder: SparkFolder, name: str) -> None:
    write(folder, name)
    with pytest.raises(InvariantError, match="ts_date, name"):
        report(folder, SCHEMA, BY_DATE)


def test_a_file_without_a_footer_is_no_file(folder: SparkFolder) -> None:
    path = write(folder, "part-0.parquet")
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(StoreUnavailableError, match="footer"):
        report(folder, pa.schema([("n", pa.int64())]))


def test_a_rollback_removes_the_folder_and_says_what_went_as_often_as_it_is_asked(folder: SparkFolder) -> None:
    write(folder, "part-0.parquet")
    write(folder, "_temporary/0/part-1.parquet")
    (root(folder) / folder.path / "_temporary" / "0" / "empty").mkdir()
    gone = spark_files.abort(folder.markers, REF, None)
    assert gone == [folder.path, f"{folder.path}/_temporary/0/part-1.parquet", f"{folder.path}/part-0.parquet"]
    assert not (root(folder) / folder.path).exists()
    assert spark_files.abort(folder.markers, REF, None) == [folder.path]
    assert folder.markers.instants() == [INSTANT], "a task may still be writing"


def test_what_comes_late_into_a_rolled_back_folder_goes_with_the_next_look(folder: SparkFolder) -> None:
    spark_files.abort(folder.markers, REF, None)
    spark_files.release(folder.markers, REF, None, final=False)
    write(folder, "_temporary/0/part-1.parquet")
    assert folder.markers.instants() == [INSTANT]
    spark_files.release(folder.markers, REF, None, final=True)
    assert not (root(folder) / folder.path).exists()
    assert folder.markers.instants() == []


@pytest.mark.parametrize("is_closed", [False, True])
def test_the_marker_of_a_committed_folder_stays_while_a_task_may_write(folder: SparkFolder, is_closed: bool) -> None:
    write(folder, "part-0.parquet")
    part = part_of(folder, report(folder, pa.schema([("n", pa.int64())])), **{CLOSED_DETAIL: is_closed})
    write(folder, "_temporary/0/late.parquet")
    spark_files.release(folder.markers, REF, part, final=False)
    assert bool(folder.markers.instants()) != is_closed
    if not is_closed:
        assert files_in(folder) == {part.files[0].path}
        spark_files.release(folder.markers, REF, part, final=True)
        assert folder.markers.instants() == [] and files_in(folder) == {part.files[0].path}


def test_a_prepared_epoch_that_is_rolled_back_leaves_no_file(folder: SparkFolder) -> None:
    write(folder, "part-0.parquet")
    part = part_of(folder, report(folder, pa.schema([("n", pa.int64())])), **{CLOSED_DETAIL: True})
    spark_files.abort(folder.markers, REF, part)
    spark_files.release(folder.markers, REF, None, final=False)
    assert not (root(folder) / folder.path).exists()
    assert folder.markers.instants() == [INSTANT], "what a store puts late is still looked for"


def test_a_folder_of_another_job_is_left_alone(folder: SparkFolder) -> None:
    other = SparkFolder(replace(folder.markers, app_id="another job"), INSTANT)
    other.announce()
    theirs = write(other, "part-0.parquet")
    spark_files.abort(folder.markers, REF, None)
    spark_files.release(folder.markers, REF, None, final=True)
    assert theirs.exists()
    assert (root(folder) / marker_path(INSTANT, other.announcement)).exists()


def test_nothing_of_a_folder_is_counted_as_a_lost_file(folder: SparkFolder) -> None:
    names: Mapping[str, bool] = {folder.announcement: False, "a-0_0-0-0_1.parquet": True}
    assert spark_files.without_folders(names) == [name for name, is_file in names.items() if is_file]
