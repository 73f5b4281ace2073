"""A job whose source, timeline, decisions, data files, logs and quarantine are all on S3, by one `storage` block."""

from __future__ import annotations

import gzip
import json
import uuid
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import s3fs
from deltalake import DeltaTable

from sinks.delta.location import delta_storage_options
from tests.job import Job, write_job
from tests.real.fault_proxy import FaultProxy
from tests.real.s3_server import S3Server
from timeline.active import ActiveTimeline
from timeline.stores.base import ObjectStore
from timeline.stores.opening import open_store


class S3Job(Job):
    """A job file in a local folder; all its paths are below a prefix of its own in the bucket."""

    def __init__(self, folder: Path, server: S3Server, **changes: Any) -> None:
        """Write the job file; `changes` replace blocks of `settings`."""
        super().__init__(folder)
        self.server = server
        self.prefix = f"lake/job-{uuid.uuid4().hex[:8]}"
        self.fs = s3fs.S3FileSystem(**server.options, use_listings_cache=False, skip_instance_cache=True)
        self.write(**changes)

    def settings(self) -> dict[str, Any]:
        return {
            "name": "on-s3",
            "source": {
                "type": "files",
                "path": self.url("logs/**/*.jsonl*"),
                "format": "json",
                "close_after": "0s",
                "max_files_per_epoch": 10,
            },
            "schema": {"id": "bigint", "host": "string"},
            "lineage": True,
            "targets": [{"type": "delta", "name": name, "path": self.url(name)} for name in ("table", "copy")],
            "quarantine": {"path": self.url("quarantine")},
            "timeline": {"path": self.url("timeline")},
            "storage": self.server.options,
            "spark": {"master": "local[2,4]", "small_epochs": "executors"},
        }

    def write(self, **changes: Any) -> Path:
        return write_job(self.file, self.settings() | changes)

    def url(self, path: str) -> str:
        return f"s3://{self.prefix}/{path}"

    def put(self, name: str, ids: Sequence[int], *, bad: int = 0) -> None:
        """Write a whole source object; S3 has no append."""
        lines = [json.dumps({"id": number, "host": f"h{number % 3}"}) for number in ids] + ["{malformed"] * bad
        body = "".join(f"{line}\n" for line in lines).encode()
        self.fs.pipe_file(f"{self.prefix}/logs/{name}", gzip.compress(body) if name.endswith(".gz") else body)

    def store(self, name: str) -> ObjectStore:
        """The store below a name of the job's prefix, reached directly."""
        return open_store(self.url(name), self.server.options)

    def table(self, table: str = "table") -> DeltaTable:
        return DeltaTable(self.url(table), storage_options=delta_storage_options(self.url(table), self.server.options))

    def ids(self, table: str = "table") -> Counter[int]:
        return Counter(self.table(table).to_pyarrow_table(columns=["id"])["id"].to_pylist())

    def left_over(self) -> list[str]:
        """Data files that no table names, unfinished uploads, and pending instants; a settled job has none."""
        tables = [self.table(name) for name in ("table", "copy", "quarantine")]
        visible = {uri.rpartition("/")[2] for table in tables for uri in table.file_uris()}
        objects: list[str] = self.fs.find(self.prefix)
        stray = [path for path in objects if path.endswith(".parquet") and "_delta_log" not in path]
        uploads = self.fs.call_s3("list_multipart_uploads", Bucket="lake", Prefix=self.prefix.partition("/")[2])
        return [
            *(path for path in stray if path.rpartition("/")[2] not in visible),
            *(upload["Key"] for upload in uploads.get("Uploads", [])),
            *(str(instant) for instant in ActiveTimeline.load(self.store("timeline")).pending().instants),
        ]


def small_job(folder: Path, server: S3Server, proxy: FaultProxy, *, ttl: str = "60s", **config: Any) -> S3Job:
    """A job of twenty rows whose process reaches the store through the proxy; the test itself reaches it directly.

    Args:
        folder: takes the job file.
        server: the store.
        proxy: a proxy before the server.
        ttl: of the writer's lease, as in a job file.
        **config: options of botocore.
    """
    job = S3Job(folder, server, storage=through(proxy, server, **config), writer={"lease_ttl": ttl})
    job.put("a.jsonl", range(20), bad=1)
    return job


def through(proxy: FaultProxy, server: S3Server, **config: Any) -> dict[str, Any]:
    """A `storage` block that reaches the server through the proxy; `config` are options of botocore."""
    client = server.options["client_kwargs"] | {"endpoint_url": proxy.url}
    return server.options | {"client_kwargs": client, "config_kwargs": config}
