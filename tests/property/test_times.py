"""Times are parsed as by Python's datetime and zoneinfo, one by one and in columns alike."""

from __future__ import annotations

import contextlib
import datetime
import zoneinfo

import pyarrow as pa
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ingest.sources.decode.convert import convert
from ingest.sources.decode.strptime import parse
from ingest.sources.decode.time_format import TimeFormat
from ingest.sources.decode.timestamps import in_range
from ingest.sources.decode.values import Rejection, to_value

_ZONES = (
    "Europe/Berlin",
    "America/New_York",
    "America/Sao_Paulo",  # changed its clocks at midnight
    "Australia/Lord_Howe",  # by half an hour
    "Pacific/Apia",  # left out a day
    "Africa/Monrovia",  # was 44 minutes and 30 seconds behind
    "Asia/Kathmandu",
    "Etc/GMT+12",
    "UTC",
)
_FORMATS = (
    "%Y-%m-%d %H:%M:%S.%f",
    "%d/%b/%Y:%H:%M:%S",
    "%A %d %B %Y %I:%M:%S %p",
    "%y%m%d %H%M%S",
    "%G-W%V-%u %H:%M:%S",
    "%Y %j %H:%M:%S",
    "%d.%m.%Y",
)
_DATE_FORMATS = ("%d/%m/%Y", "%Y%m%d", "%d %B %Y")
_INSTANT = pa.timestamp("us", tz="UTC")
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_DAY_MICROS = 86_400_000_000
_CHANGES = ("2026-03-29", "2026-10-25", "2026-11-01", "2026-04-05", "2011-12-30", "2018-11-04", "1893-04-01")
_AROUND_CHANGES = st.builds(
    lambda day, minutes: datetime.datetime.fromisoformat(day) + datetime.timedelta(minutes=minutes),
    st.sampled_from(_CHANGES),
    st.integers(-60, 1500),
)
_WALLS = st.one_of(_AROUND_CHANGES, st.datetimes())


def _instant(wall: datetime.datetime, zone: str) -> int | None:
    """The first moment at which clocks of the zone show this time, in µs since 1970; None if there is none."""
    for fold in (0, 1):
        instant = wall.replace(tzinfo=zoneinfo.ZoneInfo(zone), fold=fold)
        with contextlib.suppress(OverflowError):
            shown = instant.astimezone(datetime.UTC).astimezone(instant.tzinfo)
            if shown.replace(tzinfo=None) == wall:
                return in_range((instant.astimezone(datetime.UTC) - _EPOCH) // datetime.timedelta(microseconds=1))
    return None


def _written(moment: datetime.date, pattern: str) -> str:
    """As strftime, with years of four digits."""
    text = moment.strftime(pattern.replace("%Y", "@").replace("%G", "~"))
    return text.replace("@", f"{moment.year:04d}").replace("~", f"{moment.isocalendar()[0]:04d}")


def _alone(text: str, kind: pa.DataType, written: TimeFormat) -> object:
    try:
        return to_value(text, "c", kind, written)
    except Rejection:
        return None


def _column(texts: list[str], kind: pa.DataType, written: TimeFormat) -> list[object]:
    values = convert(pa.array(texts), "c", kind, written).values
    found: list[object] = (values.cast(pa.int64()) if pa.types.is_timestamp(kind) else values).to_pylist()
    return found


@settings(max_examples=300)
@example([datetime.datetime(1, 1, 1), datetime.datetime(9999, 12, 31, 23, 59, 59, 999999)], "Etc/GMT+12")
@example([datetime.datetime(1, 1, 1), datetime.datetime(9999, 12, 31, 23, 59, 59, 999999)], "Asia/Kathmandu")
@given(st.lists(_WALLS, min_size=1, max_size=8), st.sampled_from(_ZONES))
def test_local_times_are_the_first_instant_that_the_zones_clocks_show_them(
    walls: list[datetime.datetime], zone: str
) -> None:
    written = TimeFormat(timezone=zone)
    texts = [wall.isoformat() for wall in walls]
    expected = [_instant(wall, zone) for wall in walls]
    assert _column(texts, _INSTANT, written) == expected
    assert [_alone(text, _INSTANT, written) for text in texts] == expected
    mixed = [*texts, "2026-01-01T00:00:00Z", "2026-01-01T00:00:00-01:30", "x"]
    assert _column(mixed, _INSTANT, written) == [_alone(text, _INSTANT, written) for text in mixed]
    assert _column(texts, pa.timestamp("us"), written) == _column(texts, pa.timestamp("us"), TimeFormat())


@settings(max_examples=300)
@given(st.lists(_WALLS, min_size=1, max_size=6), st.sampled_from(_ZONES), st.sampled_from(_FORMATS), st.data())
def test_formatted_texts_are_what_strptime_reads_at_the_zones_clocks(
    walls: list[datetime.datetime], zone: str, pattern: str, data: st.DataObject
) -> None:
    texts = []
    for wall in walls:
        text = _written(wall, pattern)
        at = data.draw(st.integers(0, len(text)))
        texts.append(text[:at] + data.draw(st.sampled_from(["", "", "0", " ", "9", "x"])) + text[at:])
    expected = []
    for text in texts:
        try:
            expected.append(_instant(datetime.datetime.strptime(text, pattern), zone))
        except ValueError:
            expected.append(None)
    written = TimeFormat(pattern, timezone=zone)
    alone = [_alone(text, _INSTANT, written) for text in texts]
    assert _column(texts, _INSTANT, written) == alone
    for text, found, meant in zip(texts, alone, expected, strict=True):
        # Python reads day 366 or week 53 of a year without one as a day of the next year.
        assert found == meant or (found is None and ("%j" in pattern or "%V" in pattern)), text


@settings(max_examples=300)
@example([(2, 29)], datetime.date(2025, 2, 28))
@example([(2, 29)], datetime.date(2025, 3, 1))
@given(
    st.lists(st.tuples(st.integers(1, 12), st.integers(1, 31)), min_size=1, max_size=8),
    st.dates(datetime.date(2, 1, 1)),
)
def test_days_without_a_year_are_the_one_day_of_the_last_twelve_months(
    days: list[tuple[int, int]], last_day: datetime.date
) -> None:
    is_leap_day = (last_day.month, last_day.day) == (2, 29)
    year_before = last_day.replace(year=last_day.year - 1, day=28 if is_leap_day else last_day.day)
    expected: list[int | None] = []
    for month, day in days:
        found = None
        for year in (last_day.year, last_day.year - 1):
            with contextlib.suppress(ValueError):
                candidate = datetime.date(year, month, day)
                found = candidate if year_before < candidate <= last_day else found
        expected.append(None if found is None else (found - _EPOCH.date()).days * _DAY_MICROS)
    texts = [f"{month:02d}-{day:02d} 00:00" for month, day in days]
    written = TimeFormat("%m-%d %H:%M", year=last_day)
    assert _column(texts, _INSTANT, written) == expected
    assert [_alone(text, _INSTANT, written) for text in texts] == expected


@settings(max_examples=200)
@given(st.lists(st.dates(), min_size=1), st.sampled_from(_DATE_FORMATS), st.booleans())
def test_formatted_dates_are_what_strptime_reads(days: list[datetime.date], pattern: str, with_others: bool) -> None:
    others = ["30/02/2020", "2020-01-01", ""] if with_others else []
    texts = [*(_written(day, pattern) for day in days), *others]
    expected = [*days, *[None for _ in others]]
    written = TimeFormat(pattern, is_of_dates=True)
    assert _column(texts, pa.date32(), written) == expected
    assert [_alone(text, pa.date32(), written) for text in texts] == expected


@given(st.text(max_size=30), st.sampled_from(_FORMATS))
def test_no_text_makes_a_format_fail(text: str, pattern: str) -> None:
    assert parse(text, pattern, None) is None or text.strip()
