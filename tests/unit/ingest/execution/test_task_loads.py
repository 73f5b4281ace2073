"""Modules that a task loads: a new Spark worker loads them before its first row."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]

_RUN = """
import sys
from pathlib import Path
from ingest.sources.decode.options import UnknownField
from ingest.sources.files.options import FilesOptions
from ingest.sources.files.source import FilesSource
from sinks.base import TaskAttempt
from sinks.parquet.markers import Markers
from sinks.parquet.partition_writer import ParquetPartitionWriter
from sinks.partition import parse_partition
from sinks.sql_types import parse_type
from timeline.stores.opening import open_store
import pyarrow as pa

logs, table, *partition_by = sys.argv[1:]
schema = pa.schema([("ts", pa.timestamp("us", "UTC")), ("host", pa.string()), ("status", pa.int32())])
options = FilesOptions(type="files", path=logs, format="json", close_after="0s")
source = FilesSource(options, on_unknown_field=UnknownField.DROP)
reader, decoder = source.reader(), source.decoder(schema, lineage=False)
markers = Markers(open_store(table), "tideline-x")
fields = tuple(parse_partition(text) for text in partition_by)
writer = ParquetPartitionWriter(markers, "20260301000000000", schema, fields).open(TaskAttempt(0, 0, 0))
for offsets in source.plan({}).ranges:
    for block in reader.read(offsets):
        writer.write(decoder.decode(block).accepted)
assert writer.close().rows == 200
print(*sorted({name.partition(".")[0] for name in sys.modules}))
"""


@pytest.mark.parametrize("partition_by", [[], ["host"], ["date(ts)"]])
def test_a_task_loads_no_pandas(tmp_path: Path, partition_by: list[str]) -> None:
    lines = [
        json.dumps({"ts": f"2026-03-0{1 + number % 2}T10:00:00Z", "host": f"h{number % 3}", "status": 200})
        for number in range(200)
    ]
    (tmp_path / "a.jsonl").write_text("\n".join(lines) + "\n")
    command = [sys.executable, "-c", _RUN, f"{tmp_path}/*.jsonl", f"{tmp_path}/table", *partition_by]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not {"pandas", "pyspark", "deltalake"} & set(done.stdout.split())
