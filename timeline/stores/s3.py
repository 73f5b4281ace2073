"""Objects in an S3 bucket, by the calls of S3's own API.

Exclusive creation is ``PutObject`` with ``If-None-Match: *`` (S3 API reference, "Conditional
writes"): 412 PreconditionFailed means that the object exists, 409 ConditionalRequestConflict that a
concurrent write or delete of the key made the answer unclear. Each listing is a new request and
strongly consistent since December 2020; s3fs's directory cache is never used.

Sizes and deletions of many keys take few requests (`timeline/stores/s3_bulk.py`).

A streaming upload (`timeline/stores/s3_upload.py`) is invisible until it is completed, and whole then. The
upload of a killed process costs storage until it is aborted: by the rollback of its epoch
(`S3Store.abandon`), or by `S3Store.remove_stale_uploads` after a day.

Every call has a timeout: `CONNECT_TIMEOUT_S` for a connection, `READ_TIMEOUT_S` for an answer after
the request was sent, and `CALL_TIMEOUT_S` for a whole call, botocore's retries included.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from operator import attrgetter
from typing import Any

import aiohttp
import fsspec.asyn
import s3fs
from botocore.exceptions import BotoCoreError, ClientError
from botocore.handlers import add_expect_header

from timeline.concurrency import MOST_REQUESTS
from timeline.errors import (
    AlreadyExistsError,
    ConfigError,
    NotFoundError,
    StoreError,
    StoreUnavailableError,
    UntrustedStoreError,
)
from timeline.redact import without_secrets
from timeline.stores.base import BaseStore, ObjectInfo, ObjectWriter, StoreTraits, UnfinishedUpload
from timeline.stores.refusals import refusal
from timeline.stores.s3_bulk import delete_keys, find_sizes
from timeline.stores.s3_listing import read_listings_fast
from timeline.stores.s3_upload import S3Writer
from timeline.stores.trust import check_authorities, untrusted

logger = logging.getLogger(__name__)

ABANDONED_AFTER = timedelta(days=1)
"""Age from which `S3Store.remove_stale_uploads` aborts an unfinished upload as that of a dead process."""

CONNECT_TIMEOUT_S = 5
"""Timeout of a connection attempt; ``config_kwargs: {connect_timeout: …}`` of the storage options overrides it."""

READ_TIMEOUT_S = 15
"""Timeout of a silent server; ``config_kwargs: {read_timeout: …}`` overrides it. Three attempts end within a lease."""

CALL_TIMEOUT_S = 120.0
"""Timeout of a whole call: no other timeout covers a server that stops reading in the middle of a part."""


@dataclass
class S3Store(BaseStore):
    """An `ObjectStore` in a bucket, or below a prefix of one.

    Attributes:
        url: ``s3://bucket/prefix`` without credentials.
        options: s3fs's options; they may hold credentials and never appear in a message.
        call_timeout_s: timeout of a whole call.
    """

    url: str
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    call_timeout_s: float = CALL_TIMEOUT_S
    _client: s3fs.S3FileSystem | None = field(default=None, init=False, repr=False, compare=False)
    _client_pid: int = field(default=0, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        bucket, _, prefix = self.url.partition("://")[2].strip("/").partition("/")
        if not bucket:
            raise ConfigError(f"{self.url}: names no bucket; write s3://bucket/prefix")
        self._bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""

    def __reduce__(self) -> tuple[type[S3Store], tuple[str, dict[str, Any], float]]:
        """Pickle the constructor's arguments only: a connection belongs to its process."""
        return S3Store, (self.url, dict(self.options), self.call_timeout_s)

    @property
    def traits(self) -> StoreTraits:
        """See ObjectStore; the medium is the bucket."""
        return StoreTraits(
            f"s3://{self._bucket}", requests_at_once=MOST_REQUESTS, unfinished_upload=UnfinishedUpload.IN_PARTS
        )

    def put_if_absent(self, path: str, body: bytes) -> None:
        """See ObjectStore."""
        self._call("put_object", path, {"Key": self._key(path), "Body": body, "IfNoneMatch": "*"})

    def put(self, path: str, body: bytes) -> None:
        """See ObjectStore."""
        self._call("put_object", path, {"Key": self._key(path), "Body": body})

    def get(self, path: str) -> bytes:
        """See ObjectStore."""
        with _translated(f"{self.url}/{path}", self.options, reading=True):
            client = self._s3()
            where = (self._bucket, self._key(path))
            body: bytes = fsspec.asyn.sync(client.loop, _read_at_once, client, *where, timeout=self.call_timeout_s)
            return body

    def sizes(self, paths: Collection[str]) -> dict[str, int]:
        """See ObjectStore, and `timeline.stores.s3_bulk`."""
        found = find_sizes(self._request, [self._key(path) for path in paths])
        return {key.removeprefix(self._prefix): size for key, size in found.items()}

    def list(self, folder: str, *, recursive: bool = False, after: str = "", limit: int = 0) -> list[ObjectInfo]:
        """See ObjectStore; one request for each thousand objects."""
        prefix = f"{self._key(folder)}/" if folder else self._prefix
        request: dict[str, Any] = {"Prefix": prefix} if recursive else {"Prefix": prefix, "Delimiter": "/"}
        if after:
            request["StartAfter"] = self._prefix + after
        found: list[ObjectInfo] = []
        for entries in self._pages(folder, request):
            for entry in entries:
                # A key that ends with a slash is a console's "folder", not an object of Tideline's.
                if not entry["Key"].endswith("/"):
                    modified_ms = round(entry["LastModified"].timestamp() * 1000)
                    found.append(ObjectInfo(entry["Key"].removeprefix(self._prefix), entry["Size"], modified_ms))
            if 0 < limit <= len(found):
                break
        return sorted(found, key=attrgetter("path"))[: limit or None]

    def delete(self, paths: Collection[str]) -> None:
        """See ObjectStore; one request for each thousand objects."""
        delete_keys(self._request, [self._key(path) for path in paths], _is_refusal)

    def open_write(self, path: str) -> ObjectWriter:
        """See ObjectStore; the object is invisible until it is closed."""
        key = self._key(path)

        def request(method: str, arguments: Mapping[str, Any], *, reading: bool = False) -> dict[str, Any]:
            return self._request(method, {"Key": key, **arguments}, reading=reading)

        return S3Writer(request)

    def prune(self, folder: str) -> None:
        """See ObjectStore; Hadoop's file systems create keys that end in a slash."""
        pages = self._pages(folder, {"Prefix": f"{self._key(folder)}/"})
        marks = [entry["Key"] for entries in pages for entry in entries if entry["Key"].endswith("/")]
        if marks:
            delete_keys(self._request, marks, _is_refusal)

    def remove_stale_uploads(self) -> None:
        """See ObjectStore: abort unfinished uploads below the root that are older than `ABANDONED_AFTER`."""
        oldest = datetime.now(UTC) - ABANDONED_AFTER
        self._abort_uploads(self._prefix, lambda upload: upload["Initiated"] < oldest)

    def abandon(self, paths: Collection[str]) -> None:
        """See ObjectStore; one listing for all paths."""
        keys = {self._key(path) for path in paths}
        if keys:
            prefix = os.path.commonprefix([*keys])  # noqa: RUF071 - S3's prefixes are strings, not folders
            self._abort_uploads(prefix, lambda upload: upload["Key"] in keys)

    def clock(self) -> datetime:
        """See ObjectStore: the server's clock, to the second; S3 refuses requests of a machine with a wrong clock."""
        answer = self._call("list_objects_v2", "", {"Prefix": self._prefix, "MaxKeys": 1})
        return parsedate_to_datetime(answer["ResponseMetadata"]["HTTPHeaders"]["date"])

    def _pages(self, folder: str, request: dict[str, Any]) -> Iterator[Sequence[Mapping[str, Any]]]:
        """Entries of a listing page by page; one request for each thousand."""
        page: Mapping[str, Any] = {}
        while True:
            before, page = page, self._call("list_objects_v2", folder, request)
            yield page.get("Contents", [])
            if not page.get("IsTruncated"):
                return
            self._require_progress(folder, before.get("NextContinuationToken"), page["NextContinuationToken"])
            request = request | {"ContinuationToken": page["NextContinuationToken"]}

    def _require_progress(self, folder: str, before: str | None, then: str) -> None:
        """Raise if the server repeats a page, because the listing would never end."""
        if before == then:
            raise StoreUnavailableError(
                f"{self.url}/{folder} cannot be listed: the page behind {then[:80]!r} begins there again"
            )

    def _abort_uploads(self, prefix: str, is_meant: Callable[[Mapping[str, Any]], bool]) -> None:
        try:
            # Read all pages first: a page begins after an upload that must still exist.
            for upload in [each for each in self._uploads(prefix) if is_meant(each)]:
                with contextlib.suppress(NotFoundError):  # completed or aborted meanwhile
                    self._call("abort_multipart_upload", "", {k: upload[k] for k in ("Key", "UploadId")}, reading=True)
        except StoreUnavailableError as error:
            if not _is_refusal(error):
                raise
            # These calls need rights that no other call needs; unfinished uploads are invisible and only cost storage.
            logger.warning("unfinished uploads are left; a lifecycle rule of the bucket can end them: %s", error)

    def _uploads(self, prefix: str) -> Iterator[Mapping[str, Any]]:
        """Unfinished uploads of keys with a prefix; one request for each thousand."""
        request = {"Prefix": prefix}
        while True:
            page = self._call("list_multipart_uploads", "", request)
            yield from page.get("Uploads", [])
            if not page.get("IsTruncated"):
                return
            # By the key alone, as some servers do not find their own upload id again: another upload of the page's
            # last key (a start whose answer was lost) is left to the next listing.
            self._require_progress("", request.get("KeyMarker"), page["NextKeyMarker"])
            request["KeyMarker"] = page["NextKeyMarker"]

    def _key(self, path: str) -> str:
        """The bucket's key for a path; refuses invalid paths, because they may come from manifests."""
        if not path or path.startswith("/") or path.endswith("/"):
            raise StoreError(f"{path!r} is no key below {self.url}: allowed are names joined by '/'")
        return self._prefix + path

    def _s3(self) -> s3fs.S3FileSystem:
        """This process's client; a client copied by a fork shares sockets with the parent and is not used."""
        if self._client is None or self._client_pid != os.getpid():
            self._client, self._client_pid = _shared_client(self.options), os.getpid()
        return self._client

    def _request(self, method: str, arguments: Mapping[str, Any], *, reading: bool = False) -> dict[str, Any]:
        """One S3 request, for many keys or for the key in the arguments; see `timeline.stores.s3_upload.S3Request`."""
        return self._call(method, arguments.get("Key", "").removeprefix(self._prefix), arguments, reading=reading)

    def _call(self, method: str, path: str, arguments: Mapping[str, Any], *, reading: bool = False) -> dict[str, Any]:
        """One S3 request; `path` is for messages. NotFoundError for a missing key is raised only with `reading`."""
        with _translated(f"{self.url}/{path}", self.options, reading=reading):
            client = self._s3()
            request = {"Bucket": self._bucket, **arguments}
            answer: dict[str, Any] = fsspec.asyn.sync(
                client.loop, client._call_s3, method, **request, timeout=self.call_timeout_s
            )
            return answer


_clients: dict[str, s3fs.S3FileSystem] = {}
_clients_lock = threading.Lock()


def _shared_client(options: Mapping[str, Any]) -> s3fs.S3FileSystem:
    """One client for all stores of a process with the same options: creating it takes longer than most commands."""
    told = json.dumps([os.getpid(), dict(options)], sort_keys=True, default=repr)
    key = hashlib.sha256(told.encode()).hexdigest()  # options hold secrets
    with _clients_lock:
        if key not in _clients:
            _clients[key] = _make_client(options)
        return _clients[key]


def _make_client(options: Mapping[str, Any]) -> s3fs.S3FileSystem:
    given = dict(options)
    check_authorities(given)
    try:
        bounds = {
            "retries": {"mode": "standard", "max_attempts": 3},
            "connect_timeout": CONNECT_TIMEOUT_S,
            "read_timeout": READ_TIMEOUT_S,
        }
        given["config_kwargs"] = bounds | dict(given.get("config_kwargs") or {})
        given |= {"use_listings_cache": False, "skip_instance_cache": True}
        client = s3fs.S3FileSystem(**given)
        client.connect()
        # A put that waits for "100 Continue" may wait for ever: its read timeout has not started.
        client.s3.meta.events.unregister("before-call.s3", add_expect_header)
        read_listings_fast(client.s3.meta.events)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise ConfigError(
            f"storage: s3fs does not take the options {sorted(options)}: {_without_values(error, given)}"
        ) from None
    # Retries are botocore's and the protocol's; a third layer in between would multiply them.
    client.retries = 1
    return client


def _without_values(error: BaseException, given: Mapping[str, Any]) -> str:
    """An error's text, or only its class if the text repeats an option's value, which may be a secret."""
    text = str(error)
    return type(error).__name__ if any(value and value in text for value in _texts(given)) else text


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _texts(item)


async def _read_at_once(client: s3fs.S3FileSystem, bucket: str, key: str) -> bytes:
    """Read an object in one request: s3fs's `cat_file` gets the size first, then may read a newer version."""
    answer = await client._call_s3("get_object", Bucket=bucket, Key=key)
    async with answer["Body"] as stream:
        body: bytes = await stream.read()
        return body


@contextlib.contextmanager
def _translated(name: str, options: Mapping[str, Any], *, reading: bool = False) -> Iterator[None]:
    """Translate errors of s3fs, botocore and the network into store errors."""
    try:
        yield
    except (OSError, BotoCoreError, ClientError, aiohttp.ClientError) as error:
        code = _error_code(error)
        if isinstance(error, FileExistsError) or code == "PreconditionFailed":
            raise AlreadyExistsError(f"{name} exists") from error
        if reading and isinstance(error, FileNotFoundError) and code != "NoSuchBucket":
            raise NotFoundError(f"{name} does not exist") from error
        distrust = untrusted(error)
        if distrust is not None:
            raise UntrustedStoreError(f"{name}: {distrust}") from error
        said = without_secrets(str(error), options)
        # An error that repeats a secret must not appear in a traceback as the cause either.
        cause = error if said == str(error) else None
        code = code or type(error).__name__
        raise refusal(name, code, said) or StoreUnavailableError(f"{name}: {code}: {said}") from cause


def _error_code(error: BaseException) -> str:
    """S3's code of an error; empty if no server answered."""
    answer = _answer(error)
    return str(answer.get("Error", {}).get("Code", ""))


def _is_refusal(error: BaseException) -> bool:
    """Whether a retry would fail alike: rights are missing, or the server does not support the call."""
    status = int(_answer(error).get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    return (400 <= status < 500 and status not in (408, 409, 429)) or status == 501


def _answer(error: BaseException | None) -> Mapping[str, Any]:
    """The server's response, which s3fs keeps as the cause of its error; empty if no server answered."""
    while error is not None:
        if isinstance(error, ClientError):
            answer: Mapping[str, Any] = error.response
            return answer
        error = error.__cause__
    return {}
