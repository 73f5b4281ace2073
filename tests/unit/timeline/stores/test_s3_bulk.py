"""Sizes of many keys: few requests for adjacent keys, about one each for others, no existing key called absent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from timeline.errors import NotFoundError, StoreUnavailableError
from timeline.stores.s3_bulk import delete_keys, find_sizes

PAGE = 1000


class Bucket:
    """Answers like S3, and counts calls by method."""

    def __init__(self, keys: Mapping[str, int], *, order: bool = True) -> None:
        self.objects = dict(keys)
        self.calls: Counter[str] = Counter()
        self.listed = sorted(keys) if order else sorted(keys, key=lambda key: key[::-1])

    def __call__(self, method: str, arguments: Mapping[str, Any], *, reading: bool = False) -> dict[str, Any]:
        self.calls[method] += 1
        match method:
            case "head_object":
                if arguments["Key"] not in self.objects:
                    raise NotFoundError(arguments["Key"])
                return {"ContentLength": self.objects[arguments["Key"]]}
            case "list_objects_v2":
                after, prefix = arguments.get("StartAfter", ""), arguments["Prefix"]
                behind = [key for key in self.listed if key > after and key.startswith(prefix)]
                entries = [{"Key": key, "Size": self.objects[key]} for key in behind[: arguments.get("MaxKeys", PAGE)]]
                return {"Contents": entries, "IsTruncated": len(behind) > len(entries)}
            case _:
                raise AssertionError(method)


def keys(count: int, *, every: int = 1) -> dict[str, int]:
    return {f"t/{number * every:07}": number for number in range(count)}


@pytest.mark.parametrize("count", [0, 1, 15, 16, 999, 1000, 1001, 10_000])
def test_sizes_of_a_folder_of_ones_own_take_a_request_for_each_thousand(count: int) -> None:
    bucket = Bucket(keys(count))
    assert find_sizes(bucket, [*keys(count)]) == keys(count)
    if count < 16:
        assert bucket.calls == ({"head_object": count} if count else {})
    else:
        assert bucket.calls == {"list_objects_v2": -(-count // PAGE)}


def test_few_keys_among_very_many_are_not_listed_for() -> None:
    wanted = keys(400, every=300)
    bucket = Bucket(keys(120_000) | wanted)
    assert find_sizes(bucket, [*wanted]) == wanted
    assert bucket.calls["list_objects_v2"] <= 400 // 8 + 2
    assert bucket.calls["head_object"] <= 400


@pytest.mark.parametrize("missing", [1, 7, 600, 2000])
def test_keys_that_are_gone_are_not_in_the_answer(missing: int) -> None:
    there = keys(2000)
    for key in [*there][5 : 5 + missing]:
        del there[key]
    bucket = Bucket(there | {"u/other": 1})
    assert find_sizes(bucket, [*keys(2000)]) == there
    assert bucket.calls["head_object"] <= 2 * 32


@pytest.mark.parametrize("gone", [0, 3])
def test_listing_out_of_order_takes_no_object_for_gone(gone: int) -> None:
    wanted = keys(900, every=7)
    there = dict(wanted)
    for key in [*there][:gone]:
        del there[key]
    assert find_sizes(Bucket(keys(6000, every=2) | there, order=False), [*wanted]) == {
        key: size for key, size in (keys(6000, every=2) | there).items() if key in wanted
    }


def test_pages_that_say_nothing_end_the_listing_and_not_the_answer() -> None:
    class Silent(Bucket):
        def __call__(self, method: str, arguments: Mapping[str, Any], *, reading: bool = False) -> dict[str, Any]:
            answer = super().__call__(method, arguments, reading=reading)
            return {"IsTruncated": True} if method == "list_objects_v2" else answer

    assert find_sizes(Silent(keys(40)), [*keys(50)]) == keys(40)


def test_a_bucket_that_does_not_answer_is_not_taken_for_absent_objects() -> None:
    class Gone(Bucket):
        def __call__(self, method: str, arguments: Mapping[str, Any], *, reading: bool = False) -> dict[str, Any]:
            if method == "list_objects_v2":
                raise StoreUnavailableError("NoSuchBucket")
            raise NotFoundError("a HEAD has no body")

    for count in (1, 100):
        with pytest.raises(StoreUnavailableError):
            find_sizes(Gone({}), [*keys(count)])


def test_each_key_is_deleted_by_exactly_one_request_for_a_thousand() -> None:
    batches: list[list[str]] = []

    def request(method: str, arguments: Mapping[str, Any], *, reading: bool = False) -> dict[str, Any]:
        deleted = (
            [arguments["Key"]]
            if method == "delete_object"
            else [each["Key"] for each in arguments["Delete"]["Objects"]]
        )
        batches.append(deleted)
        return {}

    delete_keys(request, [*keys(2001)], lambda error: False)
    assert sorted(len(batch) for batch in batches) == [1, 1000, 1000]
    assert sorted(key for batch in batches for key in batch) == [*keys(2001)]


def test_an_error_of_one_batch_is_an_error_of_all() -> None:
    def request(method: str, arguments: Mapping[str, Any], *, reading: bool = False) -> dict[str, Any]:
        has_bad = any(each["Key"] == "t/0001500" for each in arguments["Delete"]["Objects"])
        return {"Errors": [{"Key": "t/0001500", "Code": "SlowDown", "Message": "later"}]} if has_bad else {}

    with pytest.raises(StoreUnavailableError, match="1 of 1,000 objects not deleted, the first is 't/0001500'"):
        delete_keys(request, [*keys(3000)], lambda error: False)
