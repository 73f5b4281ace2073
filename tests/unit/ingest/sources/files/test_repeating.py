"""Logs with the same lines each day, without times: each day's log is read, or a warning names it."""

from __future__ import annotations

import itertools
import os
import shutil
from pathlib import Path

import pytest

from ingest.sources.files import renamed
from ingest.sources.files.creation_times import filesystem_of, keeps_creation_times
from ingest.sources.files.listing import FileInfo
from tests.unit.ingest.sources.files.test_alike import LARGE, SMALL, give_inode, put, warnings_of
from tests.unit.ingest.sources.files.test_rotation import append, compress, source_now
from tests.unit.ingest.sources.rotating import Log, Mode
from tests.unit.ingest.sources.rows import Reading

DATED = b"2026-11-23T10:00:00Z started\n2026-11-23T10:00:01Z ended\n"

MODES = [
    Mode(ending=ending, delays=delays, dated=dated, keep=keep)
    for ending, delays in (("", False), (".gz", False), (".gz", True), (".zst", False))
    for dated in (False, True)
    for keep in (1, 2, 3)
] + [Mode(ending=ending, olddir="old", keep=2) for ending in ("", ".gz")]


def write_anew(path: Path, content: bytes) -> None:
    """Rename a new file over the old one, as editors, ``sed -i`` and rsync do."""
    new = put(path.parent.parent / f"new-{path.name}", content)
    new.rename(path)


def reading_of(folder: Path, content: bytes = SMALL) -> tuple[Reading, Path]:
    """A log in a folder of its own, after the epoch that reads it."""
    log = put(folder / "logs" / "app.log", content)
    reading = Reading(source_now(folder / "logs"))
    assert reading.epoch() == len(content.splitlines())
    return reading, log


@pytest.mark.parametrize("mode", MODES, ids=str)
@pytest.mark.parametrize("content", [SMALL, LARGE])
def test_a_log_that_repeats_is_read_each_day(
    tmp_path: Path, mode: Mode, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    log = Log(tmp_path / "logs", mode)
    log.folder.mkdir()
    reading = Reading(source_now(log.folder))
    for _ in range(6):
        list(log.rotate())
        append(log.path, content)
        reading.source = source_now(log.folder)
        assert reading.epoch() == len(content.splitlines())
        assert reading.epoch() == 0
    assert warnings_of(caplog) == []


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_lines_that_come_before_a_rotation_are_read_where_the_log_repeats(tmp_path: Path, ending: str) -> None:
    """The old log is read on in its archive, the new one from its beginning."""
    log = Log(tmp_path / "logs", Mode(ending=ending, keep=2))
    log.folder.mkdir()
    reading = Reading(source_now(log.folder))
    for day in range(5):
        list(log.rotate())
        append(log.path, LARGE)
        assert reading.epoch() == 2_000 + (2_000 if day else 0)
        append(log.path, LARGE)


def test_a_new_log_with_the_inode_and_the_lines_of_the_last_one_is_read(tmp_path: Path) -> None:
    """``rotate 1`` gives the inode of the deleted log to the created one."""
    reading, log = reading_of(tmp_path)
    log.rename(f"{log}.1")
    put(log)
    assert reading.epoch() == 1
    Path(f"{log}.1").unlink()
    log.rename(f"{log}.1")
    put(log)
    give_inode(reading, "app.log", Path(f"{log}.1"))
    last = reading.after["app.log#2"]
    assert reading.epoch() == 1
    assert reading.after["app.log#2"].offset == last.offset
    shard = next(shard for shard, found in reading.after.items() if found.detail["path"] == str(log))
    # The shards of the two older logs claim no file, whatever inodes are reused.
    Path(f"{log}.1").unlink()
    log.rename(f"{log}.1")
    put(log)
    give_inode(reading, "app.log", log)
    give_inode(reading, "app.log#2", Path(f"{log}.1"))
    assert reading.epoch() == 1
    assert reading.after[shard].detail["path"] == f"{log}.1"


@pytest.mark.parametrize("more", [b"", b"more\n"])
def test_a_log_that_is_written_anew_without_a_rotation_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, more: bytes
) -> None:
    reading, log = reading_of(tmp_path)
    for number in range(1, 4):
        write_anew(log, SMALL + more * number)
        assert reading.epoch() == len(more.splitlines())
    (warning,) = warnings_of(caplog)
    assert f"{log} is another file than the one that was read up to byte 8" in warning
    assert "these bytes are not read again" in warning


def test_a_file_with_the_inode_and_lines_of_the_log_at_its_path_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    reading, log = reading_of(tmp_path)
    write_anew(log, SMALL)
    give_inode(reading, "app.log", log)
    assert reading.epoch() == 0
    (warning,) = warnings_of(caplog)
    assert f"{log} is another file" in warning


@pytest.mark.parametrize("how", ["dated", "kept time"])
def test_a_log_that_is_written_anew_or_copied_is_not_told_where_that_is_sure(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    content = DATED if how == "dated" else SMALL
    reading, log = reading_of(tmp_path, content)
    times = log.stat()
    write_anew(log, content)
    if how == "kept time":
        os.utime(log, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert reading.epoch() == 0
    assert warnings_of(caplog) == []


def test_a_dated_log_that_is_written_anew_beside_a_copy_is_not_read_again(tmp_path: Path) -> None:
    reading, log = reading_of(tmp_path, DATED)
    shutil.copyfile(log, f"{log}.1")
    write_anew(log, DATED)
    assert reading.epoch() == 0


def test_a_log_that_is_written_anew_beside_a_known_copy_is_not_read_again(tmp_path: Path) -> None:
    reading, log = reading_of(tmp_path)
    shutil.copyfile(log, f"{log}.1")
    append(log, b"more\n")
    assert reading.epoch() == 1
    write_anew(log, SMALL + b"more\n" + b"last\n")
    assert reading.epoch() == 1


def test_a_log_with_equal_lines_beside_a_rotated_one_with_another_time_is_read_and_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Two rotations since the last run, or a copy made before the log was replaced."""
    reading, log = reading_of(tmp_path)
    compress(log)
    os.utime(f"{log}.gz", (1.0, 1.0))
    put(log)
    assert reading.epoch() == 1
    old, new = warnings_of(caplog)
    assert f"{log}.gz has the content of {log}, which is gone: taken for that one" in old
    assert f"{log} is another file than the one that was read up to byte 8" in new
    assert "it is read as a new log" in new


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_a_rotated_log_with_the_lines_of_an_older_one_that_no_run_saw_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, ending: str
) -> None:
    """Two rotations between two runs; the second rotation deletes the log that was read (``rotate 1``)."""
    log = Log(tmp_path / "logs", Mode(ending=ending, keep=1))
    reading, path = reading_of(tmp_path)
    for lines in (SMALL, b"last\n"):
        list(log.rotate())
        put(path, lines)
    assert reading.epoch() == 1
    (warning,) = warnings_of(caplog)
    assert f"{path}.1{ending} has the content of {path}, which is gone: taken for that one" in warning


@pytest.mark.parametrize("how", ["create", "nocreate", "copytruncate"])
@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize("rest", [b"", b"rest\n"])
def test_nothing_is_told_of_a_log_without_times_that_is_rotated_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, how: str, ending: str, rest: bytes
) -> None:
    log = Log(tmp_path / "logs", Mode(how, ending))
    reading, path = reading_of(tmp_path)
    for day in range(4):
        append(path, rest)
        list(log.rotate())
        append(path, b"day %d\n" % day)
        assert reading.epoch() == 1 + len(rest.splitlines())
    assert warnings_of(caplog) == []


def test_a_log_whose_rotated_files_moved_on_is_new(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The old log is missing: a rotation moved it to a folder that the path does not match."""
    put(tmp_path / "logs" / "app.log.1", b"older\n")
    reading = Reading(source_now(tmp_path / "logs"))
    log = put(tmp_path / "logs" / "app.log")
    assert reading.epoch() == 2
    for day in range(1, 4):
        Path(f"{log}.{day}").rename(f"{log}.{day + 1}")
        log.rename(tmp_path / f"away-{day}")
        put(log)
        assert reading.epoch() == 1
    assert all("it is read as a new log" in warning for warning in warnings_of(caplog))
    assert warnings_of(caplog)
    Path(f"{log}.4").rename(f"{log}.5")
    log.rename(tmp_path / "away-4")
    put(log, b"no\n")
    with pytest.raises(Exception, match=r"truncated or replaced"):
        reading.source.plan(reading.after)


@pytest.mark.parametrize(
    ("content", "is_equal"), [(SMALL, True), (SMALL, False), (LARGE, True), (LARGE, False), (DATED, False)]
)
def test_logs_that_were_copied_to_a_new_disk_and_rotated_once_are_not_read_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes, is_equal: bool
) -> None:
    logs = tmp_path / "logs"
    names = ["app.log.3", "app.log.2", "app.log.1", "app.log"]
    for number, name in enumerate(names):
        put(logs / name, content if is_equal else b"2026-11-2%dT09:00:00Z\n" % number + content)
        os.utime(logs / name, (1_000_000.5 + number, 1_000_000.5 + number))
    reading = Reading(source_now(logs))
    reading.all()
    shutil.copytree(logs, tmp_path / "disk")
    shutil.rmtree(logs)
    (tmp_path / "disk").rename(logs)
    for name, (old, new) in zip(names, itertools.pairwise(["app.log.4", *names]), strict=True):
        assert name == new
        (logs / new).rename(logs / old)
    put(logs / "app.log", content)
    assert reading.epoch() == len(content.splitlines())
    assert warnings_of(caplog) == []


def test_a_rotated_file_of_a_higher_number_and_another_time_is_read(tmp_path: Path) -> None:
    reading = Reading(source_now(tmp_path))
    os.utime(put(tmp_path / "app.log.1"), (1.0, 1.0))
    assert reading.epoch() == 1
    (tmp_path / "app.log.1").rename(tmp_path.parent / f"{tmp_path.name}-away")
    put(tmp_path / "app.log.2")
    assert reading.epoch() == 1


def test_a_file_that_an_overlay_copies_up_when_it_is_moved_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The copy keeps the inode and gets a new creation time."""
    monkeypatch.setattr(renamed, "keeps_creation_times", lambda _: False)
    reading, log = reading_of(tmp_path)
    moved = put(tmp_path / "logs" / "other.log")
    log.unlink()
    give_inode(reading, "app.log", moved)
    assert reading.epoch() == 1
    (warning,) = warnings_of(caplog)
    assert f"{moved} has the content of {log}, which is gone" in warning


def test_a_file_that_an_overlay_copies_up_when_it_is_rotated_is_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(renamed, "keeps_creation_times", lambda _: False)
    reading, log = reading_of(tmp_path)
    times = log.stat()
    log.unlink()
    rotated = put(tmp_path / "logs" / "app.log.1")
    os.utime(rotated, ns=(times.st_atime_ns, times.st_mtime_ns))
    give_inode(reading, "app.log", rotated)
    assert reading.epoch() == 0
    assert warnings_of(caplog) == []


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/a", "ext4"),
        ("/var/log/a", "overlay"),
        ("/var/logs/a", "ext4"),
        ("/var/log/x y/a", "tmpfs"),
        ("/twice/a", "xfs"),
    ],
)
def test_the_file_system_of_a_path_is_that_of_the_last_and_nearest_mount(path: str, kind: str) -> None:
    mounts = (
        "22 1 0:20 / / rw,relatime shared:1 - ext4 /dev/sda rw\n"
        "23 22 0:21 / /var/log rw - overlay overlay rw,lowerdir=/a\n"
        "24 23 0:22 / /var/log/x\\040y rw shared:2 master:1 - tmpfs tmpfs rw\n"
        "25 22 0:23 / /twice rw - ext4 /dev/sdb rw\n"
        "26 25 0:24 / /twice rw - xfs /dev/sdc rw\n"
    )
    assert filesystem_of(path, mounts) == kind


def test_creation_times_hold_where_nothing_is_known_of_mounts() -> None:
    assert keeps_creation_times(FileInfo("/no/such/\0file", 0, 0.0, "ino:1"))
