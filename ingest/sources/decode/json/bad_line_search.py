"""Way 3: the lines that Arrow accepts among parsed objects of which it refuses some.

::

    all objects ── a value does not fit its column ───────────→ left for line by line
      │ others
      ▼
    all together ── accepted ─────────────────────────────────→ decoded
      │ refused
      ▼
    stretch of lines ── accepted ─────────────────────────────→ decoded with other accepted stretches; the next one
      │ refused                                                 is longer
      ▼
    halves of it, down to the first bad line ─────────────────→ left; the next stretch begins behind it

The check of values costs one pass and finds nearly all bad lines; halving finds the others: decimals and times inside
arrays and structs. A good line that is left costs time, never a row. Beyond a share of refusals the search ends and
leaves the rest.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ingest.sources.decode.decimals import to_decimals
from ingest.sources.decode.json.arrow_reader import ArrowReader
from ingest.sources.decode.json.line_block import DecodedLines, LineBlock
from ingest.sources.decode.json.object_fields import ParsedObjects, RawValues
from ingest.sources.decode.lines import Positions, TextBlock, split_lines
from ingest.sources.decode.records import join_lines

_FIRST_BYTES_OF_NUMBERS = b"-0123456789"
_SHORTEST_STRETCH = 64
_GROWTH = 2
_ALWAYS_ALLOWED_REFUSALS = 16
_MOST_REFUSED_SHARE = 0.05
"""Refusals, as a share of the lines, beyond which line by line is faster than more calls of Arrow."""


def decode_around_bad_lines(block: LineBlock, objects: ParsedObjects) -> DecodedLines:
    """The lines of a refused block that Arrow accepts.

    Args:
        block: lines of parsed objects, in string columns only strings and nulls.
        objects: the objects.
    """
    reader = ArrowReader(block.columns)
    texts = split_lines(TextBlock.of(block.data), 0).texts
    lines = np.flatnonzero(_fitting_lines(block, objects, reader))
    decoded = _decode(reader, texts, lines) if len(lines) < block.rows else None
    if decoded is None:
        lines = lines[_accepted_lines(reader, texts.take(pa.array(lines)))]
        decoded = _decode(reader, texts, lines)
    return DecodedLines.none(block.columns.schema) if decoded is None else decoded


def _decode(reader: ArrowReader, texts: pa.Array, lines: Positions) -> DecodedLines | None:
    """Some lines of a block together; None where Arrow refuses them."""
    decoded = reader.decode(join_lines(texts.take(pa.array(lines))), len(lines)) if len(lines) else None
    return None if decoded is None else decoded.renumbered(lines)


def _fitting_lines(block: LineBlock, objects: ParsedObjects, reader: ArrowReader) -> npt.NDArray[np.bool_]:
    """A mask of the lines whose values fit their columns, as far as a check of each column shows."""
    fits = np.ones(len(objects), np.bool_)
    fits[list(reader.unsafe_rows(block.data))] = False
    for field in block.columns.schema:
        if not pa.types.is_string(field.type):
            values = objects.raw_values(field.name)
            carrier = reader.carriers.field(field.name).type
            fits[values.rows[~_fitting_values(values, field.type, carrier, strict=block.columns.strict)]] = False
    return fits


def _fitting_values(
    values: RawValues, kind: pa.DataType, carrier: pa.DataType, *, strict: bool
) -> npt.NDArray[np.bool_]:
    """A mask of the values that fit a column.

    Args:
        values: the values.
        kind: the column's type.
        carrier: the type that Arrow reads the column as.
        strict: refuse fields that structs do not have.
    """
    if pa.types.is_nested(kind):
        return values.are_of(kind, strict=strict)
    fits: npt.NDArray[np.bool_] = np.isin(values.first, np.frombuffer(_FIRST_BYTES_OF_NUMBERS, np.uint8))
    if pa.types.is_decimal(carrier):
        texts = pc.utf8_trim(values.texts.view(pa.string()), '"')
        fits = np.asarray(to_decimals(texts, carrier if pa.types.is_timestamp(kind) else kind).is_valid())
    elif not pa.types.is_floating(kind):  # texts of times
        fits = values.first == ord('"')
    fits = np.logical_or(fits, values.first == ord("n"))
    return fits


def _accepted_lines(reader: ArrowReader, texts: pa.Array) -> npt.NDArray[np.bool_]:
    """A mask of the lines that Arrow accepts, by halving of refused stretches.

    Args:
        reader: tests stretches of lines.
        texts: the lines, which Arrow refuses together.
    """
    rows = len(texts)
    is_accepted = np.zeros(rows, np.bool_)
    refusals_left = _ALWAYS_ALLOWED_REFUSALS + int(rows * _MOST_REFUSED_SHARE)
    start, size = 0, max(1, rows // 2)
    while start < rows and refusals_left > 0:
        first, stop = start, min(start + size, rows)
        if _accepts(reader, texts, start, stop):
            is_accepted[start:stop] = True
            start, size = stop, size * _GROWTH
            continue
        refusals_left -= 1
        while stop - start > 1:  # the first bad line is in [start, stop)
            middle = (start + stop) // 2
            if _accepts(reader, texts, start, middle):
                is_accepted[start:middle] = True
                start = middle
            else:
                refusals_left -= 1
                stop = middle
        start, size = stop, max(_SHORTEST_STRETCH, start - first)
    return is_accepted


def _accepts(reader: ArrowReader, texts: pa.Array, start: int, stop: int) -> bool:
    return reader.accepts(join_lines(texts.slice(start, stop - start)), stop - start)
