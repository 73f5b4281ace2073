"""Alternatives for the work of a task, beside the chosen way: writing a file, and reading a log.

    python -m bench.tried [--quick] [--rounds 5] [--works reading,writing]

One core, in this process, in turn: `writing` encodes the decoded rows of a log into a discarded file, `reading` reads
its files and decodes their lines. Text in docs/benchmarks.md describes alternatives that change more than a setting.
"""

from __future__ import annotations

import io
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bench.contest import say
from bench.logs import COLUMNS, ROWS, generated
from bench.run import finish, main, parse
from bench.table import OURS, Measured
from ingest.sources.decode.options import UnknownField
from ingest.sources.files.options import FilesOptions
from ingest.sources.files.read import BLOCK_BYTES, LineReader
from ingest.sources.files.source import FilesSource
from sinks.parquet.encoding import dictionary_columns
from sinks.parquet.table_files import ParquetSettings
from sinks.sql_types import parse_type

_MIB = 1 << 20
_MS = "CPU ms"
_SCHEMA = pa.schema([(name, parse_type(kind)) for name, kind in COLUMNS.items()])
_AS_IT_IS = "as it is"

Way = Callable[[], Mapping[str, float]]


class _Nowhere(io.RawIOBase):
    """Discards a file, and keeps its size."""

    def __init__(self) -> None:
        self.taken_bytes = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        size = memoryview(data).nbytes
        self.taken_bytes += size
        return size


def write_file(rows: pa.Table, *, row_group_bytes: int | None = None, **options: Any) -> Mapping[str, float]:
    """Encode rows as `sinks.parquet.writer` does, except for the given settings."""
    settings = ParquetSettings()
    group = max(1, rows.num_rows * (row_group_bytes or settings.row_group_bytes) // rows.nbytes)
    taken: dict[str, Any] = {
        "compression": settings.compression,
        "use_dictionary": dictionary_columns(rows),
        "write_page_index": True,
        "store_decimal_as_integer": True,
    }
    out = _Nowhere()
    began = time.process_time()
    with pq.ParquetWriter(out, rows.schema, **taken | options) as file:
        for start in range(0, rows.num_rows, group):
            file.write_table(rows.slice(start, group), row_group_size=group)
    return {_MS: 1000 * (time.process_time() - began), "MB": out.taken_bytes / 1e6}


def read_log(source: FilesSource, block_bytes: int = BLOCK_BYTES) -> Iterator[pa.RecordBatch]:
    """Read a log's files and decode their lines, as a task does."""
    reader, decoder = source.reader(), source.decoder(_SCHEMA, lineage=False)
    assert isinstance(reader, LineReader)
    for offsets in source.plan({}).ranges:
        for block in replace(reader, block_bytes=block_bytes).read(offsets):
            yield decoder.decode(block).accepted


def time_reading(source: FilesSource, block_bytes: int = BLOCK_BYTES, pool: str = "mimalloc") -> Mapping[str, float]:
    """CPU time of reading and decoding a log.

    Args:
        source: the log.
        block_bytes: size of a block.
        pool: Arrow's memory pool: mimalloc, jemalloc or system.
    """
    before = pa.default_memory_pool()
    pa.set_memory_pool(getattr(pa, f"{pool}_memory_pool")())
    began = time.process_time()
    try:
        for _ in read_log(source, block_bytes):
            pass
        return {_MS: 1000 * (time.process_time() - began)}
    finally:
        pa.set_memory_pool(before)


def ways(source: FilesSource, rows: pa.Table) -> dict[str, Way]:
    """All ways by name, the chosen one first."""
    settings: dict[str, dict[str, Any]] = {
        _AS_IT_IS: {},
        "no dictionary": {"use_dictionary": False},
        "a dictionary for each column": {"use_dictionary": True},
        "zstd, level 3": {"compression_level": 3},
        "snappy": {"compression": "snappy"},
        "not compressed": {"compression": "none"},
        "timestamps as DELTA_BINARY_PACKED": {"column_encoding": {"ts": "DELTA_BINARY_PACKED"}},
        "row groups of 8 MiB": {"row_group_bytes": 8 * _MIB},
        "row groups of 128 MiB": {"row_group_bytes": 128 * _MIB},
        "no page index": {"write_page_index": False},
        "no statistics": {"write_statistics": False},
    }
    found: dict[str, Way] = {f"writing, {name}": partial(write_file, rows, **each) for name, each in settings.items()}
    found[f"reading, {_AS_IT_IS}"] = partial(time_reading, source)
    for mib in (1, 2, 8, 16):
        found[f"reading, blocks of {mib} MiB"] = partial(time_reading, source, mib * _MIB)
    for pool in ("jemalloc", "system"):
        found[f"reading, memory by {pool}"] = partial(time_reading, source, pool=pool)
    return found


def measure() -> int:
    """Measure and save the table; returns the exit code."""
    options = parse(__doc__)
    log = generated(max(1, options.share(ROWS) // 10))
    given = FilesOptions.model_validate(
        {"type": "files", "path": f"{log.folder}/*.jsonl", "format": "json", "close_after": "0s"}
    )
    source = FilesSource(given, on_unknown_field=UnknownField.DROP)
    tried = ways(source, pa.Table.from_batches(read_log(source)))
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for number in range(-options.warm_ups, options.rounds):
        say(f"round {number + 1} of {options.rounds}")
        for work, way in tried.items():
            if options.wants(work):
                for metric, value in way().items():
                    if number >= 0:
                        found[work, metric].append(value)
    measured = [Measured(work, OURS, metric, tuple(values)) for (work, metric), values in found.items()]
    finish("tried", options, measured, f"{log.rows:,} rows, {log.bytes / 1e9:.2f} GB, one core")
    return 0


if __name__ == "__main__":
    main(measure)
