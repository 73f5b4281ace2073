"""Files that appear, grow, shrink, vanish and are renamed."""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import Any

import fsspec
import pytest

from ingest.sources.decode.lines import TextBlock
from ingest.sources.decode.options import RecordFormat
from ingest.sources.files.options import FilesOptions
from ingest.sources.files.source import FilesSource
from tests.unit.ingest.sources.rows import NOW_S, Reading, source_of
from timeline.epoch import OffsetRange, Position
from timeline.errors import RangeGoneError, SourceChangedError, SourceError


def _ranges(source: FilesSource, after: dict[str, Position]) -> list[tuple[str, int, int]]:
    return [(one.shard, one.start, one.until) for one in source.plan(after).ranges]


def _append(path: Path, content: bytes, mtime_s: float = NOW_S) -> None:
    with path.open("ab") as file:
        file.write(content)
    os.utime(path, (mtime_s, mtime_s))


def test_new_files_are_taken_oldest_first_then_by_path(tmp_path: Path) -> None:
    for name, mtime_s in (("b", 2.0), ("a", 2.0), ("old", 1.0)):
        _append(tmp_path / name, b"x\n", mtime_s)
    assert _ranges(source_of(tmp_path), {}) == [("old", 0, 2), ("a", 0, 2), ("b", 0, 2)]


def test_folders_are_walked_and_hidden_names_left_out(tmp_path: Path) -> None:
    for name in ("a.log", "sub/b.log", ".c.log", "_d.log", ".hidden/e.log", "_SUCCESS"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        _append(tmp_path / name, b"x\n")
    assert {shard for shard, _, _ in _ranges(source_of(tmp_path), {})} == {"a.log", "sub/b.log"}
    assert {shard for shard, _, _ in _ranges(source_of(f"{tmp_path}/*.log"), {})} == {"a.log"}
    assert {shard for shard, _, _ in _ranges(source_of(f"{tmp_path}/**/*.log"), {})} == {"a.log", "sub/b.log"}
    assert {shard for shard, _, _ in _ranges(source_of(tmp_path / "_d.log"), {})} == {"_d.log"}


def test_a_link_to_a_listed_file_is_not_read_twice(tmp_path: Path) -> None:
    _append(tmp_path / "a-2026.log", b"x\n")
    (tmp_path / "current.log").symlink_to(tmp_path / "a-2026.log")
    assert _ranges(source_of(tmp_path), {}) == [("a-2026.log", 0, 2)]


def test_a_link_to_a_file_elsewhere_is_followed(tmp_path: Path) -> None:
    (tmp_path / "pods").mkdir()
    (tmp_path / "containers").mkdir()
    _append(tmp_path / "pods" / "0.log", b"x\n")
    (tmp_path / "containers" / "web.log").symlink_to(tmp_path / "pods" / "0.log")
    assert _ranges(source_of(tmp_path / "containers"), {}) == [("web.log", 0, 2)]


def test_empty_files_and_pipes_give_no_range(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    os.mkfifo(tmp_path / "pipe")
    assert source_of(tmp_path).plan({}).ranges == ()


def test_a_missing_path_is_named_at_the_first_start(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="nowhere does not exist"):
        source_of(tmp_path / "nowhere").plan({})


def test_an_unknown_protocol_is_named_without_its_password(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="nope") as caught:
        source_of("nope://user:secret@host/x").plan({})
    assert "secret" not in str(caught.value)


def test_a_grown_file_goes_on_where_it_was_left(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    reading = Reading(source_of(tmp_path))
    _append(path, b"one\n")
    reading.epoch()
    _append(path, b"two\n", NOW_S + 1)
    reading.epoch()
    assert reading.lines == {"a.log": [(0, b"one"), (4, b"two")]}


def test_an_unterminated_line_waits_until_its_file_has_settled(tmp_path: Path) -> None:
    _append(tmp_path / "a.log", b"one\ntw", NOW_S - 4)
    plan = source_of(tmp_path, close_after="10s").plan({})
    assert [(one.start, one.until) for one in plan.ranges] == [(0, 4)]
    assert plan.settles_in_s == pytest.approx(6)
    settled = source_of(tmp_path, close_after="10s", now_s=NOW_S + 6).plan({})
    assert [(one.start, one.until) for one in settled.ranges] == [(0, 6)]
    assert settled.settles_in_s is None
    assert _ranges(source_of(tmp_path, close_after="0s", now_s=0.0), {}) == [("a.log", 0, 6)]


def test_ends_say_what_waits_for_its_file_to_settle(tmp_path: Path) -> None:
    _append(tmp_path / "a.log", b"one\ntw", NOW_S - 4)
    _append(tmp_path / "b.log.gz", b"?", NOW_S - 4)
    notes = {shard: end.note for shard, end in source_of(tmp_path, close_after="10s").ends({}).items()}
    waits = "once the file has not changed for close_after, 10 s: 6 s from now"
    assert notes == {
        "a.log": f"a last line without its end counts {waits}",
        "b.log.gz": f"the whole file counts {waits}",
    }
    settled = source_of(tmp_path, close_after="10s", now_s=NOW_S + 6).ends({})
    assert [end.note for end in settled.values()] == ["", ""]


def test_what_follows_a_closed_line_is_a_line_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    reading = Reading(source_of(tmp_path, close_after="0s"))
    _append(path, b"one\ntw")
    reading.epoch()
    _append(path, b"o\nthree\n", NOW_S + 1)
    reading.epoch(split=2)
    assert reading.texts("a.log") == [b"one", b"tw", b"o", b"three"]


def test_a_late_line_end_behind_a_closed_line_is_no_row(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    reading = Reading(source_of(tmp_path, close_after="0s"))
    _append(path, b"one")
    reading.epoch()
    _append(path, b"\r\ntwo\n", NOW_S + 1)
    reading.epoch()
    assert reading.texts("a.log") == [b"one", b"two"]


def test_a_closed_line_is_never_cut_by_the_limit_of_bytes(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    reading = Reading(source_of(tmp_path, close_after="0s", max_bytes_per_epoch=6))
    _append(path, b"one\nunterminated")
    reading.epoch()
    assert reading.after["a.log"].offset == len(b"one\nunterminated")
    _append(path, b" end\n", NOW_S + 1)
    reading.all()
    assert reading.texts("a.log") == [b"one", b"unterminated", b" end"]


def test_a_range_is_read_the_same_after_its_file_has_grown(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    _append(path, b"one\ntw")
    source = source_of(tmp_path, close_after="0s")
    (offsets,) = source.plan({}).ranges
    _append(path, b"o\nthree\n", NOW_S + 1)
    assert [block.data.data for block in source.reader().read(offsets) if isinstance(block.data, TextBlock)] == [
        b"one\ntw"
    ]


def test_limits_of_bytes_and_files_leave_the_rest_behind(tmp_path: Path) -> None:
    for name in "abc":
        _append(tmp_path / name, b"0123456789\n" * 2)
    plan = source_of(tmp_path, max_bytes_per_epoch=30).plan({})
    assert [(one.shard, one.until) for one in plan.ranges] == [("a", 22), ("b", 8)]
    assert (plan.behind, plan.behind_shards) == (14 + 22, 2)
    plan = source_of(tmp_path, max_files_per_epoch=1).plan({})
    assert [one.shard for one in plan.ranges] == ["a"]
    assert (plan.behind, plan.behind_shards) == (44, 2)


@pytest.mark.parametrize("content", [b"", b"one\n", b"other content\n", b"one\ntwO\nthree\n"])
def test_a_file_that_shrank_or_changed_is_an_error_that_names_it(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.log"
    reading = Reading(source_of(tmp_path))
    _append(path, b"one\ntwo\n")
    reading.epoch()
    path.write_bytes(content)
    os.utime(path, (NOW_S + 1, NOW_S + 1))
    with pytest.raises(SourceChangedError, match=rf"a\.log.*byte 8.*size {len(content)}"):
        reading.source.plan(reading.after)


def test_a_vanished_file_is_no_error_and_goes_on_when_it_is_back(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    reading = Reading(source_of(tmp_path))
    _append(path, b"one\n")
    reading.epoch()
    path.rename(tmp_path.parent / "away")
    assert reading.source.plan(reading.after).ranges == ()
    (tmp_path.parent / "away").rename(path)
    _append(path, b"two\n", NOW_S + 1)
    reading.epoch()
    assert reading.texts("a.log") == [b"one", b"two"]


def test_rotation_loses_and_repeats_nothing(tmp_path: Path) -> None:
    reading = Reading(source_of(tmp_path))
    _append(tmp_path / "access.log", b"1\n2\n")
    reading.epoch()
    _append(tmp_path / "access.log", b"3\n", NOW_S + 1)
    (tmp_path / "access.log").rename(tmp_path / "access.log.1")
    _append(tmp_path / "access.log", b"4\n", NOW_S + 2)
    reading.epoch()
    (tmp_path / "access.log.1").rename(tmp_path / "access.log.2")
    (tmp_path / "access.log").rename(tmp_path / "access.log.1")
    _append(tmp_path / "access.log.1", b"5\n", NOW_S + 3)
    _append(tmp_path / "access.log", b"6\n", NOW_S + 4)
    reading.epoch()
    assert reading.epoch() == 0
    assert {shard: reading.texts(shard) for shard in reading.lines} == {
        "access.log": [b"1", b"2", b"3"],
        "access.log#2": [b"4", b"5"],
        "access.log#3": [b"6"],
    }


def test_a_rotation_between_plan_and_read_is_followed(tmp_path: Path) -> None:
    _append(tmp_path / "access.log", b"1\n2\n")
    source = source_of(tmp_path)
    (offsets,) = source.plan({}).ranges
    (tmp_path / "access.log").rename(tmp_path / "access.log.1")
    _append(tmp_path / "access.log", b"other\n")
    assert [block.data.data for block in source.reader().read(offsets) if isinstance(block.data, TextBlock)] == [
        b"1\n2\n"
    ]


def test_a_copy_put_in_a_files_place_goes_on_when_it_begins_alike(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    reading = Reading(source_of(tmp_path))
    _append(path, b"one\n")
    reading.epoch()
    path.rename(tmp_path.parent / "kept")
    _append(path, b"one\ntwo\n", NOW_S + 1)
    reading.epoch()
    assert reading.texts("a.log") == [b"one", b"two"]


def test_a_truncated_range_is_gone_and_named(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    _append(path, b"one\ntwo\n")
    source = source_of(tmp_path)
    (offsets,) = source.plan({}).ranges
    for content, found in ((b"one\n", "4 of 8 bytes"), (b"one\ntwO\n", "other bytes")):
        path.write_bytes(content)
        with pytest.raises(RangeGoneError, match=rf"shard a\.log, range \[0, 8\).*{found}"):
            list(source.reader().read(offsets))
    path.unlink()
    with pytest.raises(RangeGoneError, match="does not exist any more"):
        list(source.reader().read(offsets))


def test_a_compressed_file_is_taken_whole_once_settled_and_never_again(tmp_path: Path) -> None:
    path = tmp_path / "a.log.gz"
    path.write_bytes(gzip.compress(b"one\ntwo\n" * 100))
    os.utime(path, (NOW_S - 5, NOW_S - 5))
    waiting = source_of(tmp_path, max_bytes_per_epoch=10).plan({})
    assert waiting.ranges == ()
    assert waiting.settles_in_s == pytest.approx(5)
    reading = Reading(source_of(tmp_path, now_s=NOW_S + 5, max_bytes_per_epoch=10))
    assert reading.epoch() == 200
    assert reading.epoch() == 0
    with path.open("ab") as file:
        file.write(gzip.compress(b"three\n"))
    with pytest.raises(SourceChangedError, match="cannot be continued"):
        reading.source.plan(reading.after)


def test_planning_known_unchanged_files_reads_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(50):
        _append(tmp_path / f"{number}.log", b"one\n")
    reading = Reading(source_of(tmp_path))
    reading.epoch()

    def refuse(*_: Any, **__: Any) -> bytes:
        raise AssertionError("a file was read")

    monkeypatch.setattr(fsspec.implementations.local.LocalFileSystem, "cat_file", refuse)
    assert reading.source.plan(reading.after).ranges == ()


def test_pieces_cover_the_range_without_gap(tmp_path: Path) -> None:
    _append(tmp_path / "a.log", b"0123456789\n" * 10)
    source = source_of(tmp_path)
    (offsets,) = source.plan({}).ranges
    pieces = source.split(offsets, 25)
    assert [piece.start for piece in pieces] == [0, *(piece.until for piece in pieces[:-1])]
    assert pieces[-1].end == offsets.end
    assert all(piece.until - piece.start <= 25 for piece in pieces)


def test_an_object_store_is_read_like_a_file_system() -> None:
    fs = fsspec.filesystem("memory")
    fs.pipe_file("/bucket/logs/a.log", b"one\n")
    try:
        source = FilesSource(FilesOptions(path="memory://bucket/logs/*.log", format=RecordFormat.JSON, close_after=0))
        reading = Reading(source)
        reading.epoch()
        fs.pipe_file("/bucket/logs/a.log", b"one\ntwo")
        reading.epoch()
        assert reading.lines == {"a.log": [(0, b"one"), (4, b"two")]}
    finally:
        fs.rm("/bucket", recursive=True)


def test_a_range_keeps_nothing_that_is_not_json(tmp_path: Path) -> None:
    _append(tmp_path / "a.log", b"one\n")
    (offsets,) = source_of(tmp_path).plan({}).ranges
    assert isinstance(offsets, OffsetRange)
    for value in [*offsets.detail.values(), *offsets.after.values()]:
        assert value is None or isinstance(value, str | int | float | bool)


def test_a_name_that_is_not_utf8_stops_the_job_with_that_name(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"caf\xe9.jsonl")).write_bytes(b'{"a":1}\n')
    source = FilesSource(FilesOptions(type="files", path=str(tmp_path), format=RecordFormat.JSON, close_after=0))
    with pytest.raises(SourceError, match="not valid UTF-8"):
        source.plan({})
