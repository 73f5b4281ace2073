"""The decoder that a job file's ``source`` block asks for, checked against the columns."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from functools import partial

import pyarrow as pa

from ingest.sources.decode.csv_records import CsvDecoder
from ingest.sources.decode.dated import DatedDecoder
from ingest.sources.decode.json.decoder import JsonDecoder
from ingest.sources.decode.options import EPOCH_UNITS, RecordFormat, SourceOptions, UnknownField, YearOf
from ingest.sources.decode.raw_records import RawDecoder, check_raw
from ingest.sources.decode.records import RecordDecoder
from ingest.sources.decode.strptime import says_year
from ingest.sources.decode.text_records import TextDecoder, check_pattern
from ingest.sources.decode.time_format import TimeFormat
from timeline.errors import ConfigError


def record_decoder(
    options: SourceOptions, schema: pa.Schema, on_unknown_field: UnknownField, *, lineage: bool
) -> RecordDecoder:
    """A decoder of records that are texts.

    Args:
        options: how records are written.
        schema: the columns to decode, in order.
        on_unknown_field: treatment of a record with a field that the schema does not have.
        lineage: whether accepted rows come with their offsets.

    Raises:
        ConfigError: a column is no group of the text pattern, Arrow refuses the pattern, raw records have another
            schema than one string or binary column, the format is parquet, or a timestamp format does not fit.
    """
    check_timestamp_formats(options, schema)
    if options.format is RecordFormat.TEXT:
        check_pattern(options.pattern or "", schema)
    if options.format is RecordFormat.RAW:
        check_raw(schema)
    if isinstance(options.year, YearOf):
        return DatedDecoder(partial(_decoder, options, schema, on_unknown_field, lineage))
    return _decoder(options, schema, on_unknown_field, lineage, None)


def _decoder(
    options: SourceOptions,
    schema: pa.Schema,
    on_unknown_field: UnknownField,
    lineage: bool,
    last_day: datetime.date | None,
) -> RecordDecoder:
    """See `record_decoder`; for `last_day` see `time_formats`."""
    formats = time_formats(options, schema, last_day)
    match options.format:
        case RecordFormat.JSON:
            return JsonDecoder(schema, formats, on_unknown_field, lineage)
        case RecordFormat.CSV:
            return CsvDecoder(schema, options.csv, options.nulls, formats, on_unknown_field, lineage)
        case RecordFormat.TEXT:
            return TextDecoder(schema, options.pattern or "", options.nulls, formats, lineage)
        case RecordFormat.RAW:
            return RawDecoder(schema, lineage)
        case RecordFormat.PARQUET:
            raise ConfigError("source.format: parquet holds no records that are texts")


def time_formats(
    options: SourceOptions, schema: pa.Schema, last_day: datetime.date | None = None
) -> dict[str, TimeFormat | None]:
    """The time format of each column; None for ISO 8601 in UTC.

    Args:
        options: the job file's ``source`` block.
        schema: the columns.
        last_day: the last day of the twelve months that records without a year belong to, where `year` is a `YearOf`;
            None where the day is unknown.
    """
    return {field.name: _time_format(options, field, last_day) for field in schema}


def _time_format(options: SourceOptions, field: pa.Field, last_day: datetime.date | None) -> TimeFormat | None:
    is_date = pa.types.is_date(field.type)
    pattern = options.timestamp_format_of(field.name)
    if is_date and isinstance(options.timestamp_format, str):
        pattern = None  # a single format is for timestamps only
    if pattern is None and (is_date or options.timezone is None):
        return None
    year = last_day if isinstance(options.year, YearOf) else options.year
    if pattern is None or pattern in EPOCH_UNITS or says_year(pattern):
        year = None
    return TimeFormat(pattern, options.timezone, year, is_of_dates=is_date)


def check_timestamp_formats(options: SourceOptions, schema: pa.Schema) -> None:
    """Check that timestamp formats fit the columns.

    Raises:
        ConfigError: a format is for a missing column or one that is neither timestamp nor date, or has a part that
            its column cannot hold.
    """
    if isinstance(options.timestamp_format, Mapping):
        for name in options.timestamp_format:
            at = schema.get_field_index(name)
            if at < 0 or not (pa.types.is_timestamp(schema.field(at).type) or pa.types.is_date(schema.field(at).type)):
                raise ConfigError(
                    f"source.timestamp_format.{name}: no column of type timestamp, timestamp_ntz or date has this "
                    f"name; the columns are {', '.join(schema.names)}"
                )
    for column, found in options.format_findings({field.name: field.type for field in schema}):
        raise ConfigError(f"source.timestamp_format{f'.{column}' if column else ''}: {found}")


def with_formatted_timestamps(schema: pa.Schema, options: SourceOptions) -> pa.Schema:
    """An inferred schema in which every column with a timestamp format of its own is a timestamp."""
    formats = options.timestamp_format
    if isinstance(formats, Mapping):
        for name in set(formats).intersection(schema.names):
            at = schema.get_field_index(name)
            schema = schema.set(at, pa.field(name, pa.timestamp("us", tz="UTC")))
    return schema
