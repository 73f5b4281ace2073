"""Files that Spark 4.1 writes into a checkpoint, and the values parsed from them."""

from __future__ import annotations

import json

import pytest

from ingest.stream.offsets import (
    OffsetLogEntry,
    StreamPosition,
    log_offsets,
    parse_beginning,
    parse_entry,
    parse_query_id,
)
from timeline.epoch import Json
from timeline.errors import FormatError

METADATA = (
    '{"batchWatermarkMs":0,"batchTimestampMs":1795262625545,"conf":{"spark.sql.streaming.stateStore.providerClass":'
    '"org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider","spark.sql.shuffle.partitions":"2"}}'
)
"""As Spark 4.1.3 writes it, with fewer settings; `tests/spark/test_stream.py` reads a running query's checkpoint."""


@pytest.mark.parametrize(
    ("lines", "sources"),
    [
        (['{"events":{"0":5,"1":5}}'], ({"events": {"0": 5, "1": 5}},)),
        (['{"logOffset":0}'], ({"logOffset": 0},)),
        (["17"], (17,)),
        (['{"events":{"0":5}}', "-"], ({"events": {"0": 5}}, None)),
    ],
    ids=["kafka", "files", "rate", "two sources, nothing of the second"],
)
def test_an_entry_of_the_offset_log_says_how_far_each_source_is_read(
    lines: list[str], sources: tuple[Json, ...]
) -> None:
    text = "\n".join(["v1", METADATA, *lines])
    assert parse_entry("offsets/3", text) == OffsetLogEntry(1795262625545, sources)


@pytest.mark.parametrize(
    "text",
    ["", "v1", f"v1\n{METADATA}", f'v2\n{METADATA}\n{{"a":{{"0":1}}}}', 'v1\n{}\n{"a":{"0":1}}', f"v1\n{METADATA}\n{{"],
    ids=["empty", "cut", "no source", "newer", "no time", "no JSON"],
)
def test_an_entry_that_is_not_understood_is_refused_by_name(text: str) -> None:
    with pytest.raises(FormatError, match=r"^offsets/3: "):
        parse_entry("offsets/3", text)


def test_where_a_kafka_source_began_is_read_behind_its_zero_byte() -> None:
    assert parse_beginning('\0v1\n{"events":{"0":3,"1":0}}') == {"events": {"0": 3, "1": 0}}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "v1\n1795262629256",
        'v1\n{"path":"file:///in/f0.json","timestamp":1795262623610,"batchId":0}',
        'v1\n{"path":"file:///in/f0.json"}\n{"path":"file:///in/f1.json"}',
        "v1\n{",
    ],
    ids=["empty", "rate", "files", "files of one batch", "cut"],
)
def test_what_other_sources_keep_in_that_place_is_no_beginning(text: str) -> None:
    assert parse_beginning(text) is None


def test_the_query_id_is_read_from_the_metadata() -> None:
    assert parse_query_id("metadata", '{"id":"f21e1556-a1e3-413f-ae7c-125cab952ba4"}').startswith("f21e1556")
    with pytest.raises(FormatError, match=r"^metadata: "):
        parse_query_id("metadata", '{"name":"x"}')


@pytest.mark.parametrize(
    ("offsets", "expected"),
    [
        ({"a": {"0": 1, "12": 0}, "b": {}}, {"a": {"0": 1, "12": 0}, "b": {}}),
        ({}, None),
        (None, None),
        (17, None),
        ({"logOffset": 3}, None),
        ({"a": {"0": -2}}, None),
        ({"a": {"x": 2}}, None),
        ({"a": {"0": True}}, None),
        ({"a": {"0": 1}, "version": 1}, None),
    ],
)
def test_only_offsets_by_topic_and_partition_mean_the_same_in_every_query(offsets: Json, expected: object) -> None:
    assert log_offsets(offsets) == expected


def test_a_place_comes_back_from_the_timeline_as_it_was() -> None:
    for place in (
        StreamPosition("q", 17, ({"a": {"0": 1}}, None, 5), is_stateful=True),
        StreamPosition("q", None, (None,)),
    ):
        assert StreamPosition.of(json.loads(json.dumps(place.detail()))) == place


def test_a_position_of_another_source_is_no_place() -> None:
    with pytest.raises(FormatError, match="query, planned_ms and sources"):
        StreamPosition.of({"path": "a.jsonl"})


def test_no_partition_that_was_read_is_forgotten_and_none_goes_back() -> None:
    committed = StreamPosition("old", 1, ({"a": {"0": 5, "1": 9}, "gone": {"0": 4}},))
    end = StreamPosition("new", 2, ({"a": {"0": 7, "1": 9, "2": 1}},))
    merged: Json = {"a": {"0": 7, "1": 9, "2": 1}, "gone": {"0": 4}}
    assert end.after(committed) == StreamPosition("new", 2, (merged,))
    assert end.after(None) == end


def test_a_query_with_state_has_offsets_that_only_its_checkpoint_understands() -> None:
    assert StreamPosition("q", 1, ({"a": {"0": 1}},)).logs == ({"a": {"0": 1}},)
    assert StreamPosition("q", 1, ({"a": {"0": 1}},), is_stateful=True).logs is None
    assert StreamPosition("q", 1, ({"a": {"0": 1}}, {"logOffset": 1})).logs is None
    assert StreamPosition("q", 1, ({"a": {"0": 1}}, None)).logs is None
