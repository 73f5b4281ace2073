"""The systems that take part: ours and the alternatives to it; and the work for an input, the same for all."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bench import pins
from bench.contest import System, say
from bench.logs import Log
from bench.table import OURS
from tests.real.toolchain import MissingToolchainError

SPARK = "Spark alone"
DELTA = "Delta's streaming sink"
ICEBERG = "Iceberg streaming append"
HUDI_STREAM = "Hudi streaming bulk_insert"
HUDI_BULK_INSERT = "Hudi bulk_insert"
HUDI_INSERT = "Hudi insert"
HUDI_SPARK = f"Spark {pins.HUDI_SPARK} alone"
"""Spark in Hudi's environment: the baseline of Hudi's figures, as its bundles for Spark 4 are not available here."""

HUDI = (HUDI_STREAM, HUDI_BULK_INSERT, HUDI_INSERT)


def entrants(scratch: Path, *, s3: Mapping[str, str] | None = None, only: str = "") -> list[System]:
    """All systems with available packages; a system that is left out is named on stderr.

    Args:
        scratch: folder for all files but targets.
        s3: endpoint, region, key and secret of the server that holds the targets; None: targets are local.
        only: names, or parts of names, with commas between; ours always takes part.
    """
    settings: dict[str, Any] = {"scratch": str(scratch)}
    here: dict[str, Any] = settings | ({"s3": dict(s3)} if s3 else {})
    storage = {} if s3 is None else {"storage": _storage(s3)}
    found = [System(OURS, "bench.systems.tideline", settings | storage)]

    def jars(own: Callable[[], list[Path]]) -> dict[str, Any]:
        paths = [*own(), *pins.kafka_jars(), *(pins.s3_jars() if s3 else ())]
        return here | {"jars": [str(path) for path in paths]}

    def add(name: str, make: Callable[[], System]) -> None:
        if only and not any(part.strip() in name for part in only.split(",")):
            return
        try:
            found.append(make())
        except (MissingToolchainError, subprocess.CalledProcessError, OSError) as error:
            say(f"left out: {name}: {error}")

    def on_hudis_spark(own: list[Path]) -> dict[str, Any]:
        return here | {"jars": [str(path) for path in (*own, *pins.hudi_kafka_jars())]}

    def hudi(name: str, operation: str, *, is_stream: bool = False) -> System:
        start = on_hudis_spark([*pins.hudi_jars(), *(pins.hudi_s3_jars() if s3 else ())])
        work = {"operation": operation, "is_stream": is_stream}
        return System(name, "bench.systems.hudi", start, work, pins.hudi_python())

    def hudis_spark() -> System:
        return System(HUDI_SPARK, "bench.systems.spark", on_hudis_spark([]), python=pins.hudi_python())

    add(SPARK, lambda: System(SPARK, "bench.systems.spark", jars(list)))
    add(DELTA, lambda: System(DELTA, "bench.systems.delta", jars(pins.delta_jars)))
    add(ICEBERG, lambda: System(ICEBERG, "bench.systems.iceberg", jars(pins.iceberg_jars)))
    if s3 is None:
        add(HUDI_SPARK, hudis_spark)
    add(HUDI_STREAM, lambda: hudi(HUDI_STREAM, "bulk_insert", is_stream=True))
    add(HUDI_BULK_INSERT, lambda: hudi(HUDI_BULK_INSERT, "bulk_insert"))
    add(HUDI_INSERT, lambda: hudi(HUDI_INSERT, "insert"))
    return found


def files_work(log: Log, **changes: Any) -> dict[str, Any]:
    """Work on a log in files, for every system.

    Args:
        log: the input.
        changes: to our source block, for example ``max_files_per_epoch``.
    """
    path = f"{log.folder}/*.jsonl"
    source = {"type": "files", "path": path, "format": "json", "close_after": "0s"} | changes
    return {
        "source": "files",
        "input": str(log.folder),
        "schema": log.ddl,
        "columns": log.columns,
        "tideline_source": source,
    }


def kafka_work(log: Log, bootstrap_servers: str, topic: str, **changes: Any) -> dict[str, Any]:
    """Work on a log in a topic, for every system.

    Args:
        log: the input.
        bootstrap_servers: the broker.
        topic: has the log's lines as messages.
        changes: to our source block.
    """
    return {
        "source": "kafka",
        "bootstrap_servers": bootstrap_servers,
        "topic": topic,
        "schema": log.ddl,
        "columns": log.columns,
        "tideline_source": {
            "type": "kafka",
            "bootstrap_servers": bootstrap_servers,
            "topics": [topic],
            "format": "json",
            "start": "earliest",
        }
        | changes,
    }


def _storage(s3: Mapping[str, str]) -> dict[str, Any]:
    client = {"endpoint_url": s3["endpoint"], "region_name": s3["region"]}
    return {"key": s3["key"], "secret": s3["secret"], "client_kwargs": client}
