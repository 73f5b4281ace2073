"""Keys of a job file's blocks as keyword arguments; docs/job-file.md says what each means.

Durations are seconds or texts (``"10s"``), sizes bytes or texts (``"256MB"``), as in a job file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias, TypedDict

DurationKey: TypeAlias = str | float
SizeKey: TypeAlias = str | int


class RecordKeys(TypedDict, total=False):
    """Keys for reading records from any source."""

    pattern: str
    timestamp_format: str | Mapping[str, str]
    timezone: str
    year: int | str
    csv: Mapping[str, object]
    nulls: Sequence[str]


class FilesKeys(RecordKeys, total=False):
    """Keys of ``source: {type: files}`` besides path."""

    format: Literal["json", "csv", "text", "parquet"]
    max_bytes_per_epoch: SizeKey
    max_files_per_epoch: int
    close_after: DurationKey
    compression: Literal["auto", "none", "gzip", "zstd"]
    on_truncate: Literal["stop", "restart"]


class KafkaKeys(RecordKeys, total=False):
    """Keys of ``source: {type: kafka}`` besides bootstrap_servers."""

    format: Literal["json", "csv", "text", "raw"]
    topics: Sequence[str]
    topic_pattern: str
    start: str | Mapping[str, object]
    options: Mapping[str, object]
    max_records_per_epoch: int
    max_bytes_per_epoch: SizeKey
    columns: Mapping[str, str]
    tombstones: str
    publish_offsets_to: str
    broker_timeout: DurationKey


class DeltaKeys(TypedDict, total=False):
    """Keys of a target ``{type: delta}`` besides path."""

    name: str
    target_file_bytes: SizeKey
    compression: Literal["zstd", "snappy", "none"]


class TikvKeys(TypedDict, total=False):
    """Keys of a target ``{type: tikv}`` besides pd."""

    name: str
    prefix: str
    key: Sequence[str]
    transaction: Literal["checkpoint", "global", "minibatch"]
    mode: Literal["upsert", "insert"]
    on_existing: Literal["quarantine", "fail"]
    on_null_key: Literal["quarantine", "fail"]
    dedup: Mapping[str, str]
    delete_marker: str
    lock_ttl: DurationKey
    max_rows: int
    max_interval: DurationKey
    cluster_id: int
    tls: Mapping[str, str]
    patience: DurationKey
