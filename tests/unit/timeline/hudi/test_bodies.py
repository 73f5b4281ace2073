"""Hudi's files beside the decisions: table properties, completed bodies, partition files."""

from __future__ import annotations

import io
import random
import threading
import zlib
from typing import Any

import fastavro
import pytest

from tests.unit.timeline.scripted_store import AT_ONCE, ScriptedStore, lost_reply
from timeline.epoch import WrittenFile
from timeline.errors import FormatError, NotFoundError
from timeline.hudi.layout import (
    PROPERTIES_PATH,
    TableIdentity,
    commit_body,
    create_identity,
    ensure_partition_files,
    read_completed,
    read_epoch_of,
    read_identity,
    rollback_body,
)
from timeline.instant import commit_completed

IDENTITY = TableIdentity(
    "f" * 32,
    "web-access",
    {"ts": "timestamp", "größe": "decimal(10,2)", 'a"b\\c': "string"},
    '{"type":"record","name":"r","doc":"\\u00e4 \\"quoted\\"","fields":[]}',
    ("ts_date", "host"),
)

COMPLETED = commit_completed("20240101000000000", "20240101000000001")

FILES = (
    WrittenFile("host=a%2Fb/1b-0_0-0-0_20240101000000000.parquet", 100, 5),
    WrittenFile("host=a%2Fb/2b-0_1-0-0_20240101000000000.parquet", 50, 2),
    WrittenFile("3b-0_1-0-0_20240101000000000.parquet", 7, 1),
)


@pytest.fixture
def store() -> ScriptedStore:
    return ScriptedStore()


def properties(store: ScriptedStore) -> dict[str, str]:
    lines = store.get(PROPERTIES_PATH).decode("ascii").splitlines()
    return dict(line.split("=", 1) for line in lines)


def only_record(body: bytes) -> Any:
    (record,) = fastavro.reader(io.BytesIO(body))
    return record


def test_the_identity_is_read_back_and_the_first_creators_holds_for_good(store: ScriptedStore) -> None:
    assert read_identity(store, AT_ONCE) is None
    assert create_identity(store, IDENTITY, AT_ONCE) == IDENTITY
    other = TableIdentity("0" * 32, "web-access", {}, "{}", ())
    assert create_identity(store, other, AT_ONCE) == IDENTITY
    assert read_identity(store, AT_ONCE) == IDENTITY


def test_two_creators_at_once_get_the_same_identity(store: ScriptedStore) -> None:
    born: list[TableIdentity] = []
    start = threading.Barrier(2)

    def be_born(number: int) -> None:
        start.wait()
        wanted = TableIdentity(str(number) * 32, "web", {}, "{}", ())
        born.append(create_identity(store, wanted, AT_ONCE))

    threads = [threading.Thread(target=be_born, args=(number,)) for number in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert born[0] == born[1] == read_identity(store, AT_ONCE)


def test_a_birth_whose_reply_is_lost_is_the_own_one(store: ScriptedStore) -> None:
    store.fail("put_if_absent", lost_reply)
    assert create_identity(store, IDENTITY, AT_ONCE) == IDENTITY


def test_the_properties_are_those_of_a_hudi_table_of_version_9(store: ScriptedStore) -> None:
    create_identity(store, IDENTITY, AT_ONCE)
    found = properties(store)
    expected = {
        "hoodie.table.name": "web-access",
        "hoodie.table.type": "COPY_ON_WRITE",
        "hoodie.table.version": "9",
        "hoodie.timeline.layout.version": "2",
        "hoodie.timeline.path": "timeline",
        "hoodie.table.timeline.timezone": "UTC",
        "hoodie.populate.meta.fields": "false",
        "hoodie.datasource.write.hive_style_partitioning": "true",
        "hoodie.datasource.write.partitionpath.urlencode": "true",
        "hoodie.datasource.write.drop.partition.columns": "false",
        "hoodie.table.partition.fields": "ts_date,host",
        "hoodie.table.checksum": str(zlib.crc32(b"default.web-access")),
    }
    assert {key: found.get(key) for key in expected} == expected


@pytest.mark.parametrize(
    ("columns", "generator"), [((), "NON_PARTITION"), (("host",), "SIMPLE"), (("ts_date", "host"), "COMPLEX")]
)
def test_the_key_generator_fits_the_number_of_partition_columns(
    columns: tuple[str, ...], generator: str, store: ScriptedStore
) -> None:
    create_identity(store, TableIdentity("0", "web", {}, "{}", columns), AT_ONCE)
    assert properties(store)["hoodie.table.keygenerator.type"] == generator
    assert ("hoodie.table.partition.fields" in properties(store)) == bool(columns)


def test_properties_that_java_has_rewritten_are_still_read(store: ScriptedStore) -> None:
    """java.util.Properties.store escapes more than it must, and changes the order."""
    create_identity(store, IDENTITY, AT_ONCE)
    lines = [f"{key}={value}" for key, value in properties(store).items()]
    rewritten = []
    for line in sorted(lines, reverse=True):
        key, _, value = line.partition("=")
        for character in ":=#!":
            value = value.replace(character, f"\\{character}")
        rewritten.append(f"{key}={value}")
    store.put(PROPERTIES_PATH, "\n".join(["#Updated at 2024-01-01T00:00:00Z", "#Mon Jan 01", *rewritten]).encode())
    assert read_identity(store, AT_ONCE) == IDENTITY


def test_a_hudi_table_of_another_writer_is_refused(store: ScriptedStore) -> None:
    store.put(PROPERTIES_PATH, b"#Properties\nhoodie.table.name=theirs\nhoodie.table.version=9\n")
    with pytest.raises(FormatError, match=r"not created by Tideline; choose another timeline\.path"):
        read_identity(store, AT_ONCE)
    with pytest.raises(FormatError):
        create_identity(store, IDENTITY, AT_ONCE)


def test_a_table_with_a_metadata_table_that_does_not_know_our_files_is_refused(store: ScriptedStore) -> None:
    create_identity(store, IDENTITY, AT_ONCE)
    store.put(PROPERTIES_PATH, store.get(PROPERTIES_PATH) + b"hoodie.table.metadata.partitions=files\n")
    with pytest.raises(FormatError, match=r"metadata table.*hoodie\.metadata\.enable=false"):
        read_identity(store, AT_ONCE)


def test_a_commit_body_has_the_write_statistics_of_each_file_under_its_partition() -> None:
    record = only_record(commit_body(FILES, {"schema": "{}", "tideline.epoch": "7"}))
    stats = record["partitionToWriteStats"]
    assert sorted(stats) == ["", "host=a%2Fb"]
    assert [stat["fileId"] for stat in stats["host=a%2Fb"]] == ["1b-0", "2b-0"]
    (alone,) = stats[""]
    assert alone["path"] == FILES[2].path
    assert (alone["numWrites"], alone["numInserts"], alone["totalWriteErrors"]) == (1, 1, 0)
    assert (alone["fileSizeInBytes"], alone["totalWriteBytes"], alone["partitionPath"]) == (7, 7, "")
    assert record["operationType"] == "INSERT"
    assert record["extraMetadata"] == {"schema": "{}", "tideline.epoch": "7"}


def test_every_process_writes_the_same_completed_body() -> None:
    assert commit_body(FILES, {"a": "1"}) == commit_body(FILES, {"a": "1"})
    body = rollback_body("1", "2", 3, [file.path for file in FILES], {"a": "1"})
    assert body == rollback_body("1", "2", 3, [file.path for file in FILES], {"a": "1"})


def test_a_rollback_body_lists_what_went_by_partition() -> None:
    record = only_record(rollback_body("20240101000000000", "20240101000000005", 9, [f.path for f in FILES], {}))
    assert record["commitsRollback"] == ["20240101000000000"]
    assert record["totalFilesDeleted"] == 3
    assert record["timeTakenInMillis"] == 9
    gone = record["partitionMetadata"]
    assert gone["host=a%2Fb"]["successDeleteFiles"] == [FILES[0].path, FILES[1].path]
    assert gone[""]["failedDeleteFiles"] == []


def test_the_epoch_of_a_completed_instant_is_in_its_body(store: ScriptedStore) -> None:
    store.put(COMPLETED.path, commit_body(FILES, {"tideline.epoch": "7"}))
    assert read_epoch_of(store, COMPLETED, AT_ONCE) == 7
    store.put(COMPLETED.path, commit_body(FILES, {}))
    assert read_epoch_of(store, COMPLETED, AT_ONCE) is None, "another writer's"
    store.put(COMPLETED.path, commit_body(FILES, {"tideline.epoch": "many"}))
    with pytest.raises(FormatError, match=r"tideline\.epoch 'many', expected a number"):
        read_epoch_of(store, COMPLETED, AT_ONCE)


def test_a_damaged_body_is_refused_and_never_another_error(store: ScriptedStore) -> None:
    whole = commit_body(FILES, {"tideline.epoch": "7"})
    chance = random.Random(7)
    bodies = [whole[:length] for length in range(0, len(whole), 7)]
    for position in range(len(whole)):
        flipped = bytearray(whole)
        flipped[position] ^= chance.randrange(1, 256)
        bodies.append(bytes(flipped))
    refused = 0
    for body in bodies:
        store.put(COMPLETED.path, body)
        try:
            read_epoch_of(store, COMPLETED, AT_ONCE)
        except FormatError as error:
            refused += 1
            assert COMPLETED.path in str(error)
    assert refused > len(bodies) // 2


def test_a_completed_body_that_is_gone_is_not_an_empty_one(store: ScriptedStore) -> None:
    with pytest.raises(NotFoundError):
        read_completed(store, COMPLETED, AT_ONCE)


def test_each_folder_gets_its_partition_file_once(store: ScriptedStore) -> None:
    deep = WrittenFile("day=2024-01-01/host=a/x.parquet", 1, 1)
    ensure_partition_files(store, (*FILES, deep), "20240101000000000", AT_ONCE, set())
    ensure_partition_files(store, (*FILES, deep), "20240102000000000", AT_ONCE, set())
    name = ".hoodie_partition_metadata"
    found = {info.path: store.get(info.path).decode() for info in store.list("", recursive=True)}
    text = "#partition metadata\ncommitTime=20240101000000000\npartitionDepth={}\n"
    assert found == {
        name: text.format(0),
        f"host=a%2Fb/{name}": text.format(1),
        f"day=2024-01-01/host=a/{name}": text.format(2),
    }
