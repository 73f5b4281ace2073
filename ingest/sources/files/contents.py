"""Bytes of files that a plan compares: fetched side by side, archives decompressed once.

::

    plain file     bytes at places                   fetched for one plan
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
class DecompressedFile:
    """The decompressed content of a file, as far as comparing takes.

    Attributes:
        size: decompressed bytes, up to the end or to where it is broken.
        end: the last of them, up to 256.
        tails: hash of the bytes before each offset that was asked for and is there.
        broken: why nothing can be read behind `size`; None of a whole file.
        line_end: the offset behind the last line end.
    """

    size: int
    end: bytes
    tails: Mapping[int, str]
    broken: str | None
    line_end: int


@dataclass
class Archives:
    """What is known of files that were read for comparison, from plan to plan: each time would cost too much."""

    heads: dict[tuple[str, int, float], bytes] = field(default_factory=dict)
    whole: dict[tuple[str, int, float], DecompressedFile] = field(default_factory=dict)
    beginnings: dict[tuple[tuple[str, int, float], str, int], bool] = field(default_factory=dict)

    def keep(self, files: Iterable[FileInfo]) -> None:
        """Forget files that are not there any more, or changed."""
        states = {file.state for file in files} if self.heads or self.whole or self.beginnings else set()
        self.heads = {state: head for state, head in self.heads.items() if state in states}
        self.whole = {state: archive for state, archive in self.whole.items() if state in states}
        self.beginnings = {key: found for key, found in self.beginnings.items() if key[0] in states}


class Contents:
    """Reads files of one listing; the same place is read once.

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
        """Read places of many files side by side: an object store answers one by one a hundred times slower."""
        wanted = dict.fromkeys((file.path, start, end) for file, start, end in spans if end > start)
        missing = [span for span in wanted if span not in self._fetched]
        if len(missing) < 2:
            return
        paths, starts, ends = zip(*missing, strict=True)
        found = self.fs.cat_ranges(list(paths), list(starts), list(ends), on_error="return")
        # What could not be fetched is asked for again when it is needed, and says then what is wrong.
        pairs = zip(missing, found, strict=True)
        self._fetched |= {span: data for span, data in pairs if isinstance(data, bytes)}

    def read(self, file: FileInfo, start: int, end: int) -> bytes:
        """Bytes of a file as they are stored."""
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
        """The first bytes of a file, decompressed; fewer where it is broken there, or ends."""
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

    def archive(self, file: FileInfo, compression: str, offsets: Collection[int]) -> DecompressedFile:
        """A compressed file, decompressed from its beginning to its end in pieces, once.

        Args:
            file: it.
            compression: gzip or zstd.
            offsets: decompressed bytes before these are hashed.
        """
        known = self._archives.whole.get(file.state)
        if known is not None and all(offset in known.tails or offset > known.size for offset in offsets):
            return known
        found = self._measure(file, compression, offsets, file.size << 20)
        if found.broken is not None:
            # A line that the break cuts is no line.
            whole = self._measure(file, compression, offsets, found.line_end)
            found = replace(whole, broken=found.broken)
        found = replace(found, tails={**(known.tails if known else {}), **found.tails})
        self._archives.whole[file.state] = found
        return found

    def _measure(self, file: FileInfo, compression: str, offsets: Collection[int], most: int) -> DecompressedFile:
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
        return DecompressedFile(at, end, tails, stream.broken, line_end)

    def holds(
        self, file: FileInfo, place: FilePosition, offset: int, compression: str | None, *, from_head: bool
    ) -> bool:
        """Whether a file still holds what was read of a shard, by the bytes before the offset.

        Args:
            file: it.
            place: the shard's.
            offset: how far the shard was read.
            compression: that of the file where the offset counts decompressed bytes; else None.
            from_head: look at the file's first bytes too: more happened to it than an append.
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
        """Whether a plain file begins with all of another one; both are read, and the answer is kept between plans.

        Args:
            file: it.
            other: the other.
            compression: that of the other.
            size: bytes of the other, decompressed.
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
        """Whether a plain file's first bytes are those that were read of a shard; False where they are not known."""
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
    """Where the last bytes of a file are."""
    return max(0, file.size - TAIL_BYTES), file.size


def tail_span(file: FileInfo, offset: int) -> tuple[FileInfo, int, int]:
    """Where the bytes before an offset are."""
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
    """So many bytes, fewer at the end only."""
    pieces: list[bytes] = []
    while size > 0 and (piece := file.read(size)):
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)
