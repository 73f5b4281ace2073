"""A target that writes rows in the reading task and refuses some: refused rows are quarantined, others written."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest

from ingest.check_store.numbers import NUMBER_SCHEMA, NumberDecoder, NumberSource
from ingest.driver.epoch import Pipeline
from ingest.execution.runner import LocalRunner
from ingest.execution.task import Outputs, TaskReport, merge_counts
from ingest.protocol.counts import check_counts
from sinks.base import REJECTED_SCHEMA, KeyedWriter, PartitionWriter, SelectiveWriter, TaskAttempt
from sinks.memory import MemorySink
from tests.keyed_sink import KeyedSink, KeyRules
from timeline.epoch import EpochRef, OffsetRange, Plan, WriteReport
from timeline.errors import DataError
from timeline.stores.opening import open_store

REF = EpochRef(7, "20260101000000000", 1)
RANGES = (OffsetRange("a", 0, 30), OffsetRange("b", 0, 20))


class Placeless(NumberSource):
    """A source whose decoder has to be asked for offsets."""

    def decoder(self, schema: pa.Schema, *, lineage: bool) -> NumberDecoder:
        assert lineage, "rows that a target refuses need their places"
        return super().decoder(schema, lineage=lineage)


@dataclass
class OddOnly:
    """Takes odd numbers.

    Attributes:
        taken: numbers that any attempt took.
        stops_at: a number that stops the job.
        ended: "closed" or "aborted", for each attempt.
    """

    taken: list[int] = field(default_factory=list)
    stops_at: int = -1
    ended: list[str] = field(default_factory=list)

    def open_selective(self, attempt: TaskAttempt) -> OddOnlyBatches:
        return OddOnlyBatches(self)


class OddOnlyBatches:
    def __init__(self, target: OddOnly) -> None:
        self._target = target
        self._rows = self._rejected = 0

    def take(self, rows: pa.RecordBatch, shard: str, offsets: pa.Array) -> pa.RecordBatch:
        numbers = rows.column(0).to_pylist()
        if self._target.stops_at in numbers:
            raise DataError(f"cannot take {self._target.stops_at}")
        odd = [number for number in numbers if number % 2]
        self._target.taken += odd
        even = [place for place, number in enumerate(numbers) if not number % 2]
        self._rows += len(odd)
        self._rejected += len(even)
        refused = [
            {"shard": shard, "offset": offsets[place].as_py(), "reason": "even", "raw": b"%d" % numbers[place]}
            for place in even
        ]
        return pa.RecordBatch.from_pylist(refused, REJECTED_SCHEMA)

    def close(self) -> WriteReport:
        self._target.ended.append("closed")
        return WriteReport(self._rows, 0, rejected=self._rejected)

    def abort(self) -> None:
        self._target.ended.append("aborted")


@dataclass(frozen=True)
class World:
    """A plain target, one that refuses even numbers, optionally one with keys, and a quarantine."""

    folder: Path
    has_keyed: bool
    odd: OddOnly = field(default_factory=OddOnly)

    def sink(self, name: str) -> MemorySink:
        return MemorySink(name, "a" * 32, open_store(f"{self.folder}/{name}"))

    @property
    def plan(self) -> Plan:
        return Plan(REF, "job", "me", RANGES, (), {}, "token")

    def run(self) -> list[TaskReport]:
        """Write an epoch of two shards, in which multiples of 10 cannot be decoded."""
        begun: dict[str, PartitionWriter | SelectiveWriter | KeyedWriter] = {
            "plain": self.sink("plain").begin(self.plan),
            "odd": self.odd,
            "bad": self.sink("bad").begin(self.plan),
        }
        if self.has_keyed:
            begun["keyed"] = KeyedSink.at(f"{self.folder}/keyed", "keyed", KeyRules()).begin(self.plan)
        pipeline = Pipeline(Placeless({}, bad_every=10), NUMBER_SCHEMA, False, LocalRunner())
        return list(pipeline.write(self.plan, Outputs.of(begun, "bad"), threading.Event()))

    def rows(self, name: str, reports: Mapping[str, list[WriteReport]]) -> pa.Table:
        sink = self.sink(name)
        sink.commit(sink.prepare(REF, reports[name]))
        return sink.read()


@pytest.fixture(params=[False, True], ids=["alone", "beside-a-target-with-keys"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    return World(tmp_path, request.param)


def by_target(reports: list[TaskReport]) -> dict[str, list[WriteReport]]:
    found: dict[str, list[WriteReport]] = {}
    for report in reports:
        for name, written in (report.reports or {}).items():
            found.setdefault(name, []).append(written)
    return found


def test_rows_that_a_target_refuses_are_quarantined_with_their_places_and_all_rows_add_up(world: World) -> None:
    reports = world.run()
    written = by_target(reports)
    check_counts(world.plan, "bad", merge_counts(reports), written)
    assert world.odd.ended == ["closed"] * sum(bool(report.counts) for report in reports), "opened where rows are read"
    assert sorted(world.odd.taken) == sorted([*range(1, 30, 2), *range(1, 20, 2)])
    plain = world.rows("plain", written)["number"].to_pylist()
    assert sorted(plain) == sorted(number for end in (30, 20) for number in range(end) if number % 10)
    refused = [row for row in world.rows("bad", written).to_pylist() if row["target"] == "odd"]
    assert sorted((row["shard"], row["offset"]) for row in refused) == [
        (shard, number) for shard, end in (("a", 30), ("b", 20)) for number in range(0, end, 2) if number % 10
    ]
    assert {(row["epoch"], row["reason"]) for row in refused} == {(7, "even")}
    assert all(row["raw"] == b"%d" % row["offset"] for row in refused)


def test_row_that_stops_the_job_ends_the_task_and_every_writer(world: World) -> None:
    world.odd.stops_at = 11
    failures = [report.failure for report in world.run()]
    assert ("DataError", "cannot take 11") in failures
    assert "aborted" in world.odd.ended and "closed" not in world.odd.ended
