"""Which listed file each known shard is now: the same one, one renamed by a rotation, or none any more.

::

    at its path, same identity ─────────────────────────────────→ the shard's file
    identity found elsewhere, same bytes before the offset ─────→ the shard's file, renamed
    another identity at its path, same bytes before the offset ─→ the shard's file, written anew and longer
    ... other bytes, or shorter than what was read ─────────────→ SourceChangedError
    neither path nor identity listed ───────────────────────────→ gone: nothing to read, no error

What is listed and belongs to no shard is a new shard, named by its path below the source's root; a
name that is taken gets ``#2``, ``#3``, ...
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fsspec import AbstractFileSystem

from ingest.sources.files.listing import FileInfo, Location, tail_before
from timeline.epoch import Json, Position
from timeline.errors import SourceChangedError


@dataclass(frozen=True)
class Place:
    """How far a file was read, and what tells that it is still the same file.

    Attributes:
        path: where the file was.
        identity: see `FileInfo`.
        mtime_s: its last change when the position was planned.
        tail: hash of the bytes before the offset.
        fresh_line: the bytes at the offset begin a line even though no line end stands before them, because
            an unterminated last line was closed there.
    """

    path: str
    identity: str | None
    mtime_s: float
    tail: str
    fresh_line: bool = False

    def to_json(self) -> dict[str, Json]:
        """As it stands in `Position.detail`."""
        return {
            "path": self.path,
            "id": self.identity,
            "mtime": self.mtime_s,
            "tail": self.tail,
            "fresh_line": self.fresh_line,
        }

    @staticmethod
    def of(detail: Mapping[str, Json]) -> Place:
        """Read back from `Position.detail`."""
        identity = detail.get("id")
        mtime = detail.get("mtime")
        return Place(
            str(detail["path"]),
            str(identity) if identity is not None else None,
            float(mtime) if isinstance(mtime, int | float) else 0.0,
            str(detail["tail"]),
            detail.get("fresh_line") is True,
        )


@dataclass(frozen=True)
class ShardFile:
    """A shard and the file that holds it now.

    Attributes:
        shard: its stable name.
        file: the file.
        offset: first byte that is not committed yet.
        fresh_line: see `Place`.
        unchanged: identity, size and time say that there is nothing new.
        checked: the bytes before the offset were compared already.
    """

    shard: str
    file: FileInfo
    offset: int = 0
    fresh_line: bool = False
    unchanged: bool = False
    checked: bool = False


def known_paths(after: Mapping[str, Position]) -> set[str]:
    """Where files were that records were read from."""
    return {Place.of(position.detail).path for position in after.values()}


def match_shards(location: Location, files: Sequence[FileInfo], after: Mapping[str, Position]) -> list[ShardFile]:
    """Every shard that has a file now, known and new ones, oldest file first.

    Reads nothing of files that are at their path with their identity.

    Raises:
        SourceChangedError: a shard's file shrank, or holds other bytes than were read.
    """
    by_path = {name: file for file in files for name in file.names or (file.path,)}
    by_identity = {file.identity: file for file in files if file.identity is not None}
    places = {shard: Place.of(position.detail) for shard, position in after.items()}
    found: dict[str, ShardFile] = {}
    taken: set[str] = set()

    def assign(shard: str, file: FileInfo, *, checked: bool) -> None:
        found[shard] = _known(shard, file, after[shard], places[shard], checked=checked)
        taken.add(file.path)

    elsewhere: list[str] = []
    for shard, place in places.items():
        file = by_path.get(place.path)
        if file is not None and file.identity == place.identity is not None:
            assign(shard, file, checked=False)
        else:
            elsewhere.append(shard)
    still: list[str] = []
    for shard in elsewhere:
        file = by_identity.get(places[shard].identity or "")
        if file is not None and file.path not in taken and _same(location.fs, file, after[shard], places[shard]):
            assign(shard, file, checked=True)
        else:
            still.append(shard)
    for shard in still:
        file = by_path.get(places[shard].path)
        if file is not None and file.path not in taken:
            require_same(location.fs, shard, file, after[shard])
            assign(shard, file, checked=True)
    names = set(after)
    for file in files:
        if file.path not in taken:
            shard = _free_name(location.name_of(file.path), names)
            names.add(shard)
            found[shard] = ShardFile(shard, file, checked=True)
    return sorted(found.values(), key=lambda one: (one.file.mtime_s, one.file.path))


def require_same(fs: AbstractFileSystem, shard: str, file: FileInfo, position: Position) -> None:
    """Check that a file still begins with what was read of it, by the bytes before the offset.

    Raises:
        SourceChangedError: it does not.
    """
    found = "has other bytes before it"
    if file.size < position.offset:
        found = f"is only {file.size} bytes long"
    elif tail_before(fs, file.path, position.offset) == Place.of(position.detail).tail:
        return
    raise SourceChangedError(
        f"file {file.path} (shard {shard}) was read up to byte {position.offset} and now {found} (size {file.size}): "
        "truncated or replaced. Only appended files can be continued; put the read content back, let path match the "
        "name that the old file was rotated to, or move the new file to a name of its own"
    )


def _known(shard: str, file: FileInfo, position: Position, place: Place, *, checked: bool) -> ShardFile:
    same_time = file.mtime_s == place.mtime_s and file.identity == place.identity
    return ShardFile(
        shard,
        file,
        position.offset,
        place.fresh_line,
        unchanged=file.size == position.offset and (same_time or checked),
        checked=checked,
    )


def _same(fs: AbstractFileSystem, file: FileInfo, position: Position, place: Place) -> bool:
    if file.size == position.offset and file.mtime_s == place.mtime_s:
        return True
    return file.size >= position.offset and tail_before(fs, file.path, position.offset) == place.tail


def _free_name(name: str, taken: set[str]) -> str:
    if name not in taken:
        return name
    number = 2
    while f"{name}#{number}" in taken:
        number += 1
    return f"{name}#{number}"
