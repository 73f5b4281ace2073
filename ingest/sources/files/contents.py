"""Bytes of files that a plan compares: fetched concurrently, archives decompressed once.

::

    plain file     spans of bytes                    fetched for one plan
    archive        first bytes, size, tails          kept between plans while the file stays as it is
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from fsspec import AbstractFileSystem

from ingest.sources.files.decompress import DecompressedStream
from ingest.sources.files.file_position import HEAD_BYTES, FilePosition
from ingest.sources.files.listing import TAIL_BYTES, FileInfo, head_hash, read_bytes, tail_hash
from ingest.sources.files.raw import RawFile, unavailable

_STEP = 1 << 20
_Span = tuple[str, int, int]


@dataclass(frozen=True)
class DecompressedContent:
    """Summary of a file's decompressed content, for comparisons.

    Attributes:
        size: number of decompressed bytes, up to the end or to the break.
        end: the last bytes, up to 256.
        tails: hash of the bytes before each requested offset, up to `size`.
        broken: why nothing after `size` can be read; None for an intact file.
        line_end: the offset after the last line end.
    """

    size: int
    end: bytes
    tails: Mapping[int, str]
    broken: str | None
    line_end: int


@dataclass
class Archives:
    """Cache across plans of files that were read for comparison: reading them for each plan would cost too much."""

    heads: dict[tuple[str, int, float], bytes] = field(default_factory=dict)
    whole: dict[tuple[str, int, float], DecompressedContent] = field(default_factory=dict)
    beginnings: dict[tuple[tuple[str, int, float], str, int], bool] = field(default_factory=dict)

    def keep(self, files: Iterable[FileInfo]) -> None:
        """Drop the entries of files that no longer exist, or changed."""
        states = {file.state for file in files} if self.heads or self.whole or self.beginnings else set()
        self.heads = {state: head for state, head in self.heads.items() if state in states}
        self.whole = {state: archive for state, archive in self.whole.items() if state in states}
        self.beginnings = {key: found for key, found in self.beginnings.items() if key[0] in states}


class Contents:
    """Reader of one listing's files; reads each span once.

    Attributes:
        fs: the store.
        compression_of: the compression of a file, by its path.
    """

    def __init__(self, fs: AbstractFileSystem, archives: Archives, compression_of: Callable[[str], str | None]) -> None:
        self.fs = fs
        self.compression_of = compression_of
        self._archives = archives
        self._fetched: dict[_Span, bytes] = {}

    def fetch(self, spans: Iterable[tuple[FileInfo, int, int]]) -> None:
        """Read spans of many files concurrently: one by one, an object store takes a hundred times as long."""
        wanted = dict.fromkeys((file.path, start, end) for file, start, end in spans if end > start)
        missing = [span for span in wanted if span not in self._fetched]
        if len(missing) < 2:
            return
        paths, starts, ends = zip(*missing, strict=True)
        found = self.fs.cat_ranges(list(paths), list(starts), list(ends), on_error="return")
        # A span that could not be fetched is read again when it is needed; that read raises the error.
        pairs = zip(missing, found, strict=True)
        self._fetched |= {span: data for span, data in pairs if isinstance(data, bytes)}

    def read(self, file: FileInfo, start: int, end: int) -> bytes:
        """Bytes ``[start, end)`` of a file, as stored.

        Args:
            file: as listed.
            start: first offset.
            end: first offset after the span.
        """
        span = (file.path, start, end)
        if span not in self._fetched:
            self._fetched[span] = read_bytes(self.fs, *span)
        return self._fetched[span]

    def end_of(self, file: FileInfo) -> bytes:
        """The last bytes of a file."""
        return self.read(file, *end_span(file))

    def tail(self, file: FileInfo, offset: int) -> str:
        """The hash of the bytes before an offset."""
        return tail_hash(self.read(file, max(0, offset - TAIL_BYTES), offset))

    def head(self, file: FileInfo, compression: str | None) -> bytes:
        """The first `HEAD_BYTES` of a file, decompressed; fewer where the file ends or breaks before."""
        if compression is None:
            return self.read(file, 0, min(HEAD_BYTES, file.size))
        known = self._archives.heads.get(file.state)
        if known is None:
            stream = self._open(file, compression)
            try:
                known = self._archives.heads[file.state] = stream.read(HEAD_BYTES)
            finally:
                stream.close()
        return known

    def archive(self, file: FileInfo, compression: str, offsets: Collection[int]) -> DecompressedContent:
        """Summary of a compressed file, which is decompressed to its end in pieces; cached.

        Args:
            file: as listed.
            compression: gzip or zstd.
            offsets: the decompressed bytes before each of these are hashed.
        """
        known = self._archives.whole.get(file.state)
        if known is not None and all(offset in known.tails or offset > known.size for offset in offsets):
            return known
        found = self._measure(file, compression, offsets, file.size << 20)
        if found.broken is not None:
            # A line that is cut by the break does not count.
            whole = self._measure(file, compression, offsets, found.line_end)
            found = replace(whole, broken=found.broken)
        found = replace(found, tails={**(known.tails if known else {}), **found.tails})
        self._archives.whole[file.state] = found
        return found

    def _measure(self, file: FileInfo, compression: str, offsets: Collection[int], most: int) -> DecompressedContent:
        stream = self._open(file, compression)
        tails: dict[int, str] = {}
        at = line_end = 0
        end = b""
        try:
            while data := stream.read(min(_STEP, most - at)):
                window, first = end + data, at - len(end)
                for offset in offsets:
                    if at < offset <= at + len(data):
                        tails[offset] = tail_hash(window[: offset - first])
                line_end = at + data.rfind(b"\n") + 1 if b"\n" in data else line_end
                at += len(data)
                end = window[-TAIL_BYTES:]
        finally:
            stream.close()
        return DecompressedContent(at, end, tails, stream.broken, line_end)

    def holds(
        self, file: FileInfo, place: FilePosition, offset: int, compression: str | None, *, from_head: bool
    ) -> bool:
        """Whether a file still holds the bytes read of a shard, judged by those before the offset.

        Args:
            file: as listed.
            place: the shard's position.
            offset: how far the shard was read.
            compression: the file's, where the offset counts decompressed bytes; else None.
            from_head: compare the file's first bytes too: more happened to it than an append.
        """
        if compression is not None:
            return (not place.head or self._begins(self.head(file, compression), place)) and self.archive(
                file, compression, [offset]
            ).tails.get(offset) == place.tail
        if file.size < offset:
            return False
        if from_head and place.head and head_hash(self.read(file, 0, place.head_bytes)) != place.head:
            return False
        return self.tail(file, offset) == place.tail

    def begins_with(self, file: FileInfo, other: FileInfo, compression: str | None, size: int) -> bool:
        """Whether a plain file and another file begin with the same bytes; reads both, cached across plans.

        Args:
            file: the plain file.
            other: the other file.
            compression: the other file's.
            size: number of bytes to compare, decompressed.
        """
        key = (other.state, file.identity or file.path, size)
        if key not in self._archives.beginnings:
            one = RawFile(self.fs, file.path, size)
            two = self._open(other, compression) if compression is not None else RawFile(self.fs, other.path, size)
            try:
                self._archives.beginnings[key] = _are_equal(one, two, size)
            finally:
                one.close()
                two.close()
        return self._archives.beginnings[key]

    def begins_as(self, file: FileInfo, place: FilePosition) -> bool:
        """Whether a plain file's first bytes are those read of a shard; False where the position has no such hash."""
        if not place.head or file.size < place.head_bytes:
            return False
        return head_hash(self.read(file, 0, place.head_bytes)) == place.head

    @staticmethod
    def _begins(head: bytes, place: FilePosition) -> bool:
        return len(head) >= place.head_bytes and head_hash(head[: place.head_bytes]) == place.head

    def _open(self, file: FileInfo, compression: str) -> DecompressedStream:
        try:
            return DecompressedStream(lambda: RawFile(self.fs, file.path, file.size), compression)
        except FileNotFoundError:
            raise
        except OSError as failure:
            unavailable(file.path, failure)


def end_span(file: FileInfo) -> tuple[int, int]:
    """Offsets of the (up to 256) last bytes of a file."""
    return max(0, file.size - TAIL_BYTES), file.size


def tail_span(file: FileInfo, offset: int) -> tuple[FileInfo, int, int]:
    """Span of the (up to 256) bytes before an offset."""
    return file, max(0, offset - TAIL_BYTES), offset


def _are_equal(one: RawFile, other: RawFile | DecompressedStream, size: int) -> bool:
    left = size
    while left > 0:
        data = other.read(min(_STEP, left))
        if not data or _exactly(one, len(data)) != data:
            return False
        left -= len(data)
    return True


def _exactly(file: RawFile, size: int) -> bytes:
    """`size` bytes; fewer only at the end of the file."""
    pieces: list[bytes] = []
    while size > 0 and (piece := file.read(size)):
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)
