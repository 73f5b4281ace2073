"""A streaming upload to S3: one put for an object smaller than a part, else a multipart upload.

::

    write ─ less than a part ──────────────────────────────── close ─▶ PutObject
      └──── CreateMultipartUpload ─ UploadPart ─ UploadPart … close ─▶ UploadPart, CompleteMultipartUpload

Nothing is visible before the last request. Each request is retried here, because no caller can: a
failed upload costs its task all that it wrote. A part that is sent twice is one part.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

from timeline.errors import NotFoundError, StoreUnavailableError
from timeline.stores.base import Retry

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

PART_BYTES = 16 << 20
"""Size of an uploaded part: S3 allows 10,000 parts, so an object may have 156 GiB."""

_BUFFER_BYTES = 1 << 16


class S3Request(Protocol):
    """Makes S3 requests; the bucket is added to the arguments, and for an upload its key."""

    def __call__(self, method: str, arguments: Mapping[str, Any], *, reading: bool = False) -> dict[str, Any]:
        """Send one request; returns the answer.

        Args:
            method: the call as botocore names it.
            arguments: the call's arguments, except the added ones.
            reading: whether a missing key or upload raises NotFoundError, not StoreUnavailableError.
        """


class S3Writer:
    """A streaming upload; see ObjectWriter."""

    def __init__(self, request: S3Request) -> None:
        self._request = request
        self._retry = Retry()
        self._raw = _PartSink(self)
        self._sink = io.BufferedWriter(self._raw, _BUFFER_BYTES)
        self._upload: str | None = None
        self._parts: list[dict[str, Any]] = []
        self._done = False

    @property
    def sink(self) -> BinaryIO:
        """See ObjectWriter."""
        return self._sink

    def close(self) -> int:
        """See ObjectWriter.

        Raises:
            StoreUnavailableError: also when another process has ended the upload (NoSuchUpload).
        """
        self._sink.flush()
        rest = bytes(self._raw.waiting)
        if self._upload is None:
            self._ask("put_object", {"Body": rest})
        else:
            if rest:
                self.send(rest)
            self._retry.call(self._complete)
        self._done = True
        return self._raw.taken

    def discard(self) -> None:
        """See ObjectWriter."""
        if self._done:
            return
        self._done = True
        if self._upload is not None:
            with contextlib.suppress(NotFoundError):
                self._request("abort_multipart_upload", {"UploadId": self._upload}, reading=True)
        # A close whose answer was lost may have created the object.
        self._request("delete_object", {})

    def send(self, body: bytes) -> None:
        """Upload the next part."""
        if self._upload is None:
            self._upload = self._ask("create_multipart_upload", {})["UploadId"]
        number = len(self._parts) + 1
        part = {"UploadId": self._upload, "PartNumber": number, "Body": body}
        self._parts.append({"PartNumber": number, "ETag": self._ask("upload_part", part)["ETag"]})

    def _ask(self, method: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return self._retry.call(lambda: self._request(method, arguments))

    def _complete(self) -> None:
        arguments = {"UploadId": self._upload, "MultipartUpload": {"Parts": self._parts}}
        try:
            self._request("complete_multipart_upload", arguments)
        except StoreUnavailableError:
            # A retried completion whose first answer was lost gets NoSuchUpload, too.
            if not self._has_landed():
                raise

    def _has_landed(self) -> bool:
        """Whether the object is this upload's: S3 derives a multipart object's ETag from those of its parts."""
        try:
            digests = b"".join(bytes.fromhex(part["ETag"].strip('"')) for part in self._parts)
            found = str(self._request("head_object", {}, reading=True)["ETag"])
        except (NotFoundError, ValueError):
            return False
        return found.strip('"') == f"{hashlib.md5(digests, usedforsecurity=False).hexdigest()}-{len(self._parts)}"


class _PartSink(io.RawIOBase):
    """Buffers written bytes and sends them in parts of `PART_BYTES`; dropping the sink sends nothing."""

    def __init__(self, writer: S3Writer) -> None:
        self._writer = writer
        self.waiting = bytearray()
        self.taken = 0

    def writable(self) -> bool:
        return True

    def write(self, data: ReadableBuffer, /) -> int:
        size = memoryview(data).nbytes
        self.waiting += data
        self.taken += size
        while len(self.waiting) >= PART_BYTES:
            part = bytes(memoryview(self.waiting)[:PART_BYTES])
            del self.waiting[:PART_BYTES]
            self._writer.send(part)
        return size
