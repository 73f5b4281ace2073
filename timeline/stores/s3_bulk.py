"""Sizes and deletion of many keys of one bucket in few requests.

::

    sizes    few keys   HEAD each, side by side
             many       pages of the listing, each from just before the next key that is wanted
                          └ pages that find too little: HEAD each of the rest
    delete   DeleteObjects, 1,000 keys a request ── refused ─▶ DeleteObject each, side by side

Listing is cheap if the keys lie close together, and expensive if the table has a thousand times as
many keys. Listing therefore ends when its pages find too few keys, and never takes many more
requests than one for each key.
"""

from __future__ import annotations

import bisect
import os.path
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from timeline.concurrency import map_concurrently
from timeline.errors import NotFoundError, StoreUnavailableError
from timeline.stores.s3_upload import S3Request
from timeline.units import count

KEYS_A_REQUEST = 1000
"""Most keys in one page of a listing, and in one DeleteObjects request (S3 API reference)."""

_FEW = 16
_SAMPLE = 32
_KEYS_A_PAGE = 8
"""Keys that a page must find on average for listing to continue."""


def find_sizes(request: S3Request, keys: Sequence[str]) -> dict[str, int]:
    """Sizes in bytes of the existing objects, by key.

    Raises:
        StoreUnavailableError: a request got no answer, or the bucket does not exist.
    """
    wanted = sorted(set(keys))
    if len(wanted) < _FEW:
        return _ask_each(request, wanted)
    shares = [wanted[first : first + KEYS_A_REQUEST] for first in range(0, len(wanted), KEYS_A_REQUEST)]
    found: dict[str, int] = {}
    rest: list[str] = []
    for listed, unlisted in map_concurrently(lambda some: _walk(request, some), shares):
        found |= listed
        rest += unlisted
    passed = sorted({*wanted} - {*found} - {*rest})
    return found | _ask_each(request, rest) | _ask_again(request, passed)


def delete_keys(request: S3Request, keys: Sequence[str], is_refusal: Callable[[BaseException], bool]) -> None:
    """Delete objects; missing objects are no error.

    Args:
        request: sends a request for the bucket.
        keys: keys of the objects.
        is_refusal: whether an error means that this store will always refuse the call.

    Raises:
        StoreUnavailableError: some objects may be left.
    """
    batches = [keys[first : first + KEYS_A_REQUEST] for first in range(0, len(keys), KEYS_A_REQUEST)]
    map_concurrently(lambda batch: _delete_batch(request, batch, is_refusal), batches)


def _walk(request: S3Request, wanted: Sequence[str]) -> tuple[dict[str, int], Sequence[str]]:
    """Sizes found by listing, and the keys for which further listing is too expensive; `wanted` is sorted."""
    prefix = os.path.commonprefix([*wanted])  # noqa: RUF071 - S3's prefixes are strings, not folders
    found: dict[str, int] = {}
    at, pages = 0, 0
    while at < len(wanted):
        if pages > 1 + at // _KEYS_A_PAGE:
            return found, wanted[at:]
        # Start just before the next key: its prefix sorts there, and no wanted key lies between.
        page = request("list_objects_v2", {"Prefix": prefix, "StartAfter": wanted[at][:-1]})
        pages += 1
        entries = {entry["Key"]: int(entry["Size"]) for entry in page.get("Contents", [])}
        until = bisect.bisect_right(wanted, max(entries, default="")) if page.get("IsTruncated") else len(wanted)
        found |= {key: entries[key] for key in wanted[at:until] if key in entries}
        at = max(at, until)
    return found, ()


def _ask_again(request: S3Request, unlisted: Sequence[str]) -> dict[str, int]:
    """Sizes of keys that a listing did not show: an unsorted listing may skip existing keys.

    Requests a sample of the keys first, and all of them if any key of the sample exists.
    """
    some = unlisted[:: max(1, len(unlisted) // _SAMPLE)]
    found = _ask_each(request, some)
    return found | _ask_each(request, sorted({*unlisted} - {*some})) if found else found


def _ask_each(request: S3Request, keys: Sequence[str]) -> dict[str, int]:
    sizes = dict(zip(keys, map_concurrently(lambda key: _size(request, key), keys), strict=True))
    if None in sizes.values():
        # The answer to a HEAD has no body to tell a missing object from a missing bucket; a listing has.
        request("list_objects_v2", {"Prefix": keys[0], "MaxKeys": 1})
    return {key: size for key, size in sizes.items() if size is not None}


def _size(request: S3Request, key: str) -> int | None:
    try:
        return int(request("head_object", {"Key": key}, reading=True)["ContentLength"])
    except NotFoundError:
        return None


def _delete_batch(request: S3Request, keys: Sequence[str], is_refusal: Callable[[BaseException], bool]) -> None:
    if len(keys) > 1:
        objects = {"Objects": [{"Key": key} for key in keys], "Quiet": True}
        try:
            _raise_for_keys(request("delete_objects", {"Delete": objects}), len(keys))
            return
        except StoreUnavailableError as error:
            # Some stores do not support this call, and XML cannot represent every key.
            if not is_refusal(error):
                raise
    map_concurrently(lambda key: request("delete_object", {"Key": key}), keys)


def _raise_for_keys(answer: Mapping[str, Any], asked: int) -> None:
    """Raise for keys that were not deleted: an answer with status 200 lists them."""
    left = [error for error in answer.get("Errors", []) if error.get("Code") != "NoSuchKey"]
    if left:
        first = left[0]
        raise StoreUnavailableError(
            f"{len(left)} of {count(asked, 'object')} not deleted, the first is {first.get('Key')!r}: "
            f"{first.get('Code')}: {first.get('Message')}"
        )
