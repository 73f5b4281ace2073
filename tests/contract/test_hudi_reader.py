"""Hudi's own reader (hudi-rs) reads a table that the protocol wrote: exactly the committed rows, and its instants."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from hudi import HudiInstant, HudiReadOptions, HudiTableBuilder

from ingest.check_store.numbers import NumberDecoder, NumberReader, NumberSource
from ingest.driver.epoch import NextEpoch, Pipeline, run_epoch
from ingest.execution.runner import LocalRunner
from ingest.execution.task import Outputs, TaskSpec, run_task
from ingest.protocol.job import JobContext
from ingest.protocol.recovery import recover
from ingest.protocol.steps import claim_rollback, open_instant
from ingest.sources.base import Block, Decoded
from sinks.avro_schema import avro_schema
from sinks.base import REJECTED_SCHEMA, SinkContext, TaskAttempt
from sinks.delta.sink import DeltaOptions, DeltaSink
from sinks.partition import PartitionField, Transform, partitioned_schema
from sinks.sql_types import type_name
from tests.fakes import EmptySink
from timeline.active import ActiveTimeline
from timeline.chain import Chain, load_chain
from timeline.epoch import Plan
from timeline.hudi.layout import PROPERTIES_PATH, TableIdentity, create_identity
from timeline.instant import commit_inflight
from timeline.lease import LeaseObserver, WriterLease, take_lease
from timeline.stores.base import Retry
from timeline.stores.opening import open_store

SCHEMA = pa.schema([("number", pa.int64()), ("city", pa.string()), ("ts", pa.timestamp("us", "UTC"))])

CITIES = ("Ulm", "New York", "a=b", "100%", "50%25", "x/y", "Zürich", "東京", "q?#&+", "{[^]}'\":*\\", "a,b;c", None)
"""Partition values whose folder names must be escaped, or look escaped."""

START = datetime(2024, 2, 28, 23, 0, tzinfo=UTC)

Row = tuple[int, str | None, datetime]


def row(number: int) -> Row:
    """The row with this number: the next city in turn, one hour later."""
    return number, CITIES[number % len(CITIES)], START + timedelta(hours=number)


@dataclass(frozen=True)
class RowDecoder(NumberDecoder):
    """Decodes each number as a row."""

    bad_every: int = 0

    def decode(self, block: Block) -> Decoded:
        numbers = range(block.start, block.start + block.rows)
        rows = [row(number) for number in numbers]
        accepted = pa.RecordBatch.from_pylist([dict(zip(SCHEMA.names, values, strict=True)) for values in rows], SCHEMA)
        offsets = pa.array(numbers, pa.int64())
        return Decoded(accepted, offsets, pa.RecordBatch.from_pylist([], REJECTED_SCHEMA))


@dataclass(frozen=True)
class RowSource(NumberSource):
    """Numbers as rows of `SCHEMA`."""

    def decoder(self, schema: pa.Schema, *, lineage: bool) -> RowDecoder:
        return RowDecoder()


@dataclass
class World:
    """A job over one Delta table whose folder is also the timeline's base path."""

    path: Path
    job: JobContext
    lease: WriterLease

    @classmethod
    def create(cls, path: Path, name: str, partition_by: tuple[PartitionField, ...]) -> World:
        store = open_store(str(path))
        wanted = TableIdentity(
            timeline_id="0" * 32,
            name=name,
            schema={field.name: type_name(field.type) for field in SCHEMA},
            avro_schema=avro_schema(name, partitioned_schema(SCHEMA, partition_by)),
            partition_columns=tuple(field.column for field in partition_by),
        )
        identity = create_identity(store, wanted, Retry())
        options = DeltaOptions(type="delta", name="table", path=str(path))
        sink = DeltaSink.open(options, SinkContext("tideline-0", SCHEMA, partition_by))
        job = JobContext(name, store, identity, (sink, EmptySink()), "quarantine", "table", "a test")
        lease = take_lease(LeaseObserver(store, Retry()), job=name, ttl_ms=60_000)
        return cls(path, job, lease)

    @property
    def chain(self) -> Chain:
        return load_chain(self.job.store, ActiveTimeline.load(self.job.store), Retry())

    def commit(self, until: int) -> None:
        """Commit one more epoch, up to this number."""
        source = RowSource({"a": until}, most=until)
        pipeline = Pipeline(source, SCHEMA, False, LocalRunner())
        chain = self.chain
        run_epoch(
            self.job,
            pipeline,
            NextEpoch(chain, source.plan(chain.positions).ranges),
            self.lease,
            stop=threading.Event(),
        )

    def leave_written(self, until: int) -> Plan:
        """Leave an epoch whose writer died before the prepare: its data files exist, and nothing is decided."""
        source = RowSource({"a": until}, most=until)
        chain = self.chain
        ranges = source.plan(chain.positions).ranges
        plan = open_instant(self.job, chain, self.lease, ranges)
        table, quarantine = self.job.sinks
        spec = TaskSpec(
            ranges=ranges,
            reader=NumberReader(),
            decoder=RowDecoder(),
            outputs=Outputs.of({sink.target: sink.begin(plan) for sink in (table, quarantine)}, quarantine.target),
            epoch=plan.ref.epoch,
            lineage=False,
        )
        assert run_task(spec, TaskAttempt(0, 0, 0)).failure is None
        return plan

    def read(self, filters: Sequence[tuple[str, str, str]] = ()) -> list[Row]:
        """The rows that hudi-rs reads, by number."""
        table = HudiTableBuilder.from_base_uri(str(self.path)).build()
        batches = table.read(HudiReadOptions(filters=list(filters)) if filters else None)
        rows = [tuple(found[name] for name in SCHEMA.names) for batch in batches for found in batch.to_pylist()]
        return sorted(rows, key=lambda found: found[0])

    def instants(self) -> list[HudiInstant]:
        """Completed commits as hudi-rs lists them."""
        table = HudiTableBuilder.from_base_uri(str(self.path)).build()
        commits: list[HudiInstant] = table.get_timeline().get_completed_commits()
        return commits


LAYOUTS = {
    "unpartitioned": (),
    "by-city": (PartitionField("city"),),
    "by-date": (PartitionField("ts", Transform.DATE),),
    "by-date-and-city": (PartitionField("ts", Transform.DATE), PartitionField("city")),
    "by-hour": (PartitionField("ts", Transform.HOUR),),
}


def expected(until: int) -> list[Row]:
    return [row(number) for number in range(until)]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_hudi_reads_exactly_the_committed_rows(layout: str, tmp_path: Path) -> None:
    world = World.create(tmp_path, "cities", LAYOUTS[layout])
    world.commit(12)
    world.commit(30)
    assert world.read() == expected(30)


@pytest.mark.parametrize("layout", ["unpartitioned", "by-date-and-city"])
def test_hudi_hides_an_epoch_until_it_is_completed_and_after_it_is_rolled_back(layout: str, tmp_path: Path) -> None:
    world = World.create(tmp_path, "cities", LAYOUTS[layout])
    world.commit(12)
    plan = world.leave_written(30)
    assert [path for path in tmp_path.rglob(f"*_{plan.ref.instant}.parquet")], "its data files are there"
    assert world.read() == expected(12)
    recover(world.job, world.lease)
    assert not list(tmp_path.rglob(f"*_{plan.ref.instant}.parquet"))
    assert world.read() == expected(12)
    world.commit(20)
    assert world.read() == expected(20)


def test_hudi_hides_data_files_of_an_epoch_that_was_decided_against_but_not_deleted_yet(tmp_path: Path) -> None:
    world = World.create(tmp_path, "cities", ())
    world.commit(3)
    plan = world.leave_written(6)
    claim_rollback(world.job, plan.ref, 1, "a test")
    assert (tmp_path / commit_inflight(plan.ref.instant).path).exists()
    assert world.read() == expected(3)


@pytest.mark.parametrize("city", [city for city in CITIES if city is not None])
def test_hudi_finds_a_partition_by_its_value_however_its_folder_is_escaped(city: str, tmp_path: Path) -> None:
    world = World.create(tmp_path, "cities", LAYOUTS["by-city"])
    world.commit(2 * len(CITIES))
    assert world.read([("city", "=", city)]) == [found for found in expected(2 * len(CITIES)) if found[1] == city]


def test_hudi_finds_a_partition_by_its_date(tmp_path: Path) -> None:
    world = World.create(tmp_path, "cities", LAYOUTS["by-date"])
    world.commit(30)
    day = date(2024, 2, 29)
    found = world.read([("ts_date", "=", day.isoformat())])
    assert found == [each for each in expected(30) if each[2].date() == day]


def test_hudi_lists_the_instants_and_reads_their_bodies(tmp_path: Path) -> None:
    world = World.create(tmp_path, "cities", LAYOUTS["by-city"])
    world.commit(3)
    world.leave_written(9)
    recover(world.job, world.lease)
    world.commit(5)
    ours = [
        instant.time for instant in ActiveTimeline.load(world.job.store).completed() if instant.action.value == "commit"
    ]
    table = HudiTableBuilder.from_base_uri(str(tmp_path)).build()
    theirs = world.instants()
    assert [instant.timestamp for instant in theirs] == ours
    bodies = [json.loads(table.get_timeline().get_instant_metadata_in_json(instant)) for instant in theirs]
    assert [body["extraMetadata"]["tideline.epoch"] for body in bodies] == ["0", "2"]
    written = [stat for body in bodies for stats in body["partitionToWriteStats"].values() for stat in stats]
    assert sum(stat["numWrites"] for stat in written) == 5
    assert all((tmp_path / stat["path"]).stat().st_size == stat["fileSizeInBytes"] for stat in written)


def test_hudi_sees_the_columns_and_partition_columns(tmp_path: Path) -> None:
    world = World.create(tmp_path, "cities", LAYOUTS["by-date-and-city"])
    world.commit(3)
    table = HudiTableBuilder.from_base_uri(str(tmp_path)).build()
    assert table.get_schema().names == [*SCHEMA.names, "ts_date"]
    assert table.get_partition_schema().names == ["ts_date", "city"]
    assert (table.table_name, table.table_type, table.timezone) == ("cities", "COPY_ON_WRITE", "utc")


def test_hudi_reads_a_table_before_its_first_commit(tmp_path: Path) -> None:
    world = World.create(tmp_path, "cities", ())
    assert world.read() == []
    world.leave_written(3)
    assert world.read() == []


def test_hudi_reads_a_table_whose_name_and_columns_are_not_ascii(tmp_path: Path) -> None:
    world = World.create(tmp_path, "Züge = 東京: \\n", LAYOUTS["by-city"])
    assert (tmp_path / PROPERTIES_PATH).read_bytes().isascii()
    world.commit(3)
    assert world.read() == expected(3)
