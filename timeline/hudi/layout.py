"""The files that Hudi's readers need: table properties, completed bodies, partition files.

Table version 9, timeline layout 2. Completed bodies are Avro object containers; the schemas below
contain the fields in use under Hudi's names, and Avro's schema resolution fills in the rest.
Source: Apache Hudi 1.x, ``HoodieCommitMetadata.avsc``, ``HoodieRollbackMetadata.avsc``, ``HoodieTableConfig``.
"""

from __future__ import annotations

import io
import json
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import fastavro

from timeline.concurrency import map_concurrently
from timeline.epoch import WrittenFile
from timeline.errors import FormatError
from timeline.hudi.bodies import avro_record
from timeline.instant import Action, Instant, TimelineLayout
from timeline.stores.base import ObjectStore, Retry, create_or_read, read_or_none

PROPERTIES_PATH = ".hoodie/hoodie.properties"
"""Path of a table's properties, below the timeline's base path."""

_LAYOUT_2_SINCE = 8
"""The first table version whose timeline has layout 2."""

_ESCAPED = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))")
_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}

_OPTIONAL_STRING = ["null", "string"]
_WRITE_STAT = {
    "type": "record",
    "name": "HoodieWriteStat",
    "fields": [
        *({"name": name, "type": _OPTIONAL_STRING, "default": None} for name in ("fileId", "path", "prevCommit")),
        *(
            {"name": name, "type": ["null", "long"], "default": None}
            for name in ("numWrites", "numDeletes", "numUpdateWrites", "numInserts", "totalWriteBytes")
        ),
        {"name": "totalWriteErrors", "type": ["null", "long"], "default": None},
        {"name": "partitionPath", "type": _OPTIONAL_STRING, "default": None},
        {"name": "fileSizeInBytes", "type": ["null", "long"], "default": None},
    ],
}
_EXTRA_METADATA = {"name": "extraMetadata", "type": ["null", {"type": "map", "values": "string"}], "default": None}
_COMMIT = fastavro.parse_schema(
    {
        "type": "record",
        "name": "HoodieCommitMetadata",
        "namespace": "org.apache.hudi.avro.model",
        "fields": [
            {
                "name": "partitionToWriteStats",
                "type": ["null", {"type": "map", "values": {"type": "array", "items": _WRITE_STAT}}],
                "default": None,
            },
            {"name": "compacted", "type": ["null", "boolean"], "default": None},
            _EXTRA_METADATA,
            {"name": "version", "type": ["int", "null"], "default": 1},
            {"name": "operationType", "type": _OPTIONAL_STRING, "default": None},
        ],
    }
)
_STRINGS = {"type": "array", "items": "string"}
_ROLLBACK_PARTITION = {
    "type": "record",
    "name": "HoodieRollbackPartitionMetadata",
    "fields": [
        {"name": "partitionPath", "type": "string"},
        {"name": "successDeleteFiles", "type": _STRINGS},
        {"name": "failedDeleteFiles", "type": _STRINGS},
    ],
}
_INSTANT_INFO = {
    "type": "record",
    "name": "HoodieInstantInfo",
    "fields": [{"name": "commitTime", "type": "string"}, {"name": "action", "type": "string"}],
}
_ROLLBACK = fastavro.parse_schema(
    {
        "type": "record",
        "name": "HoodieRollbackMetadata",
        "namespace": "org.apache.hudi.avro.model",
        "fields": [
            {"name": "startRollbackTime", "type": "string"},
            {"name": "timeTakenInMillis", "type": "long"},
            {"name": "totalFilesDeleted", "type": "int"},
            {"name": "commitsRollback", "type": _STRINGS},
            {"name": "partitionMetadata", "type": {"type": "map", "values": _ROLLBACK_PARTITION}},
            {"name": "version", "type": ["int", "null"], "default": 1},
            {"name": "instantsRollback", "type": {"type": "array", "items": _INSTANT_INFO}, "default": []},
            _EXTRA_METADATA,
        ],
    }
)


@dataclass(frozen=True)
class TableIdentity:
    """Properties fixed at a timeline's creation, for all its writers and readers.

    Attributes:
        timeline_id: identifies this timeline in the markers of its targets.
        name: the table's name.
        schema: columns and Spark SQL types of the decoded rows.
        avro_schema: the table's columns for Hudi's readers, as Avro JSON, partition columns included.
        partition_columns: columns of the partition path, outermost first.
        result_schema: columns and Spark SQL types of the job's query over the decoded rows, including the lineage
            columns that it selects; None for a timeline created without a query.
    """

    timeline_id: str
    name: str
    schema: Mapping[str, str]
    avro_schema: str
    partition_columns: tuple[str, ...]
    result_schema: Mapping[str, str] | None = None


def create_identity(store: ObjectStore, wanted: TableIdentity, retry: Retry) -> TableIdentity:
    """Create the table's properties, or read the existing ones: the first creator's are final.

    Args:
        store: the timeline's store.
        wanted: the identity to create.
        retry: retry bounds.
    """
    return _parse_properties(create_or_read(store, PROPERTIES_PATH, _properties(wanted), retry))


def read_identity(store: ObjectStore, retry: Retry) -> TableIdentity | None:
    """The table's identity, or None if no timeline has been created.

    Raises:
        FormatError: a Hudi table that Tideline did not create, or one with another writer's metadata table.
    """
    body = read_or_none(store, PROPERTIES_PATH, retry)
    return None if body is None else _parse_properties(body)


def read_properties(store: ObjectStore, retry: Retry) -> Mapping[str, str] | None:
    """Properties of any writer's Hudi table; None if there is no table."""
    body = read_or_none(store, PROPERTIES_PATH, retry)
    return None if body is None else _fields(body)


def read_layout(store: ObjectStore, retry: Retry) -> TimelineLayout:
    """Layout of a table's timeline by its layout version, else its table version; layout 2 without properties."""
    properties = read_properties(store, retry) or {}
    version = properties.get("hoodie.timeline.layout.version") or ""
    if not version:
        table = properties.get("hoodie.table.version") or ""
        version = "1" if properties and (not table.isdecimal() or int(table) < _LAYOUT_2_SINCE) else "2"
    return TimelineLayout.TWO if version == "2" else TimelineLayout.ONE


def commit_body(files: Sequence[WrittenFile], extra: Mapping[str, str]) -> bytes:
    """Body of a completed commit: Hudi's write statistics for each file, and extra metadata for readers."""
    stats: dict[str, list[dict[str, Any]]] = {}
    for file in files:
        folder, _, name = file.path.rpartition("/")
        stats.setdefault(folder, []).append(
            {
                "fileId": name.split("_", 1)[0],
                "path": file.path,
                "prevCommit": "null",
                "numWrites": file.rows,
                "numInserts": file.rows,
                "numDeletes": 0,
                "numUpdateWrites": 0,
                "totalWriteBytes": file.size,
                "totalWriteErrors": 0,
                "partitionPath": folder,
                "fileSizeInBytes": file.size,
            }
        )
    return _avro(
        _COMMIT,
        {
            "partitionToWriteStats": stats,
            "compacted": False,
            "extraMetadata": dict(extra),
            "version": 1,
            "operationType": "INSERT",
        },
    )


def rollback_body(
    instant: str, rollback_time: str, took_ms: int, deleted: Sequence[str], extra: Mapping[str, str]
) -> bytes:
    """Body of a completed rollback: the instant rolled back, and its deleted files.

    Args:
        instant: time of the commit instant rolled back.
        rollback_time: time of the rollback instant.
        took_ms: milliseconds from the request to the completion of the rollback.
        deleted: paths below the table's root, or ``<target>: <path>`` for files of other targets.
        extra: extra metadata for readers.
    """
    partitions: dict[str, dict[str, Any]] = {}
    for path in deleted:
        folder = path.rpartition("/")[0]
        entry = partitions.setdefault(
            folder, {"partitionPath": folder, "successDeleteFiles": [], "failedDeleteFiles": []}
        )
        entry["successDeleteFiles"].append(path)
    return _avro(
        _ROLLBACK,
        {
            "startRollbackTime": rollback_time,
            "timeTakenInMillis": took_ms,
            "totalFilesDeleted": len(deleted),
            "commitsRollback": [instant],
            "partitionMetadata": partitions,
            "version": 1,
            "instantsRollback": [{"commitTime": instant, "action": Action.COMMIT.value}],
            "extraMetadata": dict(extra),
        },
    )


def read_completed(store: ObjectStore, instant: Instant, retry: Retry) -> Mapping[str, Any]:
    """The body of any writer's completed instant as a dictionary.

    Args:
        store: the timeline's store.
        instant: the completed instant.
        retry: retry bounds.

    Raises:
        FormatError: the body is not an Avro object container.
    """
    return avro_record(f"{store.url}/{instant.path}", retry.call(lambda: store.get(instant.path)))


def read_epoch_of(store: ObjectStore, instant: Instant, retry: Retry) -> int | None:
    """The epoch of a completed instant; None for another writer's instant.

    Args:
        store: the timeline's store.
        instant: the completed instant.
        retry: retry bounds.

    Raises:
        FormatError: the body is damaged.
    """
    epoch = (read_completed(store, instant, retry).get("extraMetadata") or {}).get("tideline.epoch")
    if epoch is None:
        return None
    try:
        return int(epoch)
    except ValueError as error:
        raise FormatError(f"{store.url}/{instant.path}: tideline.epoch {epoch!r}, expected a number") from error


def ensure_partition_files(
    store: ObjectStore, files: Sequence[WrittenFile], instant: str, retry: Retry, known: set[str]
) -> None:
    """Put ``.hoodie_partition_metadata`` into each folder of these files; Hudi finds partitions by it. Idempotent.

    Args:
        store: the table's root.
        files: the data files of one epoch.
        instant: the epoch's instant time.
        retry: retry bounds.
        known: folders known to have the file; extended in place.
    """

    def mark(folder: str) -> None:
        path = f"{folder}/.hoodie_partition_metadata" if folder else ".hoodie_partition_metadata"
        depth = folder.count("/") + 1 if folder else 0
        body = f"#partition metadata\ncommitTime={instant}\npartitionDepth={depth}\n".encode()
        create_or_read(store, path, body, retry)
        known.add(folder)

    map_concurrently(mark, sorted({file.path.rpartition("/")[0] for file in files} - known))


def _properties(identity: TableIdentity) -> bytes:
    partitioned = bool(identity.partition_columns)
    fields = {
        "hoodie.table.name": identity.name,
        "hoodie.database.name": "default",
        "hoodie.table.type": "COPY_ON_WRITE",
        "hoodie.table.version": "9",
        "hoodie.table.initial.version": "9",
        "hoodie.table.format": "native",
        "hoodie.table.create.schema": identity.avro_schema,
        "hoodie.timeline.layout.version": "2",
        "hoodie.timeline.path": "timeline",
        "hoodie.timeline.history.path": "history",
        "hoodie.table.timeline.timezone": "UTC",
        "hoodie.archivelog.folder": "archived",
        "hoodie.populate.meta.fields": "false",
        "hoodie.record.merge.mode": "COMMIT_TIME_ORDERING",
        "hoodie.datasource.write.drop.partition.columns": "false",
        "hoodie.datasource.write.hive_style_partitioning": "true",
        "hoodie.datasource.write.partitionpath.urlencode": "true",
        "hoodie.table.keygenerator.type": "SIMPLE" if partitioned else "NON_PARTITION",
        "hoodie.table.checksum": str(zlib.crc32(f"default.{identity.name}".encode())),
        "tideline.timeline.id": identity.timeline_id,
        "tideline.schema": json.dumps(dict(identity.schema)),
    }
    if partitioned:
        fields["hoodie.table.partition.fields"] = ",".join(identity.partition_columns)
    if len(identity.partition_columns) > 1:
        fields["hoodie.table.keygenerator.type"] = "COMPLEX"
    if identity.result_schema is not None:
        fields["tideline.result.schema"] = json.dumps(dict(identity.result_schema))
    return "".join(f"{key}={_escape(value)}\n" for key, value in fields.items()).encode()


def _fields(body: bytes) -> Mapping[str, str]:
    fields: dict[str, str] = {}
    # java.util.Properties is Latin-1, with escapes for the rest.
    for line in body.decode("latin-1").splitlines():
        if line and not line.startswith("#"):
            key, _, value = line.partition("=")
            fields[key.strip()] = _unescape(value)
    return fields


def _parse_properties(body: bytes) -> TableIdentity:
    fields = _fields(body)
    if "tideline.timeline.id" not in fields:
        raise FormatError(
            f"{PROPERTIES_PATH} has no tideline.timeline.id: this Hudi table was not created by Tideline; "
            "choose another timeline.path"
        )
    if fields.get("hoodie.table.metadata.partitions"):
        raise FormatError(
            f"{PROPERTIES_PATH}: another Hudi writer has built a metadata table, which does not know of Tideline's "
            "files: whoever reads by it would miss rows. Drop it (hoodie.metadata.enable=false in that writer) first"
        )
    columns = fields.get("hoodie.table.partition.fields", "")
    result = fields.get("tideline.result.schema")
    return TableIdentity(
        timeline_id=fields["tideline.timeline.id"],
        name=fields["hoodie.table.name"],
        schema=json.loads(fields["tideline.schema"]),
        avro_schema=fields["hoodie.table.create.schema"],
        partition_columns=tuple(columns.split(",")) if columns else (),
        result_schema=json.loads(result) if result is not None else None,
    )


def _escape(value: str) -> str:
    """A value in the format of java.util.Properties: ASCII, with UTF-16 escapes for the rest."""
    units = value.replace("\\", "\\\\").encode("utf-16-be")
    codes = (int.from_bytes(units[at : at + 2], "big") for at in range(0, len(units), 2))
    escaped = "".join(chr(code) if 0x20 <= code < 0x7F else f"\\u{code:04X}" for code in codes)
    return f"\\{escaped}" if escaped.startswith(" ") else escaped


def _unescape(value: str) -> str:
    """The inverse of `_escape`; also reads Java's optional escapes, such as colons."""
    codes = _ESCAPED.sub(lambda found: chr(int(found[1], 16)) if found[1] else _CONTROL.get(found[2], found[2]), value)
    return codes.encode("utf-16-be", "surrogatepass").decode("utf-16-be")


def _avro(schema: Any, record: Mapping[str, Any]) -> bytes:
    buffer = io.BytesIO()
    # The container's sync marker is random by default; a fixed one makes equal records equal bytes.
    fastavro.writer(buffer, schema, [record], sync_marker=b"tideline-timelin")
    return buffer.getvalue()
