"""Files of equal content: known files under another name, and files of their own."""

from __future__ import annotations

import gzip
import hashlib
import logging
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from ingest.sources.decode.options import RecordFormat
from ingest.sources.files import renamed
from ingest.sources.files.options import FilesOptions
from ingest.sources.files.source import FilesSource
from tests.unit.ingest.sources.files.test_rotation import append, compress, source_now, texts
from tests.unit.ingest.sources.rows import Reading
from timeline.epoch import Position

SMALL = b"started\n"
LARGE = b"".join(b"line %d\n" % number for number in range(2_000))


def put(path: Path, content: bytes = SMALL) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    append(path, content)
    return path


def inode(path: Path) -> str:
    return f"ino:{path.stat().st_ino}"


def give_inode(reading: Reading, shard: str, path: Path, *, without_birth: bool = False) -> None:
    """Let a shard's position have the inode of a new file, as if the file system had reused the inode.

    Args:
        reading: the source, read before.
        shard: the shard of the deleted file.
        path: the new file.
        without_birth: whether the position loses its creation time.
    """
    position = reading.after[shard]
    kept = {key: value for key, value in position.detail.items() if not (without_birth and key == "born")}
    reading.after[shard] = Position(position.offset, {**kept, "id": inode(path)})


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


@pytest.fixture(params=["births", "older positions", "no births"])
def births(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Known creation times: of positions and files, of files only, or none."""
    if request.param == "no births":
        monkeypatch.setattr(renamed, "creation_time_s", lambda _: None)
    return str(request.param)


@pytest.mark.parametrize("content", [SMALL, LARGE])
@pytest.mark.parametrize(
    ("births", "more"),
    # Without creation times, a longer file may be the deleted one, grown and moved: see the warning below.
    [
        ("births", b""),
        ("births", b"more\n"),
        ("older positions", b""),
        ("older positions", b"more\n"),
        ("no births", b""),
    ],
    indirect=["births"],
)
def test_a_new_file_with_the_inode_and_content_of_a_deleted_one_is_read(
    tmp_path: Path, births: str, content: bytes, more: bytes
) -> None:
    reading = Reading(source_now(f"{tmp_path}/*/*.log"))
    put(tmp_path / "day-1" / "app.log", content)
    reading.epoch()
    shutil.rmtree(tmp_path / "day-1")
    new = put(tmp_path / "day-2" / "app.log", content + more)
    give_inode(reading, "day-1/app.log", new, without_birth=births == "older positions")
    assert [end.lag for end in reading.source.ends(reading.after).values()].count(len(content + more)) == 1
    reading.epoch()
    assert texts(reading)["day-2/app.log"] == (content + more).splitlines()
    reading.source = source_now(f"{tmp_path}/*/*.log")
    assert reading.epoch() == 0
    append(new, b"last\n")
    assert reading.epoch() == 1


def test_a_new_parquet_file_with_the_inode_and_content_of_a_deleted_one_is_read(tmp_path: Path) -> None:
    reading = Reading(source_now(f"{tmp_path}/*/*.parquet", format="parquet"))
    rows = pa.table({"id": [1, 2, 3]})
    for day in ("day-1", "day-2"):
        (tmp_path / day).mkdir()
    pq.write_table(rows, tmp_path / "day-1" / "app.parquet")
    (offsets,) = reading.source.plan({}).ranges
    reading.after[offsets.shard] = offsets.end
    shutil.rmtree(tmp_path / "day-1")
    pq.write_table(rows, tmp_path / "day-2" / "app.parquet")
    give_inode(reading, "day-1/app.parquet", tmp_path / "day-2" / "app.parquet")
    (offsets,) = reading.source.plan(reading.after).ranges
    assert (offsets.shard, offsets.start) == ("day-2/app.parquet", 0)


def test_a_new_log_with_the_inode_of_an_equal_one_that_a_rotation_deleted_is_read(tmp_path: Path) -> None:
    """``rotate 1``: the oldest log is deleted, and the next log gets its inode."""
    log = put(tmp_path / "app.log")
    reading = Reading(source_now(tmp_path))
    reading.epoch()
    log.rename(tmp_path / "app.log.1")
    put(log)
    assert reading.epoch() == 1
    log.rename(tmp_path / "app.log.1")
    put(log)
    give_inode(reading, "app.log", log)
    assert reading.epoch() == 1


@pytest.mark.parametrize("content", [SMALL, LARGE])
@pytest.mark.parametrize("more", [b"", b"more\n"])
@pytest.mark.parametrize("name", ["old/app.log", "app.log.1", "old/app.log.1", "other.log"])
def test_a_file_that_is_moved_is_not_read_again(
    tmp_path: Path, births: str, content: bytes, more: bytes, name: str
) -> None:
    log = put(tmp_path / "app.log", content)
    reading = Reading(source_now(tmp_path))
    reading.epoch()
    append(log, more)
    (tmp_path / "old").mkdir()
    log.rename(tmp_path / name)
    if births == "older positions":
        give_inode(reading, "app.log", tmp_path / name, without_birth=True)
    assert reading.epoch() == len(more.splitlines())
    assert set(reading.after) == {"app.log"}


def test_a_file_with_a_time_of_long_ago_is_known_when_it_is_touched_and_moved(tmp_path: Path) -> None:
    """``rsync -t`` and ``cp -p`` set a modification time before the file's creation time."""
    log = put(tmp_path / "app.log")
    os.utime(log, (1.0, 1.0))
    reading = Reading(source_now(tmp_path))
    reading.epoch()
    os.utime(log, (2.0, 2.0))
    log.rename(tmp_path / "other.log")
    assert reading.epoch() == 0


def test_a_snapshot_with_a_kept_time_and_a_reused_inode_is_read(tmp_path: Path) -> None:
    """``cp -p`` of a file that does not change, each day into another folder."""
    reading = Reading(source_now(f"{tmp_path}/*/*.log"))
    os.utime(put(tmp_path / "day-1" / "app.log"), (1.0, 1.0))
    reading.epoch()
    shutil.rmtree(tmp_path / "day-1")
    new = put(tmp_path / "day-2" / "app.log")
    os.utime(new, (1.0, 1.0))
    give_inode(reading, "day-1/app.log", new)
    assert reading.epoch() == 1


def read_without_births(folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Reading]:
    """A log that was read, on a file system without creation times."""
    monkeypatch.setattr(renamed, "creation_time_s", lambda _: None)
    log = put(folder / "app.log")
    reading = Reading(source_now(folder))
    reading.epoch()
    return log, reading


def test_where_nothing_tells_a_grown_file_from_a_new_one_a_warning_names_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log, reading = read_without_births(tmp_path, monkeypatch)
    append(log, b"more\n")
    log.rename(tmp_path / "other.log")
    for _ in range(2):
        reading.epoch()
    (warning,) = warnings_of(caplog)
    assert f"{tmp_path}/other.log" in warning
    assert f"{tmp_path}/app.log, which is gone" in warning


def test_an_equal_file_that_is_read_for_its_later_time_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log, reading = read_without_births(tmp_path, monkeypatch)
    os.utime(log, (1.0, 1.0))
    log.rename(tmp_path / "other.log")
    assert reading.epoch() == 1
    (warning,) = warnings_of(caplog)
    assert "is read as a file of its own" in warning


@pytest.mark.parametrize("before", ["logs/../logs", "/logs", "./logs"])
def test_a_position_with_another_spelling_of_its_path_goes_on(tmp_path: Path, before: str) -> None:
    """Older versions stored a local path as written in the job file."""
    log = put(tmp_path / "logs" / "app.log")
    os.utime(log, (1.0, 1.0))
    reading = Reading(source_now(tmp_path / "logs"))
    reading.epoch()
    position = reading.after["app.log"]
    old = {key: value for key, value in position.detail.items() if key != "born"}
    reading.after["app.log"] = Position(position.offset, old | {"path": f"{tmp_path}/{before}/app.log"})
    append(log, b"more\n")
    assert reading.epoch() == 1
    assert texts(reading) == {"app.log": [b"started", b"more"]}


@pytest.mark.parametrize("name", ["app.log-20261101", "app.log.gz", "app.log.1.gz", "app-2026-11-01.log"])
@pytest.mark.parametrize("is_gone", [False, True])
@pytest.mark.parametrize("content", [SMALL, LARGE])
def test_equal_files_of_one_name_in_several_folders_are_all_read(
    tmp_path: Path, name: str, is_gone: bool, content: bytes
) -> None:
    reading = Reading(source_now(tmp_path))
    stored = gzip.compress(content, mtime=0) if name.endswith(".gz") else content
    put(tmp_path / "host-1" / name, stored)
    lines = reading.epoch()
    assert lines == len(content.splitlines())
    if is_gone:
        shutil.rmtree(tmp_path / "host-1")
    put(tmp_path / "host-2" / name, stored)
    assert reading.epoch() == lines


@pytest.mark.parametrize("name", ["app.log-20261101", "app.log.1.gz"])
def test_a_rotated_file_that_is_moved_to_another_disk_with_its_time_is_not_read_again(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A move across file systems creates another file with the same modification time."""
    log = put(tmp_path / "app.log")
    reading = Reading(source_now(tmp_path))
    reading.epoch()
    rotated = log.rename(tmp_path / name.removesuffix(".gz"))
    rotated = compress(rotated) if name.endswith(".gz") else rotated
    put(tmp_path / "other.log", b"other\n")
    assert reading.epoch() == 1
    (tmp_path / "old").mkdir()
    shutil.copy2(rotated, tmp_path / "old" / name)
    rotated.unlink()
    assert reading.epoch() == 0
    (warning,) = warnings_of(caplog)
    assert f"{tmp_path}/old/{name}" in warning


@pytest.mark.parametrize(
    ("content", "level"), [(SMALL, logging.WARNING), (b"2026-11-23T10:00:00Z started\n", logging.INFO)]
)
def test_a_copy_of_a_known_log_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes, level: int
) -> None:
    log = put(tmp_path / "app.log", content)
    reading = Reading(source_now(tmp_path))
    reading.epoch()
    put(tmp_path / "app.log.1", content)
    with caplog.at_level(logging.INFO):
        for _ in range(2):
            assert reading.epoch() == 0
    (record,) = caplog.records
    assert record.levelno == level
    assert f"{tmp_path}/app.log.1 is a copy of {log}" in record.getMessage()
    caplog.clear()
    append(log, b"more\n")
    assert reading.epoch() == 1, "its position says what is a copy"
    reading.source = source_now(tmp_path)
    assert reading.epoch() == 0
    assert not caplog.records


def test_a_log_that_goes_on_in_a_folder_beside_its_own_is_told_where_its_lines_tell_no_time(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """``olddir`` beside the log's folder looks like a compressed snapshot in the next day's folder."""
    reading = Reading(source_now(tmp_path))
    put(tmp_path / "day-1" / "app.log")
    reading.epoch()
    shutil.rmtree(tmp_path / "day-1")
    put(tmp_path / "day-2" / "app.log.gz", gzip.compress(SMALL))
    assert reading.epoch() == 0
    (warning,) = warnings_of(caplog)
    assert f"{tmp_path}/day-2/app.log.gz" in warning
    assert f"{tmp_path}/day-1/app.log, which is gone" in warning


class Objects(MemoryFileSystem):  # type: ignore[misc]
    """An object store whose etags are digests of the bytes."""

    protocol = "objects"

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(super()._strip_protocol(path.replace("objects://", "memory://")))

    def ls(self, path: str, detail: bool = True, **options: Any) -> Any:
        found = super().ls(path, detail=True, **options)
        tagged = [self._tagged(each) for each in found]
        return tagged if detail else [each["name"] for each in tagged]

    def info(self, path: str, **options: Any) -> Any:
        return self._tagged(super().info(path, **options))

    def _tagged(self, info: Any) -> Any:
        if info["type"] != "file":
            return info
        return info | {"ETag": hashlib.md5(self.cat_file(info["name"]), usedforsecurity=False).hexdigest()}


@pytest.fixture
def bucket() -> Iterator[fsspec.AbstractFileSystem]:
    fsspec.register_implementation("objects", Objects, clobber=True)
    fs = fsspec.filesystem("objects")
    yield fs
    for name in fs.ls("/", detail=False):
        fs.rm(name, recursive=True)


@pytest.mark.parametrize(
    ("before", "after", "is_told"),
    [("day-1/app.log", "day-2/app.log", True), ("app.log", "app.log.1", False), ("1/app.log.gz", "2/app.log.gz", True)],
)
def test_an_object_with_the_bytes_of_one_that_is_gone_is_told(
    bucket: fsspec.AbstractFileSystem, caplog: pytest.LogCaptureFixture, before: str, after: str, is_told: bool
) -> None:
    """A rename copies an object: nothing distinguishes the copy from a new object with the same bytes."""
    content = gzip.compress(SMALL) if before.endswith(".gz") else SMALL
    bucket.pipe_file(f"/bucket/{before}", content)
    options = FilesOptions(path="objects://bucket/**", format=RecordFormat.JSON, close_after=0)
    reading = Reading(FilesSource(options))
    assert reading.epoch() == 1
    bucket.rm_file(f"/bucket/{before}")
    bucket.pipe_file(f"/bucket/{after}", content)
    for _ in range(2):
        assert reading.epoch() == 0
    found = [f"/bucket/{after}" in each and "which is gone: taken for that one" in each for each in warnings_of(caplog)]
    assert found == ([True] if is_told else [])
