"""Sources and targets of a job built in Python; the keys are those of a job file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Unpack

from tideline.keys import DeltaKeys, FilesKeys, KafkaKeys, TikvKeys


@dataclass(frozen=True)
class JobSource:
    """The ``source`` block of a job.

    Attributes:
        type: the source's type.
        keys: its other keys; may hold secrets, so the repr leaves them out.
    """

    type: str
    keys: Mapping[str, object] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class JobTarget:
    """One block of a job's ``targets``.

    Attributes:
        type: entry point of its sink.
        keys: its other keys; may hold secrets, so the repr leaves them out.
    """

    type: str
    keys: Mapping[str, object] = field(default_factory=dict, repr=False)


def files(path: str, **keys: Unpack[FilesKeys]) -> JobSource:
    """Files in a folder, a glob or one file, local or on S3.

    Args:
        path: the folder, glob or file.
        keys: see `tideline.keys.FilesKeys`; ``format`` is required.
    """
    return JobSource("files", {"path": path, **keys})


def kafka(bootstrap_servers: str, **keys: Unpack[KafkaKeys]) -> JobSource:
    """Topics of a Kafka cluster.

    Args:
        bootstrap_servers: ``host:port,…``.
        keys: see `tideline.keys.KafkaKeys`; ``format`` and either ``topics`` or ``topic_pattern`` are required.
    """
    return JobSource("kafka", {"bootstrap_servers": bootstrap_servers, **keys})


def delta(path: str, **keys: Unpack[DeltaKeys]) -> JobTarget:
    """A Delta table, created by the first rows.

    Args:
        path: the table's folder or URL.
        keys: see `tideline.keys.DeltaKeys`.
    """
    return JobTarget("delta", {"path": path, **keys})


def tikv(pd: Sequence[str], **keys: Unpack[TikvKeys]) -> JobTarget:
    """A range of keys in a TiKV cluster.

    Args:
        pd: ``host:port`` of PD's members.
        keys: see `tideline.keys.TikvKeys`; ``prefix`` and ``key`` are required.
    """
    return JobTarget("tikv", {"pd": pd, **keys})


def target(type: str, **keys: object) -> JobTarget:
    """A target of any installed type.

    Args:
        type: entry point of its sink in the group ``tideline.sinks``.
        keys: the sink's options.
    """
    return JobTarget(type, keys)
