"""Timelines that Apache Hudi wrote: the entries that are read, and the messages about all others."""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.unit.timeline.scripted_store import AT_ONCE, ScriptedStore
from timeline.active import ActiveTimeline
from timeline.errors import FormatError
from timeline.history.arrow import VIEWS
from timeline.history.entry import Entry
from timeline.history.timeline import Timeline
from timeline.hudi.layout import PROPERTIES_PATH
from timeline.instant import Action, Instant, State, TimelineLayout, parse_file_name, parse_time
from timeline.stores.local import LocalStore

DATA = Path(__file__).parents[3] / "data" / "hudi"
SAMPLES = ("copy_on_write_layout1", "copy_on_write_layout2", "merge_on_read_layout1", "merge_on_read_layout2")
T, C = "20240229235959999", "20240301000000000"


def load(name: str, *, archived: bool = True) -> Timeline:
    return Timeline.load(str(DATA / name), archived=archived)


def in_memory(name: str) -> ScriptedStore:
    """A sample in a store that counts its calls and can be damaged."""
    store = ScriptedStore()
    folder = DATA / name
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            store.put(path.relative_to(folder).as_posix(), path.read_bytes())
    store.calls.clear()
    return store


def paths(store: ScriptedStore) -> list[str]:
    found = [info.path for info in store.inner.list("", recursive=True)]
    assert found
    return found


def entries(timeline: Timeline) -> dict[str, Entry]:
    return {f"{entry.instant.time}.{entry.instant.action.value}": entry for entry in timeline.history().entries}


@pytest.mark.parametrize("name", SAMPLES)
def test_everything_that_hudi_wrote_is_read(name: str) -> None:
    timeline = load(name)
    assert timeline.unreadable == ()
    assert [entry.problems for entry in timeline.history().entries] == [()] * len(timeline)
    for view in VIEWS:
        assert timeline.to_arrow(view).num_rows > 0 or view in ("epochs", "offsets", "rejected")


@pytest.mark.parametrize("layout", [1, 2])
def test_a_copy_on_write_table_is_told_from_its_first_write_to_the_one_that_is_open(layout: int) -> None:
    rows = load(f"copy_on_write_layout{layout}").to_pandas()
    assert Counter(zip(rows["action"], rows["state"], strict=True)) == {
        ("commit", "completed"): 13,
        ("commit", "inflight"): 1,
        ("replacecommit", "completed"): 3,
        ("clean", "completed"): 6,
        ("rollback", "completed"): 2,
        ("savepoint", "completed"): 1,
    }
    assert set(rows["writer"]) == {"hudi"}
    assert rows["rows"].fillna(0).tolist()[:2] == [10, 10]


@pytest.mark.parametrize("layout", [1, 2])
def test_a_merge_on_read_table_shows_its_delta_commits_and_the_compaction_that_waits(layout: int) -> None:
    timeline = load(f"merge_on_read_layout{layout}")
    assert Counter(instant.action for instant in timeline.completed()) == {
        Action.DELTACOMMIT: 13,
        Action.COMMIT: 3,
        Action.CLEAN: 3,
    }
    (waiting,) = timeline.pending()
    assert (waiting.action, waiting.state) == (Action.COMPACTION, State.REQUESTED)
    planned = entries(timeline)[f"{waiting.time}.compaction"].request
    assert planned is not None
    assert {operation["partitionPath"] for operation in planned["operations"]} == {"0", "1"}


@pytest.mark.parametrize("kind", ["copy_on_write", "merge_on_read"])
def test_both_layouts_tell_the_same_story_of_the_same_writes(kind: str) -> None:
    # Order is ignored: before Hudi 1.0, a write took its instant time before it rolled back failed writes.
    first, second = (load(f"{kind}_layout{layout}") for layout in (1, 2))
    kinds = [Counter((each.action, each.state) for each in timeline) for timeline in (first, second)]
    assert kinds[0] == kinds[1]
    written = [timeline.to_pandas().query("state == 'completed' and bytes > 0") for timeline in (first, second)]
    columns = ["action", "rows", "files"]
    assert written[0][columns].to_numpy().tolist() == written[1][columns].to_numpy().tolist()


@pytest.mark.parametrize("name", SAMPLES)
def test_a_commits_amounts_are_those_of_its_files(name: str) -> None:
    timeline = load(name)
    of_instants = timeline.to_pandas().query("action in ('commit', 'deltacommit', 'replacecommit')")
    of_files = timeline.to_pandas("files").query("outcome == 'commit'")
    written = of_files.groupby("instant")[["rows", "bytes"]].sum()
    for row in of_instants.query("state == 'completed'").itertuples():
        assert (row.rows, row.bytes) == tuple(written.loc[str(row.time)])


@pytest.mark.parametrize("layout", [1, 2])
def test_a_rollback_names_what_it_rolled_back_and_the_files_that_went(layout: int) -> None:
    timeline = load(f"copy_on_write_layout{layout}")
    gone = [instant.time for instant in timeline.by_action(Action.ROLLBACK)]
    rows = timeline.to_pandas().query("action == 'rollback'")
    for time, reason in zip(gone, rows["reason"], strict=True):
        assert reason.startswith("instant ") and reason.removeprefix("instant ") < time
    assert rows["files"].tolist() == [3, 3]
    assert Counter(timeline.to_pandas("files").query("outcome == 'rollback'")["instant"]) == dict.fromkeys(gone, 3)


@pytest.mark.parametrize("name", SAMPLES)
def test_archived_instants_are_read_when_asked_for_and_marked(name: str) -> None:
    active, whole = load(name, archived=False), load(name)
    assert [instant for instant in whole if not whole.is_archived(instant)] == list(active)
    assert len(whole) > len(active) > 0
    archived = whole.to_pandas().query("archived")
    assert len(archived) == len(whole) - len(active)
    assert archived["completed"].notna().all() and (archived["seconds"] > 0).all()
    assert not active.to_pandas()["archived"].any()


def test_filters_hold_for_archived_instants_and_read_only_the_files_that_are_needed() -> None:
    store = in_memory("copy_on_write_layout2")
    timeline = Timeline.load(store, AT_ONCE, archived=True)
    oldest = timeline.between(timeline.instants[0].time, timeline.instants[0].time)
    store.calls.clear()
    (row,) = oldest.history().instants()
    assert (row.archived, row.rows) == (True, 10)
    assert store.calls == {"get": 1}


def test_a_table_of_layout_2_takes_one_listing_and_one_of_layout_1_asks_for_its_properties() -> None:
    store = in_memory("merge_on_read_layout2")
    Timeline.load(store, AT_ONCE)
    assert store.calls == {"list": 1}
    store = in_memory("merge_on_read_layout1")
    Timeline.load(store, AT_ONCE)
    assert store.calls == {"list": 2, "get": 1}


def test_an_instant_that_is_being_archived_is_there_once_and_active() -> None:
    whole = load("copy_on_write_layout2")
    archived = whole.instants[0]
    assert whole.is_archived(archived) and archived.action is Action.COMMIT
    store = in_memory("copy_on_write_layout2")
    store.put(archived.path, b"")
    again = Timeline.load(store, AT_ONCE, archived=True)
    assert again.instants == whole.instants
    assert not again.is_archived(archived)


def test_completion_is_told_by_the_name_in_layout_2_and_by_the_files_time_in_layout_1(tmp_path: Path) -> None:
    for layout in (1, 2):
        shutil.copytree(DATA / f"copy_on_write_layout{layout}", tmp_path / str(layout))
        timeline = Timeline.load(str(tmp_path / str(layout)))
        for instant in timeline:
            done_ns = (parse_time(instant.time) + 7_000) * 1_000_000
            os.utime(tmp_path / str(layout) / instant.path, ns=(done_ns, done_ns))
        rows = Timeline.load(str(tmp_path / str(layout))).completed().history().instants()
        assert len(rows) > 5
        if layout == 1:
            assert [row.seconds for row in rows] == [7.0] * len(rows)
        else:
            named = [parse_time(instant.completion_time or "") for instant in timeline.completed()]
            assert [row.completed and round(row.completed.timestamp() * 1000) for row in rows] == named


def test_times_of_seconds_are_read_in_layout_1() -> None:
    store, old = in_memory("copy_on_write_layout1"), ScriptedStore()
    for path in paths(store):
        body = store.get(path)
        folder, _, name = path.rpartition("/")
        time, dot, rest = name.partition(".")
        short = f"{time[:14]}{dot}{rest}" if time.isdigit() else name
        old.put(f"{folder}/{short}", body)
    timeline = Timeline.load(old, AT_ONCE)
    assert len(timeline) == len(Timeline.load(store, AT_ONCE))
    assert {len(instant.time) for instant in timeline} == {14}
    assert timeline.to_pandas()["requested"].dt.microsecond.eq(999_000).all()
    assert timeline.unreadable == ()


LAYOUT_1_NAMES = [
    (Action.COMMIT, ["commit.requested", "inflight", "commit"]),
    (Action.DELTACOMMIT, ["deltacommit.requested", "deltacommit.inflight", "deltacommit"]),
    (Action.REPLACECOMMIT, ["replacecommit.requested", "replacecommit.inflight", "replacecommit"]),
    (Action.CLEAN, ["clean.requested", "clean.inflight", "clean"]),
    (Action.ROLLBACK, ["rollback.requested", "rollback.inflight", "rollback"]),
    (Action.RESTORE, ["restore.requested", "restore.inflight", "restore"]),
    (Action.SAVEPOINT, ["savepoint.requested", "savepoint.inflight", "savepoint"]),
    (Action.INDEXING, ["indexing.requested", "indexing.inflight", "indexing"]),
]


@pytest.mark.parametrize(("action", "names"), LAYOUT_1_NAMES)
@pytest.mark.parametrize("time", [T, T[:14]])
def test_names_are_those_of_hudis_layout_1(action: Action, names: list[str], time: str) -> None:
    for state, name in zip(State, names, strict=True):
        instant = Instant(time, action, state, layout=TimelineLayout.ONE)
        assert instant.path == f".hoodie/{time}.{name}"
        assert parse_file_name(f"{time}.{name}", TimelineLayout.ONE) == instant


def test_each_layout_has_its_own_form_of_times() -> None:
    with pytest.raises(FormatError, match="layout 2 has 17 digits"):
        Instant(T[:14], Action.COMMIT, State.REQUESTED)
    with pytest.raises(FormatError, match="layout 1 names no completion time"):
        Instant(T, Action.COMMIT, State.COMPLETED, C, TimelineLayout.ONE)


@pytest.mark.parametrize(
    ("asked", "done"),
    [
        (Action.COMPACTION, Action.COMMIT),
        (Action.LOGCOMPACTION, Action.DELTACOMMIT),
        (Action.CLUSTERING, Action.REPLACECOMMIT),
        (Action.INDEXING, Action.INDEXING),
    ],
)
def test_what_is_completed_under_another_actions_name_is_one_instant(asked: Action, done: Action) -> None:
    states = [
        Instant(T, asked, State.REQUESTED),
        Instant(T, asked, State.INFLIGHT),
        Instant(T, done, State.COMPLETED, C),
    ]
    names = [instant.file_name for instant in states]
    assert [parse_file_name(name) for name in names] == states
    assert ActiveTimeline.from_names(iter(names)).instants == (states[2],)
    assert ActiveTimeline.from_names(iter(names[:2])).instants == (states[1],)
    assert ActiveTimeline.from_names(iter(names[:2])).unrequested == frozenset()


def test_what_is_no_instant_is_said_and_checksums_are_passed_over() -> None:
    store = in_memory("copy_on_write_layout2")
    for name in (f".{T}.commit.requested.crc", f"{T}.frobnicate.requested", "00000000000000000.deltacommit.requested"):
        store.put(f".hoodie/timeline/{name}", b"")
    unreadable = Timeline.load(store, AT_ONCE).unreadable
    assert unreadable == ("00000000000000000.deltacommit.requested", f"{T}.frobnicate.requested")
    store = in_memory("copy_on_write_layout1")
    store.put(f".hoodie/{T}.frobnicate", b"")
    store.put(".hoodie/hoodie.properties.backup", b"")
    assert Timeline.load(store, AT_ONCE).unreadable == (f"{T}.frobnicate",)


@pytest.mark.parametrize(
    ("properties", "found"),
    [
        (b"hoodie.timeline.layout.version=1\n", 1),
        (b"hoodie.table.version=6\n", 1),
        (b"hoodie.table.name=of the first Hudi\n", 1),
        (b"hoodie.table.version=8\n", 0),
        (b"hoodie.timeline.layout.version=2\nhoodie.table.version=6\n", 0),
        (None, 0),
    ],
)
def test_layout_1_is_looked_for_where_the_tables_properties_say_so(properties: bytes | None, found: int) -> None:
    store = ScriptedStore()
    store.put(f".hoodie/{T}.commit", b"")
    if properties is not None:
        store.put(PROPERTIES_PATH, properties)
    assert len(Timeline.load(store, AT_ONCE)) == found


@pytest.mark.parametrize("name", SAMPLES)
def test_a_damaged_body_costs_its_own_part_and_is_said(name: str) -> None:
    whole = Timeline.load(in_memory(name), AT_ONCE)
    for instant in whole.completed():
        store = in_memory(name)
        store.put(instant.path, store.get(instant.path)[:-40])
        history = Timeline.load(store, AT_ONCE).history()
        (problem,) = (row.problems for row in history.instants() if row.problems)
        assert problem and instant.path in problem
        assert len(history.entries) == len(whole)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"", "is empty"),
        (b"PAR1", "neither JSON nor an Avro object container, it begins with b'PAR1'"),
        (b"{", "damaged JSON"),
        (b'{"partitionToWriteStats": []}', "partitionToWriteStats: Input should be a valid dictionary, found []"),
        (b'{"partitionToWriteStats": {"0": [{"numWrites": "x"}]}}', "0.0.numWrites: Input should be a valid integer"),
        (b'{"extraMetadata": {"tideline.epoch": 3}}', "extraMetadata.tideline.epoch: Input should be a valid string"),
    ],
)
def test_a_body_that_is_none_is_said_with_what_was_found(body: bytes, told: str) -> None:
    store = in_memory("copy_on_write_layout1")
    last = Timeline.load(store, AT_ONCE).completed().by_action(Action.COMMIT).instants[-1]
    store.put(last.path, body)
    timeline = Timeline.load(store, AT_ONCE)
    problems = [row.problems for row in timeline.history().instants() if row.time == last.time]
    assert told in (problems[-1] or "") and last.path in (problems[-1] or "")
    assert timeline.to_arrow("files").num_rows > 0


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("seed", range(3))
def test_no_damage_stops_the_reading_of_the_rest(name: str, seed: int) -> None:
    choose = random.Random(seed)
    store = in_memory(name)
    for path in paths(store):
        body = store.get(path)
        if body and path != PROPERTIES_PATH:
            damaged = bytearray(body)
            for _ in range(choose.randrange(1, 4)):
                damaged[choose.randrange(len(body))] = choose.randrange(256)
            store.put(path, bytes(damaged))
    timeline = Timeline.load(store, AT_ONCE, archived=True)
    for view in VIEWS:
        timeline.to_arrow(view)
    assert len(timeline) >= len(Timeline.load(in_memory(name), AT_ONCE))


def test_the_rest_of_a_damaged_archive_of_layout_1_is_read_and_the_place_is_said() -> None:
    store = in_memory("copy_on_write_layout1")
    whole = Timeline.load(store, AT_ONCE, archived=True)
    first, second = (path for path in paths(store) if "/archived/" in path)
    start, body = len(store.get(first)), store.get(first) + store.get(second)
    store.delete([second])
    store.put(first, body)
    assert Timeline.load(store, AT_ONCE, archived=True) == whole, "a file is a sequence of blocks"
    for damaged, told in (
        (body[:start] + b"#JUNK#" + body[start + 6 :], "expected b'#HUDI#', found b'#JUNK#'"),
        (body[:-1], "are left"),
        (body[: start + 8], "is damaged"),
    ):
        store.put(first, damaged)
        part = Timeline.load(store, AT_ONCE, archived=True)
        (said,) = part.unreadable
        assert said.startswith(f"{first}: block at byte {start}") and told in said and "not read" in said
        assert len(Timeline.load(store, AT_ONCE)) < len(part) < len(whole)


def test_an_archive_of_layout_2_that_cannot_be_read_is_said_and_the_active_timeline_is_there() -> None:
    folder = ".hoodie/timeline/history"
    active = load("copy_on_write_layout2", archived=False).instants
    newest = in_memory("copy_on_write_layout2").get(f"{folder}/_version_").decode()

    def said(path: str, body: bytes | None) -> str:
        store = in_memory("copy_on_write_layout2")
        if body is None:
            store.delete([path])
        else:
            store.put(path, body)
        timeline = Timeline.load(store, AT_ONCE, archived=True)
        assert set(active) <= set(timeline.instants)
        (found,) = timeline.unreadable
        return found

    assert "expected the number of a manifest" in said(f"{folder}/_version_", b"x")
    assert f"manifest_{newest}: does not exist" in said(f"{folder}/manifest_{newest}", None)
    assert "not a manifest" in said(f"{folder}/manifest_{newest}", b"{}")
    assert "leads elsewhere" in said(f"{folder}/manifest_{newest}", b'{"files": [{"fileName": "../x"}]}')
    (first, *_) = Timeline.load(in_memory("copy_on_write_layout2"), AT_ONCE, archived=True).archive.files  # type: ignore[union-attr]
    assert said(first, None).startswith(f"{first}: ") or first in said(first, None)
    assert "not a Parquet file" in said(first, b"PAR1")
    assert "no column action" in said(first, parquet(instantTime=["x"], completionTime=["x"]))
    assert "instant 'x'" in said(first, parquet(instantTime=["x"], completionTime=["x"], action=["commit"]))


def parquet(**columns: list[str]) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink)
    return bytes(sink.getvalue())


def test_an_archive_that_changes_while_it_is_read_costs_bodies_only() -> None:
    store = in_memory("copy_on_write_layout2")
    timeline = Timeline.load(store, AT_ONCE, archived=True)
    for path in [path for path in paths(store) if path.endswith(".parquet")]:
        store.delete([path])
    rows = timeline.history().instants()
    assert len(rows) == len(timeline)
    assert {row.problems is not None for row in rows if row.archived} == {True}


def test_a_timeline_without_an_archive_has_no_archived_instants() -> None:
    store = ScriptedStore()
    store.put(Instant(T, Action.COMMIT, State.REQUESTED).path, b"")
    timeline = Timeline.load(store, AT_ONCE, archived=True)
    assert (len(timeline), timeline.unreadable) == (1, ())


def test_shares_have_what_they_need_and_nothing_else() -> None:
    timeline = Timeline.load(LocalStore(str(DATA / "copy_on_write_layout2")), archived=True)
    shares = list(timeline.shares(7))
    assert [len(share) for share in shares] == [7, 7, 7, 5]
    assert sum((share.instants for share in shares), ()) == timeline.instants
    assert [row for share in shares for row in share.history().instants()] == timeline.history().instants()
    assert [len(share.archive.files) for share in shares if share.archive][-1] == 0
    assert sum(len(share.active.modified_ms) for share in shares) == len(timeline.active.modified_ms)
    assert [len(share) for share in Timeline().shares(7)] == [0]


def test_a_clean_tells_how_many_files_it_deleted_and_a_savepoint_no_amounts() -> None:
    rows = load("copy_on_write_layout2").to_pandas()
    cleans = rows.query("action == 'clean'")
    assert (cleans["files"] > 0).all() and cleans["rows"].isna().all()
    assert rows.query("action == 'savepoint'")[["rows", "files", "bytes"]].isna().all(axis=None)


def test_a_pending_rollback_names_what_it_is_about() -> None:
    store = in_memory("copy_on_write_layout2")
    (done,) = Timeline.load(store, AT_ONCE).by_action(Action.ROLLBACK)
    rolled_back = Timeline.load(store, AT_ONCE).by_action(Action.ROLLBACK).history().instants()[0].reason
    store.delete([done.path])
    (row,) = Timeline.load(store, AT_ONCE).pending().by_action(Action.ROLLBACK).history().instants()
    assert (row.state, row.reason) == ("inflight", rolled_back)
    store.put(Instant(done.time, Action.ROLLBACK, State.REQUESTED).path, b"")
    (row,) = Timeline.load(store, AT_ONCE).pending().by_action(Action.ROLLBACK).history().instants()
    assert row.reason is None
