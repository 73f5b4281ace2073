"""Compressed files as one stream that ends where the file is broken, and records why; and as a file with offsets."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pyarrow as pa

from ingest.sources.files.raw import RawFile

_STEP = 1 << 20


class DecompressedStream:
    """Stream of a file's decompressed bytes.

    A truncated or corrupt file gives every byte before the break, then ends; `broken` holds the
    reason. The same file gives the same bytes each time. gzip members and zstd frames that follow
    one another are one stream (RFC 1952 section 2.2, RFC 8878 section 3.1).

    Args:
        open_raw: opens the compressed file at its beginning; called again to locate a break.
        compression: gzip or zstd.
    """

    def __init__(self, open_raw: Callable[[], RawFile], compression: str) -> None:
        self.broken: str | None = None
        self._open_raw = open_raw
        self._compression = compression
        self._raw = open_raw()
        self._stream = self._decompress()
        self._given = 0

    def read(self, size: int) -> bytes:
        """Up to `size` bytes; fewer at the end only."""
        pieces: list[bytes] = []
        left = size
        while left > 0 and self.broken is None:
            try:
                piece = bytes(self._stream.read(min(left, _STEP)))
            except OSError as failure:
                self._raw.require_store()
                self.broken = str(failure)
                piece = self._before_the_break(min(left, _STEP))
            if not piece:
                break
            pieces.append(piece)
            left -= len(piece)
            self._given += len(piece)
        return b"".join(pieces)

    def close(self) -> None:
        """Close the file."""
        self._raw.close()

    def _decompress(self) -> pa.CompressedInputStream:
        return pa.CompressedInputStream(pa.PythonFile(self._raw, mode="r"), self._compression)

    def _before_the_break(self, most: int) -> bytes:
        """Bytes that a failed read had already decompressed: reads the file again up to there, then byte by byte."""
        self._raw.close()
        self._raw = self._open_raw()
        self._stream = self._decompress()
        skip = self._given
        found = bytearray()
        try:
            while skip > 0:
                skip -= len(self._stream.read(min(skip, _STEP)))
            while len(found) < most:
                found += self._stream.read(1)
        except OSError:
            self._raw.require_store()
        return bytes(found)


class DecompressedFile:
    """The decompressed bytes of a file at any offset, like a plain file; seeking back decompresses from the start."""

    def __init__(self, open_raw: Callable[[], RawFile], compression: str) -> None:
        """Open the file; see `DecompressedStream`."""
        self._open = partial(DecompressedStream, open_raw, compression)
        self._stream = self._open()
        self._at = 0

    @property
    def broken(self) -> str | None:
        """Why nothing more can be read; None unless the file is broken."""
        return self._stream.broken

    def seek(self, offset: int) -> None:
        """Move to an offset, or to the end if that comes first."""
        if offset < self._at:
            self.close()
            self._stream, self._at = self._open(), 0
        while self._at < offset and self.read(min(_STEP, offset - self._at)):
            pass

    def read(self, size: int) -> bytes:
        """Up to `size` bytes; empty at the end."""
        data = self._stream.read(size)
        self._at += len(data)
        return data

    def close(self) -> None:
        """Close the file."""
        self._stream.close()
