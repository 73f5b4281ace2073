"""A timeline as a table in Spark: ``spark.read.format("tideline")``, and in SQL ``CREATE TEMP VIEW … USING tideline``.

::

    from ingest.execution.spark.data_source import TidelineSource

    spark.dataSource.register(TidelineSource)
    epochs = spark.read.format("tideline").option("path", "s3a://lake/web").option("view", "epochs").load()

The driver lists the timeline, tasks read the bodies. Rows: see `timeline.history.timeline.Timeline.to_arrow`. Executors
need Tideline as any task of a job does: installed, or shipped with ``spark.submit.pyFiles``.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from timeline.errors import ConfigError
from timeline.history.arrow import VIEWS, view_schema
from timeline.history.timeline import Timeline
from timeline.instant import Instant, parse_time
from timeline.stores.base import Retry

log = logging.getLogger(__name__)

NAME = "tideline"
"""Name of the format."""

INSTANTS_PER_TASK = 250
"""About a thousand objects: enough to be worth a Python task, which costs 100 ms before it reads anything."""

_STORAGE = "storage."
_ALLOWED = ("path", "view", "archived", f"{_STORAGE}*")
_WORDS: Mapping[str, object] = {"true": True, "false": False, "none": None}
_PUSHDOWN_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"


@dataclass(frozen=True)
class TimelineOptions:
    """Options of a reader.

    Attributes:
        path: path or URL of the table that the timeline belongs to.
        view: one of `timeline.history.arrow.VIEWS`.
        archived: whether to read instants that Hudi has moved out of the active timeline.
        storage: fsspec's options; they may hold credentials and never appear in a message.
    """

    path: str
    view: str = "instants"
    archived: bool = False
    storage: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> TimelineOptions:
        """Parse Spark's options: values are texts, names are in any case.

        Raises:
            ConfigError: an option, its value or the view is not allowed, or there is no path.
        """
        given = {name.lower(): value for name, value in options.items()}
        storage = {name: value for name, value in given.items() if name.startswith(_STORAGE)}
        if unknown := sorted(given.keys() - storage.keys() - set(_ALLOWED)):
            raise ConfigError(f"option {', '.join(unknown)} of format {NAME}: allowed are {', '.join(_ALLOWED)}")
        path, view = given.get("path", ""), given.get("view", cls.view)
        if not path:
            raise ConfigError(f'format {NAME} needs .option("path", …): the table that the timeline belongs to')
        if path.startswith("memory://"):
            raise ConfigError(f"{path}: is in one process's memory, which Spark's workers do not see")
        if view not in VIEWS:
            raise ConfigError(f"view {view!r} of format {NAME}: allowed are {', '.join(VIEWS)}")
        archived = given.get("archived", "false").lower()
        if archived not in ("true", "false"):
            raise ConfigError(f"option archived of format {NAME}: {archived!r}, allowed are true, false")
        return cls(path, view, archived == "true", _nested(storage))

    def load(self) -> Timeline:
        """The timeline; files that cannot be read are logged."""
        timeline = Timeline.load(self.path, storage=self.storage, archived=self.archived)
        for name in timeline.unreadable:
            log.warning("%s: not read: %s", self.path, name)
        return timeline


def _nested(options: Mapping[str, str]) -> dict[str, Any]:
    """Options as fsspec's nested dictionaries: ``storage.client_kwargs.endpoint_url`` is a key in a dictionary."""
    nested: dict[str, Any] = {}
    for name, text in options.items():
        *groups, last = name.removeprefix(_STORAGE).split(".")
        inner = nested
        for group in groups:
            inner = inner.setdefault(group, {})
        inner[last] = _WORDS.get(text.lower(), text)
    return nested


@dataclass
class InstantsPartition(InputPartition):
    """The instants that one task reads."""

    timeline: Timeline


class TidelineSource(DataSource):
    """The format ``tideline``.

    Options: ``path`` (a table's path or URL), ``view`` (instants, epochs, offsets, files or rejected; default
    instants), ``archived`` (true: also instants archived by Hudi) and ``storage.*`` (fsspec's options for the URL).
    """

    @classmethod
    def name(cls) -> str:
        """See DataSource."""
        return NAME

    def schema(self) -> StructType:
        """See DataSource; the columns of the view."""
        return from_arrow_schema(view_schema(TimelineOptions.parse(self.options).view))

    def reader(self, schema: StructType) -> DataSourceReader:
        """See DataSource.

        Raises:
            ConfigError: an option is not allowed, or the caller names other columns.
        """
        if schema.fieldNames() != self.schema().fieldNames():
            raise ConfigError(f"format {NAME} has columns of its own: leave .schema(…) out and select from them")
        options = TimelineOptions.parse(self.options)
        # Spark refuses a reader that takes filters while spark.sql.python.filterPushdown.enabled is off, and hides the
        # setting from readers; but when it is on, Spark plans in a worker of its own.
        return FilteringReader(options) if _PUSHDOWN_WORKER in sys.modules else TimelineReader(options)


class TimelineReader(DataSourceReader):
    """Reads one view of a timeline."""

    def __init__(self, options: TimelineOptions) -> None:
        self._options = options
        self._conditions: list[Condition] = []

    def partitions(self) -> Sequence[InputPartition]:
        """See DataSourceReader; `INSTANTS_PER_TASK` each."""
        timeline = self._options.load()
        if self._conditions:
            timeline = timeline.where(lambda instant: all(holds(instant) for holds in self._conditions))
        # Instants of one epoch may be far apart and are one row.
        size = len(timeline) if self._options.view == "epochs" else INSTANTS_PER_TASK
        return [InstantsPartition(share) for share in timeline.shares(max(1, size))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """See DataSourceReader."""
        assert isinstance(partition, InstantsPartition)
        # A new Retry for its jitter: tasks with the same random numbers would retry in step.
        share = partition.timeline
        table = Timeline(replace(share.active, retry=Retry()), share.archive).to_arrow(self._options.view)
        yield from table.cast(pa.schema(map(_as_spark_reads_it, table.schema))).to_batches()


def _as_spark_reads_it(column: pa.Field) -> pa.Field:
    """A column in Spark's type: timestamps are in microseconds."""
    return column.with_type(pa.timestamp("us", "UTC")) if pa.types.is_timestamp(column.type) else column


class FilteringReader(TimelineReader):
    """Reads only instants whose names match the filters; Spark filters the rows once more."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """See DataSourceReader."""
        columns = _COLUMNS.get(self._options.view, {})
        self._conditions = [found for each in filters if (found := _condition(columns, each)) is not None]
        return filters


Condition = Callable[[Instant], bool]
Value = Callable[[Instant], object]

_OF_INSTANT: Mapping[str, Value] = {"instant": lambda instant: instant.time}
_COLUMNS: Mapping[str, Mapping[str, Value]] = {
    "instants": {
        "time": lambda instant: instant.time,
        "action": lambda instant: instant.action.value,
        "state": lambda instant: instant.state.value,
        "requested": lambda instant: datetime.fromtimestamp(parse_time(instant.time) / 1000, UTC),
    },
    # Not epochs: a row combines several instants, and its columns come from bodies.
    "offsets": _OF_INSTANT,
    "files": _OF_INSTANT,
    "rejected": _OF_INSTANT,
}


def _condition(columns: Mapping[str, Value], found: Filter) -> Condition | None:
    """A filter as a condition on instants; None where an instant's name cannot decide it."""
    of = columns.get(".".join(getattr(found, "attribute", ())))
    wanted = getattr(found, "value", None)
    if of is None or wanted is None:
        return None
    match found:
        case EqualTo():
            return lambda instant: of(instant) == wanted
        case In():
            return lambda instant: of(instant) in wanted
        case GreaterThan():
            return lambda instant: bool(of(instant) > wanted)
        case GreaterThanOrEqual():
            return lambda instant: bool(of(instant) >= wanted)
        case LessThan():
            return lambda instant: bool(of(instant) < wanted)
        case LessThanOrEqual():
            return lambda instant: bool(of(instant) <= wanted)
        case StringStartsWith():
            return lambda instant: str(of(instant)).startswith(wanted)
        case _:
            return None
