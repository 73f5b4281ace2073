"""delta-spark and delta-rs read the same rows from a table that the Delta sink wrote, and skip the same files."""

from __future__ import annotations

import datetime
import json
import math
import shutil
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from pyspark.sql import DataFrame, SparkSession

from sinks.base import Lookup, SinkContext, TaskAttempt
from sinks.delta.sink import DeltaOptions, DeltaSink
from sinks.partition import parse_partition
from tests.contract.sink_contract import planned
from timeline.epoch import EpochRef
from timeline.errors import TargetRefusedError

pytestmark = [
    pytest.mark.spark,
    # PySpark leaves the sockets of its results to the garbage collector.
    pytest.mark.filterwarnings("ignore:.*unclosed.*:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:.*socket.socket.*:pytest.PytestUnraisableExceptionWarning"),
]
UTC = datetime.UTC


def sink(path: Path, schema: pa.Schema, *by: str) -> DeltaSink:
    options = DeltaOptions(type="delta", path=str(path))
    return DeltaSink.open(options, SinkContext("job", schema, tuple(parse_partition(text) for text in by)))


def commit(target: DeltaSink, epoch: int, *files: Sequence[Mapping[str, Any]]) -> None:
    """Commit one epoch, with one task for each list of rows."""
    reference = EpochRef(epoch, f"20240101{epoch:09d}", 1)
    reports = []
    for task, rows in enumerate(files):
        writer = target.begin(planned(reference)).open(TaskAttempt(task, 0, 0))
        writer.write(pa.RecordBatch.from_pylist([dict(row) for row in rows], schema=target.schema))
        reports.append(writer.close())
    target.ensure()
    target.commit(target.prepare(reference, reports))


def by_id(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: row["id"])


def read_spark(spark: SparkSession, path: Path, where: str = "true") -> list[dict[str, Any]]:
    """Rows as Arrow values; Spark's Row would turn timestamps into this machine's time zone."""
    return by_id(spark.read.format("delta").load(str(path)).where(where).toArrow().to_pylist())


def read_delta_rs(path: Path, where: str = "true") -> list[dict[str, Any]]:
    batches = QueryBuilder().register("t", DeltaTable(path)).execute(f"select * from t where {where}").read_all()
    return by_id(pa.table(batches).to_pylist())


def ids_and_files(frame: DataFrame) -> tuple[list[int], int]:
    """Ids, and the number of files that the scan opened, by Spark's own metric (a second run resets it)."""
    ids = sorted(row.id for row in frame.collect())
    plan = frame._jdf.queryExecution().executedPlan()
    return ids, int(_scan(plan).metrics().apply("numFiles").value())


def _scan(plan: Any) -> Any:
    while plan.children().size() or plan.nodeName() == "AdaptiveSparkPlan":
        plan = plan.executedPlan() if plan.nodeName() == "AdaptiveSparkPlan" else plan.children().apply(0)
    return plan


SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("i8", pa.int8()),
        ("i16", pa.int16()),
        ("i32", pa.int32()),
        ("f32", pa.float32()),
        ("f64", pa.float64()),
        ("flag", pa.bool_()),
        ("text", pa.string()),
        ("raw", pa.binary()),
        ("day", pa.date32()),
        ("ts", pa.timestamp("us", "UTC")),
        ("wall", pa.timestamp("us")),
        ("small", pa.decimal128(9, 2)),
        ("long", pa.decimal128(18, 6)),
        ("wide", pa.decimal128(38, 10)),
        ("tags", pa.list_(pa.string())),
        (
            "nested",
            pa.struct([("x", pa.int32()), ("deep", pa.struct([("y", pa.string()), ("z", pa.list_(pa.int64()))]))]),
        ),
        ("labels", pa.map_(pa.string(), pa.int64())),
        ("many", pa.list_(pa.struct([("k", pa.decimal128(20, 3))]))),
    ]
)

ROWS: list[dict[str, Any]] = [
    {
        "id": 1,
        "i8": -128,
        "i16": 32767,
        "i32": -1,
        "f32": 0.5,
        "f64": 1e300,
        "flag": True,
        "text": "ünïcode \U0001f600 \x00 " + "x" * 40,
        "raw": b"\x00\xff",
        "day": datetime.date(2024, 2, 29),
        "ts": datetime.datetime(2024, 2, 29, 23, 59, 59, 999_999, tzinfo=UTC),
        "wall": datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999),
        "small": Decimal("-1234567.89"),
        "long": Decimal("999999999999.999999"),
        "wide": Decimal("-1234567890123456789012345678.0123456789"),
        "tags": ["a", None, ""],
        "nested": {"x": 7, "deep": {"y": "z", "z": [1, None]}},
        "labels": [("k", 1), ("l", None)],
        "many": [{"k": Decimal("0.001")}, None],
    },
    {"id": 2, "tags": [], "labels": [], "nested": {"x": None, "deep": None}, "text": "", "many": []},
    {"id": 3},
]


def test_both_readers_give_the_rows_that_were_written(spark: SparkSession, tmp_path: Path) -> None:
    target = sink(tmp_path / "t", SCHEMA)
    commit(target, 0, ROWS[:1])
    commit(target, 1, ROWS[1:])
    wanted = pa.RecordBatch.from_pylist(ROWS, schema=SCHEMA).to_pylist()
    assert read_delta_rs(tmp_path / "t") == wanted
    assert read_spark(spark, tmp_path / "t") == wanted


KEYS = [
    "plain",
    "with space",
    "a/b=c%d",
    "%41",
    "q\"u'o",
    "{x}:[y]^|~",
    "ünïcode \U0001f600",
    "+#?&;,@!$()",
    "back\\slash",
    "tab\tnew\nline",
    "..",
    ".",
    "__HIVE_DEFAULT_PARTITION__",
    "x" * 300,
    "%" * 90,
    "",
    None,
]


def test_both_readers_find_every_partition_whatever_its_value_is(spark: SparkSession, tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("key", pa.string()), ("n", pa.int32())])
    rows = [{"id": index, "key": key, "n": 1} for index, key in enumerate(KEYS)]
    target = sink(tmp_path / "t a #ü", schema, "key")
    commit(target, 0, rows[:1])
    commit(target, 1, rows[1:])
    wanted = [{**row, "key": row["key"] or None} for row in rows]
    assert read_delta_rs(tmp_path / "t a #ü") == wanted
    assert read_spark(spark, tmp_path / "t a #ü") == wanted
    for row in wanted:
        if row["key"] is not None:
            frame = spark.read.format("delta").load(str(tmp_path / "t a #ü"))
            assert frame.where(frame.key == row["key"]).count() == 1


@pytest.mark.parametrize(
    ("by", "added"),
    [
        (
            ["date(ts)"],
            [{"ts_date": datetime.date(1969, 12, 31)}, {"ts_date": datetime.date(2024, 1, 2)}, {"ts_date": None}],
        ),
        (["hour(wall)"], [{"wall_hour": "2024-01-01-05"}, {"wall_hour": "0001-01-01-00"}, {"wall_hour": None}]),
        (["date(day)", "i32"], [{"day_date": datetime.date(2024, 1, 1)}, {"day_date": None}, {"day_date": None}]),
        (["flag", "small"], [{}, {}, {}]),
    ],
)
def test_both_readers_give_the_partition_columns(
    spark: SparkSession, tmp_path: Path, by: list[str], added: list[dict[str, Any]]
) -> None:
    schema = pa.schema([SCHEMA.field(name) for name in ("id", "ts", "wall", "day", "i32", "flag", "small")])
    rows: list[dict[str, Any]] = [
        {
            "id": 1,
            "ts": datetime.datetime(1969, 12, 31, 23, 59, tzinfo=UTC),
            "wall": datetime.datetime(2024, 1, 1, 5, 59),
            "day": datetime.date(2024, 1, 1),
            "i32": -5,
            "flag": False,
            "small": Decimal("-7.00"),
        },
        {"id": 2, "ts": datetime.datetime(2024, 1, 2, tzinfo=UTC), "wall": datetime.datetime(1, 1, 1), "flag": True},
        {"id": 3},
    ]
    target = sink(tmp_path / "t", schema, *by)
    commit(target, 0, rows[:1])
    commit(target, 1, rows[1:])
    wanted = [
        {**row, **more}
        for row, more in zip(pa.RecordBatch.from_pylist(rows, schema=schema).to_pylist(), added, strict=True)
    ]
    assert read_delta_rs(tmp_path / "t") == wanted
    assert read_spark(spark, tmp_path / "t") == wanted


# ── data skipping ─────────────────────────────────────────────────────────────────────────────────

SKIP_SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("f", pa.float64()),
        ("text", pa.string()),
        ("ts", pa.timestamp("us", "UTC")),
        ("day", pa.date32()),
        ("d", pa.decimal128(30, 4)),
        ("s", pa.struct([("x", pa.int32())])),
    ]
)


def _skip_row(number: int) -> dict[str, Any]:
    moment = datetime.datetime(2024, 1, 1, tzinfo=UTC) + datetime.timedelta(days=number, microseconds=1)
    return {
        "id": number,
        "f": number / 2,
        "text": f"{number:03}" + "long " * 10,
        "ts": moment,
        "day": moment.date(),
        "d": Decimal(number).scaleb(10) + Decimal("0.0001"),
        "s": {"x": number},
    }


FILTERS = [
    "id = 25",
    "f = 12.5",
    "text = '025" + "long " * 10 + "'",
    "ts = timestamp '2024-01-26T00:00:00.000001Z'",
    "day = date '2024-01-26'",
    "d = 250000000000.0001",
    "s.x = 25",
]


@pytest.fixture(scope="module")
def skip_table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten files of ten rows each, in order."""
    path = tmp_path_factory.mktemp("skip") / "t"
    files = [[_skip_row(n) for n in range(start, start + 10)] for start in range(0, 100, 10)]
    target = sink(path, SKIP_SCHEMA)
    commit(target, 0, *files[:5])
    commit(target, 1, *files[5:])
    return path


@pytest.mark.parametrize("where", FILTERS)
def test_spark_reads_one_file_of_ten_and_finds_the_row(spark: SparkSession, skip_table: Path, where: str) -> None:
    frame = spark.read.format("delta").load(str(skip_table)).where(where)
    assert ids_and_files(frame) == ([25], 1)


@pytest.mark.parametrize("where", FILTERS)
def test_delta_rs_skips_files_and_finds_the_row(skip_table: Path, where: str, tmp_path: Path) -> None:
    """Files without a row of the answer are deleted: a reader that opens one fails."""
    copy = tmp_path / "t"
    shutil.copytree(skip_table, copy)
    for action in pa.table(DeltaTable(copy).get_add_actions(flatten=True)).to_pylist():
        if not action["min.id"] <= 25 <= action["max.id"]:
            (copy / action["path"]).unlink()
    sql = where.replace("d = 250000000000.0001", "d = cast('250000000000.0001' as decimal(30, 4))")
    assert [row["id"] for row in read_delta_rs(copy, sql)] == [25]


def test_spark_counts_files_without_a_filter(spark: SparkSession, skip_table: Path) -> None:
    assert ids_and_files(spark.read.format("delta").load(str(skip_table))) == (list(range(100)), 10)


@pytest.mark.parametrize(
    ("values", "where", "wanted"),
    [
        ([1.0, math.nan], "v > 5", [1]),
        ([1.0, math.inf], "v > 5", [1]),
        ([1.0, math.nan], "v = double('NaN')", [1]),
        ([1.0, math.inf], "v = double('Infinity')", [1]),
        ([-math.inf, 1.0], "v < 0", [0]),
        ([-0.0], "v = 0", [0]),
        ([0.0], "v = -0.0", [0]),
    ],
)
def test_a_special_float_is_never_skipped_wrongly(
    spark: SparkSession, tmp_path: Path, values: list[float], where: str, wanted: list[int]
) -> None:
    schema = pa.schema([("id", pa.int64()), ("v", pa.float64())])
    commit(sink(tmp_path / "t", schema), 0, [{"id": index, "v": value} for index, value in enumerate(values)])
    assert [row["id"] for row in read_spark(spark, tmp_path / "t", where)] == wanted


def test_spark_skips_files_by_bounds_that_only_texts_or_microseconds_can_say(
    spark: SparkSession, tmp_path: Path
) -> None:
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("v", pa.float64()),
            ("ts", pa.timestamp("us", "UTC")),
            ("b", pa.bool_()),
            ("s", pa.string()),
        ]
    )
    last = datetime.datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
    first = datetime.datetime(2024, 1, 1, tzinfo=UTC)
    files: list[list[dict[str, Any]]] = [
        [{"id": 1, "v": -math.inf, "ts": first, "b": True, "s": "\U00020bb7"}, {"id": 2, "v": 1.0, "ts": first}],
        [{"id": 3, "v": math.inf, "ts": last, "b": False, "s": "x" * 5_000}, {"id": 4, "v": 5.0, "ts": last}],
    ]
    commit(sink(tmp_path / "t", schema), 0, *files)
    frame = spark.read.format("delta").load(str(tmp_path / "t"))
    for where, wanted in (
        ("id = 2", ([2], 1)),
        ("v = double('Infinity')", ([3], 1)),
        ("v = double('-Infinity')", ([1], 1)),
        ("ts = timestamp '9999-12-31T23:59:59.999999Z'", ([3, 4], 1)),
        ("ts = timestamp '2024-01-01T00:00:00Z'", ([1, 2], 1)),
        ("s = '\U00020bb7'", ([1], 1)),
        ("s = repeat('x', 5000)", ([3], 1)),
    ):
        assert ids_and_files(frame.where(where)) == wanted, where
    assert ids_and_files(frame.where("b"))[0] == [1] and ids_and_files(frame.where("NOT b"))[0] == [3]


@pytest.mark.parametrize(
    "value",
    ["a" * 32 + "\U0010ffff" * 2 + "b", "a" * 40, "\U0010ffff" * 40, "é" * 33, "a" * 32 + "\x7f", "a" * 31 + "'\\"],
)
def test_a_long_string_is_never_skipped_wrongly(spark: SparkSession, tmp_path: Path, value: str) -> None:
    schema = pa.schema([("id", pa.int64()), ("v", pa.string())])
    commit(sink(tmp_path / "t", schema), 0, [{"id": 1, "v": value}])
    frame = spark.read.format("delta").load(str(tmp_path / "t"))
    assert frame.where(frame.v == value).count() == 1
    assert frame.where(frame.v >= value).count() == 1


@pytest.mark.parametrize(
    "text", ["12345678901234567890123456789012345678", "-99999999999999999999999999999999999999", "1234567890123456789"]
)
@pytest.mark.parametrize("scale", [0, 10, 38])
def test_a_long_decimal_is_never_skipped_wrongly(spark: SparkSession, tmp_path: Path, text: str, scale: int) -> None:
    schema = pa.schema([("id", pa.int64()), ("v", pa.decimal128(38, scale))])
    digits = text.lstrip("-").rjust(scale, "0")
    value = Decimal(
        ("-" if text[0] == "-" else "") + digits[: len(digits) - scale] + "." + digits[len(digits) - scale :]
    )
    commit(sink(tmp_path / "t", schema), 0, [{"id": 1, "v": value}])
    literal = f"{value:f}BD"
    assert [row["v"] for row in read_spark(spark, tmp_path / "t", f"v = {literal} and v >= {literal}")] == [value]
    assert len(read_delta_rs(tmp_path / "t", f"v = cast('{value:f}' as decimal(38, {scale}))")) == 1


def test_spark_answers_minimum_and_maximum_from_statistics_correctly(spark: SparkSession, skip_table: Path) -> None:
    query = f"select min(id), max(id), min(f), max(f), min(day), max(day), count(*) from delta.`{skip_table}`"
    assert tuple(spark.sql(query).collect()[0]) == (
        0, 99, 0.0, 49.5, datetime.date(2024, 1, 1), datetime.date(2024, 4, 9), 100,
    )  # fmt: skip


# ── tables that Spark made ────────────────────────────────────────────────────────────────────────

ROW_SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])


@pytest.mark.parametrize(
    ("columns", "extra", "refused"),
    [
        ("id bigint, text string", "", None),
        ("id bigint, text string, more int", "", None),
        ("id bigint, text string", "TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')", None),
        ("id bigint, text string", "TBLPROPERTIES ('delta.appendOnly' = 'true')", None),
        ("id bigint, text string", "TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')", None),
        ("id bigint NOT NULL, text string", "", "column id: the table has not null, the job's rows may hold null"),
        (
            "id bigint, text string, g bigint GENERATED ALWAYS AS (id + 1)",
            "",
            "column g: is generated by an expression",
        ),
        ("id bigint, text string, g bigint GENERATED ALWAYS AS IDENTITY", "", "column g: is an identity column"),
        ("id bigint, text varchar(3)", "", "column text: is of type char or varchar"),
        ("id bigint, text string", "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')", "column mapping"),
        ("id bigint, text string", "TBLPROPERTIES ('delta.enableRowTracking' = 'true')", "table feature rowTracking"),
        ("id bigint, text string", "TBLPROPERTIES ('delta.enableTypeWidening' = 'true')", "table feature typeWidening"),
        ("id bigint, text string", "TBLPROPERTIES ('delta.enableInCommitTimestamps' = 'true')", "inCommitTimestamp"),
        ("id bigint, text string", "CLUSTER BY (id)", "table feature clustering"),
        ("id bigint, text string", "PARTITIONED BY (text)", r"partitioning: the table has \(text\), the job has none"),
    ],
)
def test_a_table_made_by_spark_is_appended_to_or_refused_by_name(
    spark: SparkSession, tmp_path: Path, columns: str, extra: str, refused: str | None
) -> None:
    path = tmp_path / "t"
    spark.sql(f"CREATE TABLE delta.`{path}` ({columns}) USING delta {extra}")
    target = sink(path, ROW_SCHEMA)
    if refused is not None:
        with pytest.raises(TargetRefusedError, match=refused):
            target.ensure()
        return
    commit(target, 0, [{"id": 1, "text": "a"}], [{"id": 2}])
    assert [(row["id"], row["text"]) for row in read_spark(spark, path)] == [(1, "a"), (2, None)]


def test_a_check_constraint_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    spark.sql(f"CREATE TABLE delta.`{tmp_path / 't'}` (id bigint, text string) USING delta")
    spark.sql(f"ALTER TABLE delta.`{tmp_path / 't'}` ADD CONSTRAINT positive CHECK (id > 0)")
    with pytest.raises(TargetRefusedError, match=r"delta.constraints.positive = id > 0: a check constraint"):
        sink(tmp_path / "t", ROW_SCHEMA).ensure()


def test_rows_that_spark_deleted_stay_deleted_beside_new_epochs(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    target = sink(path, ROW_SCHEMA)
    commit(target, 0, [{"id": 1}, {"id": 2}])
    spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    spark.sql(f"DELETE FROM delta.`{path}` WHERE id = 1")
    commit(target, 1, [{"id": 3}])
    assert [row["id"] for row in read_spark(spark, path)] == [2, 3]
    assert target.lookup(EpochRef(1, "x", 1)) is Lookup.COMMITTED


def test_both_readers_follow_a_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    target = sink(path, ROW_SCHEMA)
    for epoch in range(3):
        commit(target, epoch, [{"id": epoch}])
    DeltaTable(path).create_checkpoint()
    commit(target, 3, [{"id": 3}])
    checkpoint = json.loads((path / "_delta_log" / "_last_checkpoint").read_text())
    assert checkpoint["version"] == 2
    assert [row["id"] for row in read_spark(spark, path)] == [row["id"] for row in read_delta_rs(path)] == [0, 1, 2, 3]


@pytest.mark.parametrize("parts", [1, 2])
def test_a_job_follows_a_checkpoint_that_spark_has_made(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parts: int
) -> None:
    path = tmp_path / "t"
    spark.sql(
        f"CREATE TABLE delta.`{path}` (id bigint, text string) USING delta "
        "TBLPROPERTIES ('delta.checkpointInterval' = '4')"
    )
    commit(sink(path, ROW_SCHEMA), 5, [{"id": 5}])
    spark.conf.set("spark.databricks.delta.checkpoint.partSize", "2" if parts == 2 else "1000")
    try:
        for _ in range(4):
            spark.sql(f"INSERT INTO delta.`{path}` VALUES (1, 'a')")
    finally:
        spark.conf.unset("spark.databricks.delta.checkpoint.partSize")
    assert len(list((path / "_delta_log").glob("*4.checkpoint*.parquet"))) == parts
    later = sink(path, ROW_SCHEMA)
    if parts == 1:
        monkeypatch.delattr("sinks.delta.log.open_table")  # the sink does not need delta-rs
    assert later.lookup(EpochRef(5, "x", 1)) is Lookup.COMMITTED
    assert later.lookup(EpochRef(6, "x", 1)) is Lookup.NOT_COMMITTED
    commit(later, 6, [{"id": 6}])
    assert [row["id"] for row in read_spark(spark, path)] == [1, 1, 1, 1, 5, 6]


def test_spark_skips_a_batch_that_the_job_has_applied(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    commit(sink(path, ROW_SCHEMA), 5, [{"id": 1, "text": "a"}])
    frame = spark.createDataFrame([(2, "b")], "id bigint, text string")
    for version in (5, 6):
        frame.write.format("delta").mode("append").option("txnAppId", "job").option("txnVersion", version).save(
            str(path)
        )
    assert [row["id"] for row in read_spark(spark, path)] == [1, 2]
