"""Every line of a log is read once, however the log is rotated, compressed, copied, truncated or linked."""

from __future__ import annotations

import gzip
import os
import shutil
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem

from ingest.sources.decode.lines import TextBlock
from ingest.sources.decode.options import RecordFormat
from ingest.sources.files.decompress import DecompressedStream
from ingest.sources.files.locate import Located, locate
from ingest.sources.files.options import FilesOptions
from ingest.sources.files.read import LineReader
from ingest.sources.files.source import FilesSource
from tests.unit.ingest.sources.rotating import Log, Mode
from tests.unit.ingest.sources.rows import Reading, read_lines
from timeline.epoch import OffsetRange, Position
from timeline.errors import RangeGoneError, RangeRewrittenError, SourceChangedError
from timeline.holes import lost

MODES = [
    Mode(how, ending, delays=delays, dated=dated)
    for how in ("create", "nocreate", "copytruncate", "renamecopy")
    for ending, delays in (("", False), (".gz", False), (".gz", True), (".zst", False))
    for dated in (False, True)
]
MODES += [Mode("copy", ending, dated=True) for ending in ("", ".gz", ".zst")]
MODES += [Mode(ending=".gz", extension=".log"), Mode("copytruncate", ".gz", extension=".log", dated=True)]
MODES += [Mode(how, ending, olddir="old") for how in ("create", "copytruncate", "renamecopy") for ending in ("", ".gz")]

DELETING = [
    Mode(keep=1),
    Mode(ending=".gz", keep=1),
    Mode("copytruncate", keep=1),
    Mode("copytruncate", ".zst", keep=1),
]
"""Modes that delete a log one rotation after it was set aside (``rotate 1``, ``maxage``)."""


def source_now(path: Path | str, **options: Any) -> FilesSource:
    """A source with the clock of the file system."""
    return FilesSource(FilesOptions(**{"path": str(path), "format": "json", "close_after": "0s"} | options))


def lines_of(reading: Reading) -> list[bytes]:
    return sorted(line for shard in reading.lines for line in reading.texts(shard))


@pytest.mark.parametrize("mode", MODES + DELETING, ids=str)
@pytest.mark.parametrize("lines", [3, 400])
def test_every_line_is_read_once_through_every_step_of_a_rotation(tmp_path: Path, mode: Mode, lines: int) -> None:
    log = Log(tmp_path, mode)
    reading = Reading(source_now(tmp_path))
    for rotation in range(4):
        log.append(lines)
        reading.epoch()
        log.append(lines)
        for number, _ in enumerate(log.rotate()):
            if (number + rotation) % 2 == 0:
                reading.epoch()
            if rotation == 2:
                reading.source = source_now(tmp_path)  # a restart: nothing is cached
                reading.epoch()
    log.append(lines)
    reading.epoch()
    reading.source = source_now(tmp_path)  # a restart: nothing is cached
    assert reading.epoch() == 0
    assert lines_of(reading) == sorted(log.written)


@pytest.mark.parametrize("mode", DELETING, ids=str)
def test_a_log_that_was_read_may_be_deleted_after_rotations_without_a_line(tmp_path: Path, mode: Mode) -> None:
    log = Log(tmp_path, mode)
    reading = Reading(source_now(tmp_path))
    log.append(3)
    for _ in range(3):
        reading.epoch()
        list(log.rotate())
    log.append(3)
    assert reading.epoch() == 3
    assert lines_of(reading) == sorted(log.written)


@pytest.mark.parametrize("mode", DELETING, ids=str)
def test_lines_that_a_rotation_deleted_before_they_were_read_are_told(tmp_path: Path, mode: Mode) -> None:
    log = Log(tmp_path, mode)
    reading = Reading(source_now(tmp_path))
    log.append(3)
    reading.epoch()
    log.append(3)
    for _ in range(2):
        list(log.rotate())
        log.append(5, "later")
    with pytest.raises(SourceChangedError, match=r"app\.log \(shard app\.log\) was read up to byte \d+ and now"):
        reading.source.plan(reading.after)
    reading.source = source_now(tmp_path, on_truncate="restart")
    reading.epoch()
    ((hole,),) = lost(reading.after).values()
    assert "truncated or replaced" in hole.reason
    assert lines_of(reading) == sorted(log.written[:3] + log.written[6:])


def append(path: Path, content: bytes, mtime_s: float | None = None) -> None:
    with path.open("ab") as file:
        file.write(content)
    if mtime_s is not None:
        os.utime(path, (mtime_s, mtime_s))


def compress(path: Path) -> Path:
    """Compress as gzip does: another file, with the modification time of the first."""
    compressed = path.with_name(f"{path.name}.gz")
    compressed.write_bytes(gzip.compress(path.read_bytes()))
    shutil.copystat(path, compressed)
    path.unlink()
    return compressed


def texts(reading: Reading) -> dict[str, list[bytes]]:
    return {shard: reading.texts(shard) for shard in reading.lines}


def test_what_an_archive_has_beyond_the_offset_is_read_as_the_shards_next_range(tmp_path: Path) -> None:
    path = tmp_path / "app.log"
    reading = Reading(source_now(tmp_path))
    append(path, b"one\n")
    reading.epoch()
    append(path, b"two\nthree")
    compress(path.rename(tmp_path / "app.log.1"))
    (offsets,) = reading.source.plan(reading.after).ranges
    assert (offsets.shard, offsets.start, offsets.until) == ("app.log", 4, 13)
    assert reading.source.split(offsets, 2) == [offsets]
    assert [end.lag for end in reading.source.ends(reading.after).values()] == [9]
    reading.epoch()
    assert reading.lines == {"app.log": [(0, b"one"), (4, b"two"), (8, b"three")]}
    assert [end.lag for end in source_now(tmp_path).ends(reading.after).values()] == [0]


def test_an_archive_is_decompressed_once_and_not_at_every_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "app.log"
    reading = Reading(source_now(tmp_path))
    append(path, b"one\n")
    reading.epoch()
    compress(path.rename(tmp_path / "app.log.1"))
    assert reading.epoch() == 0
    append(tmp_path / "other.log", b"any\n")

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("it was decompressed again")

    monkeypatch.setattr(DecompressedStream, "read", refuse)
    assert reading.epoch() == 1, "an epoch with records keeps where the shard is now"
    reading.source = source_now(tmp_path)
    assert reading.source.plan(reading.after).ranges == ()
    (tmp_path / "app.log.1.gz").rename(tmp_path / "app.log.2.gz")
    assert reading.source.plan(reading.after).ranges == ()


@pytest.mark.parametrize("format_options", [{"format": "csv"}, {"format": "text", "pattern": "(?P<a>.*)"}])
def test_other_formats_go_on_in_an_archive_too(tmp_path: Path, format_options: dict[str, str]) -> None:
    path = tmp_path / "app.log"
    reading = Reading(source_now(tmp_path, **format_options))
    append(path, b"name\none\n")
    reading.epoch()
    append(path, b"two\n")
    compress(path)
    reading.epoch()
    header = [] if format_options["format"] == "csv" else [b"name"]
    assert texts(reading) == {"app.log": [*header, b"one", b"two"]}


def test_a_position_without_the_beginning_goes_on_in_an_archive_too(tmp_path: Path) -> None:
    path = tmp_path / "app.log"
    reading = Reading(source_now(tmp_path))
    append(path, b"one\n")
    reading.epoch()
    old = {name: value for name, value in reading.after["app.log"].detail.items() if not name.startswith("head")}
    reading.after["app.log"] = Position(4, old)
    append(path, b"two\n")
    compress(path)
    append(path, b"three\n")
    reading.epoch()
    assert texts(reading) == {"app.log": [b"one", b"two"], "app.log#2": [b"three"]}


def test_an_archive_whose_end_is_missing_gives_its_whole_lines_and_a_row_that_says_so(tmp_path: Path) -> None:
    path = tmp_path / "app.log"
    reading = Reading(source_now(tmp_path))
    lines = b"".join(b"%d %d\n" % (number, number**9) for number in range(20_000))
    append(path, lines[:10_000])
    reading.epoch()
    append(path, lines[10_000:])
    archive = compress(path)
    data = archive.read_bytes()
    archive.write_bytes(data[: len(data) // 2])
    assert reading.source.plan(reading.after).ranges == (), "it may still be written"
    os.utime(archive, (1, 1))
    (offsets,) = reading.source.plan(reading.after).ranges
    blocks = list(reading.source.reader().read(offsets))
    assert lines[offsets.until - 1 : offsets.until] == b"\n"
    assert (
        b"".join(block.data.data for block in blocks if isinstance(block.data, TextBlock))
        == (lines[offsets.start : offsets.until])
    )
    assert [(block.rows, block.data) for block in blocks[-1:]] == [(1, None)]
    assert "nothing can be read from here on" in str(blocks[-1].detail["reason"])


def test_an_archive_that_breaks_before_the_offset_is_named(tmp_path: Path) -> None:
    path = tmp_path / "app.log"
    reading = Reading(source_now(tmp_path))
    append(path, b"".join(b"%d %d\n" % (number, number**9) for number in range(20_000)))
    reading.epoch()
    archive = compress(path)
    data = archive.read_bytes()
    archive.write_bytes(data[: len(data) // 2])
    os.utime(archive, (1, 1))
    with pytest.raises(SourceChangedError, match=r"app\.log\.gz is what .*app\.log \(shard app\.log.* breaks at byte"):
        reading.source.plan(reading.after)


@pytest.mark.parametrize(
    "names",
    [
        ("status-a.json", "status-b.json"),
        ("part-0001.json", "part-0002.json"),
        ("day-20261122.json", "day-20261123.json"),
        ("day-20261122.json", "day-20261123.json.gz"),
        ("10.0.0.1.log", "10.0.0.2.log"),
        ("a/app.log", "b/app.log"),
        ("app.log.1", "app.log"),
    ],
)
@pytest.mark.parametrize("is_gone", [False, True])
@pytest.mark.parametrize("lines", [1, 2_000])
def test_files_of_equal_content_that_are_no_rotation_are_all_read(
    tmp_path: Path, names: tuple[str, str], is_gone: bool, lines: int
) -> None:
    first, second = (tmp_path / name for name in names)
    content = b"".join(b"line %d\n" % number for number in range(lines))
    reading = Reading(source_now(tmp_path))
    first.parent.mkdir(exist_ok=True)
    append(first, content)
    reading.epoch()
    if is_gone:
        first.rename(tmp_path.parent / "away")
        append(tmp_path.parent / "away", b"")
    second.parent.mkdir(exist_ok=True)
    append(second, content) if second.suffix != ".gz" else second.write_bytes(gzip.compress(content))
    assert reading.epoch() == lines


def test_files_that_only_begin_alike_are_not_taken_for_one(tmp_path: Path) -> None:
    reading = Reading(source_now(tmp_path))
    beginning = b"the same first line\n" * 500
    append(tmp_path / "app.log", beginning + b"one\n")
    reading.epoch()
    (tmp_path / "app.log.1.gz").write_bytes(gzip.compress(beginning + b"two\n" * 50))
    reading.epoch()
    (tmp_path / "app.log").unlink()
    (tmp_path / "app.log.2.gz").write_bytes(gzip.compress(beginning + b"six\n" * 50))
    reading.epoch()
    assert [len(found) for found in texts(reading).values()] == [501, 550, 550]


def test_equal_logs_of_two_days_that_are_there_from_the_start_are_both_read(tmp_path: Path) -> None:
    append(tmp_path / "app.log.1", b"one\n", 1.0)
    append(tmp_path / "app.log", b"one\n", 86_401.0)
    reading = Reading(source_now(tmp_path))
    assert reading.epoch() == 2
    append(tmp_path / "app.log", b"two\n")
    assert reading.epoch() == 1


def test_a_copy_that_is_made_beside_the_log_is_never_read(tmp_path: Path) -> None:
    path = tmp_path / "app.log"
    reading = Reading(source_now(tmp_path))
    append(path, b"one\n")
    reading.epoch()
    append(path, b"two\n")
    shutil.copyfile(path, tmp_path / "app.log.1")
    append(path, b"three\n")
    reading.epoch()
    reading.source = source_now(tmp_path)
    assert reading.epoch() == 0
    assert texts(reading) == {"app.log": [b"one", b"two", b"three"]}


def truncated(folder: Path, **options: Any) -> Reading:
    """A log that was truncated in place, and whose copy is not in the glob."""
    reading = Reading(source_now(folder / "*.log", **options))
    append(folder / "app.log", b"one\ntwo\n")
    reading.epoch()
    os.truncate(folder / "app.log", 0)
    append(folder / "app.log", b"six\n")
    return reading


def test_a_truncated_log_stops_the_job_and_both_ways_on_are_told(tmp_path: Path) -> None:
    reading = truncated(tmp_path)
    both = r"let path match the name.*--new-source.*or set source\.on_truncate: restart"
    with pytest.raises(SourceChangedError, match=both):
        reading.source.plan(reading.after)
    assert "tideline run stops at this file" in reading.source.ends(reading.after)["app.log"].note


@pytest.mark.parametrize("more", [b"", b"and a line longer than all that was there before\n"])
def test_a_truncated_log_begins_anew_where_the_job_file_says_so_and_the_hole_is_recorded(
    tmp_path: Path, more: bytes
) -> None:
    reading = truncated(tmp_path, on_truncate="restart")
    append(tmp_path / "app.log", more)
    reading.epoch()
    assert texts(reading)["app.log#2"] == [b"six", *more.splitlines()]
    ((hole,),) = lost(reading.after).values()
    assert (hole.start, hole.until) == (8, None)
    assert "truncated or replaced" in hole.reason
    reading.source = source_now(tmp_path / "*.log", on_truncate="restart")
    append(tmp_path / "app.log", b"seven\n")
    assert reading.epoch() == 1
    assert lost({"app.log": reading.after["app.log"]})


def test_the_rest_of_a_truncated_log_is_read_when_its_archive_turns_up_after_all(tmp_path: Path) -> None:
    reading = Reading(source_now(f"{tmp_path}/app*g*", on_truncate="restart"))
    append(tmp_path / "app.log", b"one\n")
    reading.epoch()
    append(tmp_path / "app.log", b"two\n")
    archive = tmp_path / "away"
    archive.write_bytes(gzip.compress((tmp_path / "app.log").read_bytes()))
    os.truncate(tmp_path / "app.log", 0)
    append(tmp_path / "app.log", b"three\n")
    reading.epoch()
    archive.rename(tmp_path / "app.log.1.gz")
    reading.epoch()
    assert texts(reading) == {"app.log": [b"one", b"two"], "app.log#2": [b"three"]}


def test_a_log_that_was_cut_off_and_still_begins_as_before_is_never_read_anew(tmp_path: Path) -> None:
    reading = Reading(source_now(tmp_path, on_truncate="restart"))
    append(tmp_path / "app.log", b"a line of a log\n" * 1_000)
    reading.epoch()
    os.truncate(tmp_path / "app.log", 8_000)
    with pytest.raises(SourceChangedError, match="still begins with what was read"):
        reading.source.plan(reading.after)


@pytest.mark.parametrize("is_new_file", [True, False])
def test_a_rewritten_beginning_is_noticed(tmp_path: Path, is_new_file: bool) -> None:
    path = tmp_path / "app.log"
    reading = Reading(source_now(tmp_path))
    content = b"one\n" + b"line\n" * 2_000
    append(path, content, 1.0)
    reading.epoch()
    if is_new_file:
        path.rename(tmp_path.parent / f"kept-{tmp_path.name}")
        append(path, b"ONE\n" + content[4:] + b"more\n", 2.0)
    else:
        with path.open("r+b") as file:
            file.write(b"ONE\n")
        os.utime(path, (2.0, 2.0))
    with pytest.raises(SourceChangedError, match="has other bytes before it"):
        reading.source.plan(reading.after)


def test_a_reused_inode_is_no_proof(tmp_path: Path) -> None:
    """The file system gives a new log the inode of one that was compressed and removed."""
    path = tmp_path / "app.log"
    reading = Reading(source_now(tmp_path))
    append(path, b"one\ntwo\n")
    reading.epoch()
    content = path.read_bytes()
    path.write_bytes(b"")  # the same inode, with other content
    (tmp_path / "app.log.1.gz").write_bytes(gzip.compress(content + b"three\n"))
    append(path, b"four\nfive\nsix\n")
    reading.epoch()
    assert texts(reading) == {"app.log": [b"one", b"two", b"three"], "app.log#2": [b"four", b"five", b"six"]}
    append(path, b"seven\n")
    assert reading.epoch() == 1


@pytest.mark.parametrize("how", ["gz", "olddir", "olddir-gz", "copytruncate"])
@pytest.mark.parametrize("split", [3, 1 << 20])
def test_a_range_is_found_in_what_a_rotation_made_of_its_file_before_it_was_read(
    tmp_path: Path, how: str, split: int
) -> None:
    path = tmp_path / "app.log"
    append(path, b"one\ntwo\nthree\n")
    source = source_now(tmp_path)
    (offsets,) = source.plan({}).ranges
    if how != "copytruncate":
        folder = tmp_path / "old" if how.startswith("olddir") else tmp_path
        folder.mkdir(exist_ok=True)
        rotated = path.rename(folder / "app.log.1")
        if how.endswith("gz"):
            compress(rotated)
    else:
        shutil.copyfile(path, tmp_path / "app.log.1")
        os.truncate(path, 0)
        append(path, b"other\nlines\nthan before\n")
    found = read_lines(source, source.split(offsets, split))
    assert [line for _, line in found] == [b"one", b"two", b"three"]


@pytest.mark.parametrize(("read_before", "error"), [(False, RangeGoneError), (True, RangeRewrittenError)])
@pytest.mark.parametrize("lines", [10, 200_000])
def test_a_range_whose_file_is_truncated_while_it_is_read_is_gone(
    tmp_path: Path, read_before: bool, error: type[RangeGoneError], lines: int
) -> None:
    path = tmp_path / "app.log"
    reading = Reading(source_now(tmp_path))
    if read_before:
        append(path, b"one\n")
        reading.epoch()
    append(path, b"one\ntwo\n" * 100_000)
    (offsets,) = reading.source.plan(reading.after).ranges
    blocks = LineReader(LocalFileSystem(), block_bytes=400_000).read(offsets)
    next(blocks)
    path.write_bytes(b"six\n" * lines)
    with pytest.raises(RangeGoneError) as gone:
        list(blocks)
    assert type(gone.value) is error


def test_objects_that_are_put_again_compressed_go_on() -> None:
    fs = fsspec.filesystem("memory")
    fs.pipe_file("/bucket/app.log", b"one\n")
    try:
        reading = Reading(FilesSource(FilesOptions(path="memory://bucket/*", format=RecordFormat.JSON, close_after=0)))
        reading.epoch()
        fs.rm("/bucket/app.log")
        fs.pipe_file("/bucket/app.log-20261123.gz", gzip.compress(b"one\ntwo\n"))
        reading.epoch()
        assert texts(reading) == {"app.log": [b"one", b"two"]}
    finally:
        fs.rm("/bucket", recursive=True)


@pytest.mark.parametrize("step", ["renamed", "compressed"])
def test_a_log_that_is_rotated_between_being_found_and_being_opened_is_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    log = tmp_path / "app.log"
    log.write_text('{"id": 1}\n{"id": 2}\n')
    source = source_now(tmp_path)
    (planned,) = source.plan({}).ranges

    def found_then_rotated(fs: LocalFileSystem, offsets: OffsetRange) -> Located:
        found = locate(fs, offsets)
        if log.exists():
            log.rename(tmp_path / "app.log.1")
            if step == "compressed":
                (tmp_path / "app.log.1.gz").write_bytes(gzip.compress((tmp_path / "app.log.1").read_bytes()))
                (tmp_path / "app.log.1").unlink()
        return found

    monkeypatch.setattr("ingest.sources.files.read.locate", found_then_rotated)
    assert [line for _, line in read_lines(source, [planned])] == [b'{"id": 1}', b'{"id": 2}']
