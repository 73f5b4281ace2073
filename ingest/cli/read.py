"""`tideline read`: rows of a TiKV target, as another client sees them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import pyarrow as pa
from rich.table import Table
from rich.text import Text

from ingest.driver.build import Opened, build_job
from sinks.json_text import to_json
from sinks.tikv.place import TikvPlace
from sinks.tikv.reader import read_rows
from timeline.errors import ConfigError


def tikv_target(opened: Opened, name: str | None) -> TikvPlace:
    """The TiKV target of a job.

    Args:
        opened: the job's timeline.
        name: which one; None where there is only one.

    Raises:
        ConfigError: there is none, or several, or none of this name.
    """
    if opened.identity is None:
        raise ConfigError(f"{opened.store.url}: no epoch was written yet; tideline run {opened.config.name} first")
    places = {sink.target: sink for sink in build_job(opened).sinks if isinstance(sink, TikvPlace)}
    if name is None and len(places) == 1:
        return next(iter(places.values()))
    if name in places:
        return places[name]
    has = f"its TiKV targets are {', '.join(places)}" if places else "it has none of type tikv"
    wanted = f"target {name!r} is none" if name is not None else "which target is meant?"
    raise ConfigError(f"job {opened.config.name}: {wanted}; {has}" + ("; name one by --target" if places else ""))


def rows_as_json(place: TikvPlace, limit: int | None) -> Iterator[str]:
    """Each row as one line of JSON, in the order of the keys."""
    for batch in read_rows(place, limit):
        yield from to_json(batch.to_struct_array())


def rows_table(place: TikvPlace, limit: int) -> Table:
    """The first rows, for people; where there are none, the names of the columns."""
    nothing = pa.table({"key": pa.array([], pa.binary()), "value": pa.array([], pa.binary())})
    rows = pa.Table.from_batches(list(read_rows(place, limit)) or [place.stager.restore(nothing)])
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in rows.column_names:
        table.add_column(name, overflow="fold")
    for cells in islice(zip(*(column_texts(column) for column in rows.columns), strict=True), limit):
        table.add_row(*map(Text, cells))
    return table


def column_texts(column: pa.ChunkedArray) -> list[str]:
    """A column's values for people; as JSON where Python has no such date or time (its years are 1 to 9999)."""
    try:
        return ["" if value is None else str(value) for value in column.to_pylist()]
    except (OverflowError, ValueError):
        texts = (text for chunk in column.chunks for text in to_json(chunk))
        return ["" if text == "null" else text.strip('"') for text in texts]
