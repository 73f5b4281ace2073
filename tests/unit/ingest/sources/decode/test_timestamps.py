"""Local times, times without a year, dates in the job's formats: equal in every record format and decoding path."""

from __future__ import annotations

import datetime
import gzip
import json
import os
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ingest.sources.base import Block
from ingest.sources.files.source import FilesSource
from ingest.sources.kafka.message_decoder import restore_records
from ingest.sources.kafka.messages import message_batch
from tests.unit.ingest.sources.kafka.test_message_decoder import decoder_of, message, options_of
from tests.unit.ingest.sources.rows import block_of, outcome, schema_of, source_of
from timeline.epoch import OffsetRange
from timeline.errors import ConfigError

UTC = datetime.UTC
BERLIN: dict[str, Any] = {"timezone": "Europe/Berlin"}
SYSLOG: dict[str, Any] = {"timestamp_format": "%b %d %H:%M:%S"}
NEW_YEAR_S = datetime.datetime(2026, 1, 2, 9, 30, tzinfo=UTC).timestamp()


def at(*parts: int) -> datetime.datetime:
    return datetime.datetime(*parts, tzinfo=UTC)  # type: ignore[arg-type,misc]


def decoded(texts: Sequence[str], kind: str = "timestamp", mtime: float | None = None, **options: Any) -> list[Any]:
    """Each text's value, or the reason of its rejection; checked to be equal in all formats, in a block and alone.

    Args:
        texts: no quotes and no line ends.
        kind: type of the column.
        mtime: modification time of the file, seconds since 1970; None: unknown.
        **options: of the source.
    """
    outcomes = []
    lines = [json.dumps({"c": text}) for text in texts]
    ways: list[tuple[str, list[str], dict[str, Any]]] = [
        ("json", lines, {}),
        ("json", [*lines, '{"c": 5}'], {}),  # a line that is decoded alone
        ("csv", [f'"{text}"' for text in texts], {"csv": {"header": False}}),
        ("text", [f"<{text}>" for text in texts], {"pattern": "<(?P<c>.*)>"}),
        *(("json", [line], {}) for line in lines),
    ]
    for name, records, more in ways:
        source = source_of("x", format=name, **more, **options)
        block = block_of("\n".join(records).encode())
        detail = {} if mtime is None else {"mtime": mtime}
        good, bad = outcome(
            source.decoder(schema_of({"c": kind}), lineage=True).decode(
                Block(block.shard, block.start, block.rows, block.data, detail)
            )
        )
        rows = sorted([(offset, row["c"]) for offset, row in good] + [(offset, reason) for offset, reason, _ in bad])
        outcomes.append([value for _, value in rows][: len(records) if name != "json" else len(lines)])
    alone = [values[0] for values in outcomes[4:]]
    assert all(values[: len(texts)] == alone for values in outcomes[:4]), outcomes
    return alone


def test_local_times_are_instants_by_the_zone_and_the_first_of_two() -> None:
    assert decoded(["2026-07-01 12:00:00", "2026-01-01T12:00", "2026-10-25 02:30", "2026-07-01T12:00Z"], **BERLIN) == [
        at(2026, 7, 1, 10),
        at(2026, 1, 1, 11),
        at(2026, 10, 25, 0, 30),
        at(2026, 7, 1, 12),
    ]
    found = decoded(["25/10/2026 02:30", "01/01/2026 00:00"], timestamp_format="%d/%m/%Y %H:%M", **BERLIN)
    assert found == [at(2026, 10, 25, 0, 30), at(2025, 12, 31, 23)]


def test_a_local_time_that_the_clocks_skipped_is_rejected_with_the_zone() -> None:
    reason = "c: '2026-03-29 02:30' is not a time that clocks of Europe/Berlin showed"
    assert decoded(["2026-03-29 01:59", "2026-03-29 02:30"], **BERLIN) == [at(2026, 3, 29, 0, 59), reason]
    assert decoded(["2026/03/29 02:30", "2026/03/29 03:00"], timestamp_format="%Y/%m/%d %H:%M", **BERLIN) == [
        "c: '2026/03/29 02:30' is not a time that clocks of Europe/Berlin showed",
        at(2026, 3, 29, 1),
    ]


def test_a_zone_changes_no_offset_no_wall_clock_no_date_and_no_count() -> None:
    zoned: dict[str, Any] = {"timestamp_format": "%Y-%m-%d %H:%M %z"} | BERLIN
    assert decoded(["2026-07-01 12:00 -0130"], **zoned) == [at(2026, 7, 1, 13, 30)]
    assert decoded(["2026-03-29 02:30"], "timestamp_ntz", **BERLIN) == [datetime.datetime(2026, 3, 29, 2, 30)]
    assert decoded(["2026-03-29"], "date", **BERLIN) == [datetime.date(2026, 3, 29)]
    assert decoded(["1600000000"], timestamp_format="epoch_s", **BERLIN) == [at(2020, 9, 13, 12, 26, 40)]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("struct<t:timestamp>", '{"t": "%s"}'),
        ("array<timestamp>", '["%s"]'),
        ("map<string,timestamp>", '{"k": "%s"}'),
        ("array<struct<t:timestamp>>", '[{"t": "%s"}]'),
        ("map<string,struct<t:timestamp>>", '{"k": {"t": "%s"}}'),
    ],
)
def test_local_times_inside_of_values_are_of_the_zone_too(kind: str, value: str) -> None:
    decoder = source_of("x", **BERLIN).decoder(schema_of({"c": kind}), lineage=True)
    texts = ["2026-07-01 12:00", "2026-07-01T12:00Z", "2026-03-29 02:30"]
    for block in ([texts[0]], texts, texts[:2]):
        lines = "\n".join('{"c": ' + value % text + "}" for text in block)
        good, bad = outcome(decoder.decode(block_of(lines.encode())))
        found = ["10:00:00+00:00", "12:00:00+00:00"]
        assert [str(row).count(", 10, 0") + 2 * str(row).count(", 12, 0") for _, row in good] == [1, 2][: len(block)]
        assert len(good) == min(len(block), len(found))
        never = "2026-03-29 02:30' is not a time that clocks of Europe/Berlin showed"
        assert all(never in reason for _, reason, _ in bad)
        assert len(good) + len(bad) == len(block)


def test_records_of_december_and_january_in_one_file_get_two_years() -> None:
    texts = ["Dec 31 23:59:59", "Jan  1 00:00:00", "Jan  3 23:59:59", "Jan 04 00:00:00", "Feb 29 00:00:00"]
    assert decoded(texts, mtime=NEW_YEAR_S, year="file", **SYSLOG) == [
        at(2025, 12, 31, 23, 59, 59),
        at(2026, 1, 1),
        at(2026, 1, 3, 23, 59, 59),
        at(2025, 1, 4),
        "c: 'Feb 29 00:00:00' is not a timestamp in the format %b %d %H:%M:%S",
    ]
    leap = datetime.datetime(2024, 3, 1, tzinfo=UTC).timestamp()
    assert decoded(["Feb 29 12:00:00"], mtime=leap, year="file", **SYSLOG) == [at(2024, 2, 29, 12)]


def test_a_year_for_all_records_has_its_own_leap_day() -> None:
    assert decoded(["Feb 29 12:00:00", "Dec 31 00:00:00"], year=2024, **SYSLOG) == [
        at(2024, 2, 29, 12),
        at(2024, 12, 31),
    ]
    assert decoded(["29.02."], "date", timestamp_format={"c": "%d.%m."}, year=2024) == [datetime.date(2024, 2, 29)]
    reason = "c: 'Feb 29 12:00:00' is not a timestamp in the format %b %d %H:%M:%S"
    assert decoded(["Feb 29 12:00:00"], year=2025, **SYSLOG) == [reason]


def test_without_the_time_of_its_file_a_record_without_a_year_is_rejected_with_the_cause() -> None:
    reason = "c: 'Jan  1 00:00:00' is not a timestamp in the format %b %d %H:%M:%S, as no year is known"
    assert decoded(["Jan  1 00:00:00"], year="file", **SYSLOG) == [reason]


def read(source: FilesSource, ranges: Sequence[OffsetRange], **columns: str) -> tuple[list[Any], list[Any]]:
    """Accepted rows, and rejected rows with their context, of ranges that a task reads."""
    decoder = pickle.loads(pickle.dumps(source.decoder(schema_of(columns), lineage=True)))
    good, bad = [], []
    for offsets in ranges:
        for block in source.reader().read(offsets):
            found = decoder.decode(block)
            good += outcome(found)[0]
            bad += found.rejected.to_pylist()
    return good, bad


@pytest.mark.parametrize("name", ["a.log", "a.log.gz"])
def test_a_planned_range_gives_the_same_years_however_its_file_changes(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    lines = b"".join(b"<Dec 31 23:00:%02d>\n<Jan  1 01:00:%02d>\n" % (n, n) for n in range(60))
    path.write_bytes(gzip.compress(lines) if name.endswith("gz") else lines)
    os.utime(path, (NEW_YEAR_S, NEW_YEAR_S))
    source = source_of(tmp_path, format="text", pattern="<(?P<t>.*)>", year="file", **SYSLOG)
    ranges = source.plan({}).ranges
    before = read(source, ranges, t="timestamp")
    assert {row["t"].year for _, row in before[0]} == {2025, 2026}
    if not name.endswith("gz"):
        with path.open("ab") as out:
            out.write(b"<Jun 30 12:00:00>\n")
    os.utime(path, (NEW_YEAR_S + 400 * 86_400,) * 2)
    path.rename(tmp_path / f"{name}.1")
    assert read(source, ranges, t="timestamp") == before
    pieces = [piece for offsets in ranges for piece in source.split(offsets, 300)]
    assert len(pieces) > 1 or name.endswith("gz")
    assert read(source, pieces, t="timestamp") == before


def test_a_rejected_line_read_again_next_year_gets_the_year_of_its_plan(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_text("<Dec 31 23:00:00>\n<Jan  1 01:00:00>\n")
    os.utime(path, (NEW_YEAR_S, NEW_YEAR_S))
    text: dict[str, Any] = {"format": "text", "pattern": "<(?P<t>.*)>"}
    ranges = source_of(tmp_path, **text).plan({}).ranges
    _, rejected = read(source_of(tmp_path, **text), ranges, t="timestamp")
    assert [json.loads(row["context"]) for row in rejected] == [{"mtime": NEW_YEAR_S}] * 2
    os.utime(path, (NEW_YEAR_S + 400 * 86_400,) * 2)
    mended = source_of(tmp_path, year="file", **text, **SYSLOG)
    batch = pa.RecordBatch.from_pylist([{name: row[name] for name in ("offset", "raw", "context")} for row in rejected])
    batch = batch.cast(pa.schema([("offset", pa.int64()), ("raw", pa.binary()), ("context", pa.string())]))
    decoder = mended.decoder(schema_of({"t": "timestamp"}), lineage=True)
    rows = [
        row["t"]
        for block in mended.quarantine_decoder()("a.log", batch)
        for _, row in outcome(decoder.decode(block))[0]
    ]
    assert rows == [at(2025, 12, 31, 23), at(2026, 1, 1, 1)]


def test_a_file_without_a_time_tells_no_year(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_text("<Dec 31 23:00:00>\n")
    os.utime(path, (0, 0))
    source = source_of(tmp_path, format="text", pattern="<(?P<t>.*)>", year="file", **SYSLOG)
    good, bad = read(source, source.plan({}).ranges, t="timestamp")
    assert good == []
    assert [row["reason"].rpartition(", ")[2] for row in bad] == ["as no year is known"]


def test_dates_are_read_by_their_own_format_and_by_no_other() -> None:
    reason = "c: '2026-01-31' is not a date in the format %d/%m/%Y"
    dates: dict[str, Any] = {"timestamp_format": {"c": "%d/%m/%Y"}}
    assert decoded(["31/01/2026", "2026-01-31"], "date", **dates) == [datetime.date(2026, 1, 31), reason]
    decoder = source_of("x", timestamp_format="%d/%m/%Y").decoder(
        schema_of({"c": "date", "t": "timestamp", "s": "struct<d:date,t:timestamp>"}), lineage=True
    )
    line = b'{"c": "2026-01-31", "t": "01/02/2026", "s": {"d": "2026-01-31", "t": "01/02/2026"}}'
    ((_, row),), _ = outcome(decoder.decode(block_of(line)))
    assert row["c"] == row["s"]["d"] == datetime.date(2026, 1, 31)
    assert row["t"] == row["s"]["t"] == at(2026, 2, 1)


@pytest.mark.parametrize(
    ("formats", "why"),
    [
        ({"c": "%d/%m/%Y %H:%M"}, "has a time of day or a zone, but c is a date"),
        ({"c": "%d/%m/%Y %z"}, "has a time of day or a zone, but c is a date"),
        ({"c": "epoch_s"}, "epoch_s counts from an instant, and c is a date"),
        ("%d/%m/%Y", "one format for all is for timestamps, and there are none; a date is named: {c: …}"),
    ],
)
def test_a_format_that_no_date_can_have_is_refused(formats: Any, why: str) -> None:
    with pytest.raises(ConfigError) as refused:
        source_of("x", timestamp_format=formats).decoder(schema_of({"c": "date"}), lineage=False)
    assert why in str(refused.value)


def kafka_block(*records: tuple[datetime.datetime | None, str]) -> Block:
    messages = [
        message(
            offset,
            json.dumps({"t": text}).encode(),
            **({} if written is None else {"timestamp": (1, int(written.timestamp() * 1000))}),
        )
        for offset, (written, text) in enumerate(records)
    ]
    options = options_of(year="message", **SYSLOG)
    batch = message_batch(messages, options.columns, times=options.needs_times)
    return Block("orders/3~1", 0, batch.num_rows, batch)


def test_each_message_gets_the_year_that_its_own_time_tells() -> None:
    block = kafka_block(
        (at(2026, 1, 2), "Dec 31 10:00:00"),
        (at(2024, 12, 31, 12), "Dec 31 11:00:00"),
        (None, "Dec 31 12:00:00"),
        (at(2026, 1, 2), "Jan  1 10:00:00"),
        (at(2024, 12, 31, 12), "yesterday"),
        (at(2025, 3, 1), "Feb 29 10:00:00"),
        (at(2024, 3, 1), "Feb 29 11:00:00"),
        (at(1969, 12, 31), "Jan  1 00:00:00"),
    )
    decoder = decoder_of({"t": "timestamp"}, year="message", **SYSLOG)
    found = decoder.decode(block)
    accepted, rejected = outcome(found)
    assert [(offset, row["t"]) for offset, row in accepted] == [
        (0, at(2025, 12, 31, 10)),
        (1, at(2024, 12, 31, 11)),
        (3, at(2026, 1, 1, 10)),
        (6, at(2024, 2, 29, 11)),
        (7, at(1970, 1, 1)),
    ]
    assert [(offset, "no year" in reason) for offset, reason, _ in rejected] == [(2, True), (4, False), (5, False)]
    (again,) = restore_records("orders/3~1", found.rejected, options_of(year="message", **SYSLOG))
    assert outcome(decoder.decode(again)) == ([], rejected)


def test_messages_that_were_rejected_with_their_time_keep_their_year() -> None:
    found = decoder_of({"t": "int"}, year="message", **SYSLOG).decode(kafka_block((at(2026, 1, 2), "Dec 31 10:00:00")))
    options = options_of(year="message", **SYSLOG)
    (again,) = restore_records("orders/3~1", found.rejected, options)
    accepted, _ = outcome(decoder_of({"t": "timestamp"}, year="message", **SYSLOG).decode(again))
    assert [row["t"] for _, row in accepted] == [at(2025, 12, 31, 10)]


def parquet(tmp_path: Path, columns: dict[str, pa.Array], schema: dict[str, str], **options: Any) -> tuple[Any, Any]:
    """Accepted rows of a file, and the reasons of the rejected ones, which a replay is checked to reject again.

    Args:
        tmp_path: the file's folder.
        columns: the file's columns.
        schema: types of the columns to decode.
        **options: of the source.
    """
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    source = source_of(tmp_path / "a.parquet", format="parquet", close_after=0, **options)
    decoder = source.decoder(schema_of(schema), lineage=True)
    good, bad = [], []
    for block in source.reader().read(source.plan({}).ranges[0]):
        found = decoder.decode(block)
        good += [row for _, row in outcome(found)[0]]
        bad += [reason for _, reason, _ in outcome(found)[1]]
        if found.rejected.num_rows:
            for again in source.quarantine_decoder()("a", found.rejected.select(["offset", "raw", "context"])):
                assert len(outcome(decoder.decode(again))[1]) == 1
    return good, bad


def test_wall_clocks_of_parquet_files_are_of_the_zone_at_any_depth(tmp_path: Path) -> None:
    walls = [datetime.datetime(2026, 7, 1, 12), datetime.datetime(2026, 3, 29, 2, 30), None]
    columns = {
        "t": pa.array([walls[0], walls[0], None], pa.timestamp("ns")),
        "n": pa.array(walls, pa.timestamp("us")),
        "s": pa.array(
            [{"a": [[("k", wall)]]} for wall in [walls[0], walls[0], None]],
            pa.struct([("a", pa.list_(pa.map_(pa.string(), pa.timestamp("us"))))]),
        ),
    }
    schema = {"t": "timestamp", "n": "timestamp_ntz", "s": "struct<a:array<map<string,timestamp>>>"}
    good, bad = parquet(tmp_path, columns, schema, **BERLIN)
    instant = at(2026, 7, 1, 10)
    assert [(row["t"], row["n"], row["s"]["a"][0][0][1]) for row in good] == [
        (instant, walls[0], instant),
        (instant, walls[1], instant),
        (None, None, None),
    ]
    assert bad == []


@pytest.mark.parametrize("timezone", [None, "Europe/Berlin", "America/Sao_Paulo", "America/Havana"])
@pytest.mark.parametrize("days", [pa.date32(), pa.date64()])
def test_a_date_of_a_parquet_file_is_the_instant_of_its_text(
    tmp_path: Path, days: pa.DataType, timezone: str | None
) -> None:
    # Clocks change: in Berlin later on the first day; Sao Paulo skips the second midnight, Havana has the third twice.
    dates = [datetime.date(*day) for day in ((2026, 3, 29), (2018, 11, 4), (2020, 11, 1), (2026, 7, 1))] + [None]
    options = {} if timezone is None else {"timezone": timezone}
    kinds = {"c": "timestamp", "n": "timestamp_ntz", "l": "array<timestamp>"}

    def read(kind: pa.DataType) -> Any:
        values = pa.array(dates, pa.date32()).cast(kind)
        lists = pa.ListArray.from_arrays(pa.array(range(len(values) + 1), pa.int32()), values)
        return parquet(tmp_path, {"c": values, "n": values, "l": lists}, kinds, **options)

    good, bad = read(days)
    assert good == read(pa.string())[0]
    assert len(good) == len(dates) - (timezone == "America/Sao_Paulo")
    skipped = f"c: '2018-11-04' is not a time that clocks of {timezone} showed"
    assert bad == ([skipped] if timezone == "America/Sao_Paulo" else [])
    assert [row["n"] for row in good][-2:] == [datetime.datetime(2026, 7, 1), None]
    midnight = {None: at(2026, 3, 29), "Europe/Berlin": at(2026, 3, 28, 23)}.get(timezone, good[0]["c"])
    assert good[0] == {"c": midnight, "n": datetime.datetime(2026, 3, 29), "l": [midnight]}


@pytest.mark.parametrize("unit", ["ms", "us"])
def test_a_wall_clock_beyond_all_years_rejects_its_row_alone(tmp_path: Path, unit: str) -> None:
    walls = pa.array([2**63 - 1, 0, -(2**63) + 1], pa.int64()).cast(pa.timestamp(unit))
    good, bad = parquet(tmp_path, {"c": walls}, {"c": "timestamp"}, **BERLIN)
    assert good == [{"c": at(1969, 12, 31, 23)}]
    assert [reason.endswith(" is not a timestamp") for reason in bad] == [True, True]


def test_nanoseconds_of_wall_clocks_are_rounded_down_before_1970_too(tmp_path: Path) -> None:
    nanos = pa.array([-1, 1_500], pa.int64()).cast(pa.timestamp("ns"))
    good, bad = parquet(tmp_path, {"c": nanos}, {"c": "timestamp"}, timezone="Etc/UTC")
    assert [row["c"] for row in good] == [
        datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC),
        at(1970, 1, 1, 0, 0, 0, 1),
    ]
    assert bad == []


@pytest.mark.parametrize(
    ("kind", "make"),
    [
        ("timestamp", lambda wall: wall),
        ("struct<t:timestamp>", lambda wall: {"t": wall}),
        ("array<timestamp>", lambda wall: [None, wall]),
    ],
)
def test_a_wall_clock_of_a_parquet_file_that_never_was_is_rejected(tmp_path: Path, kind: str, make: Any) -> None:
    walls = [datetime.datetime(2026, 7, 1, 12), datetime.datetime(2026, 3, 29, 2, 30)]
    good, bad = parquet(tmp_path, {"c": pa.array([make(wall) for wall in walls])}, {"c": kind}, **BERLIN)
    assert len(good) == 1
    assert len(bad) == 1
    assert bad[0].startswith("c: ")
    assert " is not a" in bad[0]
    assert bad[0].endswith("that clocks of Europe/Berlin showed")
    assert ("with times" in bad[0]) == (kind != "timestamp")


def test_wall_clocks_of_a_rejected_parquet_row_come_back_as_the_same_instants(tmp_path: Path) -> None:
    wall = datetime.datetime(2026, 7, 1, 12)
    columns = {"t": pa.array([wall]), "s": pa.array([{"t": [wall]}]), "n": pa.array(["x"])}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    kinds = {"t": "timestamp", "s": "struct<t:array<timestamp>>"}
    source = source_of(tmp_path / "a.parquet", format="parquet", close_after=0, **BERLIN)
    (block,) = source.reader().read(source.plan({}).ranges[0])
    rejected = source.decoder(schema_of(kinds | {"n": "int"}), lineage=True).decode(block).rejected
    (again,) = source.quarantine_decoder()("a", rejected.select(["offset", "raw", "context"]))
    ((_, row),), _ = outcome(source.decoder(schema_of(kinds | {"n": "string"}), lineage=True).decode(again))
    assert row == {"t": at(2026, 7, 1, 10), "s": {"t": [at(2026, 7, 1, 10)]}, "n": "x"}


def test_texts_and_counts_of_parquet_files_are_times_as_in_other_formats(tmp_path: Path) -> None:
    columns = {
        "text": pa.array(["31/01/2026 12:00", "2026-01-31"]),
        "day": pa.array(["31/01/2026", "31/01/2026"]).dictionary_encode(),
        "ms": pa.array([1_600_000_000_123, 1]).dictionary_encode(),
        "s": pa.array([1_600_000_000.5, 1.0]),
        "iso": pa.array(["2026-07-01 12:00", "2026-07-01T12:00Z"]),
    }
    formats = {"text": "%d/%m/%Y %H:%M", "day": "%d/%m/%Y", "ms": "epoch_ms", "s": "epoch_s"}
    schema = {"text": "timestamp", "day": "date", "ms": "timestamp", "s": "timestamp", "iso": "timestamp"}
    good, bad = parquet(tmp_path, columns, schema, timestamp_format=formats, **BERLIN)
    assert good == [
        {
            "text": at(2026, 1, 31, 11),
            "day": datetime.date(2026, 1, 31),
            "ms": at(2020, 9, 13, 12, 26, 40, 123_000),
            "s": at(2020, 9, 13, 12, 26, 40, 500_000),
            "iso": at(2026, 7, 1, 10),
        }
    ]
    assert bad == ["text: '2026-01-31' is not a timestamp in the format %d/%m/%Y %H:%M"]


@pytest.mark.parametrize("kind", ["timestamp", "timestamp_ntz", "date"])
def test_a_number_of_a_parquet_file_is_no_time_unless_the_job_says_of_what(tmp_path: Path, kind: str) -> None:
    good, bad = parquet(tmp_path, {"c": pa.array([1_600_000_000_123, None])}, {"c": kind})
    assert good == [{"c": None}]
    assert bad == [f"c: 1600000000123 is not a {kind}"]
