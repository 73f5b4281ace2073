"""Cost of start-up and recovery on timelines of 10, 1,000 and 10,000 completed instants, on files and S3.

    python -m bench.growth_startup [--quick] [--rounds 5] [--works start,S3]

``start``: `tideline run --once` without new input, from the process's start to its end: probe, lease, recovery,
targets, offsets, one plan; no JVM. ``recover``: `tideline recover` with one epoch that was opened and never written.
Each command is a process of its own. ``--quick`` has 1,000 instants at most.

The protocol's own code makes the instants in a memory store, whose objects become files; the table has one log entry.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from bench.goals import Goal, Key, Medians, ratio
from bench.pending import BODIES, LISTINGS, REQUESTS, Medium, Place, born, media, new_place, run
from bench.run import finish, main, parse, scratch
from bench.table import OURS, Measured
from ingest.config.load import load_config
from ingest.driver.build import open_source
from ingest.protocol.job import JobContext
from ingest.protocol.steps import claim_commit, open_instant, prepare, read_plan
from ingest.protocol.steps import finish as complete
from sinks.base import ParallelRunner, SinkContext, TargetOptions, TaskAttempt, sequential
from sinks.parquet.partition_writer import ParquetPartitionWriter
from tests.fakes import EmptySink
from timeline.active import ActiveTimeline
from timeline.chain import Chain, load_chain, write_snapshot
from timeline.epoch import EpochRef, Part, ShardCount, WriteReport
from timeline.lease import WriterLease
from timeline.stores.memory import MemoryStore

INSTANTS = (10, 1_000, 10_000)
_COMMANDS = ("start", "recover")


def _work(command: str, count: int, medium: str) -> str:
    return f"{command}, {count:,} instants, {medium}"


def _key(command: str, count: int, metric: str) -> Key:
    return Key("growth_startup", _work(command, count, "S3"), OURS, metric)


def _flat(command: str) -> Goal:
    over, under = (_key(command, count, REQUESTS) for count in (10_000, 10))
    return Goal(
        f"{command} on S3: requests at 10,000 instants, as a multiple of those at 10", ratio(over, under), 1.10, False
    )


def _more(command: str, kind: str, than: int, limit: float) -> Goal:
    def value(found: Medians) -> float:
        return found[_key(command, 10_000, kind)] - found[_key(command, than, kind)]

    return Goal(f"{command} on S3: {kind} at 10,000 instants, beyond those at {than:,}", value, limit, False)


GOALS = tuple(
    goal
    for command in _COMMANDS
    # From any longer timeline, more bodies are read than ten instants have.
    for goal in (_flat(command), _more(command, LISTINGS, 10, 1), _more(command, BODIES, 1_000, 0))
)
_LINE = json.dumps({"id": 1, "part": "p0000"}).ljust(49) + "\n"


class Counting(EmptySink):
    """A target that reports all rows as written, and writes none."""

    @classmethod
    def open(cls, options: TargetOptions, context: SinkContext) -> Counting:
        """See Sink."""
        return cls()

    def prepare(self, epoch: EpochRef, reports: Sequence[WriteReport]) -> Part:
        """See Sink."""
        return Part(self.target, epoch, sum(each.rows for each in reports), sum(each.bytes for each in reports))

    def commit(self, part: Part, parallel: ParallelRunner = sequential) -> None:
        """See Sink."""


def measure() -> int:
    """Measure and save the table; returns the exit code."""
    options = parse(__doc__)
    counts = options.counts(INSTANTS, INSTANTS[:2])
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    with scratch(options) as folder, media(folder) as places:
        made = {(medium.name, count): with_instants(folder, medium, count) for count in counts for medium in places}
        for number in range(-options.warm_ups, options.rounds):
            for (name, count), place in made.items():
                for command in _COMMANDS:
                    work = _work(command, count, name)
                    if not options.wants(work):
                        continue
                    figures = once(place, command)
                    for metric, value in figures.items() if number >= 0 else ():
                        found[work, metric].append(value)
    measured = [Measured(work, OURS, metric, tuple(values)) for (work, metric), values in found.items()]
    finish("growth_startup", options, measured, ", ".join(f"{count:,}" for count in counts) + " completed instants")
    return 0


def once(place: Place, command: str) -> dict[str, float]:
    """Measure one start, or one recovery of an opened epoch."""
    if command == "recover":
        opened = place.opened()
        job, lease = born(place)
        chain = load_chain(opened.store, ActiveTimeline.recent(opened.store, opened.retry), opened.retry)
        open_instant(job, chain, lease, ())
        lease.release()
    words = ("recover",) if command == "recover" else ("run", "--once")
    return run(place, *words).figures


def with_instants(folder: Path, medium: Medium, count: int) -> Place:
    """Create a job with completed epochs, each of one line of its log.

    Args:
        folder: working folder.
        medium: storage of its lake.
        count: number of epochs.
    """
    place = new_place(medium, folder)
    (place.job.parent / "logs" / "a.jsonl").write_text(_LINE * count)
    job, lease = born(place)
    memory = MemoryStore("memory://made")
    for info in job.store.list("", recursive=True):
        memory.put(info.path, job.store.get(info.path))
    fill(place, in_memory(job, memory), lease, count)
    for path, body in memory.objects.items():
        file = place.lake / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(body)
    commit_last(job)
    lease.release()
    return place


def in_memory(job: JobContext, memory: MemoryStore) -> JobContext:
    """The same job with its timeline in memory, and targets that take rows and keep nothing."""
    return replace(job, store=memory, sinks=tuple(Counting(sink.target) for sink in job.sinks))


def fill(place: Place, job: JobContext, lease: WriterLease, count: int) -> None:
    """Plan, open, prepare, decide and complete epochs; only the timeline is written.

    Args:
        place: has the job's source.
        job: the job, see `in_memory`.
        lease: its writer's lease.
        count: number of epochs.
    """
    source = open_source(load_config(place.job))
    chain = Chain()
    for _ in range(count):
        plan = open_instant(job, chain, lease, source.plan(chain.positions).ranges)
        counts = [ShardCount(each.shard, 1, 1, 0) for each in plan.ranges]
        reports = {sink.target: [WriteReport(1, 50)] for sink in job.sinks[:-1]}
        manifest = prepare(job, plan, counts, reports | {job.quarantine: [WriteReport(0, 0)]})
        decision = claim_commit(job, plan, manifest, lease.generation, "written")
        complete(job, decision, manifest, applied_through=chain.next_epoch - 1)
        chain = chain.advanced(decision)
        write_snapshot(job.store, chain, job.retry)


def commit_last(job: JobContext) -> None:
    """Commit the newest epoch to the table, as its only log entry."""
    newest = ActiveTimeline.load(job.store, job.retry).completed().instants[-1]
    plan = read_plan(job, newest.time)
    assert plan is not None
    sink = job.sinks[0]
    begun = sink.begin(plan)
    assert isinstance(begun, ParquetPartitionWriter)
    writer = begun.open(TaskAttempt(0, 0, 0))
    writer.write(pa.record_batch({"id": pa.array([1], pa.int64()), "part": pa.array(["p0000"])}))
    part = sink.prepare(plan.ref, [writer.close()])
    sink.commit(part)
    sink.release(plan.ref, part)


if __name__ == "__main__":
    main(measure)
