"""Start and end of a batch, read from a checkpoint's files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from ingest.stream.checkpoint import read_batch
from ingest.stream.offsets import Batch, StreamPosition
from timeline.errors import SourceError


@dataclass(frozen=True)
class Files:
    texts: Mapping[str, str]
    root: str = "checkpoint"

    def read(self, path: str) -> str | None:
        return self.texts.get(path)

    def exists(self, path: str) -> bool:
        return any(f"{name}/".startswith(f"{path}/") for name in self.texts)


def entry(planned_ms: int, *sources: str) -> str:
    return "\n".join(["v1", f'{{"batchWatermarkMs":0,"batchTimestampMs":{planned_ms}}}', *sources])


KAFKA = {
    "metadata": '{"id":"q"}',
    "sources/0/0": '\0v1\n{"a":{"0":3}}',
    "offsets/0": entry(10, '{"a":{"0":5}}'),
    "offsets/1": entry(20, '{"a":{"0":9}}'),
}
FILES = {
    "metadata": '{"id":"q"}',
    "sources/0/0": 'v1\n{"path":"file:///in/f0.json","timestamp":1,"batchId":0}',
    "offsets/0": entry(10, '{"logOffset":0}'),
}


def test_a_batch_begins_where_the_one_before_ended() -> None:
    start, end = StreamPosition("q", 10, ({"a": {"0": 5}},)), StreamPosition("q", 20, ({"a": {"0": 9}},))
    assert read_batch(Files(KAFKA), 1) == Batch(1, start, end)


def test_the_first_batch_of_a_log_begins_where_its_source_says() -> None:
    start, end = StreamPosition("q", None, ({"a": {"0": 3}},)), StreamPosition("q", 10, ({"a": {"0": 5}},))
    assert read_batch(Files(KAFKA), 0) == Batch(0, start, end)


def test_the_first_batch_of_another_source_begins_nowhere_that_others_know() -> None:
    assert read_batch(Files(FILES), 0).start == StreamPosition("q", None, (None,))


def test_a_source_that_joins_later_has_its_own_beginning() -> None:
    joined = KAFKA | {
        "sources/1/0": '\0v1\n{"b":{"0":7}}',
        "offsets/1": entry(20, '{"a":{"0":9}}', "-"),
        "offsets/2": entry(30, '{"a":{"0":9}}', '{"b":{"0":8}}'),
    }
    assert read_batch(Files(joined), 2).start.sources == ({"a": {"0": 9}}, {"b": {"0": 7}})


def test_a_query_with_state_is_known_by_its_state_folder() -> None:
    batch = read_batch(Files(KAFKA | {"state/0/_metadata/metadata": "v2"}), 1)
    assert batch.start.is_stateful and batch.end.is_stateful


@pytest.mark.parametrize("missing", ["metadata", "offsets/0", "offsets/1"])
def test_a_file_that_a_running_query_must_have_is_missed_by_name(missing: str) -> None:
    with pytest.raises(SourceError, match=f"checkpoint/{missing} is not there"):
        read_batch(Files({path: text for path, text in KAFKA.items() if path != missing}), 1)
