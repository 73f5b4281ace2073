"""A job built in Python, with the keys, checks and messages of a job file."""

from __future__ import annotations

import datetime
import enum
import numbers
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from os import PathLike
from typing import TypeAlias

import pyarrow as pa
import yaml

from ingest.config.load import JobConfig, config_of_text, load_config
from sinks.sql_types import type_name
from tideline.blocks import JobSource, JobTarget
from timeline.errors import ConfigError

Concern: TypeAlias = Mapping[str, object]
"""A block of a job file as its keys and values."""

AnyJob: TypeAlias = "Job | JobConfig | str | PathLike[str]"
"""A job, its loaded configuration, or the path of a job file."""

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")
_WORDS = frozenset({"true", "false", "yes", "no", "on", "off", "null", "y", "n", "nan", "inf"})


@dataclass(frozen=True)
class Job:
    """One job; its keys are those of a job file (docs/job-file.md), and are checked by `config`, `run` and `recover`.

    Texts may refer to the environment as in a job file, ``${NAME}``, which keeps secrets out of code and YAML.

    Attributes:
        name: the job's name.
        source: source of the records.
        targets: targets of the rows, in the order in which an epoch is applied.
        schema: type of each column, by its SQL name or as Arrow's; None: inferred at the first epoch, then kept.
        on_unknown_field: ``drop``, ``quarantine`` or ``fail``.
        transform: a query of Spark SQL over the decoded rows, its table ``source``.
        partition_by: columns, ``date(column)`` or ``hour(column)``.
        on_empty_partition: ``quarantine`` or ``to_null``.
        quarantine: the target that takes rejected rows; None: beside the first table.
        timeline: path or URL of the job's state, or its block; None: at the first table.
        epoch: ``{"interval": …}``.
        writer: ``{"lease_ttl": …}``.
        storage: fsspec options for every path of the job; may hold secrets.
        spark: ``{"master": …, "conf": {…}, …}``; may hold secrets.
        lineage: whether each row carries shard, offset and epoch.
        metrics: ``{"port": …, "host": …}``.
        on_commit: callbacks after each epoch; may hold secrets.
    """

    name: str
    source: JobSource
    targets: Sequence[JobTarget]
    schema: Mapping[str, str | pa.DataType] | pa.Schema | None = None
    on_unknown_field: str | None = None
    transform: str | None = None
    partition_by: Sequence[str] = ()
    on_empty_partition: str | None = None
    quarantine: JobTarget | None = None
    timeline: str | PathLike[str] | Concern | None = None
    epoch: Concern = field(default_factory=dict)
    writer: Concern = field(default_factory=dict)
    storage: Concern = field(default_factory=dict, repr=False)
    spark: Concern = field(default_factory=dict, repr=False)
    lineage: bool = False
    metrics: Concern = field(default_factory=dict)
    on_commit: Concern | Sequence[Concern] = field(default=(), repr=False)

    def to_yaml(self) -> str:
        """The equivalent job file. References to the environment stay references.

        Raises:
            ConfigError: a value has a type that a job file cannot hold.
        """
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        if isinstance(self.timeline, str | PathLike):
            values["timeline"] = {"path": self.timeline}
        defaults = {each.name: each.default for each in fields(self)}
        given = {
            name: self._given(name, value)
            for name, value in values.items()
            if value is not None and value != defaults[name] and not _is_empty_block(value)
        }
        return yaml.dump(given, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)

    def _given(self, name: str, value: object) -> object:
        try:
            return _plain(value)
        except ValueError as error:
            raise ConfigError(f"job {self.name}: {name}: {error}") from error

    def config(self, environment: Mapping[str, str] | None = None) -> JobConfig:
        """The job with all checks made and all defaults filled in.

        Args:
            environment: variables that ``${NAME}`` refers to; None: those of this process.

        Raises:
            ConfigError: the job is wrong; the message lists every problem with its key path and value.
        """
        variables = os.environ if environment is None else environment
        return config_of_text(self.to_yaml(), f"job {self.name}", variables)


def config_of(job: AnyJob) -> JobConfig:
    """The configuration of a job in any of its forms.

    Raises:
        ConfigError: the job is wrong; nothing was started.
    """
    match job:
        case Job():
            return job.config()
        case JobConfig():
            return job
        case str() | PathLike():
            return load_config(job)
        case _:
            raise ConfigError(
                f"a job is a tideline.Job, a loaded one or the path of a job file, found {type(job).__name__}"
            )


def _is_empty_block(value: object) -> bool:
    """Whether a value is an empty list or block, which says nothing in a job file."""
    return isinstance(value, Mapping | Sequence) and not isinstance(value, str) and not len(value)


def _plain(value: object) -> object:
    """A value in YAML's types.

    Raises:
        ValueError: YAML, or Spark SQL, has no such type.
    """
    match value:
        case JobSource(type=kind, keys=keys) | JobTarget(type=kind, keys=keys):
            return {"type": kind} | {key: _plain(inner) for key, inner in keys.items()}
        case pa.Schema():
            return {column.name: type_name(column.type) for column in value}
        case pa.DataType():
            return type_name(value)
        case enum.Enum():
            return value.value
        case PathLike():
            return os.fspath(value)
        case Mapping():
            return {str(key): _plain(inner) for key, inner in value.items()}
        case str():
            return str(value)
        case Sequence():
            return [_plain(inner) for inner in value]
        case None | bool() | int() | float() | datetime.date():
            return value
        case numbers.Integral():
            return int(value)
        case numbers.Real():
            return float(value)
        case _:
            raise ValueError(f"a value of type {type(value).__name__} is not allowed, found {value!r:.80}")


class _Dumper(yaml.SafeDumper):
    """Quotes each text that some YAML reader could take for another type."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    is_plain = _PLAIN.fullmatch(text) and text.lower() not in _WORDS
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if is_plain else '"')


_Dumper.add_representer(str, _represent_text)
