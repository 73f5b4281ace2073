"""Needs of a cluster for a stream of logs, computed from figures measured on one machine.

Only the inputs are measured: the rate of a core, the size of written data, the driver's time, bytes and requests for an
epoch of 2,000 files. A cluster adds effects that one machine does not show: network, other users of the store, machines
that are slower than others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench import cluster, throughput
from bench.cluster import FILES_A_TASK, TASKS
from bench.goals import Key, Medians
from bench.logs import BYTES_A_ROW, ROWS
from bench.table import OURS
from timeline.stores.s3_upload import PART_BYTES

BUSY = 0.7
"""Share of time in which cores read, decode and write; the rest is for waiting, catching up and lost machines."""

PARTITION_MB_S = 5
"""10^6 bytes a second of one Kafka partition, with room to spare: a bound for planning, not measured here."""

S3_PUTS_S = 3_500
"""Puts and deletes a second that S3 accepts for one prefix (S3 user guide, "Optimizing Amazon S3 performance")."""

_YEAR_S = 365 * 86_400


@dataclass(frozen=True)
class Stream:
    """A stream of log text, and its division into epochs and files.

    Attributes:
        gb_s: 10^9 bytes of log text a second.
        epoch_s: seconds of the stream in one epoch.
        files: data files an epoch; None: derived from `file_mb`.
        file_mb: size of a data file, in 10^6 bytes; None: derived from `files`.
    """

    gb_s: float
    epoch_s: int
    files: int | None = None
    file_mb: int | None = None

    def __str__(self) -> str:
        cut = f"{self.file_mb} MB a file" if self.files is None else f"{self.files:,} files"
        return f"{self.gb_s:g} GB/s, {self.epoch_s // 60} min, {cut}"


STREAMS = (
    Stream(3, 60, files=TASKS * FILES_A_TASK),
    Stream(5, 60, files=TASKS * FILES_A_TASK),
    Stream(3, 300, file_mb=128),
    Stream(5, 300, file_mb=128),
)


@dataclass(frozen=True)
class Measures:
    """Measured inputs of the projection.

    Attributes:
        files_mb: log text from files that one busy core ingests, in 10^6 bytes a second.
        kafka_mb: the same from Kafka.
        written_share: size of the data files, as a share of the text's.
        driver_ms: driver's time for an epoch of 2,000 files on S3.
        timeline_mb: size of that epoch's objects on the timeline, in 10^6 bytes.
        log_mb: size of its entry in the table's log, in 10^6 bytes.
        driver_requests: driver's requests to the object store for that epoch.
    """

    files_mb: float
    kafka_mb: float
    written_share: float
    driver_ms: float
    timeline_mb: float
    log_mb: float
    driver_requests: float

    @classmethod
    def of(cls, found: Medians) -> Measures:
        """Take the inputs from the tables' medians.

        Raises:
            KeyError: an input was not measured.
        """

        def fast(work: str) -> float:
            return found[Key(throughput.TABLE, work, OURS, throughput.PER_CPU)] * BYTES_A_ROW / 1e6

        def driver(work: str, metric: str) -> float:
            return found[Key(cluster.TABLE, work, OURS, metric)]

        written = found[Key(throughput.TABLE, throughput.FILES, OURS, throughput.WRITTEN)] * 1e6
        return cls(
            fast(throughput.FILES),
            fast(throughput.KAFKA),
            written / (ROWS * BYTES_A_ROW),
            driver(cluster.ON_S3, cluster.MS),
            driver(cluster.ON_S3, cluster.TIMELINE),
            driver(cluster.ON_S3, cluster.LOG),
            driver(cluster.ON_S3, cluster.REQUESTS),
        )


def needs(stream: Stream, measures: Measures) -> Mapping[str, str]:
    """Needs of one stream as text, by name."""
    text_mb = 1000 * stream.gb_s * stream.epoch_s
    data_mb = text_mb * measures.written_share
    files = stream.files or math.ceil(data_mb / (stream.file_mb or 1))
    file_mb = data_mb / files
    # The marker's put and delete, and the object: one put, or beyond a part an upload's start, parts and completion.
    parts = math.ceil(file_mb * 1e6 / PART_BYTES)
    puts = files * (2 + (1 if parts == 1 else parts + 2)) + measures.driver_requests
    as_measured = files / (TASKS * FILES_A_TASK)
    epochs_a_year = _YEAR_S / stream.epoch_s
    epochs_30_days = epochs_a_year * 30 / 365
    return {
        "text in an epoch": f"{text_mb / 1000:,.0f} GB",
        "busy cores, from files": _cores(stream, measures.files_mb),
        "busy cores, from Kafka": _cores(stream, measures.kafka_mb),
        f"cores {BUSY:.0%} busy, from files": _cores(stream, measures.files_mb * BUSY),
        f"cores {BUSY:.0%} busy, from Kafka": _cores(stream, measures.kafka_mb * BUSY),
        f"Kafka partitions, {PARTITION_MB_S} MB/s each": f"{1000 * stream.gb_s / PARTITION_MB_S:,.0f}",
        "size of a data file": f"{file_mb:,.0f} MB",
        "data files an hour": f"{files * 3600 / stream.epoch_s:,.0f}",
        "data written": f"{data_mb / stream.epoch_s:,.0f} MB/s",
        "puts and deletes a second": f"{puts / stream.epoch_s:,.0f}",
        "share of what S3 takes of them for one prefix": f"{puts / stream.epoch_s / S3_PUTS_S:.1%}",
        "driver, share of its time": f"{measures.driver_ms * as_measured / (10 * stream.epoch_s):.1f} %",
        "timeline, a year": f"{measures.timeline_mb * as_measured * epochs_a_year / 1e6:,.2f} TB",
        "files in the table after 30 days": f"{files * epochs_30_days / 1e6:,.1f} million",
        "Delta log without checkpoints, 30 days": f"{measures.log_mb * as_measured * epochs_30_days / 1e6:,.2f} TB",
        "instants a year": f"{epochs_a_year:,.0f}",
    }


def _cores(stream: Stream, mb_s: float) -> str:
    return f"{math.ceil(1000 * stream.gb_s / mb_s):,}"


def table(found: Medians, streams: Sequence[Stream] = STREAMS) -> list[tuple[str, ...]]:
    """A line for each need, a cell for each stream; empty if an input was not measured."""
    try:
        measures = Measures.of(found)
    except KeyError:
        return []
    columns = [needs(stream, measures) for stream in streams]
    return [(what, *(column[what] for column in columns)) for what in columns[0]]
