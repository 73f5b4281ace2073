"""A timeline as a table in Spark: the rows of `Timeline.to_arrow`, in DataFrames and in SQL."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import EqualTo, Filter, GreaterThanOrEqual, In, IsNotNull, LessThan, Not, StringStartsWith

from ingest.execution.spark.data_source import (
    INSTANTS_PER_TASK,
    FilteringReader,
    InstantsPartition,
    TidelineSource,
    TimelineOptions,
    TimelineReader,
)
from tests.real.s3_server import S3Server
from tests.unit.timeline.history.test_epochs import Past
from timeline.errors import ConfigError
from timeline.history.arrow import VIEWS
from timeline.history.timeline import Timeline
from timeline.instant import Action, State, commit_requested, format_time
from timeline.stores.base import ObjectStore
from timeline.stores.opening import open_store

SAMPLE = Path(__file__).parents[1] / "data" / "hudi" / "copy_on_write_layout2"
OLDER_SAMPLE = SAMPLE.with_name("merge_on_read_layout1")
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"

pytestmark = [
    pytest.mark.spark,
    # PySpark leaves the sockets of its results to the garbage collector.
    pytest.mark.filterwarnings("ignore:.*unclosed.*:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:.*socket.socket.*:pytest.PytestUnraisableExceptionWarning"),
]


def keep_past(store: ObjectStore) -> None:
    """Write a committed, a rolled-back and an open epoch, with rejected rows and a hole."""
    past = Past()
    past.committed(0, 1)
    past.rolled_back(1, 4, until=State.COMPLETED)
    past.prepared(2, 9)
    for info in past.store.inner.list("", recursive=True):
        store.put(info.path, past.store.get(info.path))


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("timeline-source") / "web"
    keep_past(open_store(str(path)))
    return str(path)


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    spark.dataSource.register(TidelineSource)
    return spark


def read(session: SparkSession, path: str | Path, **options: str) -> DataFrame:
    return session.read.format("tideline").option("path", str(path)).options(**options).load()


def rows(found: DataFrame) -> list[dict[str, Any]]:
    return sorted(found.toArrow().to_pylist(), key=str)


def expected(path: str | Path, view: str, *, archived: bool = False) -> list[dict[str, Any]]:
    return sorted(Timeline.load(str(path), archived=archived).to_arrow(view).to_pylist(), key=str)


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_is_what_the_timeline_tells(session: SparkSession, table: str, view: str) -> None:
    found = rows(read(session, table, view=view))
    assert found == expected(table, view)
    assert found


@pytest.mark.parametrize("sample", [SAMPLE, OLDER_SAMPLE])
@pytest.mark.parametrize("archived", [True, False])
def test_what_hudi_wrote_is_read_too(session: SparkSession, sample: Path, archived: bool) -> None:
    found = read(session, sample, archived=str(archived).lower())
    assert rows(found) == expected(sample, "instants", archived=archived)
    assert found.where("archived").count() == (0 if not archived else 16 if sample == SAMPLE else 12)


def test_columns_have_the_types_that_they_stand_for(session: SparkSession, table: str) -> None:
    types = dict(read(session, table).dtypes) | dict(read(session, table, view="files").dtypes)
    assert (types["requested"], types["partition"]) == ("timestamp", "map<string,string>")
    assert (types["epoch"], types["seconds"], types["archived"]) == ("bigint", "double", "boolean")
    decided = read(session, table, view="epochs").selectExpr("unix_millis(decided) - unix_millis(requested) as ms")
    assert decided.first() == (1000,)


def test_sql_reads_it_by_name_and_options(session: SparkSession) -> None:
    session.sql(f"CREATE OR REPLACE TEMP VIEW writes USING tideline OPTIONS (path '{SAMPLE}', archived 'true')")
    found = session.sql("SELECT action, count(*), sum(rows) FROM writes WHERE state = 'completed' GROUP BY action")
    told = Timeline.load(str(SAMPLE), archived=True).completed()
    commits = told.by_action(Action.COMMIT).to_pandas()
    assert [tuple(row) for row in found.collect() if row["action"] == "commit"] == [
        ("commit", len(commits), commits["rows"].sum())
    ]


def test_many_instants_are_read_by_several_tasks(session: SparkSession, tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    for number in range(2 * INSTANTS_PER_TASK + 1):
        store.put(commit_requested(format_time(number * 1000)).path, b"")
    assert read(session, tmp_path).rdd.getNumPartitions() == 3
    assert read(session, tmp_path).count() == 2 * INSTANTS_PER_TASK + 1
    assert read(session, tmp_path, view="epochs").rdd.getNumPartitions() == 1
    with pushdown(session):
        few = read(session, tmp_path).where(f"time >= '{format_time(300_000)}' AND time < '{format_time(400_000)}'")
        assert few.count() == 100
        assert few.rdd.getNumPartitions() == 1
        assert read(session, tmp_path).where("time = 'x' OR state = 'y'").count() == 0


@contextmanager
def pushdown(session: SparkSession) -> Iterator[None]:
    session.conf.set(PUSHDOWN, "true")
    try:
        yield
    finally:
        session.conf.unset(PUSHDOWN)


@pytest.mark.parametrize("is_on", [True, False])
def test_filters_give_the_same_rows_whether_they_are_pushed_down_or_not(session: SparkSession, is_on: bool) -> None:
    whole = expected(SAMPLE, "instants", archived=True)
    middle = str(sorted(row["time"] for row in whole)[9])
    wanted = f"time > '{middle}' AND action IN ('clean', 'commit') AND requested IS NOT NULL AND rows > 0"
    session.conf.set(PUSHDOWN, str(is_on).lower())
    try:
        found = rows(read(session, SAMPLE, archived="true").where(wanted))
    finally:
        session.conf.unset(PUSHDOWN)
    assert found == [
        row for row in whole if row["time"] > middle and row["action"] in ("clean", "commit") and (row["rows"] or 0) > 0
    ]


FIRST = Timeline.load(str(SAMPLE)).instants[0].time


@pytest.mark.parametrize(
    ("pushed", "left"),
    [
        (EqualTo(("time",), FIRST), 1),
        (GreaterThanOrEqual(("time",), FIRST), 10),
        (LessThan(("time",), FIRST), 0),
        (StringStartsWith(("time",), FIRST[:8]), 10),
        (In(("action",), ("rollback", "savepoint")), 2),
        (EqualTo(("state",), "inflight"), 1),
        (LessThan(("requested",), datetime(2020, 1, 1, tzinfo=UTC)), 0),
        (Not(EqualTo(("time",), FIRST)), 10),
        (IsNotNull(("time",)), 10),
        (EqualTo(("rows",), 3), 10),
        (EqualTo(("time", "inner"), FIRST), 10),
    ],
)
def test_a_filter_on_what_names_tell_spares_the_bodies(pushed: Filter, left: int) -> None:
    reader = FilteringReader(TimelineOptions(str(SAMPLE)))
    assert list(reader.pushFilters([pushed])) == [pushed], "Spark filters the rows once more"
    assert sum(len(share.timeline) for share in reader.partitions() if isinstance(share, InstantsPartition)) == left


def test_no_filter_is_applied_to_rows_that_come_from_several_instants() -> None:
    reader = FilteringReader(TimelineOptions(str(SAMPLE), view="epochs"))
    reader.pushFilters([EqualTo(("instant",), "x")])
    assert sum(len(share.timeline) for share in reader.partitions() if isinstance(share, InstantsPartition)) == 10


def test_without_pushdown_the_reader_takes_no_filters() -> None:
    """Spark refuses a filtering reader while its setting is off, which is the default."""
    reader = TidelineSource({"path": str(SAMPLE)}).reader(TidelineSource({"path": str(SAMPLE)}).schema())
    assert type(reader) is TimelineReader


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, 'needs .option("path"'),
        ({"path": "x", "veiw": "epochs"}, "option veiw of format tideline: allowed are path, view, archived, storage."),
        ({"path": "x", "view": "epoch"}, "view 'epoch' of format tideline: allowed are instants, epochs, offsets,"),
        ({"path": "x", "archived": "yes"}, "'yes', allowed are true, false"),
        ({"path": "memory://x"}, "one process's memory"),
    ],
)
def test_wrong_options_are_refused_with_those_there_are(options: dict[str, str], told: str) -> None:
    with pytest.raises(ConfigError) as refused:
        TidelineSource(options).schema()
    assert told in str(refused.value)


def test_a_refusal_reaches_who_reads(session: SparkSession) -> None:
    with pytest.raises(PySparkException, match="allowed are path, view, archived"):
        read(session, SAMPLE, paht="x")
    with pytest.raises(PySparkException, match="has columns of its own"):
        session.read.format("tideline").schema("time int").option("path", str(SAMPLE)).load().collect()


def test_options_for_storage_are_typed_and_nested() -> None:
    flat = {"storage.anon": "false", "storage.client_kwargs.endpoint_url": "http://x", "storage.key": "k"}
    options = TimelineOptions.parse({"PATH": "s3://b/t", **flat})
    assert options.storage == {"anon": False, "client_kwargs": {"endpoint_url": "http://x"}, "key": "k"}
    assert "http://x" not in repr(options)


@pytest.mark.real
def test_a_timeline_on_s3_is_read_and_no_plan_shows_its_credentials(session: SparkSession, s3: S3Server) -> None:
    url = "s3://lake/timeline-source"
    keep_past(open_store(url, s3.options))
    flat = {"storage." + name: str(value) for name, value in flattened(s3.options).items()}
    found = read(session, url, **flat)
    assert found.select("action", "state").count() == 3
    found.createOrReplaceTempView("on_s3")
    shown = "".join(
        str(session.sql(f"EXPLAIN {how} SELECT * FROM on_s3 WHERE time > '1'").collect())
        for how in ("EXTENDED", "FORMATTED", "COST")
    )
    assert "tideline" in shown
    for name in ("key", "secret"):
        assert str(s3.options[name]) not in shown
    with pytest.raises(PySparkException) as refused:
        read(session, url, **(flat | {"storage.secret": "wrong-and-never-shown"})).collect()
    assert "wrong-and-never-shown" not in str(refused.value)


def flattened(options: Mapping[str, Any], prefix: str = "") -> dict[str, object]:
    found: dict[str, object] = {}
    for name, value in options.items():
        found |= flattened(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {prefix + name: value}
    return found


def test_bodies_that_cannot_be_read_are_in_the_rows(session: SparkSession, tmp_path: Path) -> None:
    shutil.copytree(SAMPLE, tmp_path / "table")
    timeline = Timeline.load(str(tmp_path / "table"))
    (tmp_path / "table" / timeline.completed().instants[-1].path).write_bytes(b"junk")
    found = read(session, tmp_path / "table").where("problems IS NOT NULL").collect()
    assert [row["time"] for row in found] == [timeline.completed().instants[-1].time]
