"""`tideline read`: rows of a target that can be read back, as another client sees them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import pyarrow as pa
from rich.table import Table
from rich.text import Text

from ingest.driver.build import TimelineHandle, build_job
from sinks.json_text import to_json
from sinks.reading import ReadableSink, readable
from timeline.errors import ConfigError


def readable_target(opened: TimelineHandle, name: str | None) -> ReadableSink:
    """The target whose rows a command reads.

    Args:
        opened: the job's timeline.
        name: name of the target; None where only one can be read.

    Raises:
        ConfigError: no epoch exists yet, no readable target has this name, or `name` is None and there is not just one.
    """
    if opened.identity is None:
        raise ConfigError(f"{opened.store.url}: no epoch was written yet; tideline run {opened.config.name} first")
    sinks = {sink.target: sink for each in build_job(opened).sinks if (sink := readable(each)) is not None}
    if name is None and len(sinks) == 1:
        return next(iter(sinks.values()))
    if name in sinks:
        return sinks[name]
    if not sinks:
        raise ConfigError(
            f"job {opened.config.name}: no target has rows that this command reads; it reads type tikv, and sinks of "
            "other packages that offer it"
        )
    wanted = f"there is no target {name!r} with rows that are read" if name is not None else "several targets are read"
    raise ConfigError(f"job {opened.config.name}: {wanted}; name one by --target: {', '.join(sinks)}")


def rows_as_json(sink: ReadableSink, limit: int | None) -> Iterator[str]:
    """Each row as one line of JSON, in the sink's order: in TiKV that of the keys."""
    for batch in sink.read_rows(limit):
        yield from to_json(batch.to_struct_array())


def rows_table(sink: ReadableSink, limit: int) -> Table:
    """The first rows as a table; without rows, only the column names."""
    rows = pa.Table.from_batches(list(sink.read_rows(limit)), sink.row_schema)
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in rows.column_names:
        table.add_column(name, overflow="fold")
    for cells in islice(zip(*(column_texts(column) for column in rows.columns), strict=True), limit):
        table.add_row(*map(Text, cells))
    return table


def column_texts(column: pa.ChunkedArray) -> list[str]:
    """A column's values as text; as JSON where Python cannot represent a date or time (its years are 1 to 9999)."""
    try:
        return ["" if value is None else str(value) for value in column.to_pylist()]
    except (OverflowError, ValueError):
        texts = (text for chunk in column.chunks for text in to_json(chunk))
        return ["" if text == "null" else text.strip('"') for text in texts]
