"""Many keys of one bucket by few requests: their sizes, and their deletion.

::

    sizes    few keys   HEAD each, side by side
             many       pages of the listing, each from just before the next key that is wanted
                          └ pages that find too little: HEAD each of the rest
    delete   DeleteObjects, 1,000 keys a request ── refused ─▶ DeleteObject each, side by side

A listing is cheap where the keys lie close together and dear where a table has a thousand times as
many: so what the pages find is weighed against what they cost, and never much more is asked than by
one request for each key.
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
"""Keys that one page lists, and that one DeleteObjects takes (S3 API reference)."""

_FEW = 16
_SAMPLE = 32
_KEYS_A_PAGE = 8
"""Keys that a page has to find on average, for listing to go on."""


def find_sizes(request: S3Request, keys: Sequence[str]) -> dict[str, int]:
    """Sizes in bytes of those objects that exist.

    Raises:
        StoreUnavailableError: no answer for one of them, or there is no such bucket.
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
    """Delete objects; those that are not there are no error.

    Args:
        request: asks the bucket.
        keys: what goes.
        is_refusal: whether an error says that this store will never do what it was asked.

    Raises:
        StoreUnavailableError: some of them may be left.
    """
    batches = [keys[first : first + KEYS_A_REQUEST] for first in range(0, len(keys), KEYS_A_REQUEST)]
    map_concurrently(lambda batch: _delete_batch(request, batch, is_refusal), batches)


def _walk(request: S3Request, wanted: Sequence[str]) -> tuple[dict[str, int], Sequence[str]]:
    """Sizes by listing, and the keys that it is not worth to list any further for; keys are sorted."""
    prefix = os.path.commonprefix([*wanted])  # noqa: RUF071 - S3's prefixes are strings, not folders
    found: dict[str, int] = {}
    at, pages = 0, 0
    while at < len(wanted):
        if pages > 1 + at // _KEYS_A_PAGE:
            return found, wanted[at:]
        # Just before the next key: its own beginning sorts there, and nothing that is wanted lies between.
        page = request("list_objects_v2", {"Prefix": prefix, "StartAfter": wanted[at][:-1]})
        pages += 1
        entries = {entry["Key"]: int(entry["Size"]) for entry in page.get("Contents", [])}
        until = bisect.bisect_right(wanted, max(entries, default="")) if page.get("IsTruncated") else len(wanted)
        found |= {key: entries[key] for key in wanted[at:until] if key in entries}
        at = max(at, until)
    return found, ()


def _ask_again(request: S3Request, unlisted: Sequence[str]) -> dict[str, int]:
    """Sizes of keys that a listing should have shown: a listing that is not in order passes over some that are there.

    Some of them are asked for, and all where any of these is there.
    """
    some = unlisted[:: max(1, len(unlisted) // _SAMPLE)]
    found = _ask_each(request, some)
    return found | _ask_each(request, sorted({*unlisted} - {*some})) if found else found


def _ask_each(request: S3Request, keys: Sequence[str]) -> dict[str, int]:
    sizes = dict(zip(keys, map_concurrently(lambda key: _size(request, key), keys), strict=True))
    if None in sizes.values():
        # A HEAD has no body to tell a missing object from a missing bucket; a listing has.
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
            # Not every store knows this call, and no XML can name every key.
            if not is_refusal(error):
                raise
    map_concurrently(lambda key: request("delete_object", {"Key": key}), keys)


def _raise_for_keys(answer: Mapping[str, Any], asked: int) -> None:
    """An answer of 200 says of each key whether it went."""
    left = [error for error in answer.get("Errors", []) if error.get("Code") != "NoSuchKey"]
    if left:
        first = left[0]
        raise StoreUnavailableError(
            f"{len(left)} of {count(asked, 'object')} not deleted, the first is {first.get('Key')!r}: "
            f"{first.get('Code')}: {first.get('Message')}"
        )
