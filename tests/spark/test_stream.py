"""A streaming query with Spark's file source, put through the protocol by a real Spark session."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from ingest.config.load import load_config
from ingest.driver.build import open_timeline
from ingest.driver.takeover import run_recovery
from ingest.reports.instants import shown_instants
from ingest.stream import starting_offsets, stream
from ingest.stream.checkpoint import HadoopFiles, read_batch
from tests.job import write_job
from tests.spark.stream_process import Answer, Query, stream_driver
from tests.waiting import wait_until
from timeline.errors import ConfigError, FencedError, SourceChangedError, SparkJobError, TidelineError
from timeline.history.timeline import Timeline
from timeline.instant import Action
from timeline.stores.opening import open_store

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    # Spark's own `collect` leaves its socket to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

COLUMNS = "id bigint, host string, ts timestamp"
WAIT_S = 120.0


@dataclass(frozen=True)
class World:
    """A folder with a job file, a folder of JSON files that a query reads one by one, and its checkpoints."""

    spark: SparkSession
    folder: Path

    @property
    def conf(self) -> Path:
        return self.folder / "job.yaml"

    def write_job(self, **changes: Any) -> None:
        settings = {
            "name": "events",
            "source": {"type": "stream"},
            "targets": [{"type": "delta", "path": f"{self.folder}/lake"}],
            "writer": {"lease_ttl": "3s"},
        }
        write_job(self.conf, settings | changes)

    def feed(self, *files: range) -> None:
        """Add a complete file for each range of ids."""
        logs = self.folder / "logs"
        logs.mkdir(exist_ok=True)
        for ids in files:
            rows = [
                {"id": number, "host": f"h{number % 3}", "ts": f"2026-03-01T00:00:{number % 60:02}Z"} for number in ids
            ]
            number = len(list(logs.iterdir()))
            path = self.folder / f"{number:03}.json"
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
            # Spark orders files by modification time.
            os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
            path.rename(logs / path.name)

    def rows(self) -> DataFrame:
        """Streaming rows; each file is a micro-batch."""
        reader = self.spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1)
        return reader.json(f"{self.folder}/logs")

    def start(self, rows: DataFrame | None = None, checkpoint: str = "checkpoint") -> StreamingQuery:
        """Start a query that ends after all available data."""
        writer = stream(self.rows() if rows is None else rows, self.conf)
        return writer.option("checkpointLocation", f"{self.folder}/{checkpoint}").trigger(availableNow=True).start()

    def run(self, rows: DataFrame | None = None, checkpoint: str = "checkpoint") -> None:
        self.start(rows, checkpoint).awaitTermination()

    def ids(self, table: str = "lake") -> Counter[int]:
        return Counter(DeltaTable(self.folder / table).to_pyarrow_table(columns=["id"])["id"].to_pylist())

    def timeline(self) -> Timeline:
        return Timeline.load(open_store(f"{self.folder}/lake"))

    def forget_commit(self, batch: int) -> None:
        """Remove a batch's commit, as if Spark crashed before logging the batch's end."""
        for name in (str(batch), f".{batch}.crc"):
            (self.folder / "checkpoint" / "commits" / name).unlink(missing_ok=True)


@pytest.fixture
def world(spark: SparkSession, tmp_path: Path) -> World:
    world = World(spark, tmp_path)
    world.write_job()
    return world


def once(*ids: range) -> Counter[int]:
    return Counter(number for each in ids for number in each)


def test_each_micro_batch_is_one_epoch_of_every_target(world: World) -> None:
    world.write_job(
        targets=[
            {"type": "delta", "path": f"{world.folder}/lake"},
            {"type": "delta", "path": f"{world.folder}/second", "name": "second"},
        ],
        partition_by=["date(ts)", "host"],
    )
    world.feed(range(0, 10), range(10, 25))
    world.run()
    world.feed(range(25, 30))
    world.run()
    assert world.ids() == world.ids("second") == once(range(30))
    assert DeltaTable(world.folder / "second").metadata().partition_columns == ["ts_date", "host"]
    commits = world.timeline().completed().by_action(Action.COMMIT)
    assert len(commits) == 3 and not len(world.timeline().pending())
    assert DeltaTable(world.folder / "lake").version() == 2


def test_names_and_types_arrive_as_the_query_has_them(world: World) -> None:
    world.feed(range(2))
    odd = (
        world.rows()
        .filter("id = 1")
        .select(
            F.col("id").alias("a.b"),
            F.col("ts").alias("At"),
            F.expr("timestamp_ntz'2026-03-29 02:30:00'").alias("wall"),
            F.expr("cast(1.5 as decimal(10,3))").alias("amount"),
            F.expr("map('k', array(named_struct('x y', id, 't', ts), null))").alias("deep"),
            F.expr("cast('é' as binary)").alias("raw"),
            F.expr("cast(null as int)").alias("none"),
        )
    )
    zone = world.spark.conf.get("spark.sql.session.timeZone")
    world.spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        world.run(odd)
    finally:
        world.spark.conf.set("spark.sql.session.timeZone", zone or "UTC")
    (row,) = DeltaTable(world.folder / "lake").to_pyarrow_table().to_pylist()
    at = datetime(2026, 3, 1, 0, 0, 1, tzinfo=UTC)
    assert (row["a.b"], row["At"], row["wall"]) == (1, at, datetime(2026, 3, 29, 2, 30))
    assert (str(row["amount"]), row["raw"], row["none"]) == ("1.500", "é".encode(), None)
    assert row["deep"] == [("k", [{"x y": 1, "t": at}, None])]


def test_a_row_with_an_empty_partition_value_is_quarantined_under_its_batch(world: World) -> None:
    world.write_job(partition_by=["host"])
    world.feed(range(10), range(10, 20))
    world.run(world.rows().withColumn("host", F.expr("IF(id % 4 = 1, '', host)")))
    assert world.ids() == once(*(range(number, number + 1) for number in range(20) if number % 4 != 1))
    refused = DeltaTable(world.folder / "lake_quarantine").to_pyarrow_table().to_pylist()
    assert {json.loads(row["raw"])["id"]: (row["shard"], row["offset"]) for row in refused} == {
        number: ("stream", number // 10) for number in range(1, 20, 4)
    }
    assert len(refused) == 5 and all(row["target"] == f"delta:{world.folder}/lake" for row in refused)


def test_a_batch_without_rows_is_an_epoch_and_moves_the_offsets(world: World) -> None:
    world.feed(range(3))
    world.run(world.rows().filter(F.lit(False)))
    world.feed(range(3, 6))
    world.run(world.rows().filter("id > 99"))
    world.feed(range(6, 9))
    world.run()
    assert world.ids() == once(range(6, 9))
    assert len(world.timeline().completed().by_action(Action.COMMIT)) == 3


def test_a_batch_that_spark_runs_again_is_skipped(world: World) -> None:
    world.feed(range(5), range(5, 9))
    world.run()
    world.forget_commit(1)
    world.feed(range(9, 12))
    world.run()
    assert world.ids() == once(range(12))


def test_a_lost_checkpoint_is_refused_with_the_range_in_doubt_and_nothing_is_written(world: World) -> None:
    world.feed(range(5), range(5, 9))
    world.run()
    before = world.timeline().instants
    with pytest.raises(SourceChangedError) as refused:
        world.run(checkpoint="other")
    assert 'from the query\'s beginning to {"logOffset":0}' in str(refused.value)
    assert 'stands at {"logOffset":1} of another query' in str(refused.value)
    assert world.timeline().instants == before
    with pytest.raises(ConfigError, match=r"with the checkpoint of query .* only"):
        starting_offsets(world.conf)
    world.feed(range(9, 12))
    world.run()
    assert world.ids() == once(range(12))


def test_a_query_with_state_goes_on_with_its_checkpoint_only(world: World) -> None:
    def counted() -> DataFrame:
        window = F.window("ts", "5 seconds").alias("w")
        return world.rows().withWatermark("ts", "0 seconds").groupBy(window).agg(F.count("*").alias("rows"))

    def seconds() -> list[tuple[int, int]]:
        table = DeltaTable(world.folder / "lake").to_pyarrow_table().to_pylist()
        return sorted((row["w"]["start"].second, row["rows"]) for row in table)

    world.feed(range(0, 10))
    world.run(counted())
    assert seconds() == [(0, 5)], "the second batch has no records: its rows come out as the watermark moves"
    world.feed(range(10, 20))
    world.forget_commit(1)
    world.run(counted())
    assert seconds() == [(0, 5), (5, 5), (10, 5)]
    with pytest.raises(SourceChangedError, match="of another query"):
        world.run(counted(), checkpoint="other")


def test_a_row_that_spark_cannot_make_fails_the_query_and_the_next_start_goes_on(world: World) -> None:
    world.feed(range(5), range(5, 9))
    broken = world.rows().withColumn("host", F.expr("if(id = 7, raise_error('seven'), host)"))
    with pytest.raises(SparkJobError, match="USER_RAISED_EXCEPTION"):
        world.run(broken)
    assert world.ids() == once(range(5))
    assert not len(world.timeline().pending())
    world.run()
    assert world.ids() == once(range(9))


def slow(world: World) -> DataFrame:
    """Rows whose tasks create ``begun``, then wait for ``go-on`` to exist."""
    begun, go_on = str(world.folder / "begun"), str(world.folder / "go-on")

    def wait(number: int) -> int:
        Path(begun).touch()
        while not Path(go_on).exists():
            time.sleep(0.02)
        return number

    return world.rows().withColumn("id", F.udf(wait, "bigint", useArrow=False)("id"))


def test_stop_rolls_the_open_epoch_back_and_is_no_failure(world: World) -> None:
    world.feed(range(5))
    query = world.start(slow(world))
    wait_until((world.folder / "begun").exists, "the query has begun")
    query.stop()
    assert query.awaitTermination() is not False and not query.isActive
    assert not len(world.timeline().pending())
    (rollback,) = shown_instants(world.timeline().history())
    assert rollback.outcome == "rollback" and "stopped while the batch was worked on" in str(rollback.note)
    world.run()
    assert world.ids() == once(range(5))


def test_a_query_that_was_taken_over_in_the_middle_of_a_batch_is_fenced_and_writes_nothing(world: World) -> None:
    world.feed(range(5))
    query = world.start(slow(world))
    wait_until((world.folder / "begun").exists, "the query has begun")
    (settled,) = run_recovery(open_timeline(load_config(world.conf)), force=True).settled
    (world.folder / "go-on").touch()
    with pytest.raises(FencedError):
        query.awaitTermination()
    assert settled.is_done and not (world.folder / "lake" / "_delta_log").exists()
    world.run()
    assert world.ids() == once(range(5))
    files = {path.name for path in (world.folder / "lake").rglob("*-0_*.parquet")}
    assert files == {Path(uri).name for uri in DeltaTable(world.folder / "lake").file_uris()}


def test_what_spark_writes_into_a_checkpoint_is_what_is_read_from_it(world: World) -> None:
    world.feed(range(5), range(5, 9))
    world.run()
    first, second = (read_batch(HadoopFiles(world.spark, f"file://{world.folder}/checkpoint"), n) for n in (0, 1))
    assert first.start.sources == (None,) and first.end.sources == ({"logOffset": 0},)
    assert second.start == first.end and second.end.sources == ({"logOffset": 1},)
    written = json.loads((world.folder / "checkpoint" / "metadata").read_text())
    assert first.end.query == written["id"] and not first.end.is_stateful


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows: rows.withColumn("gap", F.expr("interval 1 day")), "column 'gap' is interval day"),
        (lambda rows: rows.drop("host"), "host: the query has no such column, wanted is string"),
        (lambda rows: rows.withColumn("id", F.col("id").cast("int")), "id: the query has int, wanted is bigint"),
    ],
    ids=["a type that no target has", "a column less", "another type"],
)
def test_columns_that_do_not_fit_are_refused_before_the_query_starts(
    world: World, change: Callable[[DataFrame], DataFrame], message: str
) -> None:
    world.write_job(schema={"id": "bigint", "host": "string", "ts": "timestamp"})
    world.feed(range(1))
    with pytest.raises(ConfigError, match=message):
        world.start(change(world.rows()))
    assert not world.spark.streams.active


def test_a_query_without_a_checkpoint_location_is_refused(world: World) -> None:
    world.feed(range(1))
    with pytest.raises(ConfigError, match="checkpointLocation"):
        stream(world.rows(), world.conf).start()


def test_what_is_no_stream_is_refused(world: World) -> None:
    world.feed(range(1))
    with pytest.raises(ConfigError, match="not a streaming one"):
        stream(world.spark.range(1), world.conf)
    world.write_job(source={"type": "files", "path": "logs", "format": "json"})
    with pytest.raises(ConfigError, match=r"source\.type files"):
        stream(world.rows(), world.conf)


def test_a_timeline_of_another_source_is_refused_and_released(world: World) -> None:
    world.feed(range(3))
    world.run()
    store = open_store(f"{world.folder}/lake")
    (path,) = [info.path for info in store.list(".hoodie/decisions")]
    decision = json.loads(store.get(path))
    decision["positions"] = {"a.jsonl": {"offset": 5, "detail": {}}}
    (world.folder / "lake" / path).write_text(json.dumps(decision))
    for _ in range(2):
        with pytest.raises(TidelineError, match="written from another source"):
            world.start()


CRASHES = ("manifest", "decided", "part-released:3")
"""Between a batch's rows and Spark's log of its end. The next start commits the first epoch and completes the second;
the third (``:3`` follows the two parts that this recovery releases) needs nothing more."""


@pytest.mark.timeout(900)
def test_a_driver_killed_before_spark_logs_a_batch_goes_on_exactly(world: World) -> None:
    world.feed(*(range(number * 10, number * 10 + 10) for number in range(4)))
    query = Query(
        conf=str(world.conf),
        checkpoint=f"{world.folder}/checkpoint",
        source="json",
        options={"path": f"{world.folder}/logs", "maxFilesPerTrigger": "1"},
        columns=["id", "host", "ts"],
        schema=COLUMNS,
    )
    for point in CRASHES:
        with stream_driver(crash_at=point) as driver:
            assert driver.run(query) is None, f"not killed at {point}"
            assert driver.process.wait(timeout=WAIT_S) == -signal.SIGKILL
    with stream_driver() as driver:
        assert driver.run(query) == Answer()
    assert world.ids() == once(range(40))
    assert len(world.timeline().completed().by_action(Action.COMMIT)) == len(world.timeline()) == 4
    files = {path.name for path in (world.folder / "lake").rglob("*-0_*.parquet")}
    assert files == {Path(uri).name for uri in DeltaTable(world.folder / "lake").file_uris()}
