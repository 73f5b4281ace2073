"""Objects in an S3 bucket, by the calls that S3 defines and nothing in between.

Exclusive creation is ``PutObject`` with ``If-None-Match: *`` (S3 API reference, "Conditional
writes"): 412 PreconditionFailed means that the object exists, 409 ConditionalRequestConflict that a
concurrent write or delete of the key made the answer unclear. Listings are requested anew each time
and are strongly consistent since December 2020; s3fs's directory cache is never asked.

A streaming upload is a multipart upload: invisible until it is completed, and whole then. One that
a killed process leaves costs storage until `S3Store.sweep` aborts it after a day.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, BinaryIO

import aiohttp
import fsspec.asyn
import s3fs
from botocore.exceptions import BotoCoreError, ClientError

from timeline.errors import AlreadyExistsError, ConfigError, NotFoundError, StoreError, StoreUnavailableError
from timeline.store import ObjectInfo, ObjectWriter

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

logger = logging.getLogger(__name__)

PART_BYTES = 16 << 20
"""Size of an uploaded part: S3 allows 10,000 of them, so an object may have 160 GiB."""

ABANDONED_AFTER = timedelta(days=1)
"""Age from which `S3Store.sweep` takes an unfinished upload for a dead process's."""

_BUFFER_BYTES = 1 << 16


@dataclass
class S3Store:
    """An `ObjectStore` in a bucket, or below a prefix of one.

    Attributes:
        url: ``s3://bucket/prefix`` without credentials.
        options: s3fs's options; they may hold credentials and never appear in a message.
    """

    url: str
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    _client: s3fs.S3FileSystem | None = field(default=None, init=False, repr=False, compare=False)
    _client_pid: int = field(default=0, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        bucket, _, prefix = self.url.partition("://")[2].strip("/").partition("/")
        if not bucket:
            raise ConfigError(f"{self.url}: names no bucket; write s3://bucket/prefix")
        self._bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""

    def __reduce__(self) -> tuple[type[S3Store], tuple[str, dict[str, Any]]]:
        """Pickled as what it was made of: a connection belongs to its process."""
        return S3Store, (self.url, dict(self.options))

    def put_if_absent(self, path: str, body: bytes) -> None:
        """See ObjectStore."""
        self._call("put_object", path, {"Key": self._key(path), "Body": body, "IfNoneMatch": "*"})

    def put(self, path: str, body: bytes) -> None:
        """See ObjectStore."""
        self._call("put_object", path, {"Key": self._key(path), "Body": body})

    def get(self, path: str) -> bytes:
        """See ObjectStore."""
        with _translated(f"{self.url}/{path}", reading=True):
            client = self._s3()
            body: bytes = fsspec.asyn.sync(client.loop, _read_at_once, client, self._bucket, self._key(path))
            return body

    def size(self, path: str) -> int | None:
        """See ObjectStore."""
        try:
            return int(self._call("head_object", path, {"Key": self._key(path)}, reading=True)["ContentLength"])
        except NotFoundError:
            # A HEAD has no body to tell a missing object from a missing bucket; a listing has.
            self._call("list_objects_v2", path, {"Prefix": self._key(path), "MaxKeys": 1})
            return None

    def list(self, folder: str, *, recursive: bool = False) -> list[ObjectInfo]:
        """See ObjectStore; one request for each thousand objects."""
        prefix = f"{self._key(folder)}/" if folder else self._prefix
        request = {"Prefix": prefix} if recursive else {"Prefix": prefix, "Delimiter": "/"}
        found = []
        while True:
            page = self._call("list_objects_v2", folder, request)
            for entry in page.get("Contents", []):
                # A key that ends with a slash is a console's "folder", not an object of ours.
                if not entry["Key"].endswith("/"):
                    found.append(ObjectInfo(entry["Key"].removeprefix(self._prefix), entry["Size"]))
            if not page.get("IsTruncated"):
                return sorted(found)
            request["ContinuationToken"] = page["NextContinuationToken"]

    def delete(self, path: str) -> None:
        """See ObjectStore."""
        self._call("delete_object", path, {"Key": self._key(path)})

    def open_write(self, path: str) -> ObjectWriter:
        """See ObjectStore; the object is invisible until it is closed."""
        return S3Writer(self, path)

    def sweep(self) -> None:
        """See ObjectStore: abort unfinished uploads below the root that are older than `ABANDONED_AFTER`."""
        oldest = datetime.now(UTC) - ABANDONED_AFTER
        try:
            page = self._call("list_multipart_uploads", "", {"Prefix": self._prefix})
            for upload in page.get("Uploads", []):
                if upload["Initiated"] < oldest:
                    self._call("abort_multipart_upload", "", {k: upload[k] for k in ("Key", "UploadId")}, reading=True)
        except NotFoundError:
            pass  # completed or aborted meanwhile; the next start looks again
        except StoreUnavailableError as error:
            # Needs rights that nothing else here needs; unfinished uploads are invisible and only cost storage.
            logger.warning("unfinished uploads are left; a lifecycle rule of the bucket can end them: %s", error)

    def _key(self, path: str) -> str:
        """The bucket's key of a path; manifests name paths, so one that is none is refused."""
        if not path or path.startswith("/") or path.endswith("/"):
            raise StoreError(f"{path!r} is no key below {self.url}: allowed are names joined by '/'")
        return self._prefix + path

    def _s3(self) -> s3fs.S3FileSystem:
        """This process's client; one that a fork copied shares sockets with its parent and is not used."""
        if self._client is None or self._client_pid != os.getpid():
            given = dict(self.options)
            try:
                retries = {"retries": {"mode": "standard", "max_attempts": 3}}
                given["config_kwargs"] = retries | dict(given.get("config_kwargs") or {})
                given |= {"use_listings_cache": False, "skip_instance_cache": True}
                client = s3fs.S3FileSystem(**given)
                client.connect()
            except (TypeError, ValueError, KeyError, AttributeError) as error:
                raise ConfigError(
                    f"storage: s3fs does not take the options {sorted(self.options)}: {_without_values(error, given)}"
                ) from None
            # Retries are botocore's and the protocol's; a third layer in between would multiply them.
            client.retries = 1
            self._client, self._client_pid = client, os.getpid()
        return self._client

    def _call(self, method: str, path: str, arguments: Mapping[str, Any], *, reading: bool = False) -> dict[str, Any]:
        """One S3 request; `path` is for messages, and only where `reading` is a missing key an answer."""
        with _translated(f"{self.url}/{path}", reading=reading):
            answer: dict[str, Any] = self._s3().call_s3(method, Bucket=self._bucket, **arguments)
            return answer


class S3Writer:
    """A multipart upload, or a single put where the object stays below one part; see ObjectWriter."""

    def __init__(self, store: S3Store, path: str) -> None:
        self._store = store
        self._path = path
        self._key = store._key(path)
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
        """See ObjectWriter."""
        self._sink.flush()
        rest = bytes(self._raw.waiting)
        if self._upload is None:
            self._store.put(self._path, rest)
        else:
            if rest:
                self.send(rest)
            self._store._call(
                "complete_multipart_upload",
                self._path,
                {"Key": self._key, "UploadId": self._upload, "MultipartUpload": {"Parts": self._parts}},
            )
        self._done = True
        return self._raw.taken

    def discard(self) -> None:
        """See ObjectWriter."""
        if self._done:
            return
        self._done = True
        if self._upload is not None:
            with contextlib.suppress(NotFoundError):
                upload = {"Key": self._key, "UploadId": self._upload}
                self._store._call("abort_multipart_upload", self._path, upload, reading=True)
        # A close whose answer was lost may have made the object.
        self._store.delete(self._path)

    def send(self, body: bytes) -> None:
        """Upload the next part."""
        if self._upload is None:
            self._upload = self._store._call("create_multipart_upload", self._path, {"Key": self._key})["UploadId"]
        number = len(self._parts) + 1
        part = {"Key": self._key, "UploadId": self._upload, "PartNumber": number, "Body": body}
        answer = self._store._call("upload_part", self._path, part)
        self._parts.append({"PartNumber": number, "ETag": answer["ETag"]})


class _PartSink(io.RawIOBase):
    """Collects what is written and sends it in parts of `PART_BYTES`; dropping it sends nothing."""

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


def _without_values(error: BaseException, given: Mapping[str, Any]) -> str:
    """An error's words unless they repeat an option's value, which may be a secret."""
    text = str(error)
    return type(error).__name__ if any(value and value in text for value in _texts(given)) else text


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _texts(item)


async def _read_at_once(client: s3fs.S3FileSystem, bucket: str, key: str) -> bytes:
    """An object by one request: s3fs's `cat_file` asks for the size first, then reads what may be a newer version."""
    answer = await client._call_s3("get_object", Bucket=bucket, Key=key)
    async with answer["Body"] as stream:
        body: bytes = await stream.read()
        return body


@contextlib.contextmanager
def _translated(name: str, *, reading: bool = False) -> Iterator[None]:
    """Turn what s3fs, botocore and the network raise into store errors."""
    try:
        yield
    except (OSError, BotoCoreError, ClientError, aiohttp.ClientError) as error:
        code = _error_code(error)
        if isinstance(error, FileExistsError) or code == "PreconditionFailed":
            raise AlreadyExistsError(f"{name} exists") from error
        if reading and isinstance(error, FileNotFoundError) and code != "NoSuchBucket":
            raise NotFoundError(f"{name} does not exist") from error
        raise StoreUnavailableError(f"{name}: {code or type(error).__name__}: {error}") from error


def _error_code(error: BaseException | None) -> str:
    """S3's own code of an error, which s3fs keeps as the cause; empty where no server answered."""
    while error is not None:
        if isinstance(error, ClientError):
            return str(error.response.get("Error", {}).get("Code", ""))
        error = error.__cause__
    return ""
