"""Micro-batches that are ingested, skipped and refused."""

from __future__ import annotations

from typing import Any

import pytest

from ingest.stream.judge import BatchVerdict, Judgement, judge
from ingest.stream.offsets import Batch, LogOffsets, StreamPosition

INGEST, SKIP, REFUSE = BatchVerdict.INGEST, BatchVerdict.SKIP, BatchVerdict.REFUSE


def judged(committed: LogOffsets, start: LogOffsets, end: LogOffsets) -> Judgement:
    """Judgement on a batch of another query than the committed one: ids, times and numbers all differ."""
    done = StreamPosition("old", 1, (_json(committed),))
    return judge(done, Batch(0, StreamPosition("new", None, (_json(start),)), StreamPosition("new", 2, (_json(end),))))


def _json(offsets: LogOffsets) -> Any:
    return {topic: dict(partitions) for topic, partitions in offsets.items()}


@pytest.mark.parametrize(
    ("committed", "start", "end", "verdict"),
    [
        ({"a": {"0": 5}}, {"a": {"0": 5}}, {"a": {"0": 9}}, INGEST),
        ({"a": {"0": 5}}, {"a": {"0": 0}}, {"a": {"0": 5}}, SKIP),
        ({"a": {"0": 5}}, {"a": {"0": 0}}, {"a": {"0": 3}}, SKIP),
        ({"a": {"0": 5}}, {"a": {"0": 5}}, {"a": {"0": 5}}, SKIP),
        ({"a": {"0": 5}}, {"a": {"0": 0}}, {"a": {"0": 6}}, REFUSE),
        ({"a": {"0": 5}}, {"a": {"0": 6}}, {"a": {"0": 9}}, REFUSE),
        ({"a": {"0": 5}}, {"a": {"0": 6}}, {"a": {"0": 6}}, REFUSE),
        ({"a": {"0": 5}}, {"a": {"0": 9}}, {"a": {"0": 4}}, REFUSE),
        ({"a": {"0": 5, "1": 5}}, {"a": {"0": 5, "1": 0}}, {"a": {"0": 9, "1": 5}}, REFUSE),
        ({"a": {"0": 5, "1": 5}}, {"a": {"0": 5, "1": 0}}, {"a": {"0": 9, "1": 0}}, INGEST),
        ({"a": {"0": 5, "1": 5}}, {"a": {"0": 5}}, {"a": {"0": 9}}, INGEST),
    ],
    ids=[
        "continues",
        "all committed",
        "older",
        "empty",
        "begins before, ends behind",
        "begins behind",
        "begins behind, empty",
        "ends before it begins",
        "one partition new, one committed",
        "one partition new, one behind without records",
        "a partition is not read any more",
    ],
)
def test_ranges_of_logs_are_compared_by_partition_whatever_query_reads_them(
    committed: LogOffsets, start: LogOffsets, end: LogOffsets, verdict: BatchVerdict
) -> None:
    assert judged(committed, start, end).verdict is verdict


@pytest.mark.parametrize(
    ("start", "end", "verdict"),
    [
        ({"a": {"0": 5}}, {"a": {"0": 9, "1": 4}}, INGEST),
        ({"a": {"0": 5, "1": 0}}, {"a": {"0": 5, "1": 4}}, INGEST),
        ({"a": {"0": 5, "1": 3}}, {"a": {"0": 5, "1": 4}}, REFUSE),
        ({"a": {"0": 5, "1": 3}}, {"a": {"0": 5, "1": 3}}, REFUSE),
        ({"a": {"0": 5}, "b": {"0": 7}}, {"a": {"0": 9}, "b": {"0": 8}}, INGEST),
        ({"a": {"0": 5}, "b": {"0": 7}}, {"a": {"0": 5}, "b": {"0": 7}}, INGEST),
        ({"a": {"0": 0}, "b": {"0": 7}}, {"a": {"0": 5}, "b": {"0": 8}}, REFUSE),
        ({"a": {"0": 0}, "b": {"0": 7}}, {"a": {"0": 5}, "b": {"0": 7}}, SKIP),
    ],
    ids=[
        "a partition joins a running query",
        "a partition joined meanwhile, from its beginning",
        "a partition joined meanwhile, its first records left out",
        "a partition joined meanwhile, its first records left out by an empty batch",
        "a topic joins where the query begins it",
        "a topic joins without records: its beginning is noted",
        "a topic joins, the others are committed already",
        "a topic joins without records, the others are committed already",
    ],
)
def test_new_partitions_join_at_their_beginning_and_new_topics_where_the_query_begins(
    start: LogOffsets, end: LogOffsets, verdict: BatchVerdict
) -> None:
    assert judged({"a": {"0": 5}}, start, end).verdict is verdict


def test_a_refusal_names_the_ranges_in_doubt_and_no_others() -> None:
    reason = judged(
        {"a": {"0": 5, "1": 5, "2": 5}}, {"a": {"0": 0, "1": 8, "2": 5}}, {"a": {"0": 7, "1": 9, "2": 6}}
    ).reason
    assert "partition a/0: the batch has [0, 7), committed is [0, 5): [0, 5) would be twice" in reason
    assert "partition a/1: the batch has [8, 9), committed is [0, 5): [5, 8) would be lost" in reason
    assert "a/2" not in reason


def test_a_refusal_of_a_thousand_partitions_stays_readable() -> None:
    many = {"a": {str(number): 5 for number in range(1000)}}
    ahead = {"a": {str(number): 6 for number in range(1000)}}
    reason = judged(many, ahead, ahead).reason
    assert reason.endswith("and 992 more partitions") and len(reason) < 1000


def place(query: str, planned_ms: int | None, offset: int, is_stateful: bool = False) -> StreamPosition:
    return StreamPosition(query, planned_ms, ({"logOffset": offset},), is_stateful)


@pytest.mark.parametrize(
    ("start", "end", "verdict"),
    [
        (place("q", 7, 3), place("q", 8, 4), INGEST),
        (place("q", 6, 2), place("q", 7, 3), SKIP),
        (place("q", 5, 1), place("q", 6, 2), REFUSE),
        (place("other", 7, 3), place("other", 8, 4), REFUSE),
        (place("other", 6, 2), place("other", 7, 3), REFUSE),
        (place("q", 6, 2), place("q", 9, 3), REFUSE),
        (place("q", 9, 3), place("q", 10, 4), REFUSE),
    ],
    ids=[
        "continues",
        "the same batch again",
        "an older one",
        "another query at equal offsets",
        "another query's equal batch",
        "an equal offset, planned anew from an older checkpoint",
        "behind one that was planned anew",
    ],
)
def test_other_offsets_count_as_the_same_only_in_the_same_batch_of_the_same_query(
    start: StreamPosition, end: StreamPosition, verdict: BatchVerdict
) -> None:
    assert judge(place("q", 7, 3), Batch(4, start, end)).verdict is verdict


def test_a_refusal_of_other_offsets_names_both_ends_and_the_query() -> None:
    start = StreamPosition("new", None, (None,))
    reason = judge(place("old", 7, 3), Batch(0, start, place("new", 8, 9))).reason
    assert 'from the query\'s beginning to {"logOffset":9}' in reason
    assert 'stands at {"logOffset":3} of another query (old)' in reason


def test_rows_of_a_query_with_state_are_never_matched_by_the_offsets_of_its_logs() -> None:
    committed = StreamPosition("q", 7, ({"a": {"0": 5}},), is_stateful=True)
    same = StreamPosition("q", 6, ({"a": {"0": 2}},), is_stateful=True)
    assert judge(committed, Batch(4, same, committed)).verdict is SKIP
    no_new_records = StreamPosition(
        "q", 8, ({"a": {"0": 5}},), is_stateful=True
    )  # its watermark has moved: the query emits rows
    assert judge(committed, Batch(5, committed, no_new_records)).verdict is INGEST
    for is_stateful in (True, False):
        start = StreamPosition("new", None, ({"a": {"0": 5}},), is_stateful)
        assert (
            judge(committed, Batch(0, start, StreamPosition("new", 8, ({"a": {"0": 9}},), is_stateful))).verdict
            is REFUSE
        )


def test_the_first_epoch_takes_any_batch() -> None:
    assert judge(None, Batch(17, place("q", 1, 16), place("q", 2, 17))).verdict is INGEST


def test_a_query_of_more_sources_than_the_timeline_is_refused() -> None:
    one: Any = {"a": {"0": 5}}
    batch = Batch(0, StreamPosition("new", None, (one, one)), StreamPosition("new", 2, (one, one)))
    assert "reads 2 sources, the timeline was written from 1" in judge(StreamPosition("old", 1, (one,)), batch).reason


@pytest.mark.parametrize("start", [{}, {"b": {"0": 70}}], ids=["from the beginning", "where the topic stood"])
def test_sources_in_another_order_are_refused(start: Any) -> None:
    """By its index in the query each topic would be new."""
    a: Any = {"a": {"0": 50}}
    b: Any = {"b": {"0": 70}}
    done = StreamPosition("old", 1, (a, b))
    begun = StreamPosition("new", None, (start or {"b": {"0": 0}}, {"a": {"0": 50 if start else 0}}))
    judgement = judge(done, Batch(0, begun, StreamPosition("new", 2, ({"b": {"0": 80}}, {"a": {"0": 60}}))))
    assert judgement.verdict is REFUSE
    assert "source 0 of the query reads topic b, which was source 1" in judgement.reason
    in_order = Batch(
        0, StreamPosition("new", None, (a, b)), StreamPosition("new", 2, ({"a": {"0": 60}}, {"b": {"0": 80}}))
    )
    assert judge(done, in_order).verdict is INGEST
