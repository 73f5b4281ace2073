"""The decoder that a job file's ``source`` block asks for, checked against the columns."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from ingest.sources.decode.csv_records import CsvDecoder
from ingest.sources.decode.json_records import JsonDecoder
from ingest.sources.decode.options import RecordFormat, SourceOptions, UnknownField
from ingest.sources.decode.raw_records import RawDecoder, check_raw
from ingest.sources.decode.records import RecordDecoder
from ingest.sources.decode.text_records import TextDecoder, check_pattern
from timeline.errors import ConfigError


def record_decoder(
    options: SourceOptions, schema: pa.Schema, on_unknown_field: UnknownField, *, lineage: bool
) -> RecordDecoder:
    """A decoder of records that are texts.

    Args:
        options: how they are written.
        schema: the columns to decode, in order.
        on_unknown_field: what happens to a record with a field that the schema does not have.
        lineage: whether accepted rows come with their offsets.

    Raises:
        ConfigError: a column is no group of the text pattern, Arrow does not take the pattern, or a timestamp
            format does not fit its column.
    """
    check_timestamp_formats(options, schema)
    formats = {name: options.timestamp_format_of(name) for name in schema.names}
    match options.format:
        case RecordFormat.JSON:
            return JsonDecoder(schema, formats, on_unknown_field, lineage)
        case RecordFormat.CSV:
            return CsvDecoder(schema, options.csv, options.nulls, formats, on_unknown_field, lineage)
        case RecordFormat.TEXT:
            pattern = options.pattern or ""
            check_pattern(pattern, schema)
            return TextDecoder(schema, pattern, options.nulls, formats, lineage)
        case RecordFormat.RAW:
            check_raw(schema)
            return RawDecoder(schema, lineage)
        case RecordFormat.PARQUET:
            raise ConfigError("source.format: parquet holds no records that are texts")


def check_timestamp_formats(options: SourceOptions, schema: pa.Schema) -> None:
    """Check that timestamp formats fit the columns.

    Raises:
        ConfigError: a format is for a column that there is not or that is no timestamp, or has a zone for a wall clock.
    """
    if isinstance(options.timestamp_format, Mapping):
        for name in options.timestamp_format:
            at = schema.get_field_index(name)
            if at < 0 or not pa.types.is_timestamp(schema.field(at).type):
                raise ConfigError(
                    f"source.timestamp_format.{name}: no column of type timestamp or timestamp_ntz has this name; the "
                    f"columns are {', '.join(schema.names)}"
                )
    for field in schema:
        text = options.timestamp_format_of(field.name) or ""
        if field.type == pa.timestamp("us") and "%z" in text:
            raise ConfigError(
                f"source.timestamp_format: {text!r} has a zone, but {field.name} is a timestamp_ntz; "
                "make it a timestamp"
            )


def with_formatted_timestamps(schema: pa.Schema, options: SourceOptions) -> pa.Schema:
    """An inferred schema in which every column with a timestamp format of its own is a timestamp."""
    formats = options.timestamp_format
    if isinstance(formats, Mapping):
        for name in set(formats).intersection(schema.names):
            at = schema.get_field_index(name)
            schema = schema.set(at, pa.field(name, pa.timestamp("us", tz="UTC")))
    return schema
