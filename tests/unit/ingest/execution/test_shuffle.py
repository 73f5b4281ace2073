"""Rows with keys reach the one task that writes their key, all or none of them, and every row is accounted for."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from ingest.check_store.numbers import NUMBER_SCHEMA, NumberDecoder, NumberReader, NumberSource
from ingest.driver.epoch import Pipeline
from ingest.execution.runner import LocalRunner
from ingest.execution.shuffle import (
    CHUNK_BYTES,
    HELD_BYTES,
    BucketBuffer,
    Chunk,
    ShuffleConfig,
    ShuffleMessage,
    TaskOutcome,
    exchange_here,
    receive,
    send,
)
from ingest.execution.task import QUARANTINE_SCHEMA, Outputs, TaskReport, TaskSpec, error_of
from sinks.base import PartitionWriter, TaskAttempt
from sinks.memory import MemorySink
from tests.keyed_sink import STAGED_SCHEMA, FakeKeyedWriter, KeyedSink, KeyRules
from timeline.epoch import EpochRef, OffsetRange, Part, Plan, WriteReport
from timeline.errors import (
    DataError,
    RangeGoneError,
    StoppedError,
    TargetBusyError,
    TargetRefusedError,
    TidelineError,
)
from timeline.stores.opening import open_store

REF = EpochRef(7, "20260101000000000", 1)


@dataclass(frozen=True)
class World:
    """A plain target, one with keys and a quarantine, in a folder of their own."""

    folder: Path
    rules: KeyRules = field(default_factory=KeyRules)

    @property
    def plain(self) -> MemorySink:
        return MemorySink("plain", "a" * 32, open_store(f"{self.folder}/plain"))

    @property
    def keyed(self) -> KeyedSink:
        return KeyedSink.at(f"{self.folder}/keyed", "keyed", self.rules)

    @property
    def quarantine(self) -> MemorySink:
        return MemorySink("quarantine", "a" * 32, open_store(f"{self.folder}/quarantine"))

    @property
    def outputs(self) -> Outputs:
        plan = Plan(REF, "numbers", "me", (), ("plain", "keyed", "quarantine"), {}, "token")
        begun = {sink.target: sink.begin(plan) for sink in (self.plain, self.keyed, self.quarantine)}
        return Outputs.of(begun, "quarantine")

    def specs(self, *tasks: Sequence[tuple[int, int]], bad_every: int = 0) -> list[TaskSpec]:
        """A task for each sequence of ranges of numbers; each range is one block of a shard."""
        return [
            TaskSpec(
                tuple(OffsetRange(f"shard-{number}", start, until) for start, until in ranges),
                NumberReader(),
                NumberDecoder(bad_every),
                self.outputs,
                REF.epoch,
                False,
            )
            for number, ranges in enumerate(tasks)
        ]

    def commit(self, reports: Sequence[TaskReport]) -> dict[str, Part]:
        """Prepare and commit every target, as the protocol does."""
        parts: dict[str, Part] = {}
        for sink in (self.plain, self.keyed, self.quarantine):
            each = [report.reports or {} for report in reports]
            written = [written[sink.target] for written in each if sink.target in written]
            parts[sink.target] = sink.prepare(REF, written)
            sink.commit(parts[sink.target])
        return parts

    def files(self, target: str) -> list[str]:
        return [path.name for path in (self.folder / target).rglob("*.arrow")]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def run(specs: Sequence[TaskSpec]) -> list[TaskReport]:
    return list(LocalRunner().run(specs, threading.Event()))


def attempt(stage: int, task: int) -> TaskAttempt:
    return TaskAttempt(task, stage, 0)


def keys_by_bucket(messages: Sequence[ShuffleMessage], buckets: int) -> list[set[bytes]]:
    found: list[set[bytes]] = [set() for _ in range(buckets)]
    for bucket, content in messages:
        if isinstance(content, Chunk):
            found[bucket] |= set(pa.ipc.open_stream(content.body).read_all()["key"].to_pylist())
    return found


def test_all_rows_of_a_key_reach_the_same_bucket_from_every_task(world: World) -> None:
    specs = world.specs([(0, 50), (50, 100)], [(100, 200)], [(200, 230)])
    messages = [
        message for task, spec in enumerate(specs) for message in send(spec, attempt(0, task), task, ShuffleConfig(3))
    ]
    buckets = keys_by_bucket(messages, 3)
    assert sum(len(keys) for keys in buckets) == len(set().union(*buckets)) == 10
    assert min(len(keys) for keys in buckets) > 0


def test_of_each_key_one_row_is_written_whichever_task_read_it(world: World) -> None:
    reports = run(world.specs([(200, 230)], [(0, 50), (50, 100)], [(100, 200)], [(230, 233)]))
    world.commit(reports)
    assert world.keyed.read() == {key: next(n for n in range(232, 0, -1) if n % 10 == key) for key in range(10)}
    assert sorted(world.plain.read()["number"].to_pylist()) == list(range(233))


@pytest.mark.parametrize("buckets", [1, 2, 7])
def test_rows_written_dropped_and_rejected_add_up_however_many_buckets_there_are(tmp_path: Path, buckets: int) -> None:
    world = World(tmp_path, KeyRules(keys=100, never=frozenset({3, 4}), taken=frozenset({5})))
    specs = world.specs([(0, 500)], [(500, 700), (700, 1000)], bad_every=11)
    reports = exchange_here(specs, ShuffleConfig(buckets), attempt)
    parts = world.commit(reports)
    accepted = sum(count.accepted for report in reports for count in report.counts)
    undecodable = sum(count.rejected for report in reports for count in report.counts)
    keyed = parts["keyed"]
    assert (accepted + undecodable, undecodable) == (1000, 91)
    assert keyed.rows == len(world.keyed.read()) == 97
    assert keyed.rows + keyed.dropped + keyed.rejected == accepted == parts["plain"].rows
    assert parts["quarantine"].rows == undecodable + keyed.rejected
    assert len(reports) == 2 + buckets
    assert [len(report.counts) for report in reports] == [1, 2] + [0] * buckets


def test_buckets_with_rows_of_several_attempts_at_a_task_add_up(world: World) -> None:
    # A retried task may read the same records in other blocks, and so drop other duplicates before the shuffle.
    shuffle, ranges = ShuffleConfig(3), ([(0, 30), (30, 100)], [(0, 100)])
    first, second = ([*send(world.specs(each)[0], attempt(0, 0), 0, shuffle)] for each in ranges)
    reports = [content.report for place, content in first if isinstance(content, TaskOutcome)]
    for bucket in range(shuffle.buckets):
        with BucketBuffer() as buffer:
            for place, content in second if bucket == 1 else first:
                if place == bucket:
                    buffer.put(content)
            reports.append(receive(buffer, world.outputs, REF.epoch, attempt(1, bucket)))
    keyed = world.commit(reports)["keyed"]
    assert (keyed.rows, keyed.dropped) == (10, 90)


def test_rows_that_the_target_refuses_are_in_the_quarantine_once_with_their_place(tmp_path: Path) -> None:
    world = World(tmp_path, KeyRules(never=frozenset({3}), taken=frozenset({5})))
    world.commit(run(world.specs([(0, 10)], [(10, 16)])))
    table = world.quarantine.read()
    assert table.schema.names == QUARANTINE_SCHEMA.names
    assert sorted(tuple(row.values()) for row in table.to_pylist()) == [
        (7, "shard-0", 3, "never", b"3", None, "keyed"),
        (7, "shard-0", 5, "taken", b"5", None, "keyed"),
        (7, "shard-1", 13, "never", b"13", None, "keyed"),
        (7, "shard-1", 15, "taken", b"15", None, "keyed"),
    ]
    assert set(world.keyed.read()) == set(range(10)) - {3, 5}


@pytest.mark.parametrize("failing", [5, 25])
def test_no_bucket_writes_where_one_reading_task_failed_for_good(tmp_path: Path, failing: int) -> None:
    world = World(tmp_path, KeyRules(fail_at=failing, error=DataError))
    reports = run(world.specs([(0, 10)], [(10, 20)], [(20, 30)]))
    failures = [report.failure for report in reports]
    assert ("DataError", f"cannot stage {failing}") in failures[:3]
    assert failures[3:] == [("DataError", f"cannot stage {failing}")] * 3
    assert not world.files("keyed")
    assert len(world.files("plain")) == 2


@pytest.mark.parametrize("error", [DataError, RangeGoneError, TargetBusyError, TargetRefusedError])
def test_an_error_in_settle_that_no_retry_mends_is_reported_by_its_bucket(
    tmp_path: Path, error: type[TidelineError]
) -> None:
    world = World(tmp_path, KeyRules(fail_settle=5, error=error))
    reports = run(world.specs([(0, 10)], [(10, 20)]))
    (failure,) = [report.failure for report in reports if report.failure]
    assert failure == (error.__name__, "cannot settle 5")
    assert type(error_of(failure)) is error and str(error_of(failure)) == "cannot settle 5"


def test_an_error_in_settle_that_a_retry_may_mend_is_raised_for_the_engine(tmp_path: Path) -> None:
    world = World(tmp_path, KeyRules(fail_settle=5, error=OSError))
    with pytest.raises(OSError, match="cannot settle 5"):
        run(world.specs([(0, 10)], [(10, 20)]))


@dataclass
class Witness:
    """A writer that records its calls."""

    said: list[str] = field(default_factory=list)

    def open(self, attempt: TaskAttempt) -> Witness:
        self.said.append("open")
        return self

    def write(self, batch: pa.RecordBatch) -> None:
        self.said.append("write")

    def close(self) -> WriteReport:
        self.said.append("close")
        return WriteReport(0, 0)

    def abort(self) -> None:
        self.said.append("abort")


def test_a_reading_task_that_is_given_up_removes_what_it_wrote(world: World) -> None:
    witness = Witness()
    keyed: PartitionWriter | FakeKeyedWriter = FakeKeyedWriter(witness, KeyRules())
    outputs = Outputs.of({"plain": witness, "keyed": keyed, "quarantine": witness}, "quarantine")
    spec = TaskSpec((OffsetRange("a", 0, 10),), NumberReader(), NumberDecoder(0), outputs, 7, False)
    messages = send(spec, attempt(0, 0), 0, ShuffleConfig(2, chunk_bytes=1))
    assert isinstance(next(messages)[1], Chunk)
    assert witness.said == ["open", "open", "write"]
    messages.close()
    assert witness.said == ["open", "open", "write", "abort", "abort"]


def test_what_a_reading_task_writes_is_durable_before_it_reports(world: World) -> None:
    *chunks, (place, outcome) = send(world.specs([(0, 10)])[0], attempt(0, 4), 4, ShuffleConfig(2))
    assert place == 2 and isinstance(outcome, TaskOutcome) and outcome.task == 4
    assert outcome.report.reports is not None
    plain = outcome.report.reports["plain"]
    assert outcome.report.reports == {"plain": plain, "quarantine": WriteReport(0, 0), "keyed": WriteReport(0, 0)}
    assert plain.rows == 10
    assert len(world.files("plain")) == 1
    assert all(isinstance(content, Chunk) for _, content in chunks)


def test_rows_travel_in_chunks_of_bounded_size_and_leave_as_soon_as_one_is_full(world: World) -> None:
    spec = World(world.folder, KeyRules(keys=10**6)).specs([(n, n + 1000) for n in range(0, 20_000, 1000)])[0]
    shuffle = ShuffleConfig(2, chunk_bytes=20_000)
    read_when_sent: list[int] = []
    rows = 0
    for place, content in send(spec, attempt(0, 0), 0, shuffle):
        if isinstance(content, Chunk) and place < shuffle.buckets:
            batch = pa.ipc.open_stream(content.body).read_next_batch()
            assert batch.schema == STAGED_SCHEMA
            assert batch.nbytes <= shuffle.chunk_bytes * 1.1
            rows += batch.num_rows
            read_when_sent.append(max(batch["value"].to_pylist()))
    assert rows == 20_000
    assert len(read_when_sent) > 10
    assert read_when_sent[0] < 2000


class SkewedWriter(FakeKeyedWriter):
    """Every hundredth row of a block goes to the last bucket, all others to the first."""

    def buckets(self, staged: pa.RecordBatch, count: int) -> npt.NDArray[np.int32]:
        return np.where(np.arange(staged.num_rows) % 100 == 0, count - 1, 0).astype(np.int32)


def most_allocated(shuffle: ShuffleConfig) -> int:
    """Peak of Arrow's memory, in bytes, while a task sends 50 blocks of about 35 kB each."""
    witness = Witness()
    outputs = Outputs((), ("quarantine", witness), (("keyed", SkewedWriter(witness, KeyRules(keys=10**6))),))
    ranges = tuple(OffsetRange("a", start, start + 1000) for start in range(0, 50_000, 1000))
    before, most = pa.total_allocated_bytes(), 0
    for _ in send(TaskSpec(ranges, NumberReader(), NumberDecoder(0), outputs, 7, False), attempt(0, 0), 0, shuffle):
        most = max(most, pa.total_allocated_bytes() - before)
    return most


def test_few_rows_that_wait_for_long_keep_no_rows_of_other_buckets_in_memory() -> None:
    assert most_allocated(ShuffleConfig(2, chunk_bytes=40_000)) < 400_000


def test_many_buckets_that_all_have_little_hold_no_more_than_is_allowed_together() -> None:
    assert most_allocated(ShuffleConfig(2, chunk_bytes=10**7)) > 1_000_000
    assert most_allocated(ShuffleConfig(2, chunk_bytes=10**7, held_bytes=100_000)) < 500_000


def test_a_bucket_buffer_gives_back_chunks_from_memory_and_from_its_file_as_they_were_read_not_as_they_came(
    tmp_path: Path,
) -> None:
    def chunk(number: int) -> Chunk:
        buffer = pa.BufferOutputStream()
        batch = pa.RecordBatch.from_pydict({"n": list(range(number, number + 100))})
        with pa.ipc.new_stream(buffer, batch.schema) as stream:
            stream.write_batch(batch)
        return Chunk(f"target-{number % 2}", (number % 5, number), buffer.getvalue().to_pybytes())

    with BucketBuffer(held_bytes=3 * len(chunk(0).body), folder=str(tmp_path)) as buffer:
        for number in (7, 2, 9, 0, 1, 3, 8, 5, 6, 4):
            buffer.put(chunk(number))
        found = list(buffer.batches())
    in_order = (0, 5, 1, 6, 2, 7, 3, 8, 4, 9)
    assert [(target, batch["n"][0].as_py()) for target, batch in found] == [
        (f"target-{number % 2}", number) for number in in_order
    ]
    assert all(batch.num_rows == 100 and batch["n"][99].as_py() == batch["n"][0].as_py() + 99 for _, batch in found)
    assert not list(tmp_path.iterdir())


def test_buckets_are_as_many_as_tasks_within_what_the_engine_can_run() -> None:
    assert [ShuffleConfig.over(tasks, 2).buckets for tasks in (0, 1, 3, 8, 1000)] == [1, 1, 3, 8, 8]
    assert ShuffleConfig.over(3, 2).chunk_bytes == CHUNK_BYTES
    assert ShuffleConfig.over(3, 2, chunks_held=1000).chunk_bytes == HELD_BYTES // 1000


def test_a_target_is_told_from_one_with_keys_by_its_writer(world: World) -> None:
    outputs = world.outputs
    assert [name for name, _ in outputs.accepting] == ["plain"]
    assert [name for name, _ in outputs.keyed] == ["keyed"]
    assert outputs.quarantine[0] == "quarantine"


def test_without_keys_a_task_is_one_pass_with_one_report(world: World) -> None:
    plan = Plan(REF, "numbers", "me", (), (), {}, "token")
    outputs = Outputs.of({sink.target: sink.begin(plan) for sink in (world.plain, world.quarantine)}, "quarantine")
    specs = [
        TaskSpec((OffsetRange("a", start, start + 10),), NumberReader(), NumberDecoder(0), outputs, 7, False)
        for start in (0, 10)
    ]
    assert [set(report.reports or {}) for report in run(specs)] == [{"plain", "quarantine"}] * 2


def test_specs_outputs_and_messages_travel_between_processes(world: World) -> None:
    spec = world.specs([(0, 10)])[0]
    messages = list(send(pickle.loads(pickle.dumps(spec)), attempt(0, 0), 0, ShuffleConfig(2)))
    assert sum(len(keys) for keys in keys_by_bucket(messages, 2)) == 10
    assert pickle.loads(pickle.dumps(messages)) == messages


def test_a_stop_ends_the_exchange_before_its_next_task(world: World) -> None:
    stop = threading.Event()
    stop.set()
    with pytest.raises(StoppedError):
        LocalRunner().run(world.specs([(0, 10)]), stop)
    assert not world.files("plain")


@dataclass
class SpecRunner(LocalRunner):
    """A local runner that records its tasks."""

    specs: list[TaskSpec] = field(default_factory=list)

    def run(self, specs: Sequence[TaskSpec], stop: threading.Event) -> Sequence[TaskReport]:
        self.specs += specs
        return super().run(specs, stop)


@dataclass(frozen=True)
class AskedSource(NumberSource):
    """Records for each decoder whether offsets were requested."""

    asked: list[bool] = field(default_factory=list)

    def decoder(self, schema: pa.Schema, *, lineage: bool) -> NumberDecoder:
        self.asked.append(lineage)
        return super().decoder(schema, lineage=lineage)


@pytest.mark.parametrize(("wanted", "columns"), [(False, 1), (True, 4)])
def test_offsets_are_read_for_keyed_targets_and_added_to_rows_only_where_the_job_wants_them(
    world: World, wanted: bool, columns: int
) -> None:
    source, runner = AskedSource({"a": 10}, most=10), SpecRunner()
    plan = Plan(REF, "numbers", "me", (OffsetRange("a", 0, 10),), (), {}, "token")
    reports = Pipeline(source, NUMBER_SCHEMA, wanted, runner).write(plan, world.outputs, threading.Event())
    world.commit(reports)
    assert source.asked == [True]
    assert [spec.lineage for spec in runner.specs] == [wanted]
    assert world.plain.read().num_columns == columns
    assert len(world.keyed.read()) == 10


def test_a_task_without_keyed_targets_is_not_asked_for_offsets(world: World) -> None:
    source = AskedSource({"a": 10}, most=10)
    plan = Plan(REF, "numbers", "me", (OffsetRange("a", 0, 10),), (), {}, "token")
    begun: Mapping[str, PartitionWriter] = {sink.target: sink.begin(plan) for sink in (world.plain, world.quarantine)}
    Pipeline(source, NUMBER_SCHEMA, False, SpecRunner()).write(plan, Outputs.of(begun, "quarantine"), threading.Event())
    assert source.asked == [False]
