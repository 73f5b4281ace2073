"""A target's block in a job file, and properties of its type that a job reads before it opens anything.

Every sink type extends `TargetOptions` (or `LakeOptions`, if its files lie in an object store) with its own keys. Its
class overrides the properties whose default below does not fit.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import ClassVar

from pydantic import BaseModel, ConfigDict, field_validator

from timeline.units import visible_path


class QueryRows(enum.Enum):
    """How a target takes the rows of a job's query (``transform``)."""

    FILES = "files"
    """Spark writes the rows as Parquet files below `LakeOptions.path`. The sink's `begin` returns a
    `sinks.parquet.partition_writer.ParquetPartitionWriter`; its `abort` and `release` go through
    `sinks.delta.spark_files`, so that Spark's folder is removed as a whole."""

    WRITER = "writer"
    """Tasks pass the rows to the sink's writer, as in a job without a query."""

    REFUSED = "refused"
    """The target takes no rows of a query; a job file with both is refused."""


@dataclass(frozen=True)
class Keyspace:
    """The keys that a target writes.

    Attributes:
        servers: addresses of the store; a common address means the same store.
        prefix: the beginning of all keys, as written in the job file's ``prefix``.
        prefix_bytes: the same as bytes.
    """

    servers: frozenset[str]
    prefix: str
    prefix_bytes: bytes

    def shared_servers(self, other: Keyspace) -> list[str]:
        """Servers on which two keyspaces overlap; empty if they do not."""
        short, long = sorted((self.prefix_bytes, other.prefix_bytes), key=len)
        return sorted(self.servers & other.servers) if long.startswith(short) else []


class TargetOptions(BaseModel):
    """A target's block in a job file; every sink type extends it with its own keys.

    Attributes:
        type: the sink's entry point name.
        name: the target's name in the job; None: derived from type and place.
        lies_at_a_path: whether the type has the key ``path``, see `LakeOptions`.
        takes_rejected: whether a target of this type can be the job's quarantine: it takes every row of any schema, and
            its `begin` returns a plain `PartitionWriter`. For ``tideline replay-quarantine`` its sink also has to offer
            `sinks.reading.SnapshotSink`.
        query_rows: how the target takes the rows of a query.
        may_need_replay: whether a commit may raise ReplayNeededError: then the epoch's records have to be readable
            again, which a stream's are not.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    type: str
    name: str | None = None

    lies_at_a_path: ClassVar[bool] = False
    takes_rejected: ClassVar[bool] = False
    query_rows: ClassVar[QueryRows] = QueryRows.WRITER
    may_need_replay: ClassVar[bool] = False

    @property
    def lake_path(self) -> str | None:
        """The folder of a lake target; None for a target that lies elsewhere, for example in a database."""
        return None

    @property
    def takes_whole_source(self) -> bool:
        """Whether one epoch takes all records that the source has, regardless of the source's limits."""
        return False

    @property
    def keyspace(self) -> Keyspace | None:
        """The target's keys, which must not overlap with another target's; None if rows have no keys.

        Options with a keyspace have the key ``prefix``.
        """
        return None


class LakeOptions(TargetOptions):
    """The block of a target whose files lie below a folder of an object store that Tideline opens.

    The timeline and the quarantine may lie beside it by default, no other table may lie inside of it, and its store is
    probed at each start.

    Attributes:
        path: the folder: a path, or a URL that `timeline.stores.opening.open_store` takes.
    """

    path: str

    lies_at_a_path: ClassVar[bool] = True
    takes_rejected: ClassVar[bool] = True

    @field_validator("path")
    @classmethod
    def _is_visible(cls, path: str) -> str:
        return visible_path(path)

    @property
    def lake_path(self) -> str:
        """See TargetOptions."""
        return self.path
