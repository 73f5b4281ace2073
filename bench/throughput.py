"""Throughput from JSON logs to a table: ours beside the alternatives. Table 1 of docs/benchmarks.md.

    python -m bench.throughput [--quick] [--works "JSON files,Kafka"] [--systems Spark,Delta]

Every system is a process of its own with a session of its own on local[2], 2 GB for its JVM, zstd; they take turns, the
others idle meanwhile. LOGS names a folder with nginx_plus.jsonl, a real log; without it that work is skipped.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from bench import tuning
from bench.contest import Contest, Round, Task, say
from bench.entrants import (
    DELTA,
    HUDI,
    HUDI_SPARK,
    ICEBERG,
    SPARK,
    entrants,
    files_work,
    kafka_work,
)
from bench.goals import Goal, Key, Medians, ratio
from bench.logs import ROWS, Log, generated, repeated
from bench.run import Options, finish, main, parse, scratch
from bench.table import OURS
from bench.tuning import settings
from tests.real import kafka_server
from tests.real.toolchain import MissingToolchainError

TABLE = "throughput"
FILES = "JSON files"
REAL = "nginx status files"
TRANSFORM = "with a SQL transform"
KAFKA = "JSON in Kafka"
KAFKA_TRANSFORM = "JSON in Kafka, with a SQL transform"
KAFKA_HUDI = "JSON in Kafka, a quarter of it"
"""Hudi's work from Kafka: its three ways take twice as long as all other systems together."""

REAL_LOG = "nginx_plus.jsonl"
_REAL_MB = 500
_PARTITIONS = 4
_WAKE_ROWS = 2_000
_EPOCH = {key.removeprefix("source."): value for key, value in settings(tuning.OURS).items()}
_SQL = (
    "SELECT ts, ip, upper(method) AS method, split(path, '[?]')[0] AS page, status, bytes, duration_s * 1000 AS ms, "
    "coalesce(user, 'anonymous') AS user FROM source WHERE status < 500"
)

RATE = "rows/s"
PER_CPU = "rows per CPU s"
WRITTEN = "written, MB"


def _figures(task: Task, done: Round) -> dict[str, float]:
    return {
        RATE: task.units / done.wall_s,
        PER_CPU: task.units / done.cpu_s,
        "CPU s": done.cpu_s,
        "peak memory, MB": done.peak_mb,
        WRITTEN: done.written_mb,
    }


def _faster(work: str, than: str, limit: float) -> list[Goal]:
    def key(system: str, metric: str) -> Key:
        return Key(TABLE, work, system, metric)

    return [
        Goal(f"{work}: {metric}, as a multiple of: {than}", ratio(key(OURS, metric), key(than, metric)), limit, True)
        for metric in (PER_CPU, RATE)
    ]


def _than_hudi(work: str) -> list[Goal]:
    """Goals for rates as measured, and as multiples of Spark alone beside each: Hudi runs on an older Spark."""

    def plain(metric: str, found: Medians) -> float:
        appends = [found[key] for system in HUDI if (key := Key(TABLE, work, system, metric)) in found]
        if not appends:
            raise KeyError(HUDI)
        return found[Key(TABLE, work, OURS, metric)] / max(appends)

    def by_spark(metric: str, found: Medians) -> float:
        older, newer = (found[Key(TABLE, work, system, metric)] for system in (HUDI_SPARK, SPARK))
        return plain(metric, found) * older / newer

    return [
        Goal(f"{work}: {metric}, as a multiple of: Hudi's best append{way}", partial(value, metric), 2.0, True)
        for value, way in ((plain, ""), (by_spark, " (each by the Spark beside it)"))
        for metric in (PER_CPU, RATE)
    ]


GOALS = (
    *_faster(FILES, SPARK, 1.5),
    *_faster(FILES, ICEBERG, 1.5),
    *_faster(FILES, DELTA, 1.8),
    *_faster(REAL, SPARK, 1.5),
    *_faster(REAL, ICEBERG, 1.5),
    *_faster(REAL, DELTA, 1.8),
    *_than_hudi(FILES),
    *_than_hudi(REAL),
    *_faster(KAFKA, SPARK, 2.0),
    *_faster(KAFKA, DELTA, 2.4),
    *_faster(TRANSFORM, SPARK, 0.95),
    *_faster(KAFKA_TRANSFORM, SPARK, 0.95),
)


def measure(options: Options) -> int:
    """Measure and save the table; returns the exit code."""
    log = generated(options.share(ROWS))
    wake = generated(_WAKE_ROWS, files=2)
    real = _real_log(options)
    sizes = {FILES: _size(log), TRANSFORM: _size(log), REAL: _size(real[0]) if real else ""}
    tasks = [_files_task(FILES, log, wake)]
    if real is not None:
        tasks.append(_files_task(REAL, *real))
    tasks.append(_files_task(TRANSFORM, log, wake, transform=_SQL))
    problems: list[str] = []
    with scratch(options) as folder:
        for task in tasks:
            if options.wants(task.name):
                problems += _contest(task, folder, options, sizes[task.name])
        if any(map(options.wants, (KAFKA, KAFKA_TRANSFORM, KAFKA_HUDI))):
            with _topics(folder, options) as works:
                for task, size in works:
                    problems += _contest(task, folder, options, size)
    for problem in problems:
        say(f"missing in the table: {problem}")
    return 1 if problems else 0


def _contest(task: Task, folder: Path, options: Options, sizes: str) -> list[str]:
    """Measure one work by processes of its own: none starts with memory of the work before. Returns problems."""
    folder = folder / task.name.replace(" ", "-")
    systems = [each for each in entrants(folder, only=options.systems) if _takes_part(each.name, task.name)]
    with Contest(systems, folder).running() as contest:
        measured = contest.measure(task, options.rounds, _figures, warm_ups=options.warm_ups)
    if measured:
        finish(TABLE, options, measured, sizes)
    return contest.problems


def _takes_part(system: str, work: str) -> bool:
    if system in (OURS, SPARK):
        return True
    if work == KAFKA_HUDI:
        return system in (HUDI_SPARK, *HUDI)
    if work == KAFKA:
        return system not in (HUDI_SPARK, *HUDI)
    return work not in (TRANSFORM, KAFKA_TRANSFORM)


def _files_task(name: str, log: Log, wake: Log, **work: Any) -> Task:
    rows = None if work else log.rows
    return Task(name, files_work(log, **_EPOCH) | work, rows, log.rows, wake=files_work(wake) | work)


def _real_log(options: Options) -> tuple[Log, Log] | None:
    """The real log and a short part of it; None if its file is missing."""
    source = Path(os.environ.get("LOGS", ".")) / REAL_LOG
    if not source.exists():
        say(f"skipped: {REAL}: {source} is not there; LOGS names its folder")
        return None
    return repeated(source, options.share(_REAL_MB)), repeated(source, 1, files=1)


@contextlib.contextmanager
def _topics(folder: Path, options: Options) -> Iterator[Sequence[tuple[Task, str]]]:
    """Wanted works and their sizes, from a broker with their logs; none where there is no broker."""
    query = {"transform": _SQL}
    works = [(KAFKA, ROWS, {}), (KAFKA_TRANSFORM, ROWS, query), (KAFKA_HUDI, ROWS // 4, {})]
    wanted = [(name, generated(options.share(rows)), more) for name, rows, more in works if options.wants(name)]
    wake = generated(_WAKE_ROWS, files=2)
    with contextlib.ExitStack() as until:
        try:
            (folder / "kafka").mkdir()
            broker = until.enter_context(kafka_server.running(folder / "kafka"))
        except MissingToolchainError as error:
            say(f"skipped: {KAFKA}: {error}")
            yield ()
            return
        for log in {log.rows: log for log in (wake, *(log for _, log, _ in wanted))}.values():
            broker.create_topic(_topic(log), _PARTITIONS)
            produce(broker.bootstrap_servers, _topic(log), log)

        def task(name: str, log: Log, more: dict[str, Any]) -> Task:
            work, waking = (
                kafka_work(each, broker.bootstrap_servers, _topic(each), **_EPOCH) | more for each in (log, wake)
            )
            return Task(name, work, None if more else log.rows, log.rows, wake=waking)

        yield [(task(*each), _messages(each[1])) for each in wanted]


def _topic(log: Log) -> str:
    return f"logs-{log.rows}"


def produce(bootstrap_servers: str, topic: str, log: Log) -> None:
    """Produce each line of a log as one message, spread over the partitions.

    Args:
        bootstrap_servers: the broker.
        topic: an existing topic with `_PARTITIONS` partitions.
        log: the log.
    """
    say(f"producing {log.rows:,} messages to {topic}")
    producer = Producer(
        {"bootstrap.servers": bootstrap_servers, "linger.ms": 50, "queue.buffering.max.kbytes": 262_144}
    )
    number = 0
    for path in sorted(log.folder.iterdir()):
        with path.open("rb") as lines:
            for line in lines:
                while True:
                    try:
                        producer.produce(topic, line.rstrip(b"\n"), partition=number // 500 % _PARTITIONS)
                        break
                    except BufferError:
                        producer.poll(0.1)
                number += 1
                if number % 10_000 == 0:
                    producer.poll(0)
    if producer.flush(120):
        raise SystemExit(f"the broker did not take all messages of {topic}")


def _messages(log: Log) -> str:
    return f"{log.rows:,} messages, {log.bytes / 1e9:.2f} GB, {_PARTITIONS} partitions"


def _size(log: Log) -> str:
    files = len(list(log.folder.iterdir()))
    return f"{log.rows:,} rows, {log.bytes / 1e9:.2f} GB, {files} files"


if __name__ == "__main__":
    main(lambda: measure(parse(__doc__)))
