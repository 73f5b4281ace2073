"""Reader of one offset range of a line format into blocks of whole lines, on an executor.

::

    [start, until) of the file      first line: the first one that starts at or after `start`
    ────┬──────────────────┬────    last line: the last one that starts before `until`,
      start              until      read beyond `until` to its end, never beyond `limit`

Nothing beyond `limit`, the end of the bytes that counted when the range was planned, is read: the
same range gives the same rows however much the file has grown since.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from fsspec import AbstractFileSystem

from ingest.sources.base import Block
from ingest.sources.decode.csv_header import foreign_header, header_fault, header_names
from ingest.sources.decode.lines import TextBlock
from ingest.sources.decode.options import CsvOptions
from ingest.sources.decode.rows import HEADER, HEADER_FAULT
from ingest.sources.files.decompress import DecompressedFile, DecompressedStream
from ingest.sources.files.locate import (
    Located,
    is_of_archive,
    limit_of,
    locate,
    range_gone,
    require_still,
    rewritten,
)
from ingest.sources.files.lookup_retry import MOST_LOOKUPS
from ingest.sources.files.raw import RawFile, unavailable
from timeline.epoch import Json, OffsetRange

BLOCK_BYTES = 4 * 1024 * 1024
MTIME = "mtime"
"""Key in a range's and a block's detail: the file's modification time at planning, seconds since 1970."""

_BOM = b"\xef\xbb\xbf"
_PEEK = 64 * 1024
_HEADERS_BYTES = 256 << 20
"""Bound of a block's memory: every rejected line stores a copy of the header."""


@dataclass(frozen=True)
class LineReader:
    """Picklable reader of JSON lines, CSV and text; see `RangeReader`.

    Attributes:
        fs: the store.
        header: dialect of each file's first line, where it names columns: it is no row, and every block of the file
            carries it in its detail. A header that cannot be read is a line like all others, and every block carries
            the reason to reject its lines. None: the first line is a row.
        columns: names of the columns. A header with none of them, and with no line after it to reject for that, is
            rejected as a line itself. None: the names are not known.
        block_bytes: size of a block; a longer line makes a longer block.
    """

    fs: AbstractFileSystem
    header: CsvOptions | None = None
    columns: frozenset[str] | None = None
    block_bytes: int = BLOCK_BYTES

    def read(self, offsets: OffsetRange) -> Iterator[Block]:
        """See RangeReader.

        Where a compressed file is broken, one block of one row without data, with the reason in its detail,
        stands for the rest of the file.
        """
        if offsets.start == offsets.until:
            return
        for look in range(MOST_LOOKUPS):
            place, is_begun = locate(self.fs, offsets), False
            try:
                for block in self._read_at(offsets, place):
                    is_begun = True
                    yield block
                return
            except FileNotFoundError as failure:
                # A rotation may have renamed or compressed the file since it was found.
                if is_begun or look == MOST_LOOKUPS - 1:
                    raise range_gone(offsets, f"file {place.path} does not exist any more") from failure
            except OSError as failure:
                unavailable(place.path, failure)

    def _read_at(self, offsets: OffsetRange, place: Located) -> Iterator[Block]:
        if place.archive is not None:
            yield from self._read_archive(offsets, place)
        elif offsets.detail["compression"] is None:
            with RawFile(self.fs, place.path) as file:
                yield from self._read_plain(offsets, file)
            require_still(self.fs, offsets, place.path)
        else:
            yield from self._read_compressed(offsets, place.path, str(offsets.detail["compression"]))

    def _read_archive(self, offsets: OffsetRange, place: Located) -> Iterator[Block]:
        """Read a range of decompressed bytes; the file was plain when its beginning was read, or when planned."""
        file = DecompressedFile(lambda: RawFile(self.fs, place.path, place.size), str(place.archive))
        try:
            yield from self._read_plain(offsets, file)
            while is_of_archive(offsets) and file.read(BLOCK_BYTES):
                pass  # the rest of a line that a break cuts
            if is_of_archive(offsets) and file.broken is not None:
                yield _broken(offsets, offsets.until, place.path, file.broken)
        finally:
            file.close()

    def _read_plain(self, offsets: OffsetRange, file: RawFile | DecompressedFile) -> Iterator[Block]:
        def feed_at(position: int) -> _LineFeed:
            return _LineFeed(_Planned(file, offsets, position).read, position)

        detail = _time_of(offsets)
        feed = feed_at(0)
        until = offsets.until
        if self.header is not None or offsets.start == 0:
            detail |= self._read_head(feed)
        behind_header = feed.position if HEADER in detail else 0
        if offsets.start == 0 and not behind_header:
            # The first line starts at 0, with its byte order mark: no cut may fall between the two.
            until = max(until, feed.position + 1)
        if offsets.start > behind_header:
            fresh = offsets.detail["fresh_line"] is True
            feed = feed_at(offsets.start if fresh else offsets.start - 1)
            if not fresh:
                feed.take_line()
        yield from self._blocks(feed, offsets.shard, until, detail)

    def _read_compressed(self, offsets: OffsetRange, path: str, compression: str) -> Iterator[Block]:
        stream = DecompressedStream(lambda: RawFile(self.fs, path, limit_of(offsets)), compression)
        try:
            feed = _LineFeed(stream.read, 0, broken=lambda: stream.broken)
            detail = _time_of(offsets) | self._read_head(feed)
            yield from self._blocks(feed, offsets.shard, sys.maxsize, detail)
            if stream.broken is not None:
                yield _broken(offsets, feed.position, path, stream.broken)
        finally:
            stream.close()

    def _read_head(self, feed: _LineFeed) -> dict[str, Json]:
        """Skip a byte order mark, and a header that can be read; returns the detail of the file's blocks."""
        feed.skip(_BOM)
        if self.header is None:
            return {}
        lines = [feed.take_line()]
        while lines[-1] in (b"\n", b"\r\n"):
            lines.append(feed.take_line())
        header = lines[-1].removesuffix(b"\n").removesuffix(b"\r")
        fault = header_fault(header, self.header) or self._without_columns(header, feed)
        if fault is None:
            return {HEADER: header.decode()}
        feed.give_back(b"".join(lines))
        return {HEADER_FAULT: fault}

    def _without_columns(self, header: bytes, feed: _LineFeed) -> str | None:
        """Reason to reject a header that no line follows; None where it is accepted."""
        if self.header is None or self.columns is None:
            return None
        names = header_names(header.decode(), self.header)
        if not names or self.columns & set(names) or not feed.is_at_end():
            return None
        return foreign_header(names)

    def _blocks(self, feed: _LineFeed, shard: str, until: int, detail: dict[str, Json]) -> Iterator[Block]:
        most_lines = max(1, _HEADERS_BYTES // max(1, len(str(detail.get(HEADER, "")))))
        while feed.position < until:
            start = feed.position
            data = feed.take_lines(self.block_bytes, until)
            if not data:
                return
            for first, lines in _pieces(TextBlock.of(data), most_lines):
                if lines.bounds.rows:
                    yield Block(shard, start + first, lines.bounds.rows, lines, detail)


def _broken(offsets: OffsetRange, at: int, path: str, why: str) -> Block:
    """Block of one row without data, for the rest of a file that cannot be read."""
    return Block(offsets.shard, at, 1, None, {"reason": f"{path}: nothing can be read from here on: {why}"})


def _pieces(text: TextBlock, most_lines: int) -> Iterator[tuple[int, TextBlock]]:
    """Cut a block after every `most_lines` lines; each piece comes with its start in the block."""
    starts = text.bounds.starts
    if len(starts) <= most_lines:
        yield 0, text
        return
    for first, end in itertools.pairwise([*starts[::most_lines].tolist(), len(text.data)]):
        yield first, TextBlock.of(text.data[first:end])


def _time_of(offsets: OffsetRange) -> dict[str, Json]:
    """Detail with the modification time of a range's file; empty where the store does not report it.

    It is the time at planning, not the current one, so that a year derived from it stays the same.
    """
    mtime_s = offsets.detail.get(MTIME, offsets.after.get(MTIME))
    return {MTIME: mtime_s} if isinstance(mtime_s, int | float) and mtime_s > 0 else {}


class _Planned:
    """Planned bytes of a file from a position on: ends at the limit, and raises where the file ends before it."""

    def __init__(self, file: RawFile | DecompressedFile, offsets: OffsetRange, position: int) -> None:
        file.seek(position)
        self._file = file
        self._offsets = offsets
        self._position = position

    def read(self, size: int) -> bytes:
        """Up to `size` bytes; empty at the limit."""
        wanted = min(size, limit_of(self._offsets) - self._position)
        data = self._file.read(wanted) if wanted > 0 else b""
        if wanted > 0 and not data:
            raise rewritten(self._offsets, f"its file ends at byte {self._position}")
        self._position += len(data)
        return data


class _LineFeed:
    """Line buffer of a stream; `position` is the offset of the next byte that was not taken.

    Args:
        read: returns up to the given number of bytes; empty at the end.
        position: offset of the stream's first byte.
        broken: why the stream ended early, or None; the bytes after the last line end are then no line.
    """

    def __init__(
        self, read: Callable[[int], bytes], position: int, broken: Callable[[], str | None] = lambda: None
    ) -> None:
        self.position = position
        self._read = read
        self._broken = broken
        self._held = b""

    def skip(self, prefix: bytes) -> None:
        """Skip these bytes where the stream begins with them."""
        self._hold(len(prefix))
        if self._held.startswith(prefix):
            self._take([self._held], len(prefix))

    def take_line(self) -> bytes:
        """The next line, with its end."""
        return self.take_lines(_PEEK, self.position + 1)

    def take_lines(self, size: int, until: int) -> bytes:
        """About `size` bytes of whole lines: those that start before the offset `until`; empty at the end.

        The last line has no line end where the stream ends without one.
        """
        pieces = [self._held]
        length = len(self._held)
        self._held = b""
        while True:
            piece = pieces[-1]
            first = self.position + length - len(piece)
            if self.position + length >= until:
                end = piece.find(b"\n", max(0, until - 1 - first))
            else:
                end = piece.rfind(b"\n") if length >= size else -1
            if end >= 0:
                return self._take(pieces, end + 1)
            more = self._read(max(size - length, _PEEK))
            if not more:
                data = b"".join(pieces)
                return self._take([data], data.rfind(b"\n") + 1 if self._broken() is not None else length)
            pieces.append(more)
            length += len(more)

    def give_back(self, data: bytes) -> None:
        """Put the bytes that were taken last back in front of the stream."""
        self._held = data + self._held
        self.position -= len(data)

    def is_at_end(self) -> bool:
        """Whether nothing but blank lines follows."""
        pieces: list[bytes] = []
        is_blank = True
        while is_blank and (piece := self.take_lines(_PEEK, sys.maxsize)):
            pieces.append(piece)
            is_blank = not TextBlock.of(piece).bounds.rows
        self.give_back(b"".join(pieces))
        return is_blank

    def _hold(self, size: int) -> None:
        while len(self._held) < size:
            more = self._read(size - len(self._held))
            if not more:
                return
            self._held += more

    def _take(self, pieces: Sequence[bytes], count: int) -> bytes:
        """Join all pieces but only `count` bytes of the last; the remainder is held."""
        self._held = pieces[-1][count:]
        taken = b"".join([*pieces[:-1], memoryview(pieces[-1])[:count]])
        self.position += len(taken)
        return taken
