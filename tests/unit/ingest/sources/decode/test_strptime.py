"""Formats that do not determine a time are refused; texts of days and times that do not exist are rejected."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from pydantic import ValidationError

from ingest.sources.decode.strptime import format_error, parse
from ingest.sources.files.options import FilesOptions
from ingest.sources.kafka.options import KafkaOptions

DAY = datetime.date


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("%H:%M:%S", "does not say which day"),
        ("%d.%Y", "a day without its month"),
        ("%Y-%m %H:%M", "does not say which day"),
        ("%b %Y %z", "does not say which day"),
        ("%m", "does not say which day"),
        ("%%Y-%m", "does not say which day"),
        ("%Y %U", "%U or %W, %Y or %y and one of"),
        ("%U %w", "%U or %W, %Y or %y and one of"),
        ("%G-W%V", "%G, %V and one of"),
        ("%Y-%V-%u", "%G, %V and one of"),
        ("%Y %m %j", "leave the month out"),
        ("%Y-%m-%d %I:%M", "%I .* and %p .* need each other"),
        ("%Y-%m-%d %H:%M %p", "%I .* and %p .* need each other"),
        ("%Y-%m-%d %M", "%M needs %H"),
        ("%Y-%m-%d %H:%S", "%S needs %M"),
        ("%Y-%m-%d %H:%M.%f", "%f needs %S"),
        ("%Y-%m-%d %Y", "%Y is there twice"),
        ("%y %Y-%m-%d", "%y and %Y say the same part twice"),
        ("%b %m %d %Y", "%b and %m say the same part twice"),
        ("%c", "depends on the machine; write it out: %a %b %d %H:%M:%S %Y"),
        ("%x %X", "depends on the machine; write it out: %m/%d/%y"),
        ("%Y-%m-%d %H:%M %Z", "a zone's name has no offset"),
        ("%D %T", "%D: allowed are"),
        ("%Y-%m-%-d", "%-: allowed are"),
        ("%Y-%m-%d %", "% : allowed are|%: allowed are"),
    ],
)
def test_a_format_that_would_be_guessed_at_is_refused_with_what_is_allowed(pattern: str, why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        FilesOptions.model_validate({"path": "x", "format": "json", "timestamp_format": {"c": pattern}, "year": 2026})


@pytest.mark.parametrize(
    "pattern",
    ["%Y-%m", "%y%m%d %H%M%S", "%a, %d %b %Y %H:%M:%S %z", "%d/%B/%Y %I %p", "%Y %j", "%Y %W %a", "%G%V%u", "%% %Y%j"],
)  # fmt: skip
def test_a_format_that_says_day_and_year_is_taken(pattern: str) -> None:
    assert format_error(pattern) is None
    FilesOptions.model_validate({"path": "x", "format": "json", "timestamp_format": pattern})


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"timestamp_format": "%b %d %H:%M:%S"}, "does not say the year; add %Y or %y .* year: <n> .* year: file"),
        ({"timestamp_format": {"a": "%Y-%m-%d", "b": "%d/%m"}}, "'%d/%m' does not say the year"),
        ({"timestamp_format": "%j %H:%M"}, "does not say the year"),
        ({"timestamp_format": "%Y-%m-%d", "year": 2026}, "there is none; leave year out"),
        ({"timestamp_format": "epoch_ms", "year": 2026}, "there is none; leave year out"),
        ({"year": "file"}, "there is none; leave year out"),
        ({"timestamp_format": "%m-%d", "year": "message"}, "a number of four digits such as 2026 is allowed, or file"),
        ({"timestamp_format": "%m-%d", "year": 0}, "a number of four digits such as 2026 is allowed, or file"),
        ({"timestamp_format": "%m-%d", "year": True}, "a number of four digits such as 2026 is allowed, or file"),
        ({"timestamp_format": "%m-%d", "year": "26"}, "a number of four digits such as 2026 is allowed, or file"),
        ({"timestamp_format": "%m-%d", "year": "file", "format": "parquet"}, "for parquet year: <n> is allowed"),
        ({"timezone": "Berlin"}, "'Berlin' is no name of the IANA time zone database"),
        ({"timezone": "../etc/passwd"}, "no name of the IANA time zone database"),
        ({"timezone": ""}, "no name of the IANA time zone database"),
    ],
)
def test_a_year_or_zone_that_nothing_tells_is_refused_when_the_job_file_is_read(
    options: dict[str, Any], why: str
) -> None:
    with pytest.raises(ValidationError, match=why):
        FilesOptions.model_validate({"path": "x", "format": "json", **options})


def test_the_year_of_messages_is_told_by_messages_and_raw_ones_have_no_times() -> None:
    kafka = {"bootstrap_servers": "x:1", "topics": ["t"], "format": "json"}
    assert KafkaOptions.model_validate(kafka | {"timestamp_format": "%m-%d", "year": "message"}).needs_times
    with pytest.raises(ValidationError, match="a number of four digits such as 2026 is allowed, or message"):
        KafkaOptions.model_validate(kafka | {"timestamp_format": "%m-%d", "year": "file"})
    with pytest.raises(ValidationError, match="format raw has none"):
        KafkaOptions.model_validate(kafka | {"format": "raw", "timezone": "Europe/Berlin"})


@pytest.mark.parametrize(
    ("pattern", "text"),
    [("%Y %j", "2025 366"), ("%G-W%V-%u", "2025-W53-1"), ("%Y %W %a", "2026 53 fri"), ("%Y %U %w", "2026 00 0"),
     ("%Y-%m-%d", "2025-02-29"), ("%Y-%m-%d", "0000-01-01"), ("%Y-%m-%d %H:%M:%S", "2025-01-01 00:00:60")],
)  # fmt: skip
def test_a_day_or_second_that_there_is_not_is_no_time(pattern: str, text: str) -> None:
    assert parse(text, pattern, None) is None


@pytest.mark.parametrize(
    ("text", "pattern", "last_day", "expected"),
    [
        ("Jan  2", "%b %d", DAY(2026, 1, 3), DAY(2026, 1, 2)),
        ("Jan 03", "%b %d", DAY(2026, 1, 3), DAY(2026, 1, 3)),
        ("Jan 4", "%b %d", DAY(2026, 1, 3), DAY(2025, 1, 4)),
        ("Dec 31", "%b %d", DAY(2026, 1, 3), DAY(2025, 12, 31)),
        ("Jan 1", "%b %d", DAY(2026, 1, 1), DAY(2026, 1, 1)),  # the file's time is still of 31 December
        ("Feb 29", "%b %d", DAY(2024, 3, 1), DAY(2024, 2, 29)),
        ("Feb 29", "%b %d", DAY(2025, 2, 28), DAY(2024, 2, 29)),
        ("Feb 29", "%b %d", DAY(2025, 3, 1), None),
        ("Feb 29", "%b %d", DAY(2026, 1, 3), None),
        ("60", "%j", DAY(2025, 3, 1), DAY(2025, 3, 1)),
        ("61", "%j", DAY(2025, 3, 1), DAY(2024, 3, 1)),
        ("366", "%j", DAY(2025, 3, 1), DAY(2024, 12, 31)),
        ("366", "%j", DAY(2024, 12, 30), None),
    ],
)
def test_a_day_without_a_year_lies_in_the_twelve_months_that_end_with_the_last_day(
    text: str, pattern: str, last_day: datetime.date, expected: datetime.date | None
) -> None:
    found = parse(text, pattern, last_day)
    assert (found.wall.date() if found else None) == expected
