"""A column gets a dictionary where its values repeat, wherever it is nested."""

from __future__ import annotations

import pyarrow as pa

from sinks.parquet.encoding import dictionary_columns


def columns_of(**values: pa.Array) -> list[str]:
    return dictionary_columns(pa.table(values))


def test_values_that_repeat_get_a_dictionary_and_ids_get_none() -> None:
    numbers = range(1000)
    assert columns_of(
        status=pa.array([number % 5 for number in numbers]),
        path=pa.array([f"/{number % 300}" for number in numbers]),
        request_id=pa.array([f"{number:08x}" for number in numbers]),
        at=pa.array(numbers, pa.timestamp("us")),
        nothing=pa.nulls(1000, pa.string()),
    ) == ["status", "path", "nothing"]


def test_floats_get_none_however_often_they_repeat() -> None:
    assert columns_of(rate=pa.array([0.0, -0.0] * 500), rates=pa.array([[1.0]] * 1000)) == []


def test_fields_of_structs_are_judged_one_by_one_and_items_of_lists_are_taken_to_repeat() -> None:
    rows = [{"id": f"{number}", "kind": "a", "tags": [f"{number}"]} for number in range(1000)]
    assert columns_of(s=pa.array(rows), m=pa.array([[("k", 1)]] * 1000, pa.map_(pa.string(), pa.int64()))) == [
        "s.kind",
        "s.tags.list.element",
        "m.key_value.key",
        "m.key_value.value",
    ]


def test_rows_in_many_chunks_are_judged_together() -> None:
    chunks = pa.table({"id": pa.chunked_array([[1, 2], [1, 2], [1, 2]])})
    assert dictionary_columns(chunks) == ["id"]
