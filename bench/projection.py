"""What a cluster needs for a stream of logs, computed from what was measured on one machine.

Nothing here is measured but the figures that it starts from: the rate of a core, the size of what is written, the
driver's time, bytes and requests for an epoch of 2,000 files. A cluster adds what one machine does not show: network,
other users of the store, machines that are slower than others.
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
"""Share of their time that cores read, decode and write: the rest is waiting, catching up, a machine that is lost."""

PARTITION_MB_S = 5
"""10^6 bytes a second of one Kafka partition, with room to spare: a bound for planning, not measured here."""

S3_PUTS_S = 3_500
"""Puts and deletes a second that S3 takes for one prefix (S3 user guide, "Optimizing Amazon S3 performance")."""

_YEAR_S = 365 * 86_400


@dataclass(frozen=True)
class Stream:
    """What comes in, and how it is cut.

    Attributes:
        gb_s: 10^9 bytes of log text a second.
        epoch_s: seconds of it that are one epoch.
        files: data files an epoch; None: as many as `file_mb` asks for.
        file_mb: size of a data file, in 10^6 bytes; None: whatever it becomes.
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
    """What the projection starts from.

    Attributes:
        files_mb: log text from files that one busy core makes a table of, in 10^6 bytes a second.
        kafka_mb: the same from Kafka.
        written_share: size of the data files, as a share of the text's.
        driver_ms: of the driver, for an epoch of 2,000 files on S3.
        timeline_mb: what it puts on the timeline for it, in 10^6 bytes.
        log_mb: the same into the table's log.
        driver_requests: what the driver asks an object store for it.
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
        """Out of the tables' medians.

        Raises:
            KeyError: something of it was not measured.
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
    """What one stream needs, for people."""
    text_mb = 1000 * stream.gb_s * stream.epoch_s
    data_mb = text_mb * measures.written_share
    files = stream.files or math.ceil(data_mb / (stream.file_mb or 1))
    file_mb = data_mb / files
    # A marker, the object and the marker's end; beyond a part the upload is begun, sent in parts and completed.
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
    """A line for each need, a cell for each stream; none where something that it takes was not measured."""
    try:
        measures = Measures.of(found)
    except KeyError:
        return []
    columns = [needs(stream, measures) for stream in streams]
    return [(what, *(column[what] for column in columns)) for what in columns[0]]
