"""Files of Hudi's archive of layout 2: Parquet, one row for each instant. Imported only to read an archive.

Source: ``HoodieLSMTimelineInstant.avsc`` of Apache Hudi 1.x.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from timeline.errors import FormatError
from timeline.hudi.archived import Archived
from timeline.hudi.bodies import parse_body
from timeline.instant import Action, Instant, State

_NAMES = ["instantTime", "completionTime", "action"]
_BODIES = ["plan", "metadata"]


def parse_lsm(where: str, body: bytes, bodies: bool) -> Iterator[Archived]:
    """The instants of one file.

    Args:
        where: path of the file, for messages.
        body: the file's bytes.
        bodies: whether to read bodies.

    Raises:
        FormatError: the rest of the file cannot be read.
    """
    try:
        table = pq.ParquetFile(pa.BufferReader(body)).read(columns=_NAMES + (_BODIES if bodies else []))
    except (pa.ArrowException, OSError) as error:
        raise FormatError(f"{where}: not a Parquet file that can be read: {error}") from error
    if missing := set(_NAMES) - set(table.column_names):
        raise FormatError(f"{where}: not an archive of Hudi's: no column {', '.join(sorted(missing))}")
    for batch in table.to_batches():
        for row in batch.to_pylist():
            yield _archived(where, row)


def _archived(where: str, row: Mapping[str, Any]) -> Archived:
    time, done, word = (row[name] for name in _NAMES)
    try:
        instant = Instant(time, Action(word).when_completed, State.COMPLETED, done)
    except (ValueError, TypeError, FormatError) as error:
        raise FormatError(f"{where}: instant {time!r}, completed {done!r}, action {word!r}: {error}") from error
    read: dict[str, Mapping[str, Any] | None] = {}
    problems = []
    for name in _BODIES:
        try:
            read[name] = parse_body(f"{where}: {name} of instant {time}", row.get(name) or b"")
        except FormatError as error:
            problems.append(str(error))
    return Archived(instant, read.get("plan"), read.get("metadata"), problems=tuple(problems))
