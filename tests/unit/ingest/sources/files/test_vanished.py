"""Files and folders that are missing after records were read: an error or a warning where records may be lost."""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path

import pytest

from tests.unit.ingest.sources.files.test_rotation import append, source_now, texts
from tests.unit.ingest.sources.rows import Reading
from timeline.errors import SourceChangedError, SourceError
from timeline.holes import lost


def put(path: Path, content: bytes = b"one\n", mtime_s: float = 1.0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    append(path, content, mtime_s)


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


@pytest.mark.parametrize("is_folder", [True, False])
def test_a_file_that_is_gone_with_bytes_that_an_epoch_left_stops_the_job_with_its_path(
    tmp_path: Path, is_folder: bool
) -> None:
    put(tmp_path / "logs" / "app.log")
    put(tmp_path / "logs" / "sub" / "a.log", b"one\ntwo\nthree\n", 2.0)
    reading = Reading(source_now(tmp_path / "logs", max_bytes_per_epoch=8))
    reading.epoch()
    away = tmp_path / "logs" / "sub" if is_folder else tmp_path / "logs" / "sub" / "a.log"
    away.rename(tmp_path / "away")
    where = f"{tmp_path}/logs/sub does not exist any more: is it mounted" if is_folder else r"byte 4 of more\. Bring"
    with pytest.raises(SourceChangedError, match=rf"sub/a\.log \(shard sub/a\.log\) is gone, .*{where}"):
        reading.source.plan(reading.after)
    assert "tideline run stops at this file" in reading.source.ends(reading.after)["sub/a.log"].note
    (tmp_path / "away").rename(away)
    reading.all()
    assert texts(reading) == {"app.log": [b"one"], "sub/a.log": [b"one", b"two", b"three"]}


def test_the_rest_of_a_file_that_is_gone_is_a_hole_where_the_job_file_says_so_and_is_read_if_it_comes_back(
    tmp_path: Path,
) -> None:
    put(tmp_path / "logs" / "app.log", b"one\ntwo\nthree\n")
    reading = Reading(source_now(tmp_path / "logs", max_bytes_per_epoch=8, on_truncate="restart"))
    reading.epoch()
    (tmp_path / "logs" / "app.log").rename(tmp_path / "away")
    reading.epoch()
    ((hole,),) = lost(reading.after).values()
    assert (hole.start, hole.until) == (8, None)
    assert "app.log is gone, and was not read to its end" in hole.reason
    assert reading.source.plan(reading.after).ranges == ()
    (tmp_path / "away").rename(tmp_path / "logs" / "app.log")
    reading.all()
    assert texts(reading) == {"app.log": [b"one", b"two", b"three"]}


@pytest.mark.parametrize("path", ["", "/**/*.log", "/*/*.log"])
def test_a_folder_that_is_gone_after_it_was_read_is_warned_of_once(
    tmp_path: Path, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    put(tmp_path / "logs" / "web" / "app.log", mtime_s=1.0)
    put(tmp_path / "logs" / "sub" / "app.log", mtime_s=2.0)
    reading = Reading(source_now(f"{tmp_path}/logs{path}"))
    reading.epoch()
    (tmp_path / "logs" / "sub").rename(tmp_path / "away")
    for _ in range(2):
        assert reading.source.plan(reading.after).ranges == ()
    (warning,) = warnings_of(caplog)
    assert f"{tmp_path}/logs/sub does not exist any more, though records were read from there" in warning


@pytest.mark.parametrize(
    ("first", "second", "deleted"),
    [
        ("2026-11-22", "2026-11-23", "2026-11-22"),
        ("11/22/09", "11/22/10", "11/22/09"),
        ("11/22/10", "11/23/09", "11/22"),
        ("10/22", "11/22", "10"),
    ],
)
def test_the_oldest_of_dated_folders_that_were_read_may_be_deleted(
    tmp_path: Path, first: str, second: str, deleted: str, caplog: pytest.LogCaptureFixture
) -> None:
    put(tmp_path / first / "app.log", mtime_s=1.0)
    put(tmp_path / second / "app.log", mtime_s=2.0)
    reading = Reading(source_now(tmp_path))
    reading.epoch()
    shutil.rmtree(tmp_path / deleted)
    assert reading.source.plan(reading.after).ranges == ()
    assert warnings_of(caplog) == []


@pytest.mark.parametrize("path", ["", "/*.log", "/**/*.log"])
def test_a_root_without_any_file_after_records_were_read_is_warned_of(
    tmp_path: Path, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "logs" / "empty").mkdir(parents=True)
    put(tmp_path / "logs" / "app.log")
    reading = Reading(source_now(f"{tmp_path}/logs{path}"))
    reading.epoch()
    (tmp_path / "logs" / "app.log").unlink()
    for _ in range(2):
        assert reading.source.plan(reading.after).ranges == ()
    assert warnings_of(caplog) == [
        f"{tmp_path}/logs holds no file any more, though 1 were read from there: is it mounted?"
    ]


def test_a_file_that_was_read_may_be_deleted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    put(tmp_path / "app.log")
    put(tmp_path / "app.log.1", b"older\n")
    reading = Reading(source_now(tmp_path))
    reading.epoch()
    (tmp_path / "app.log.1").unlink()
    assert reading.source.plan(reading.after).ranges == ()
    assert warnings_of(caplog) == []


def test_a_file_where_the_path_has_a_folder_is_named(tmp_path: Path) -> None:
    put(tmp_path / "x")
    for source in (source_now(f"{tmp_path}/x/*.log"), source_now(f"{tmp_path}/x/**/*.log")):
        with pytest.raises(SourceError, match=f"{tmp_path}/x is a file, and source.path has it as a folder"):
            source.plan({})


@pytest.mark.parametrize(("path", "is_told"), [("", True), ("/**/*.log", True), ("/*/*.log", True), ("/*.log", False)])
def test_links_to_folders_are_named_where_nothing_else_is_there(
    tmp_path: Path, path: str, is_told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    put(tmp_path / "real" / "app.log")
    (tmp_path / "logs").mkdir()
    os.symlink("../real", tmp_path / "logs" / "linked")
    source = source_now(f"{tmp_path}/logs{path}")
    for _ in range(2):
        assert source.plan({}).ranges == ()
    told = [f"{tmp_path}/logs/linked is a link to a folder and is not entered: name the folder in source.path"]
    assert warnings_of(caplog) == (told if is_told else [])
