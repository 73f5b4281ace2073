"""What a task that writes to TiKV refuses before it locks anything."""

from __future__ import annotations

import pyarrow as pa
import pytest

from sinks.tikv.writer import check_bucket
from timeline.errors import TargetRefusedError


def staged(sizes: list[int]) -> pa.Table:
    values = pa.chunked_array([pa.array([b"x" * size], pa.binary()) for size in sizes])
    keys = pa.chunked_array([pa.array([b"k"], pa.binary())] * len(sizes))
    return pa.table({"key": keys, "value": values})


def test_bucket_that_is_too_large_to_be_sorted_is_refused_by_its_size() -> None:
    check_bucket(staged([400, 400]), "tikv:t", most_bytes=1000)
    with pytest.raises(TargetRefusedError, match="plan smaller epochs"):
        check_bucket(staged([400, 400, 400]), "tikv:t", most_bytes=1000)
