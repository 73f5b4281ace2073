"""A target's block in a job file, and how its type takes part in a job: asked before anything is opened.

Every sink type extends `TargetOptions` (or `LakeOptions`, where its files lie in an object store) with its own keys.
Its class answers what the job needs to know of the type; the answer of a class that gives none is the one below.
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
    """Spark writes them as Parquet files below `LakeOptions.path`. The sink's `begin` gives a
    `sinks.parquet.partition_writer.ParquetPartitionWriter`; its `abort` and `release` go through
    `sinks.delta.spark_files`, so that Spark's folder is removed as a whole."""

    WRITER = "writer"
    """Tasks give them to the sink's writer, as they do with rows of a job without a query."""

    REFUSED = "refused"
    """Not at all; a job file that asks for it is refused."""


@dataclass(frozen=True)
class Keyspace:
    """The keys that a target writes.

    Attributes:
        servers: addresses of the store; one in common means the same store.
        prefix: the beginning of all keys, as the job file's ``prefix`` writes it.
        prefix_bytes: the same as bytes.
    """

    servers: frozenset[str]
    prefix: str
    prefix_bytes: bytes

    def shared_servers(self, other: Keyspace) -> list[str]:
        """Servers on which a key of one can be a key of the other; none where no key can."""
        short, long = sorted((self.prefix_bytes, other.prefix_bytes), key=len)
        return sorted(self.servers & other.servers) if long.startswith(short) else []


class TargetOptions(BaseModel):
    """A target's block in a job file; every sink type extends it with its own keys.

    Attributes:
        type: the sink's entry point name.
        name: the target's name in the job; None means one made of type and place.
        lies_at_a_path: whether the type has the key ``path``, see `LakeOptions`.
        takes_rejected: whether a target of this type can be the job's quarantine: it takes every row of any schema, and
            its `begin` gives a plain `PartitionWriter`. For ``tideline replay-quarantine`` its sink also has to offer
            `sinks.reading.SnapshotSink`.
        query_rows: how it takes the rows of a query.
        may_need_replay: whether a commit may raise ReplayNeededError: then the epoch's records have to be readable
            again, and a stream's are not.
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
        """Whether the target takes everything that the source has as one epoch, whatever the source's limits say."""
        return False

    @property
    def keyspace(self) -> Keyspace | None:
        """The keys that the target writes, so that two targets do not write the same ones; None where rows have none.

        A sink that gives one has the key ``prefix``.
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
