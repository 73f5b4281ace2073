"""Logs that are unpacked (``gunzip``, ``unzstd``) after they were read are not read again."""

from __future__ import annotations

import gzip
import os
import subprocess
from pathlib import Path

import pyarrow as pa
import pytest

from tests.unit.ingest.sources.files.test_alike import LARGE, SMALL, put, warnings_of
from tests.unit.ingest.sources.files.test_rotation import append, source_now, texts
from tests.unit.ingest.sources.rows import Reading

LAST = b"and a last line without an end"


def pack(log: Path, ending: str) -> Path:
    """Compress a log into another file with its modification time; ``multi.gz`` has two members."""
    content, packed = log.read_bytes(), log.with_name(f"{log.name}.{ending.rpartition('.')[2]}")
    match ending:
        case "gz":
            packed.write_bytes(gzip.compress(content))
        case "multi.gz":
            middle = len(content) // 2
            packed.write_bytes(gzip.compress(content[:middle]) + gzip.compress(content[middle:]))
        case _:
            packed.write_bytes(pa.Codec("zstd").compress(content, asbytes=True))
    copy_time(log, packed)
    log.unlink()
    return packed


def copy_time(of: Path, to: Path) -> None:
    found = of.stat()
    os.utime(to, ns=(found.st_atime_ns, found.st_mtime_ns))


def unpack(packed: Path, content: bytes, *, is_kept: bool) -> Path:
    log = packed.with_suffix("")
    log.write_bytes(content)
    copy_time(packed, log)
    if not is_kept:
        packed.unlink()
    return log


@pytest.fixture(params=["gz", "multi.gz", "zst"])
def ending(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("was_packed", [False, True])
@pytest.mark.parametrize("is_kept", [False, True])
@pytest.mark.parametrize("content", [SMALL, LARGE, LARGE + LAST])
def test_an_unpacked_log_is_not_read_again_and_goes_on_where_it_was_read(
    tmp_path: Path, ending: str, was_packed: bool, is_kept: bool, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    log = put(tmp_path / "app.log.2", content)
    reading = Reading(source_now(tmp_path))
    rows = len(content.splitlines())
    if not was_packed:
        assert reading.epoch() == rows
    packed = pack(log, ending)
    put(tmp_path / "app.log", b"any\n")
    assert reading.epoch() == (rows if was_packed else 0) + 1
    unpack(packed, content, is_kept=is_kept)
    assert reading.epoch() == 0
    is_by_name = was_packed and not is_kept
    assert [f"{log} has the name and the time of {packed}" in told for told in warnings_of(caplog)] == [
        True
    ] * is_by_name
    reading.source = source_now(tmp_path)
    assert not reading.source.plan(reading.after).ranges
    assert all(end.lag == 0 for end in reading.source.ends(reading.after).values())
    append(log, b"more\n")
    if is_kept:
        packed.unlink()
    assert reading.epoch() == 1
    assert sorted(line for lines in texts(reading).values() for line in lines) == sorted(
        [*content.splitlines(), b"any", b"more"]
    )


def test_an_unpacked_file_that_grew_beside_its_archive_goes_on_behind_it(tmp_path: Path, ending: str) -> None:
    packed = pack(put(tmp_path / "data.jsonl", LARGE), ending)
    reading = Reading(source_now(tmp_path))
    reading.epoch()
    append(unpack(packed, LARGE, is_kept=True), b"more\n")
    assert reading.epoch() == 1


@pytest.mark.parametrize("was_packed", [False, True])
@pytest.mark.parametrize("is_kept", [False, True])
def test_a_file_that_is_being_unpacked_waits(tmp_path: Path, ending: str, was_packed: bool, is_kept: bool) -> None:
    """Whether or not a position says that the log was packed."""
    log = put(tmp_path / "app.log.2", LARGE)
    reading = Reading(source_now(tmp_path))
    if not was_packed:
        reading.epoch()
    packed = pack(log, ending)
    put(tmp_path / "other", b"any\n" * is_kept)
    reading.epoch()
    log.write_bytes(LARGE[:5_000])
    plan = reading.source.plan(reading.after)
    assert not [each for each in plan.ranges if each.until > each.start]
    assert plan.settles_in_s is not None
    unpack(packed, LARGE, is_kept=False)
    assert reading.epoch() == 0


def test_a_file_of_another_time_in_the_place_of_an_archive_is_read_and_a_warning_names_both(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The position of an archive that was read compressed records no content of the unpacked log."""
    packed = pack(put(tmp_path / "app.log.2", LARGE), "gz")
    reading = Reading(source_now(tmp_path))
    reading.epoch()
    log = unpack(packed, LARGE, is_kept=False)
    os.utime(log, (1.0, 1.0))
    assert reading.epoch() == 2_000
    (warning,) = warnings_of(caplog)
    assert f"{log} has the name of {packed}" in warning
    assert reading.epoch() == 0


@pytest.mark.parametrize("was_packed", [False, True])
def test_a_file_with_other_content_beside_an_archive_is_read(tmp_path: Path, ending: str, was_packed: bool) -> None:
    log = put(tmp_path / "app.log.2", LARGE)
    reading = Reading(source_now(tmp_path))
    if not was_packed:
        reading.epoch()
    packed = pack(log, ending)
    put(tmp_path / "other", b"any\n")
    reading.epoch()
    unpack(packed, LARGE.replace(b"line 1000\n", b"line 9999\n"), is_kept=True)
    assert reading.epoch() == 2_000


def test_an_unpacked_log_that_is_packed_again_is_not_read_again(tmp_path: Path, ending: str) -> None:
    packed = pack(put(tmp_path / "app.log.2", LARGE), ending)
    reading = Reading(source_now(tmp_path))
    reading.epoch()
    log = unpack(packed, LARGE, is_kept=False)
    reading.epoch()
    append(log, b"more\n")
    pack(log, ending)
    assert reading.epoch() == 1
    assert reading.epoch() == 0


@pytest.mark.parametrize("is_kept", [False, True])
@pytest.mark.parametrize("was_packed", [False, True])
def test_gunzip_itself(tmp_path: Path, was_packed: bool, is_kept: bool) -> None:
    log = put(tmp_path / "app.log.2", LARGE)
    reading = Reading(source_now(tmp_path))
    if not was_packed:
        reading.epoch()
    subprocess.run(["gzip", log], check=True)
    reading.epoch()
    subprocess.run(["gunzip", *(["-k"] if is_kept else []), f"{log}.gz"], check=True)
    assert reading.epoch() == 0
