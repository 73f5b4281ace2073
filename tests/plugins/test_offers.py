"""What a sink does not offer is refused by name; what it says wrongly of itself is told as its mistake."""

from __future__ import annotations

from typing import cast

import pytest

from ingest.execution.task import Outputs, TaskSpec
from ingest.sources.base import Source
from ingest.sources.quarantine import WithQuarantine
from ingest.transform.query import SparkQuery
from ingest.transform.to_writer import WriterWrite
from sinks.base import PartitionWriter
from sinks.memory import MemorySink
from sinks.parquet.partition_writer import parquet_writer
from sinks.reading import readable, snapshots_of
from sinks.writer_kinds import WritersByKind, refusing
from tests.contract.sink_contract import planned, ref
from tests.keyed_sink import FakeKeyedWriter, KeyRules
from timeline.errors import ConfigError, InvariantError
from timeline.stores.memory import MemoryStore

MEMORY = MemorySink("memory", "app", MemoryStore())


@pytest.fixture
def plain() -> PartitionWriter:
    """A writer that takes every row."""
    return MEMORY.begin(planned(ref(0)))


@pytest.fixture
def keyed(plain: PartitionWriter) -> FakeKeyedWriter:
    """A writer whose rows go to the task of their key."""
    return FakeKeyedWriter(plain, KeyRules())


def test_a_quarantine_that_cannot_be_read_back_is_refused_where_it_is_to_be_replayed() -> None:
    assert snapshots_of(MEMORY) is None and readable(MEMORY) is None
    source = WithQuarantine(cast(Source, None), snapshots_of(MEMORY))
    with pytest.raises(ConfigError, match="whose sink offers snapshots"):
        source.plan_rejected({}, 1)


def test_writers_are_told_apart_in_their_order(plain: PartitionWriter, keyed: FakeKeyedWriter) -> None:
    found = WritersByKind.of({"a": keyed, "b": plain, "c": plain})
    assert found.plain == (("b", plain), ("c", plain))
    assert (found.keyed, found.selective) == ((("a", keyed),), ())
    assert refusing(plain) is None


def test_a_quarantine_of_another_kind_of_writer_is_refused(plain: PartitionWriter, keyed: FakeKeyedWriter) -> None:
    with pytest.raises(InvariantError, match="bad: a quarantine that refuses rows would lose them"):
        Outputs.of({"rows": plain, "bad": keyed}, "bad")


def test_rows_of_a_query_are_not_given_to_a_target_with_keys(plain: PartitionWriter, keyed: FakeKeyedWriter) -> None:
    outputs = Outputs.of({"rows": keyed, "bad": plain}, "bad")
    with pytest.raises(InvariantError, match=r"rows: .*QueryRows\.REFUSED"):
        WriterWrite(cast(SparkQuery, None), cast(TaskSpec, None), (), outputs)


def test_a_target_that_says_that_it_takes_files_has_to_tell_how(plain: PartitionWriter) -> None:
    with pytest.raises(InvariantError, match=r"rows: its options say QueryRows\.FILES"):
        parquet_writer("rows", plain)
