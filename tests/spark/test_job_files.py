"""The job files in `conf/` that read local files, run over the real logs; the tables are compared with the logs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from ingest.config.load import load_config
from ingest.driver.build import open_source
from tests.unit.ingest.sources.rows import outcome

ROOT = Path(__file__).parents[2]
JOB_FILES = sorted(
    path.name
    for path in (ROOT / "conf").glob("*.yaml")
    # The job file to TiKV needs a cluster: tests/real/test_tikv_job.py.
    if "path: ${LOGS}/" in path.read_text() and "type: tikv" not in path.read_text()
)
ON_SPARK = ("access-log.yaml", "nginx-json.yaml")
"""Job files run by Spark's tasks too, despite small logs: text, and JSON with every kind of nesting."""

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def expected_rows(job_file: Path, logs: Path) -> tuple[list[dict[str, Any]], int]:
    """Rows of the decoder alone, which `tests/unit/ingest/sources/test_real_logs.py` checks, and the rejected count."""
    config = load_config(job_file, {"LOGS": str(logs)})
    assert config.arrow_schema is not None
    source = open_source(config)
    decoder, reader = source.decoder(config.arrow_schema, lineage=True), source.reader()
    accepted: list[dict[str, Any]] = []
    rejected = 0
    for offsets in source.plan({}).ranges:
        for block in reader.read(offsets):
            good, bad = outcome(decoder.decode(block))
            accepted += [row for _, row in good]
            rejected += len(bad)
    return accepted, rejected


def rows_of(path: Path, columns: list[str]) -> pa.Table:
    return DeltaTable(path).to_pyarrow_table(columns=columns)


def sorted_rows(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(repr(sorted(row.items())) for row in rows)


def test_there_is_a_job_file_for_each_of_the_real_logs() -> None:
    assert len(JOB_FILES) >= 6


@pytest.mark.parametrize(
    ("name", "small_epochs"), [*((name, "driver") for name in JOB_FILES), *((name, "executors") for name in ON_SPARK)]
)
def test_a_job_file_ingests_every_line_of_its_log(name: str, small_epochs: str, logs: Path, tmp_path: Path) -> None:
    job_file = tmp_path / name
    job_file.write_text((ROOT / "conf" / name).read_text() + f"\nspark: {{small_epochs: {small_epochs}}}\n")
    config = load_config(job_file, {"LOGS": str(logs)})
    assert config.arrow_schema is not None
    command = [sys.executable, "-m", "ingest", "run", str(job_file)]
    environment = {**os.environ, "LOGS": str(logs), "PYTHONPATH": str(ROOT)}
    for _ in range(2):  # the second run finds nothing new
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240)
        assert done.returncode == 0, done.stderr
    accepted, rejected = expected_rows(job_file, logs)
    table = tmp_path / str(config.targets[0].model_dump()["path"])
    rows = rows_of(table, config.arrow_schema.names)
    assert sorted_rows(rows.cast(config.arrow_schema).to_pylist()) == sorted_rows(accepted)
    quarantine = table.with_name(f"{table.name}_quarantine")
    assert (rows_of(quarantine, ["raw"]).num_rows if quarantine.exists() else 0) == rejected
