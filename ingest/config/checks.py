"""Checks of a job file between blocks that are each valid by themselves.

A check is a function from the job to pairs of key path and message; `CHECKS` names the blocks that each check reads, so
that a check is skipped if one of them is invalid already.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import pyarrow as pa

from ingest.config.job_file import KeyPath, dotted
from ingest.config.models import JobConfig, resolved_place, written_place
from ingest.config.registry import load_sink
from ingest.sources.decode.options import RecordFormat, SourceOptions
from ingest.sources.files.options import FilesOptions
from ingest.sources.options import StreamOptions
from sinks.base import LINEAGE_COLUMNS, SinkContext, TargetOptions
from sinks.options import Keyspace, QueryRows
from sinks.partition import partitioned_schema
from sinks.sql_types import type_name
from timeline.errors import ConfigError
from timeline.stores.opening import absolute, open_store, s3_root, store_package

Finding: TypeAlias = tuple[KeyPath, str]
Check: TypeAlias = Callable[[JobConfig], Iterator[Finding]]

_GLOB = re.compile(r"[*?\[]")


def check_column_names(job: JobConfig) -> Iterator[Finding]:
    """Column names differ, ignoring case as Delta and Spark do, and none is taken."""
    seen: dict[str, str] = {}
    for name in job.columns or {}:
        if not name.strip():
            yield ("schema", name), "a column needs a name"
        elif name.lower() in seen:
            yield ("schema", name), f"differs from {seen[name.lower()]!r} only in case, and table columns ignore case"
        seen.setdefault(name.lower(), name)
    taken = [(name, "the source adds it") for name in job.source.added_columns.names]
    if job.lineage:
        taken += [(name, "lineage: true adds it") for name, _ in LINEAGE_COLUMNS]
    for name, why in taken:
        if name.lower() in seen:
            yield ("schema", seen[name.lower()]), f"{name!r} is taken: {why}; rename the column, or leave that out"


def check_partitions(job: JobConfig) -> Iterator[Finding]:
    """Each partition field by itself, then all together; only Spark, later, knows the columns of a query."""
    schema = job.arrow_schema
    if schema is None or job.transform is not None:
        return
    single: list[Finding] = []
    for number, field in enumerate(job.partition_by):
        try:
            partitioned_schema(schema, [field])
        except ConfigError as error:
            single.append((("partition_by", number), _without_prefix(error)))
    yield from single
    if not single:
        try:
            partitioned_schema(job.row_schema(schema), job.partition_by)
        except ConfigError as error:
            yield ("partition_by",), _without_prefix(error)


def check_source_columns(job: JobConfig) -> Iterator[Finding]:
    """Columns that the source's options name are columns of the schema."""
    source, columns = job.source, job.columns
    if not isinstance(source, SourceOptions):
        return
    if source.format is RecordFormat.TEXT and source.pattern is not None:
        from ingest.sources.decode.text_records import refused_by_re2

        refused = refused_by_re2(source.pattern)
        if refused is not None:
            yield ("source", "pattern"), refused
        groups = list(re.compile(source.pattern).groupindex)
        for name in columns or {}:
            if name not in groups:
                yield ("schema", name), f"no group (?P<{name}>…) in source.pattern; its groups are {', '.join(groups)}"
    if source.format is RecordFormat.CSV and not source.has_header and columns is None:
        yield ("schema",), "needed, because csv without a header does not name its columns"
    if source.format is RecordFormat.RAW and columns is not None and not _holds_raw(list(columns.values())):
        yield ("schema",), "format raw has one column, of type binary or string"
    if isinstance(source.timestamp_format, Mapping) and columns is not None:
        for name in source.timestamp_format:
            kind = columns.get(name)
            if kind is None:
                yield ("source", "timestamp_format", name), f"no such column; columns are {', '.join(columns)}"
            elif not (pa.types.is_timestamp(kind) or pa.types.is_date(kind)):
                yield (
                    ("source", "timestamp_format", name),
                    f"{name!r} is {type_name(kind)}; allowed are timestamps and dates",
                )
    for column, found in source.format_findings(columns or {}):
        yield ("source", "timestamp_format", *([column] if column else [])), found


def _holds_raw(kinds: list[pa.DataType]) -> bool:
    return len(kinds) == 1 and (pa.types.is_binary(kinds[0]) or pa.types.is_string(kinds[0]))


def check_stream(job: JobConfig) -> Iterator[Finding]:
    """A stream's job file sets no key that the streaming query decides itself."""
    if not isinstance(job.source, StreamOptions):
        return
    if job.lineage:
        yield ("lineage",), "a stream's rows have no offsets of their own; add such columns in the query"
    said_by_query = {
        "on_unknown_field": "the query decodes its records",
        "epoch": "an epoch is a micro-batch: give the query a trigger",
        "spark": "the session is the query's own",
        "metrics": "the endpoint is a part of tideline run; Spark measures its queries itself",
        "on_commit": "calls are made by tideline run; use the query's own listener",
    }
    for key, why in said_by_query.items():
        if key in job.model_fields_set:
            yield (key,), f"not for a stream: {why}; leave it out"


def check_stream_targets(job: JobConfig) -> Iterator[Finding]:
    """A stream's targets need no replay: a query's rows cannot be read again for a target that has lost them."""
    if not isinstance(job.source, StreamOptions):
        return
    for number, target in enumerate(job.targets):
        if target.may_need_replay or target.takes_whole_source:
            yield (
                ("targets", number, "type"),
                f"{target.type} takes no stream: an epoch may have to be written to it again from its offsets, and a "
                "query's rows cannot be read again; let tideline run read the records (source.type kafka or files), "
                "or give the stream a delta target",
            )


def check_transform(job: JobConfig) -> Iterator[Finding]:
    """A query's rows go to one target, of a type that takes them."""
    if job.transform is None:
        return
    if isinstance(job.source, StreamOptions):
        yield ("transform",), "not for a stream: its query makes the rows that it wants; leave it out"
    for number, target in enumerate(job.targets):
        if target.query_rows is QueryRows.REFUSED:
            yield (
                ("targets", number, "type"),
                f"{target.type} does not take the rows of a query (transform): delta is allowed",
            )
    if len(job.targets) > 1:
        yield ("targets",), "one target is allowed with transform: each would run the query anew; give each its own job"


def check_keyspaces(job: JobConfig) -> Iterator[Finding]:
    """Keyspaces do not overlap: neither rows of two targets, nor rows and transaction records."""
    seen: list[tuple[int, Keyspace]] = []
    for number, target in enumerate(job.targets):
        keyspace = target.keyspace
        if keyspace is None:
            continue
        for other_number, other in seen:
            shared = keyspace.shared_servers(other)
            if shared:
                other_path = dotted(("targets", other_number, "prefix"))
                yield (
                    ("targets", number, "prefix"),
                    f"overlaps with {other.prefix!r} of {other_path} on {', '.join(shared)}: "
                    "one must not begin with the other, for example events_ and users_",
                )
        seen.append((number, keyspace))


def check_places(job: JobConfig) -> Iterator[Finding]:
    """Every table has a folder of its own, and the source reads from none of them."""
    tables: list[tuple[KeyPath, str]] = []
    apart = True
    for path, options in _tables(job):
        place = options.lake_path
        if place is None:
            continue
        place = resolved_place(place)
        for other_path, other in tables:
            if _overlap(place, other):
                yield (
                    (*path, "path"),
                    f"the same place as {dotted(other_path)}, or inside or around it; a table needs its own folder",
                )
                apart = False
                break
        tables.append(((*path, "path"), place))
    timeline = resolved_place(job.timeline.path)
    for path, place in tables:
        if apart and timeline != place and _overlap(timeline, place):
            yield ("timeline", "path"), f"inside or around {dotted(path)}; allowed are that place itself, or one apart"
            break
    yield from _source_overlap(job, tables)


def check_cluster_places(job: JobConfig) -> Iterator[Finding]:
    """On a cluster all places are in an object store, or in a folder that all machines mount according to the job file.

    The timeline too: a driver that is restarted on another machine would not find it, and start from scratch.
    """
    if not job.spark.is_cluster:
        return
    shared = [resolved_place(folder) for folder in job.spark.shared_folders]
    tables = [((*path, "path"), place) for path, options in _tables(job) if (place := options.lake_path) is not None]
    places: list[tuple[KeyPath, str]] = [*tables, (("timeline", "path"), job.timeline.path)]
    if isinstance(job.source, FilesOptions):
        places.insert(0, (("source", "path"), job.source.path))
    for path, place in places:
        place = resolved_place(place)
        if _is_on_this_machine(place, job.storage) and not any(_inside(place, folder) for folder in shared):
            yield (
                path,
                f"{place} is on this machine, the tasks are on {job.spark.master}: s3:// is allowed, "
                "or a folder that all machines mount and spark.shared_folders names",
            )


def _is_on_this_machine(place: str, storage: Mapping[str, Any]) -> bool:
    """Whether only this machine reaches a place; a store from another package answers for itself."""
    if store_package(place) is None:
        return place.startswith(("file://", "memory://"))
    with contextlib.suppress(ConfigError):  # `check_targets` reports a bad URL
        return not open_store(place, storage).traits.is_shared
    return False


def _source_overlap(job: JobConfig, tables: list[tuple[KeyPath, str]]) -> Iterator[Finding]:
    """The source reads no table of the job: such a job would never end."""
    if not isinstance(job.source, FilesOptions):
        return
    path = job.source.path
    fixed = _GLOB.split(path, maxsplit=1)[0]
    has_glob = fixed != path
    folder = resolved_place(fixed.rpartition("/")[0] or "." if has_glob else fixed)
    walks_down = not has_glob or "**" in path
    for table, place in tables:
        if _inside(folder, place) or (walks_down and _inside(place, folder)):
            yield ("source", "path"), f"would read what the job writes to {dotted(table)}; keep them in folders apart"
            break


def _tables(job: JobConfig) -> list[tuple[KeyPath, TargetOptions]]:
    return [
        *((("targets", number), target) for number, target in enumerate(job.targets)),
        (("quarantine",), job.quarantine),
    ]


def _overlap(first: str, second: str) -> bool:
    return _inside(first, second) or _inside(second, first)


def _inside(place: str, other: str) -> bool:
    """Whether a place is the same as another one, or below it."""
    return place == other or place.startswith(other.rstrip("/") + "/")


def _without_prefix(error: ConfigError) -> str:
    return str(error).removeprefix("partition_by: ")


def check_targets(job: JobConfig) -> Iterator[Finding]:
    """Each sink accepts its options, and targets have different names."""
    context = SinkContext("check", job.row_schema(job.arrow_schema or pa.schema([])), (), job.storage)
    named: list[tuple[KeyPath, str]] = []
    for path, options in _tables(job):
        try:
            named.append((path, load_sink(options.type).open(options, context).target))
        except ConfigError as error:
            yield path if options.lake_path is None else (*path, "path"), str(error)
    counts = Counter(name for _, name in named)
    for path, name in named:
        if counts[name] > 1:
            yield (*path, "name"), f"{name!r} is the name of {counts[name]} targets; give each its own"
    try:
        open_store(job.timeline.path, job.storage)
    except ConfigError as error:
        yield ("timeline", "path"), str(error)


def check_source_path(job: JobConfig) -> Iterator[Finding]:
    """A source path on S3 is in canonical spelling, as are tables and timeline; a local path can be brought into it."""
    if not isinstance(job.source, FilesOptions):
        return
    path = job.source.path
    if path.startswith(("s3://", "s3a://")):
        try:
            s3_root(path.split("://", 1)[1])
        except ConfigError as error:
            yield ("source", "path"), str(error)
    elif path.startswith(("file:", "local:")) and "://" not in path:
        yield ("source", "path"), f"{path}: two slashes belong behind the colon; the path alone is allowed too"
    elif (place := written_place(path)).startswith("file://"):
        fixed, *behind = _GLOB.split(path.rpartition("://")[2], maxsplit=1)
        if ".." in "".join(behind).split("/"):
            yield ("source", "path"), f"{path}: '..' behind a wildcard names no folder; give the path without it"
        elif ".." in fixed.split("/") and not _leads_back(fixed.rpartition("/")[0] if behind else fixed):
            yield (
                ("source", "path"),
                f"{path}: '..' behind a link; give the path without it: {place[7:]} is another place",
            )


def _leads_back(path: str) -> bool:
    """Whether ``..`` in a local path leads to the parent folder as written; behind a link it does not."""
    return os.path.realpath(os.path.expanduser(path)) == os.path.realpath(absolute(path))


CHECKS: tuple[tuple[frozenset[str], Check], ...] = (
    (frozenset({"schema", "source", "lineage"}), check_column_names),
    (frozenset({"schema", "source", "lineage", "transform", "partition_by"}), check_partitions),
    (frozenset({"schema", "source"}), check_source_columns),
    (frozenset({"source", "lineage", "on_unknown_field", "epoch", "spark", "metrics", "on_commit"}), check_stream),
    (frozenset({"source", "targets"}), check_stream_targets),
    (frozenset({"source", "transform", "targets"}), check_transform),
    (frozenset({"targets"}), check_keyspaces),
    (frozenset({"source"}), check_source_path),
    (frozenset({"source", "targets", "quarantine", "timeline"}), check_places),
    (frozenset({"source", "targets", "quarantine", "timeline", "spark"}), check_cluster_places),
    (frozenset({"schema", "source", "lineage", "targets", "quarantine", "timeline", "storage"}), check_targets),
)
"""Every check, and the blocks that it reads."""
