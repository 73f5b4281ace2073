"""Every instant name and every body round-trips; a damaged one is refused, not misread."""

from __future__ import annotations

import io
import json
import string
from typing import Any, TypeVar

import fastavro
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from timeline.active import ActiveTimeline
from timeline.body import BodyFormat
from timeline.chain import SNAPSHOT, PositionSnapshot
from timeline.decision import DECISION, Decision, Outcome
from timeline.epoch import (
    MANIFEST,
    PLAN,
    EpochRef,
    Manifest,
    OffsetRange,
    Part,
    Plan,
    Position,
    ShardCount,
    WrittenFile,
)
from timeline.errors import FormatError
from timeline.hudi.layout import TableIdentity, commit_body, create_identity, read_identity, rollback_body
from timeline.instant import Action, Instant, State, format_time, parse_file_name, parse_time
from timeline.lease import WRITER, WriterRecord
from timeline.process import ProcessId
from timeline.rollback import ROLLBACK_PLAN, RollbackPlan
from timeline.stores.base import Retry
from timeline.stores.memory import MemoryStore

T = TypeVar("T")

LAST_MS = parse_time("99991231235959999")

times = st.integers(0, LAST_MS).map(format_time)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
numbers = st.integers(0, 2**63 - 1)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
details = st.dictionaries(texts, json_values, max_size=3)
refs = st.builds(EpochRef, numbers, times, numbers)
positions = st.dictionaries(texts, st.builds(Position, numbers, details), max_size=3)
files = st.builds(WrittenFile, texts, numbers, numbers, st.dictionaries(texts, st.none() | texts, max_size=2), details)


def tuples(of: st.SearchStrategy[T]) -> st.SearchStrategy[tuple[T, ...]]:
    return st.lists(of, max_size=3).map(tuple)


plans = st.builds(
    Plan,
    refs,
    texts,
    texts,
    tuples(st.builds(OffsetRange, texts, numbers, numbers, details, details)),
    tuples(texts),
    st.dictionaries(texts, texts, max_size=3),
    texts,
)
manifests = st.builds(
    Manifest,
    refs,
    tuples(st.builds(ShardCount, texts, numbers, numbers, numbers)),
    tuples(st.builds(Part, texts, refs, numbers, numbers, tuples(files))),
)
decisions = st.builds(
    Decision,
    numbers,
    st.sampled_from(Outcome),
    times,
    times,
    numbers,
    texts,
    texts,
    texts,
    numbers,
    numbers,
    positions,
)
writers = st.builds(
    WriterRecord,
    numbers,
    st.builds(ProcessId, texts, texts, numbers, numbers, texts),
    texts,
    numbers,
    numbers,
    st.booleans(),
    texts,
)

BODIES: dict[str, tuple[BodyFormat[Any], st.SearchStrategy[Any]]] = {
    "plan": (PLAN, plans),
    "manifest": (MANIFEST, manifests),
    "decision": (DECISION, decisions),
    "offsets": (SNAPSHOT, st.builds(PositionSnapshot, numbers, positions)),
    "rollback plan": (ROLLBACK_PLAN, st.builds(RollbackPlan, times, numbers, times, texts, texts, texts)),
    "writer": (WRITER, writers),
}

any_body = st.sampled_from(sorted(BODIES)).flatmap(
    lambda kind: BODIES[kind][1].map(lambda value: (BODIES[kind][0], value))
)


@st.composite
def instants(draw: st.DrawFn) -> Instant:
    state = draw(st.sampled_from(State))
    completed = draw(times) if state is State.COMPLETED else None
    return Instant(draw(times), draw(st.sampled_from(Action)), state, completed)


@pytest.mark.parametrize("action", Action)
@pytest.mark.parametrize("state", State)
@given(time=times, completion_time=times)
def test_a_name_is_read_back_as_its_instant(action: Action, state: State, time: str, completion_time: str) -> None:
    instant = Instant(time, action, state, completion_time if state is State.COMPLETED else None)
    assert parse_file_name(instant.file_name) == instant


@given(instants(), instants())
def test_different_instants_have_different_names(one: Instant, other: Instant) -> None:
    assert (one.file_name == other.file_name) == (one == other)


@given(st.text(string.digits + "._abcdeilmnoqrstu", max_size=60) | st.text(max_size=30))
def test_a_name_is_refused_or_is_exactly_its_instants(name: str) -> None:
    try:
        instant = parse_file_name(name)
    except FormatError:
        return
    assert instant.file_name == name


@given(st.integers(0, LAST_MS), st.integers(0, LAST_MS))
def test_times_sort_as_text_and_are_read_back(one: int, other: int) -> None:
    assert parse_time(format_time(one)) == one
    assert (one < other) == (format_time(one) < format_time(other))


@given(st.lists(instants(), max_size=12), st.lists(texts, max_size=3))
def test_a_view_shows_each_instant_once_in_its_furthest_state(found: list[Instant], foreign: list[str]) -> None:
    names = [instant.file_name for instant in found]
    timeline = ActiveTimeline.from_names(iter([*names, *foreign]))
    assert {each.key for each in timeline} == {each.key for each in found}
    assert len({each.key for each in timeline}) == len(timeline)
    order = list(State)
    for shown in timeline:
        states = [each.state for each in found if each.key == shown.key]
        assert shown.state is max(states, key=order.index)
    assert [each.time for each in timeline] == sorted(each.time for each in timeline)
    assert set(timeline.pending().instants) | set(timeline.completed().instants) == set(timeline.instants)


@given(any_body)
def test_a_body_is_read_back_as_its_value(body: tuple[BodyFormat[Any], Any]) -> None:
    stored, value = body
    assert stored.load("a/b", stored.dump(value)) == value
    assert stored.dump(stored.load("a/b", stored.dump(value))) == stored.dump(value)


@given(any_body, st.integers(2, 9))
def test_a_body_of_a_newer_format_is_refused(body: tuple[BodyFormat[Any], Any], version: int) -> None:
    stored, value = body
    newer = stored.dump(value).replace(b'"format":1', b'"format":%d' % version, 1)
    with pytest.raises(FormatError, match="upgrade"):
        stored.load("a/b", newer)


@given(any_body, st.text(string.ascii_lowercase, min_size=20, max_size=24), json_values)
def test_a_field_that_a_later_writer_added_is_ignored(
    body: tuple[BodyFormat[Any], Any], name: str, added: object
) -> None:
    stored, value = body
    fields = json.loads(stored.dump(value))
    assert stored.load("a/b", json.dumps({**fields, name: added}).encode()) == value


@given(any_body, st.data())
def test_a_body_cut_short_is_refused(body: tuple[BodyFormat[Any], Any], data: st.DataObject) -> None:
    stored, value = body
    whole = stored.dump(value)
    with pytest.raises(FormatError):
        stored.load("a/b", whole[: data.draw(st.integers(0, len(whole) - 1))])


@given(any_body, st.data())
def test_a_body_with_a_flipped_byte_is_refused_or_read_without_another_error(
    body: tuple[BodyFormat[Any], Any], data: st.DataObject
) -> None:
    stored, value = body
    flipped = bytearray(stored.dump(value))
    flipped[data.draw(st.integers(0, len(flipped) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        stored.load("a/b", bytes(flipped))
    except FormatError as refused:
        assert "a/b" in str(refused)


def only_record(body: bytes) -> Any:
    (record,) = fastavro.reader(io.BytesIO(body))
    return record


@given(st.lists(files, max_size=5), st.dictionaries(texts, texts, max_size=4))
def test_a_commit_body_is_read_back_by_an_independent_avro_reader(
    written: list[WrittenFile], extra: dict[str, str]
) -> None:
    record = only_record(commit_body(written, extra))
    assert record["extraMetadata"] == extra
    found = [
        (stat["path"], stat["numWrites"], stat["fileSizeInBytes"], folder)
        for folder, stats in record["partitionToWriteStats"].items()
        for stat in stats
    ]
    expected = [(file.path, file.rows, file.size, file.path.rpartition("/")[0]) for file in written]
    assert sorted(found) == sorted(expected)
    assert commit_body(written, extra) == commit_body(written, extra), "every process writes the same bytes"


@given(times, times, st.lists(texts, max_size=5), st.dictionaries(texts, texts, max_size=4))
def test_a_rollback_body_is_read_back_by_an_independent_avro_reader(
    instant: str, time: str, deleted: list[str], extra: dict[str, str]
) -> None:
    record = only_record(rollback_body(instant, time, 5, deleted, extra))
    assert record["commitsRollback"] == [instant]
    assert record["instantsRollback"] == [{"commitTime": instant, "action": "commit"}]
    gone = [path for part in record["partitionMetadata"].values() for path in part["successDeleteFiles"]]
    assert sorted(gone) == sorted(deleted)
    assert record["totalFilesDeleted"] == len(deleted)
    assert record["extraMetadata"] == extra


columns = st.text(st.characters(exclude_categories=["Cs"], exclude_characters=","), min_size=1, max_size=8)


@given(
    st.builds(
        TableIdentity,
        texts,
        texts,
        st.dictionaries(texts, texts, max_size=3),
        texts,
        st.lists(columns, max_size=3).map(tuple),
    )
)
def test_a_tables_properties_are_read_back_by_every_later_process(identity: TableIdentity) -> None:
    store = MemoryStore()
    assert create_identity(store, identity, Retry()) == identity
    assert read_identity(store, Retry()) == identity
    later = TableIdentity("another", identity.name, {}, "", ())
    assume(later != identity)
    assert create_identity(store, later, Retry()) == identity, "the first creator's hold for good"
