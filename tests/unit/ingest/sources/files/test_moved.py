"""The source is moved to another folder, disk or bucket: the job goes on, although every file is a new file."""

from __future__ import annotations

import gzip
import os
import shutil
from pathlib import Path

import fsspec
import pytest

from ingest.sources.files.options import FilesOptions
from ingest.sources.files.source import FilesSource
from tests.unit.ingest.sources.files.test_alike import LARGE, SMALL, bucket, put, warnings_of
from tests.unit.ingest.sources.files.test_rotation import append, source_now, texts
from tests.unit.ingest.sources.rows import Reading

__all__ = ["bucket"]
DATED = b"2026-11-23T10:00:00Z started\n"


def moved(root: Path, reading: Reading, glob: str = "*", *, is_kept: bool = False) -> Path:
    """``cp -a logs elsewhere/logs; rm -r logs`` and another path in the job file.

    Args:
        root: the folder of both.
        reading: gets a source with the new path.
        glob: of the source, below the new folder.
        is_kept: whether the old folder is kept.
    """
    there = root / "elsewhere" / "logs"
    shutil.copytree(root / "logs", there)
    if not is_kept:
        shutil.rmtree(root / "logs")
    reading.source = source_now(there / glob)
    return there


def read(root: Path, content: bytes, name: str = "app.log", glob: str = "*") -> Reading:
    put(root / "logs" / name, gzip.compress(content) if name.endswith(".gz") else content)
    reading = Reading(source_now(root / "logs" / glob))
    reading.epoch()
    return reading


@pytest.mark.parametrize("content", [SMALL, LARGE])
@pytest.mark.parametrize("name", ["app.log", "app.log.1", "app.log.gz", "app-20261123.log"])
@pytest.mark.parametrize("is_cut", [False, True])
def test_files_that_are_copied_with_their_times_to_another_source_path_are_not_read_again(
    tmp_path: Path, content: bytes, name: str, is_cut: bool, caplog: pytest.LogCaptureFixture
) -> None:
    reading = read(tmp_path, content, name)
    there = moved(tmp_path, reading)
    if is_cut:
        os.utime(there / name, (int((there / name).stat().st_mtime),) * 2)
    assert reading.epoch() == 0
    assert set(reading.after) == {name}
    assert not warnings_of(caplog)
    reading.source = source_now(there)
    assert not reading.source.plan(reading.after).ranges, "the epoch without rows says where the file is"
    if not name.endswith(".gz"):
        append(there / name, b"more\n")
        assert reading.epoch() == 1
        assert texts(reading) == {name: [*content.splitlines(), b"more"]}


@pytest.mark.parametrize("glob", ["**", "*/*.log"])
def test_equal_files_of_several_folders_are_each_known_below_another_root(tmp_path: Path, glob: str) -> None:
    for host in ("host-1", "host-2"):
        put(tmp_path / "logs" / host / "app.log")
    reading = Reading(source_now(tmp_path / "logs" / glob))
    assert reading.epoch() == 2
    there = moved(tmp_path, reading, glob)
    put(there / "host-3" / "app.log")
    assert reading.epoch() == 1
    assert set(reading.after) == {"host-1/app.log", "host-2/app.log", "host-3/app.log"}
    append(there / "host-2" / "app.log", b"more\n")
    assert reading.epoch() == 1
    assert reading.texts("host-2/app.log") == [b"started", b"more"]


def test_a_source_is_known_below_its_old_path_and_above(tmp_path: Path) -> None:
    reading = read(tmp_path, LARGE, glob="*.log")
    below = tmp_path / "logs" / "old"
    below.mkdir()
    shutil.copy2(tmp_path / "logs" / "app.log", below)
    (tmp_path / "logs" / "app.log").unlink()
    reading.source = source_now(below / "*.log")
    assert reading.epoch() == 0
    shutil.copy2(below / "app.log", tmp_path)
    shutil.rmtree(below)
    reading.source = source_now(tmp_path / "*.log")
    assert reading.epoch() == 0
    assert set(reading.after) == {"app.log"}


@pytest.mark.parametrize("content", [DATED, LARGE])
def test_a_log_that_grew_before_it_was_moved_goes_on(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    reading = read(tmp_path, content)
    append(tmp_path / "logs" / "app.log", b"2026-11-23T10:00:01Z more\n")
    there = moved(tmp_path, reading)
    assert reading.epoch() == 1
    assert set(reading.after) == {"app.log"}
    expected = [] if content == DATED else [f"{there}/app.log has the content of {tmp_path}/logs/app.log, which source"]
    assert [told[: len(expected[0])] for told in warnings_of(caplog)] == expected


@pytest.mark.parametrize("how", ["other time", "old one is there", "other name below the root"])
def test_where_a_move_is_not_proved_the_file_is_read_and_a_warning_names_both(
    tmp_path: Path, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    is_below = how == "other name below the root"
    name = "day-1/app.log" if is_below else "app.log"
    reading = read(tmp_path, SMALL, name, "**")
    there = moved(tmp_path, reading, "day-1/*" if is_below else "*", is_kept=how == "old one is there")
    if how == "other time":
        os.utime(there / name, (1.0, 1.0))
    assert reading.epoch() == 1
    (warning,) = warnings_of(caplog)
    assert f"{there}/{name} has the name and the content of {tmp_path}/logs/{name}" in warning
    assert reading.epoch() == 0


def test_another_file_of_the_same_name_and_time_below_another_path_is_read(tmp_path: Path) -> None:
    reading = read(tmp_path, SMALL)
    there = moved(tmp_path, reading)
    time_s = (there / "app.log").stat().st_mtime
    (there / "app.log").write_bytes(b"stopped\n")
    os.utime(there / "app.log", (time_s, time_s))
    assert reading.epoch() == 1


@pytest.mark.parametrize("after", ["else/logs", "bucket/new/logs"])
@pytest.mark.parametrize("tags", ["objects", "memory"])
def test_objects_that_are_moved_to_another_bucket_or_prefix_are_not_read_again(
    bucket: fsspec.AbstractFileSystem, after: str, tags: str, caplog: pytest.LogCaptureFixture
) -> None:
    """With etags, and without: an upload in parts of another size has another etag."""

    def source(place: str) -> FilesSource:
        return FilesSource(
            FilesOptions.model_validate({"path": f"{tags}://{place}/*", "format": "json", "close_after": 0})
        )

    names = ("app.log", "app.log.1.gz")
    for name in names:
        bucket.pipe_file(f"/bucket/logs/{name}", gzip.compress(SMALL) if name.endswith("gz") else DATED)
    reading = Reading(source("bucket/logs"))
    assert reading.epoch() == 2
    for name in names:
        bucket.pipe_file(f"/{after}/{name}", bucket.cat_file(f"/bucket/logs/{name}"))
    bucket.rm("/bucket/logs", recursive=True)
    bucket.pipe_file("/bucket/other", b"")
    bucket.pipe_file(f"/{after}/app.log", bucket.cat_file(f"/{after}/app.log") + b"more\n")
    reading.source = source(after)
    assert reading.epoch() == 1
    assert set(reading.after) == set(names)
    told = [each for each in warnings_of(caplog) if f"/{after}/app.log.1.gz" in each]
    assert ["the content of /bucket/logs/app.log.1.gz, which" in each for each in told] == [True]
