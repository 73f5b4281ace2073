"""Each line of a file is read exactly once, whatever the file's content, growth, rotations and splits."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.sources.decode.options import RecordFormat
from ingest.sources.files.options import FilesOptions
from ingest.sources.files.read import LineReader
from ingest.sources.files.source import FilesSource
from tests.unit.ingest.sources.rows import NOW_S, Reading, plain_lines, read_lines, source_of

_PIECES = st.sampled_from([b"a", b"bc", b"\n", b"\n", b"\r\n", b"\r", b"\0", b"\xff", b"x" * 300, b"\xef\xbb\xbf"])
_CONTENT = st.lists(_PIECES, min_size=1, max_size=30).map(b"".join)


@settings(max_examples=200)
@given(_CONTENT, st.integers(1, 400), st.integers(1, 64))
def test_pieces_of_a_file_give_each_line_once(content: bytes, most: int, block_bytes: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.log")
        path.write_bytes(content)
        source = source_of(folder)
        start = 3 if content.startswith(b"\xef\xbb\xbf") else 0
        expected = plain_lines(content[start:], start)
        (offsets,) = source.plan({}).ranges
        assert (offsets.start, offsets.until) == (0, len(content))
        pieces = source.split(offsets, most)
        assert read_lines(source, pieces) == expected
        reader = source.reader()
        assert isinstance(reader, LineReader)
        small = LineReader(reader.fs, block_bytes=block_bytes)
        assert sum(block.rows for piece in pieces for block in small.read(piece)) == len(expected)


@settings(max_examples=150)
@given(
    st.lists(st.tuples(_CONTENT, st.booleans(), st.booleans()), min_size=1, max_size=6),
    st.integers(1, 300),
    st.integers(1, 50),
)
def test_a_growing_and_rotated_file_gives_each_line_once(
    steps: list[tuple[bytes, bool, bool]], most_per_epoch: int, split: int
) -> None:
    """Each step appends, may let the file settle, and may rotate it then; epochs of few bytes run in between."""
    with tempfile.TemporaryDirectory() as folder:
        clock = [NOW_S]
        options = FilesOptions(
            path=folder, format=RecordFormat.JSON, max_bytes_per_epoch=most_per_epoch, close_after=10
        )
        reading = Reading(FilesSource(options, now=lambda: clock[0]))
        current = Path(folder, "a.log")
        written: list[bytes] = []
        parts: list[bytes] = [b""]
        rotations = 0
        for content, settles, rotates in steps:
            with current.open("ab") as file:
                file.write(content.replace(b"\xef\xbb\xbf", b"?"))
            parts[-1] += content.replace(b"\xef\xbb\xbf", b"?")
            os.utime(current, (clock[0], clock[0]))
            if settles:
                clock[0] += 11
                for _ in range(10_000):
                    plan = reading.source.plan(reading.after)
                    if not plan.ranges:
                        break
                    reading.epoch(split)
                written += [line for _, line in plain_lines(b"".join(parts))]
                parts = [b""]
            else:
                reading.epoch(split)
                clock[0] += 1
            if rotates and settles:
                rotations += 1
                current.rename(Path(folder, f"a.log.{rotations}"))
        clock[0] += 11
        reading_all(reading, split)
        written += [line for _, line in plain_lines(b"".join(parts))]
        found = [line for shard in reading.lines for line in reading.texts(shard)]
        assert sorted(found) == sorted(written)


def reading_all(reading: Reading, split: int) -> None:
    """Run epochs until nothing is left to read."""
    while reading.source.plan(reading.after).ranges:
        reading.epoch(split)


@settings(max_examples=100)
@given(st.lists(st.sampled_from([b"1,2", b"", b"x" * 50]), min_size=1, max_size=10), st.integers(1, 60), st.booleans())
def test_a_header_is_no_row_of_any_piece(lines: list[bytes], most: int, blank_first: bool) -> None:
    content = (b"\r\n" if blank_first else b"") + b"\n".join([b"name,other", *lines])
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "a.csv").write_bytes(content)
        source = source_of(folder, format="csv")
        (offsets,) = source.plan({}).ranges
        found = read_lines(source, source.split(offsets, most))
        assert found == plain_lines(content)[1:]
        for piece in source.split(offsets, most):
            assert all(block.detail["header"] == "name,other" for block in source.reader().read(piece))


@settings(max_examples=100)
@given(
    st.sampled_from([b"na\rme", b"name,\xff", b"name\r\r", b"\xff\xfen\0"]),
    st.lists(st.sampled_from([b"1,2", b"", b"x" * 50]), max_size=10),
    st.integers(1, 60),
    st.sampled_from([b"", b"\n", b"\r\n", b"\xef\xbb\xbf"]),
)
def test_a_header_that_cannot_be_read_is_a_row_as_all_others(
    header: bytes, lines: list[bytes], most: int, before: bytes
) -> None:
    content = before + b"\n".join([header, *lines])
    first = 3 if before.startswith(b"\xef") else 0
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "a.csv").write_bytes(content)
        source = source_of(folder, format="csv")
        (offsets,) = source.plan({}).ranges
        found = read_lines(source, source.split(offsets, most))
        assert found == plain_lines(content[first:], first)
