"""A folder that cannot be listed, or a file that cannot be opened, is an error that names it, never an empty plan."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from fsspec.asyn import AsyncFileSystem

from ingest.sources.files.listing import Location, list_files, resolve
from tests.unit.ingest.sources.rows import Reading, source_of
from timeline.errors import SourceError

_NOBODY = 65534


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that every user can enter, unlike pytest's own."""
    path = Path(tempfile.mkdtemp(prefix="tideline-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@contextmanager
def as_nobody() -> Iterator[None]:
    """Run as the user nobody: permissions do not bind root."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(_NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@contextmanager
def unreadable(path: Path) -> Iterator[None]:
    """Deny all access to a file or folder, and run as a user without root's rights."""
    mode = path.stat().st_mode
    path.chmod(0o000)
    try:
        with as_nobody():
            yield
    finally:
        path.chmod(mode)


@pytest.mark.parametrize(
    ("path", "locked"),
    [("", ""), ("", "sub"), ("/*.log", ""), ("/**/*.log", ""), ("/**/*.log", "sub"), ("/*/*.log", "sub")],
)
def test_a_folder_that_cannot_be_read_is_named(folder: Path, path: str, locked: str) -> None:
    (folder / "sub").mkdir()
    (folder / "sub" / "a.log").write_bytes(b"one\n")
    source = source_of(f"{folder}{path}")
    with unreadable(folder / locked), pytest.raises(SourceError, match=f"{folder / locked} cannot be listed"):
        source.plan({})
    with unreadable(folder / locked), pytest.raises(SourceError, match="cannot be listed"):
        source.ends({})


def test_a_folder_that_the_glob_does_not_match_may_be_unreadable(folder: Path) -> None:
    for name in ("web-1", "private"):
        (folder / name).mkdir()
        (folder / name / "a.log").write_bytes(b"one\n")
    with unreadable(folder / "private"):
        assert [one.shard for one in source_of(f"{folder}/web-*/*.log").plan({}).ranges] == ["web-1/a.log"]


@pytest.mark.parametrize("path", ["", "/*.log", "/**/*.log"])
def test_a_folder_that_vanished_after_records_were_read_is_named(tmp_path: Path, path: str) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "a.log").write_bytes(b"one\n")
    reading = Reading(source_of(f"{logs}{path}"))
    reading.epoch()
    logs.rename(tmp_path / "away")
    with pytest.raises(SourceError, match=f"{logs} does not exist any more"):
        reading.source.plan(reading.after)
    with pytest.raises(SourceError, match=f"{logs} does not exist any more"):
        reading.source.ends(reading.after)


def test_the_folder_of_a_single_file_that_vanished_is_named(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "a.log").write_bytes(b"one\n")
    reading = Reading(source_of(logs / "a.log"))
    reading.epoch()
    (logs / "a.log").rename(logs / "a.log.1")
    assert reading.source.plan(reading.after).ranges == ()  # the moment between a rotation's two steps
    shutil.rmtree(logs)
    with pytest.raises(SourceError, match=f"{logs} does not exist any more"):
        reading.source.plan(reading.after)


def test_a_globs_folder_that_never_was_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="nowhere does not exist"):
        source_of(f"{tmp_path}/nowhere/*.log").plan({})


def test_loops_of_links_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.log").symlink_to(tmp_path / "b.log")
    (tmp_path / "b.log").symlink_to(tmp_path / "a.log")
    with pytest.raises(SourceError, match=r"a\.log cannot be read: .*[Ll]inks"):
        source_of(tmp_path).plan({})
    with pytest.raises(SourceError, match=r"a\.log cannot be"):
        source_of(tmp_path / "a.log").plan({})
    with pytest.raises(SourceError, match=r"cannot be|does not exist"):
        source_of(f"{tmp_path}/a.log/*.log").plan({})


def test_a_link_to_a_folder_that_is_gone_is_named(tmp_path: Path) -> None:
    (tmp_path / "logs").symlink_to(tmp_path / "gone")
    for path in ("logs", "logs/*.log"):
        with pytest.raises(SourceError, match="logs does not exist"):
            source_of(f"{tmp_path}/{path}").plan({})


def test_a_file_that_cannot_be_opened_is_named_by_plan_and_reader(folder: Path) -> None:
    (folder / "a.log").write_bytes(b"one\n")
    source = source_of(folder)
    (offsets,) = source.plan({}).ranges
    with unreadable(folder / "a.log"):
        with pytest.raises(SourceError, match=r"a\.log cannot be read: .*let the user of this process read it"):
            source.plan({})
        with pytest.raises(SourceError, match=r"a\.log cannot be read"):
            list(source.reader().read(offsets))


class Buckets(AsyncFileSystem):  # type: ignore[misc]
    """An object store with one bucket, whose listings report missing buckets and prefixes as S3 does."""

    cachable = False

    async def _ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        bucket, _slash, key = path.strip("/").partition("/")
        if bucket != "there" or key:
            raise FileNotFoundError(f"The specified bucket does not exist: {path}" if bucket != "there" else path)
        return []


@pytest.mark.parametrize("glob", ["*.log", "*/*.log", "**/*.log"])
def test_a_bucket_that_does_not_exist_is_named_and_an_empty_prefix_is_not(glob: str) -> None:
    fs = Buckets()
    for known in ([], ["missing/logs/a.log"]):
        with pytest.raises(SourceError, match="missing does not exist"):
            list_files(Location(fs, "missing/logs", glob=f"missing/logs/{glob}"), known)
    assert list_files(Location(fs, "there/logs", glob=f"there/logs/{glob}"), []) == []


def test_hard_links_are_one_file_also_when_the_other_name_comes_first(tmp_path: Path) -> None:
    (tmp_path / "b.log").write_bytes(b"one\n")
    reading = Reading(source_of(tmp_path))
    reading.epoch()
    os.link(tmp_path / "b.log", tmp_path / "a.log")
    with (tmp_path / "a.log").open("ab") as file:
        file.write(b"two\n")
    reading.epoch()
    (tmp_path / "b.log").unlink()
    with (tmp_path / "a.log").open("ab") as file:
        file.write(b"three\n")
    reading.epoch()
    assert {shard: reading.texts(shard) for shard in reading.lines} == {"b.log": [b"one", b"two", b"three"]}


def test_hard_links_that_are_both_new_are_read_once_under_the_first_name(tmp_path: Path) -> None:
    (tmp_path / "b.log").write_bytes(b"one\n")
    os.link(tmp_path / "b.log", tmp_path / "a.log")
    assert [one.shard for one in source_of(tmp_path).plan({}).ranges] == ["a.log"]


@pytest.mark.parametrize("name", ["", "/", "/app.log", "/app.log/", "/app.log*", "/*", "/**", "/**/app.log"])
@pytest.mark.parametrize("before", ["{}/logs", "{}//logs", "/{}/logs/", "{}/./logs", "{}/logs/../logs", "{}/logs/."])
@pytest.mark.parametrize("protocol", ["", "file://", "local://"])
def test_a_local_path_is_brought_into_the_one_spelling_that_listings_have(
    tmp_path: Path, protocol: str, before: str, name: str
) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "app.log").write_bytes(b"one\n")
    location = resolve(f"{protocol}{before.format(tmp_path)}{name}", {})
    (file,) = list_files(location, set())
    assert file.path == f"{tmp_path}/logs/app.log"
    assert location.name_of(file.path) == "app.log"


@pytest.mark.parametrize(
    "path", ["logs//app.log*", "./logs/app.log*", "../{}/logs//*", "logs/../logs/app.log", "logs/"]
)
def test_so_is_a_relative_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "app.log").write_bytes(b"one\n")
    (file,) = list_files(resolve(path.format(tmp_path.name), {}), set())
    assert file.path == f"{tmp_path}/logs/app.log"
