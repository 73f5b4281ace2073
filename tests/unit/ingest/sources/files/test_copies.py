"""A log and its copy, both in the first listing: one of them is read. Files that are no copies are all read."""

from __future__ import annotations

import gzip
import logging
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest

from ingest.sources.decode.options import RecordFormat
from ingest.sources.files import copies
from ingest.sources.files.contents import Archives, Contents
from ingest.sources.files.copies import without_copies
from ingest.sources.files.listing import FileInfo
from ingest.sources.files.names import may_become
from ingest.sources.files.options import FilesOptions
from ingest.sources.files.source import FilesSource
from tests.unit.ingest.sources.files.test_rotation import MODES, append, lines_of, source_now
from tests.unit.ingest.sources.rotating import Log, Mode
from tests.unit.ingest.sources.rows import Reading

STAMPED = b'10.0.0.1 - - [01/Mar/2026:10:00:%02d +0000] "GET / HTTP/1.1" 200\n'


def lines(count: int, text: bytes = STAMPED, first: int = 0) -> bytes:
    return b"".join(text % number for number in range(first, first + count))


def rows_of_both(folder: Path, log: bytes, copy: bytes, name: str = "app.log.1", age_s: float = 0.0) -> int:
    """Number of rows of the first epoch over a log and a second file.

    Args:
        folder: the log's folder.
        log: content of the log.
        copy: content of the second file.
        name: path of the second file below the folder; compressed where it ends with .gz.
        age_s: how long before the log the second file was changed.
    """
    append(folder / "app.log", log, 2000.0)
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(gzip.compress(copy) if name.endswith(".gz") else copy)
    os.utime(path, (2000.0 - age_s, 2000.0 - age_s))
    return Reading(source_now(folder)).epoch()


@pytest.mark.parametrize("mode", MODES, ids=str)
@pytest.mark.parametrize(("count", "text"), [(3, "2026-11-23T10:00:00Z"), (400, "no time")])
@pytest.mark.parametrize("step", range(4))
def test_every_line_is_read_once_by_runs_that_see_one_moment_of_each_rotation(
    tmp_path: Path, mode: Mode, step: int, count: int, text: str
) -> None:
    log = Log(tmp_path, mode)
    reading = Reading(source_now(tmp_path))
    for _ in range(3):
        log.append(count, text)
        for number, _step in enumerate(log.rotate()):
            if number == step:
                reading.source = source_now(tmp_path)
                reading.epoch()
    log.append(count, text)
    reading.source = source_now(tmp_path)
    reading.epoch()
    assert reading.epoch() == 0
    assert lines_of(reading) == sorted(log.written)


@pytest.mark.parametrize("name", ["app.log.1", "app.log.1.gz", "app.log-20260301.gz", "old/app.log.1"])
@pytest.mark.parametrize("more", [0, 2])
@pytest.mark.parametrize("age_s", [-5.0, 0.0, 5.0])
def test_a_copy_of_lines_with_date_and_time_is_not_read(tmp_path: Path, name: str, more: int, age_s: float) -> None:
    assert rows_of_both(tmp_path, lines(2 + more), lines(2), name, age_s) == 2 + more


@pytest.mark.parametrize("name", ["app.log.1", "app.log.1.gz"])
def test_a_copy_that_is_not_older_than_its_log_is_not_read_whatever_its_lines_say(tmp_path: Path, name: str) -> None:
    assert rows_of_both(tmp_path, b"started\n", b"started\n", name) == 1


@pytest.mark.parametrize(
    ("log", "copy", "age_s"),
    [
        (b"started\n", b"started\n", 86_400.0),
        (b"started\nmore\n", b"started\n", 86_400.0),
        (b"started\nmore\n", b"started\n", 0.0),
        (b"started\n", b"started\nmore\n", 0.0),
        (b"copied 7 files\n" * 1000, b"copied 7 files\n" * 1000, 86_400.0),
        (b"beat\n" * 1000 + b"one\n" + b"beat\n" * 1000, b"beat\n" * 1000 + b"two\n" + b"beat\n" * 1000, 0.0),
        (b"00:00:01 started\n", b"00:00:01 started\n", 86_400.0),
    ],
)
@pytest.mark.parametrize("name", ["app.log.1", "app.log.1.gz"])
def test_logs_that_begin_alike_and_are_not_proved_to_be_copies_are_both_read(
    tmp_path: Path, log: bytes, copy: bytes, age_s: float, name: str
) -> None:
    assert rows_of_both(tmp_path, log, copy, name, age_s) == log.count(b"\n") + copy.count(b"\n")


@pytest.mark.parametrize("name", ["other.log", "web/app.log", "web.log.1", "web/app.log.1"])
def test_equal_lines_without_a_time_under_names_of_other_logs_are_both_read(tmp_path: Path, name: str) -> None:
    assert rows_of_both(tmp_path, b"started\n", b"started\n", name) == 2


def test_equal_lines_of_one_second_in_folders_of_two_hosts_are_both_read(tmp_path: Path) -> None:
    for name in ("web-1/app.log", "web-2/app.log.1"):
        (tmp_path / name).parent.mkdir()
        append(tmp_path / name, STAMPED % 1, 2000.0)
    assert Reading(source_now(tmp_path)).epoch() == 2


def test_the_rest_is_read_in_the_copy_once_the_log_is_truncated(tmp_path: Path) -> None:
    path = tmp_path / "app.log"
    append(path, lines(40))
    shutil.copy2(path, tmp_path / "app.log.1")
    reading = Reading(source_now(tmp_path, max_bytes_per_epoch=100))
    reading.epoch()
    os.truncate(path, 0)
    append(path, lines(3, first=40))
    reading.all()
    assert lines_of(reading) == sorted(lines(43).splitlines())
    assert set(reading.after) == {"app.log", "app.log#2"}


def test_a_copy_of_what_was_read_is_not_read_when_the_log_begins_anew_behind_it(tmp_path: Path) -> None:
    """The copy lacks lines that were read: they were written between copy and truncation."""
    path = tmp_path / "app.log"
    append(path, lines(3))
    shutil.copy2(path, tmp_path / "app.log.1")
    append(path, lines(2, first=3))
    reading = Reading(source_now(tmp_path, on_truncate="restart"))
    assert reading.epoch() == 5
    os.truncate(path, 0)
    append(path, lines(1, first=5))
    assert reading.epoch() == 1
    (tmp_path / "app.log.1").rename(tmp_path / "app.log.2")
    assert reading.epoch() == 0


def test_an_archive_of_an_unread_log_that_is_being_written_is_waited_for(tmp_path: Path) -> None:
    content = b"".join(b"%d %d\n" % (number, number**9) for number in range(20_000))
    append(tmp_path / "app.log.1", content)
    archive = gzip.compress(content)
    (tmp_path / "app.log.1.gz").write_bytes(archive[: len(archive) // 2])
    plan = source_now(tmp_path).plan({})
    assert [offsets.shard for offsets in plan.ranges] == ["app.log.1"]
    assert plan.settles_in_s is not None


@pytest.mark.parametrize(("content", "level"), [(STAMPED % 1, logging.INFO), (b"started\n", logging.WARNING)])
def test_a_copy_that_is_not_read_is_told_with_both_names(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes, level: int
) -> None:
    with caplog.at_level(logging.INFO):
        rows_of_both(tmp_path, content, content)
    (record,) = caplog.records
    assert record.levelno == level
    assert f"{tmp_path}/app.log.1 is a copy of {tmp_path}/app.log" in record.getMessage()


@pytest.fixture
def bucket() -> Iterator[fsspec.AbstractFileSystem]:
    fs = fsspec.filesystem("memory")
    yield fs
    fs.rm("/bucket", recursive=True)


@pytest.mark.parametrize(
    ("content", "read"), [(b"started\n", 2), (b"beat\n" * 1000, 1000), (STAMPED % 1, 1)], ids=["short", "long", "time"]
)
def test_times_of_objects_prove_no_copy(bucket: fsspec.AbstractFileSystem, content: bytes, read: int) -> None:
    """An object's time is its upload time, not the time of its last line."""
    for name in ("app.log", "app.log.1"):
        bucket.pipe_file(f"/bucket/{name}", content)
    source = FilesSource(FilesOptions(path="memory://bucket/*", format=RecordFormat.JSON, close_after=0))
    assert Reading(source).epoch() == read


@pytest.mark.parametrize("name", ["{}/host.log.gz", "host.log-{}.gz"])
def test_names_of_many_files_are_not_compared_each_with_each(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def counted(before: str, after: str) -> bool:
        asked.append(before)
        return may_become(before, after)

    monkeypatch.setattr(copies, "may_become", counted)
    fs = fsspec.filesystem("memory")
    files = [FileInfo(f"/b/{name.format(20_200_101 + day)}", 100, 1.0, None) for day in range(500)]
    contents = Contents(fs, Archives(), lambda _: "gzip")
    assert len(without_copies(contents, files, 2000.0).logs) == 500
    assert len(asked) <= 1000
