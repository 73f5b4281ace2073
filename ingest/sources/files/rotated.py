"""Whether a file without a shard is a log that was read before: compressed, copied or moved by a rotation.

::

    begins as a shard's file, which is missing or has other content
        and holds the same bytes before the shard's offset ──────────→ the shard continues in it
    begins as a shard's file, which still has its content
        and holds the whole content of this file too ────────────────→ a copy: nothing to read
    compressed, broken, and changed just now ────────────────────────→ being written: wait
    anything else ───────────────────────────────────────────────────→ a new file

    beside its archive, which was read, or in its place (``gunzip``, ``unzstd``):
        it begins with the whole content of the archive; or the
        archive, read compressed, is missing, and it has its time ───→ unpacked: begins after the archive's content
        it holds only the beginning of the archive's content ────────→ being written: wait; later a copy
        the archive, read compressed, is missing: another time ──────→ a new file, doubtful

Offsets of an archive that was read compressed count compressed bytes: the unpacked file is a new shard, whose first
position is after the archive's content. Where a rotation compressed a file that was read plain, its shard continues.

Contents are compared where the names allow it (`ingest.sources.files.names`); where a plain file of at least
4 KiB is missing and a compressed one begins alike; where a rotated file is missing and one of its name is in another
folder with its time, or is an object, whose time proves nothing; and where the source was moved
(`ingest.sources.files.moved`).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from ingest.sources.files.contents import Contents, DecompressedContent
from ingest.sources.files.copies import WRITTEN_FOR_S, tells_time
from ingest.sources.files.file_position import HEAD_BYTES, FilePosition
from ingest.sources.files.listing import FileInfo, Location, file_info, head_hash, is_local, tail_before, tail_hash
from ingest.sources.files.moved import MoveMatch, found_below_another_path, may_be_moved
from ingest.sources.files.names import base_name, is_unpacked, log_name, may_become
from ingest.sources.files.renamed import keeps_time
from timeline.errors import SourceChangedError

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class KnownShard:
    """A shard as recorded in its position.

    Attributes:
        shard: the shard's name.
        offset: how far the shard was read.
        place: the file part of the position.
        is_whole: offsets count compressed bytes, and the file was read whole.
    """

    shard: str
    offset: int
    place: FilePosition
    is_whole: bool


class CurrentFile(Protocol):
    """The current file of a shard."""

    @property
    def file(self) -> FileInfo:
        """The file."""

    @property
    def archive(self) -> str | None:
        """Its compression where the shard's offset counts decompressed bytes."""

    @property
    def checked(self) -> bool:
        """Whether its content was compared."""


@dataclass(frozen=True)
class Follows:
    """The shard continues in the file.

    Attributes:
        shard: the shard's name.
        archive: the file's content where it is compressed.
        is_certain: a rotation put the file into the folder of the shard's, or below; or it was moved with its time.
        is_dated: its lines carry date and time.
        is_moved: the source was moved.
    """

    shard: str
    archive: DecompressedContent | None
    is_certain: bool
    is_dated: bool
    is_moved: bool


@dataclass(frozen=True)
class CopyOf:
    """The shard's file holds the whole content of the file too; `is_dated`: its lines carry date and time."""

    shard: str
    is_dated: bool


@dataclass(frozen=True)
class Unpacked:
    """The file is a shard's archive, unpacked.

    Attributes:
        shard: the archive's shard.
        size: decompressed bytes of the archive, which were read or will be read from the archive.
        is_compared: their content was compared; else name and time decide.
    """

    shard: str
    size: int
    is_compared: bool


@dataclass(frozen=True)
class Doubtful:
    """A new file that may be a shard's; `is_content_equal`: it has the content, else only its archive's name."""

    shard: str
    is_content_equal: bool


@dataclass(frozen=True)
class Waits:
    """The file is being written."""

    settles_in_s: float


@dataclass(frozen=True)
class Misplaced:
    """The shard's own file does not hold the bytes read of it: match again, without that file."""

    shard: str


Verdict: TypeAlias = Follows | CopyOf | Unpacked | Doubtful | Waits | Misplaced | None
"""None: a new file."""


class Rotations:
    """Classifier of files without a shard."""

    def __init__(
        self,
        location: Location,
        contents: Contents,
        known: Sequence[KnownShard],
        held: Mapping[str, CurrentFile],
        now_s: float,
    ) -> None:
        """Index the shards; nothing is read.

        Args:
            location: the source's path.
            contents: reads files.
            known: every shard.
            held: current files by shard; changes while files are judged.
            now_s: seconds since 1970.
        """
        self._location = location
        self._contents = contents
        self._held = held
        self._now_s = now_s
        self._families: dict[str, list[KnownShard]] = {}
        self._gone: list[KnownShard] = []
        for one in sorted(known, key=lambda each: -each.place.mtime_s):
            self._families.setdefault(log_name(one.place.path).family, []).append(one)
            if one.shard not in held and not one.is_whole and one.place.head_bytes == HEAD_BYTES:
                self._gone.append(one)

    def judge(self, file: FileInfo, compression: str | None) -> Verdict:
        """Classify a file without a shard.

        Raises:
            SourceChangedError: a shard continues in the file, which breaks before that shard's offset.
        """
        near = self._near(file, compression)
        if not near or not file.size:
            return None
        verdict = self._compared(near, file, compression)
        if verdict is None and compression is None:
            verdict = self._unpacked(near, file)
        return verdict

    def _compared(self, near: Sequence[KnownShard], file: FileInfo, compression: str | None) -> Verdict:
        """Verdict by the file's content."""
        head = self._contents.head(file, compression)
        alike = [one for one in near if _begins(head, one) or (one.is_whole and one.offset == file.size)]
        archive = None
        if not alike:
            # Only its beginning may be written so far: then nothing can be decided yet.
            is_short = compression is not None and len(head) < HEAD_BYTES
            archive = self._contents.archive(file, compression, ()) if compression and is_short else None
            return self._waits(file) if archive is not None and archive.broken is not None else None
        if compression is not None:
            archive = self._contents.archive(file, compression, {one.offset for one in alike if not one.is_whole})
            if archive.broken is not None and (waits := self._waits(file)) is not None:
                return waits
        doubtful: Doubtful | None = None
        for one in alike:
            if one.shard not in self._held and self._goes_on(one, file, archive):
                is_dated = tells_time(head, self._end(file, archive))
                is_certain, is_moved = _is_near(one.place, file), may_be_moved(self._location, one.place, file)
                if is_moved:
                    found = found_below_another_path(
                        self._location, one.shard, one.place, one.offset, file, is_dated=is_dated
                    )
                    if found is MoveMatch.DOUBTFUL:
                        doubtful = doubtful or Doubtful(one.shard, is_content_equal=True)
                        continue
                    is_certain = found is MoveMatch.KNOWN
                if archive is not None and archive.broken is not None:
                    log.warning(
                        "%s breaks at byte %d, nothing behind can be read: %s", file.path, archive.size, archive.broken
                    )
                return Follows(one.shard, None if one.is_whole else archive, is_certain, is_dated, is_moved)
        for one in alike:
            if one.shard in self._held and not one.is_whole:
                verdict = self._copy(one, file, head, archive)
                if verdict is not None:
                    return verdict
        self._require_unbroken(alike, file, archive)
        return doubtful

    def _near(self, file: FileInfo, compression: str | None) -> list[KnownShard]:
        found: list[KnownShard] = []
        family = log_name(file.path).family
        for one in self._families.get(family, ()):
            holder = self._held.get(one.shard)
            before = one.place.path if holder is None else holder.file.path
            may_be_of = may_become(before, file.path) or is_unpacked(before, file.path)
            if may_be_of or (holder is None and self._may_be_moved(one.place, file)):
                found.append(one)
        if compression is not None:
            found += [one for one in self._gone if log_name(one.place.path).family != family]
        found += [
            one
            for one in self._families.get(family, ())
            if one.shard not in self._held and one not in found and _may_be_shifted(one.place, file)
        ]
        # Among logs with equal lines the modification time decides.
        return sorted(found, key=lambda one: not keeps_time(file, one.place))

    def _may_be_moved(self, place: FilePosition, file: FileInfo) -> bool:
        return may_be_moved(self._location, place, file) or _may_be_on_another_disk(place, file)

    def _unpacked(self, near: Sequence[KnownShard], file: FileInfo) -> Verdict:
        """Verdict on a plain file that may be unpacked from an archive that was read compressed."""
        doubtful: Doubtful | None = None
        for one in near:
            holder = self._held.get(one.shard)
            path = one.place.path if holder is None else holder.file.path
            if not one.is_whole or not is_unpacked(path, file.path):
                continue
            if holder is not None:
                kind = self._contents.compression_of(path)
                is_read = kind is not None and holder.file.size == one.offset
                verdict = self._of_archive(one.shard, holder.file, kind, file) if kind and is_read else None
                if verdict is not None:
                    return verdict
            elif is_local(file) and keeps_time(file, one.place):
                return Unpacked(one.shard, file.size, is_compared=False)
            else:
                doubtful = doubtful or Doubtful(one.shard, is_content_equal=False)
        return doubtful

    def _of_archive(self, shard: str, packed: FileInfo, compression: str, file: FileInfo) -> Verdict:
        """Verdict on a plain file beside an archive; reads the archive, and as much of the file."""
        size = self._contents.archive(packed, compression, ()).size
        compared = min(size, file.size)
        if not compared or not self._contents.begins_with(file, packed, compression, compared):
            return None
        if compared == size:
            return Unpacked(shard, size, is_compared=True)
        return self._waits(file) or CopyOf(shard, is_dated=True)

    def _goes_on(self, one: KnownShard, file: FileInfo, archive: DecompressedContent | None) -> bool:
        if one.is_whole:
            return file.size == one.offset and self._contents.tail(file, one.offset) == one.place.tail
        if archive is not None:
            return archive.tails.get(one.offset) == one.place.tail
        return file.size >= one.offset and self._contents.tail(file, one.offset) == one.place.tail

    def _end(self, file: FileInfo, archive: DecompressedContent | None) -> bytes:
        return self._contents.end_of(file) if archive is None else archive.end

    def _copy(self, one: KnownShard, file: FileInfo, head: bytes, archive: DecompressedContent | None) -> Verdict:
        """Verdict on a file whose content may be in the shard's own file, which must hold the bytes read of it."""
        contents, holder = self._contents, self._held[one.shard]
        if not holder.checked and not contents.holds(
            holder.file, one.place, one.offset, holder.archive, from_head=True
        ):
            return Misplaced(one.shard)
        if holder.archive is not None and is_unpacked(holder.file.path, file.path):
            return self._of_archive(one.shard, holder.file, holder.archive, file)
        size = file.size if archive is None else archive.size
        end = self._end(file, archive)
        copy = CopyOf(one.shard, tells_time(head, end))
        if holder.archive is not None:
            own = contents.archive(holder.file, holder.archive, ())
            return copy if (own.size, own.end) == (size, end) else None
        own_size = holder.file.size
        if own_size < size:  # it may have grown after its listing, before the copy
            own_size = file_info(contents.fs, holder.file.path).size
        is_copy = size <= own_size and tail_before(contents.fs, holder.file.path, size) == tail_hash(end)
        return copy if is_copy else None

    def _waits(self, file: FileInfo) -> Waits | None:
        left_s = WRITTEN_FOR_S - (self._now_s - file.mtime_s)
        return Waits(left_s) if left_s > 0 else None

    def _require_unbroken(
        self, alike: Sequence[KnownShard], file: FileInfo, archive: DecompressedContent | None
    ) -> None:
        if archive is None or archive.broken is None:
            return
        for one in alike:
            if one.shard not in self._held and one.place.head and one.offset > archive.size:
                raise SourceChangedError(
                    f"file {file.path} is what {one.place.path} (shard {one.shard}, read up to byte {one.offset}) was "
                    f"compressed to, and breaks at byte {archive.size}: {archive.broken}. Put a whole one there, or "
                    "move it away: what was not read of it is lost then"
                )


def _is_near(place: FilePosition, file: FileInfo) -> bool:
    """Whether a rotation can have made the file of the shard's, in its folder or below; or unpacking can."""
    if is_unpacked(place.path, file.path):
        return True
    folder, own = log_name(place.path).folder, log_name(file.path).folder
    is_near = may_become(place.path, file.path) and (own == folder or own.startswith(f"{folder}/"))
    return is_near or _may_be_shifted(place, file)


def _may_be_on_another_disk(place: FilePosition, file: FileInfo) -> bool:
    """Whether a missing rotated file may have been moved to a folder on another file system, as another file."""
    if base_name(place.path) != base_name(file.path) or not log_name(file.path).is_rotated:
        return False
    return keeps_time(file, place) or not is_local(file)


def _may_be_shifted(place: FilePosition, file: FileInfo) -> bool:
    """Whether a plain rotated file may have been copied with its time, to a new disk, and rotated again since."""
    one, other = log_name(place.path), log_name(file.path)
    return (
        (one.folder, one.family, one.date) == (other.folder, other.family, other.date)
        and not (one.is_compressed or other.is_compressed)
        and one.number is not None
        and other.number is not None
        and one.number < other.number
        and keeps_time(file, place)
    )


def _begins(head: bytes, one: KnownShard) -> bool:
    """Whether a file's first bytes are those of a shard; for positions of older versions only the tail decides."""
    place = one.place
    if one.is_whole or len(head) < place.head_bytes:
        return False
    return not place.head or head_hash(head[: place.head_bytes]) == place.head
