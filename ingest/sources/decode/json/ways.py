"""Decodes blocks by ways 1 to 3 of the table in `ingest.sources.decode.json`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from ingest.sources.decode.json.arrow_reader import ArrowReader
from ingest.sources.decode.json.bad_line_search import decode_around_bad_lines
from ingest.sources.decode.json.extract_nested import (
    ExtractedColumn,
    entry_block,
    extract,
    is_extractable,
    map_column,
    merge,
    struct_block,
    struct_column,
    text_column,
)
from ingest.sources.decode.json.line_block import DecodedLines, JsonColumns, LineBlock
from ingest.sources.decode.json.object_fields import RawValues, map_entries


def can_decode(columns: JsonColumns) -> bool:
    """Whether the schema has columns and `decode_block` reads all of them; see `is_extractable`."""
    schema = columns.schema
    return len(schema) > 0 and all(is_extractable(field.type, columns.format_of(field.name)) for field in schema)


def decode_block(block: LineBlock) -> DecodedLines:
    """Decode a block by the first way that accepts it; lines that are missing in the result are left to way 4.

    Args:
        block: lines with columns for which `can_decode`.
    """
    if block.rows:
        for way in WAYS:
            decoded = way(block)
            if decoded is not None:
                return decoded
    return DecodedLines.none(block.columns.schema)


def _whole_block(block: LineBlock) -> DecodedLines | None:
    reader = ArrowReader(block.columns)
    return reader.decode(block.data, block.rows) if reader.reads_all else None


def _nested_values_extracted(block: LineBlock) -> DecodedLines | None:
    extracted = extract(block) if block.objects is None else None
    if extracted is None:
        return None
    rows = len(extracted.objects)
    columns = {name: _decode_values(values, block.columns, name, rows) for name, values in extracted.values.items()}
    if len(extracted.in_place.schema):
        in_place = decode_block(extracted.block_in_place)
    else:
        in_place = DecodedLines(np.arange(rows), [])
    return merge(extracted, columns, in_place, block.columns.schema)


def _decode_values(values: RawValues, columns: JsonColumns, name: str, rows: int) -> ExtractedColumn:
    """The column of values that were extracted from a block."""
    field = columns.schema.field(name)
    if pa.types.is_string(field.type):
        return text_column(values, rows)
    if pa.types.is_map(field.type):
        entries = map_entries(values.texts)
        items = decode_block(entry_block(entries, columns.of_entries(field)))
        return map_column(values, entries, items, field.type, rows)
    return struct_column(values, decode_block(struct_block(values, columns.of_struct(field))), field.type, rows)


def _bad_line_search(block: LineBlock) -> DecodedLines | None:
    return None if block.objects is None else decode_around_bad_lines(block, block.objects)


WAYS: tuple[Callable[[LineBlock], DecodedLines | None], ...] = (
    _whole_block,
    _nested_values_extracted,
    _bad_line_search,
)
"""Ways 1 to 3, in the order in which they are tried: each returns None where it refuses a block or does not apply."""
