"""Match of known shards to listed files: the same file, a file that a rotation made of it, or none.

::

    at its path, same identity, no reused inode ────────────────→ the shard's file
    identity found elsewhere, same content ─────────────────────→ the shard's file, renamed; or another one with its
                                                                  inode: see `ingest.sources.files.renamed`
    another file at its path, same content ─────────────────────→ the shard's file, rewritten; or a new log with
                                                                  equal lines: see `ingest.sources.files.rewritten`
    a file without a shard, same content ───────────────────────→ the shard's file, compressed, unpacked, copied or
                                                                  moved: see `ingest.sources.files.rotated`
    ... none of these, and its path, with a rotation's number, is
        that of another file now ───────────────────────────────→ missing
    ... none of these, and its path has other content ──────────→ torn: the job stops, or continues without the rest
    ... none of these, and its path is not listed ──────────────→ missing: see `ingest.sources.files.vanished`

Content is the same where the first bytes and those before the offset are. A longer file at its path with its
identity was appended to: only the bytes before the offset are compared, when it is read.

A listed file that belongs to no shard is a new shard, named by its path below the source's root; a name in use gets
``#2``, ``#3``, ...
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from ingest.sources.files.alike import Lookalike, MatchReason
from ingest.sources.files.contents import Contents, DecompressedContent, tail_span
from ingest.sources.files.copies import Copied, without_copies
from ingest.sources.files.file_position import Copy, FilePosition
from ingest.sources.files.listing import FileInfo, Location, is_local
from ingest.sources.files.names import log_name, packed_names
from ingest.sources.files.renamed import IdentityMatch, found_by_identity, keeps_time
from ingest.sources.files.rewritten import RewriteMatch, Rewrites, Rewritten, is_later_copy, reuses_inode
from ingest.sources.files.rotated import CopyOf, Doubtful, Follows, KnownShard, Misplaced, Rotations, Unpacked, Waits
from timeline.epoch import Position
from timeline.errors import SourceChangedError
from timeline.units import count


@dataclass(frozen=True)
class ShardFile:
    """A shard and its current file.

    Attributes:
        shard: its stable name.
        file: the file.
        offset: first byte that is not committed yet.
        place: the file part of the shard's position; None for a new shard.
        checked: the content needs no further comparison.
        archive: compression of a file whose decompressed bytes continue the shard; None otherwise.
        content: summary of that file's content; None where it has no new bytes.
        copies: files that are copies of this one.
        is_to_keep: its path must be on the timeline before the file changes: later no evidence of it is left.
    """

    shard: str
    file: FileInfo
    offset: int = 0
    place: FilePosition | None = None
    checked: bool = False
    archive: str | None = None
    content: DecompressedContent | None = None
    copies: tuple[Copy, ...] = ()
    is_to_keep: bool = False

    @property
    def end(self) -> int:
        """The offset after the last byte of the file."""
        if self.archive is None:
            return self.file.size
        return self.offset if self.content is None else self.content.size

    @property
    def unchanged(self) -> bool:
        """Whether the file ends at the offset, and its content was checked."""
        return self.checked and self.end == self.offset

    @property
    def fresh_line(self) -> bool:
        """See `FilePosition`."""
        return self.place is not None and self.place.fresh_line

    @property
    def is_worth_a_position(self) -> bool:
        """Whether no byte is new, but a new position records the path, or spares the next start a comparison.

        A shard that is still recorded at its log's path would be taken for one whose file was replaced, once a
        rotation deletes its current file.
        """
        if self.place is None or not self.unchanged:
            return False
        if self.is_to_keep or (self.file.path != self.place.path and self.place.path not in self.file.names):
            return True
        return self.file.identity != self.place.identity or not set(self.copies) <= set(self.place.copies)


@dataclass(frozen=True)
class ReplacedFile:
    """A shard whose file was truncated or replaced, and whose content is in no other file.

    Attributes:
        shard: the shard's name.
        file: the file at its path now.
        position: its committed position.
        still_begins: the file still begins with the bytes read: reading it from its beginning would repeat them.
    """

    shard: str
    file: FileInfo
    position: Position
    still_begins: bool

    @property
    def found(self) -> str:
        """Change of the file, human-readable."""
        is_short = self.file.size < self.position.offset
        return f"is only {count(self.file.size, 'byte')} long" if is_short else "has other bytes before it"

    @property
    def error(self) -> SourceChangedError:
        """The error that stops the job."""
        told = (
            f"file {self.file.path} (shard {self.shard}) was read up to byte {self.position.offset} and now "
            f"{self.found} (size {self.file.size}): truncated or replaced. "
        )
        if self.still_begins:
            return SourceChangedError(
                f"{told}It still begins with what was read, so reading it anew would repeat that: put the read content "
                "back, or move the new file to a name of its own"
            )
        return SourceChangedError(
            f"{told}Only appended files can be continued; put the read content back, let path match the name that the "
            "old file was rotated or copied to (another path is another source: tideline run CONF --new-source, once), "
            "or set source.on_truncate: restart, which reads the new content from its beginning and records on the "
            "timeline that the rest of the old one is lost"
        )


@dataclass(frozen=True)
class Matched:
    """The listed files, matched to shards.

    Attributes:
        shards: every shard that has a file now, known and new ones, oldest file first.
        torn: shards whose files were truncated or replaced; the files at their paths belong to new shards.
        settles_in_s: seconds until archives that are being written can be compared; None where there are none.
        copied: copies that are not read, without those that positions record.
        taken: files that may be missing ones, on no evidence but equal content, or name and time.
        gone: positions of shards that have no file now and are not ended.
        rewritten: files that replaced others at their paths and begin with the same bytes.
    """

    shards: list[ShardFile]
    torn: list[ReplacedFile]
    settles_in_s: float | None = None
    copied: Sequence[Copied] = ()
    taken: Sequence[Lookalike] = ()
    gone: Mapping[str, FilePosition] = field(default_factory=dict)
    rewritten: Sequence[Rewritten] = ()


def known_paths(after: Mapping[str, Position]) -> set[str]:
    """Last known paths of files that records were read from."""
    return {str(position.detail.get("path")) for position in after.values()}


def match_shards(
    location: Location,
    files: Sequence[FileInfo],
    after: Mapping[str, Position],
    contents: Contents,
    now_s: float,
    misplaced: Collection[str] = (),
) -> Matched:
    """Match each listed file to a shard; reads nothing of files that are at their path with their identity.

    Args:
        location: the source's path.
        files: as listed.
        after: committed positions.
        contents: reads the files.
        now_s: seconds since 1970.
        misplaced: shards whose files, though at their paths with their identities, hold other bytes.

    Raises:
        SourceChangedError: the archive that a shard continues in breaks before the shard's offset.
    """
    denied = set(misplaced)
    while True:
        matching = _Matching(location, files, after, contents, denied)
        matching.place_known()
        waits, wrong = matching.follow_rotations(now_s)
        if wrong is None:
            return matching.result(waits, now_s)
        denied.add(wrong)


class _Matching:
    """State of one match of files and shards."""

    def __init__(
        self,
        location: Location,
        files: Sequence[FileInfo],
        after: Mapping[str, Position],
        contents: Contents,
        denied: Collection[str],
    ) -> None:
        self._location = location
        self._files = files
        self._by_path = {name: file for file in files for name in file.names or (file.path,)}
        self._by_identity = {file.identity: file for file in files if file.identity is not None}
        self._after = after
        self._places = {shard: FilePosition.of(position) for shard, position in after.items()}
        self._contents = contents
        self._denied = denied
        self._found: dict[str, ShardFile] = {}
        self._taken: set[str] = set()
        self._torn: dict[str, FileInfo] = {}
        self._copied: list[Copied] = []
        self._taken_for: list[Lookalike] = []
        self._rewritten: list[Rewritten] = []
        self._new: set[str] = set()
        self._names = set(after)

    def place_known(self) -> None:
        """Match every shard whose file is found by path or identity."""
        claims: dict[str, list[str]] = {}
        for shard, place in self._places.items():
            file = self._by_path.get(place.path)
            is_there = file is not None and file.identity == place.identity is not None
            if file is None or not is_there or place.is_ended or shard in self._denied:
                continue
            if not reuses_inode(file, place):
                claims.setdefault(file.path, []).append(shard)
        for path, shards in claims.items():
            # A file that was truncated in place is claimed by all shards that it held: the newest one first.
            for shard in sorted(shards, key=lambda each: -self._places[each].mtime_s):
                if self._assign(shard, self._by_path[path], may_be_longer=len(shards) == 1):
                    break
        left = [shard for shard, place in self._places.items() if shard not in self._found and not place.is_ended]
        for shard in left:
            file = self._by_identity.get(self._places[shard].identity or "")
            if file is not None and (file.path != self._places[shard].path or shard not in self._denied):
                self._assign_by_identity(shard, file)
        self._place_rewritten([shard for shard in left if shard not in self._found])

    def _assign_by_identity(self, shard: str, file: FileInfo) -> None:
        """Give a shard the file that has its identity, unless it is a new file that reuses the inode."""
        place, offset = self._places[shard], self._after[shard].offset
        is_there = place.path == file.path or place.path in file.names
        if is_there and reuses_inode(file, place):
            return
        found = IdentityMatch.RENAMED if is_there else found_by_identity(file, place, offset)
        if found.is_renamed:
            is_told = self._assign(shard, file) and found is IdentityMatch.TAKEN_FOR_RENAMED
        else:
            is_told = found is IdentityMatch.TAKEN_FOR_OTHER and self._has_content_of(shard, file)
        if is_told and offset:
            why = MatchReason.RENAMED if found.is_renamed else MatchReason.OTHER_TIME
            self._taken_for.append(Lookalike(file.path, file.state, place.path, offset, why))

    def _has_content_of(self, shard: str, file: FileInfo) -> bool:
        place = self._places[shard]
        return self._contents.holds(file, place, self._after[shard].offset, place.archive, from_head=True)

    def _place_rewritten(self, left: Sequence[str]) -> None:
        """Match shards to other files at their paths; at a local path only the last shard: old files do not return."""
        last_s: dict[str, float] = {}
        for place in self._places.values():
            last_s[place.path] = max(place.mtime_s, last_s.get(place.path, place.mtime_s))
        found: list[tuple[str, FileInfo]] = []
        for shard in left:
            place = self._places[shard]
            file = self._by_path.get(place.path)
            is_last = place.mtime_s == last_s[place.path]
            if file is not None and file.path not in self._taken and (is_last or not is_local(file)):
                found.append((shard, file))
        plain = [(file, shard) for shard, file in found if self._places[shard].archive is None]
        self._contents.fetch(
            span
            for file, shard in plain
            if file.size >= self._after[shard].offset
            for span in (tail_span(file, self._after[shard].offset), (file, 0, self._places[shard].head_bytes))
        )
        for shard, file in found:
            if keeps_time(file, self._places[shard]):
                self._assign(shard, file)
        found = [(shard, file) for shard, file in found if file.path not in self._taken]
        anew = self._judge_rewritten(found)
        for shard, file in found:
            kind, offset = anew[shard], self._after[shard].offset
            is_own = kind.is_own and self._assign(shard, file)
            if not kind.is_own:
                self._new.add(file.path)
            elif not is_own and file.path not in self._taken and not self._was_rotated(shard, file):
                self._torn[shard] = file
            if offset and (kind is RewriteMatch.TAKEN_FOR_NEW or (is_own and kind is RewriteMatch.TAKEN_FOR_OWN)):
                self._rewritten.append(Rewritten(file.path, offset, is_read=not is_own))

    def _judge_rewritten(self, found: Sequence[tuple[str, FileInfo]]) -> dict[str, RewriteMatch]:
        """Classify local files that hold the bytes read of the shard at their path; all others are `OWN`."""
        alike = {shard for shard, file in found if is_local(file) and self._has_content_of(shard, file)}
        anew = dict.fromkeys((shard for shard, _ in found), RewriteMatch.OWN)
        if not alike:
            return anew
        lost = [one for one in self._known() if one.shard not in self._found and not one.place.is_ended]
        free = [file for file in self._files if file.path not in self._taken]
        moved = [(one.place.path, one.file.path) for one in self._found.values() if one.place is not None]
        rewrites = Rewrites(self._contents, lost, free, moved)
        known = {one.shard: one for one in lost}
        return anew | {shard: rewrites.judge(known[shard], file) for shard, file in found if shard in alike}

    def _was_rotated(self, shard: str, file: FileInfo) -> bool:
        """Whether a file only took over a rotated log's number: the file that had it was deleted, not replaced.

        The inode proves nothing: the next file may reuse that of a deleted one.
        """
        place = self._places[shard]
        return is_local(file) and log_name(place.path).number is not None and not self._contents.begins_as(file, place)

    def _assign(self, shard: str, file: FileInfo, *, may_be_longer: bool = False) -> bool:
        """Give a shard its file, if the file holds the bytes that were read.

        Args:
            shard: the shard's name.
            file: found by path or identity.
            may_be_longer: a file that grew is accepted here, and compared when it is read.
        """
        if file.path in self._taken:
            return False
        place, offset = self._places[shard], self._after[shard].offset
        is_same_state = file.identity == place.identity is not None and file.mtime_s == place.mtime_s
        content: DecompressedContent | None = None
        checked = True
        if is_same_state and file.size == (offset if place.archive is None else place.archive_size):
            pass
        elif may_be_longer and place.archive is None and file.size > offset:
            checked = False
        elif not self._contents.holds(file, place, offset, place.archive, from_head=True):
            return False
        elif place.archive is not None:
            content = self._contents.archive(file, place.archive, [offset])
        self._put(ShardFile(shard, file, offset, place, checked, place.archive, content))
        return True

    def _put(self, file: ShardFile) -> None:
        """Give a shard its file."""
        self._found[file.shard] = file
        self._taken.add(file.file.path)

    def follow_rotations(self, now_s: float) -> tuple[float | None, str | None]:
        """Match shards that continue in files without a shard, and copies.

        Returns:
            Seconds until an archive that is being written is complete, or None; and a shard whose file turned out to
            hold other bytes, or None: with such a shard nothing else of this object counts.
        """
        unknown = [file for file in self._files if file.path not in self._taken]
        if not unknown or not self._places:
            return None, None
        copies = {copy: shard for shard, place in self._places.items() for copy in place.copies}
        rotations = Rotations(self._location, self._contents, self._known(), self._found, now_s)
        waits: list[float] = []
        ordered = sorted(unknown, key=lambda each: (self._contents.compression_of(each.path) is not None, each.path))
        # A plain file may be unpacked from an archive whose shard is known only after the archive was judged.
        again: list[FileInfo] = []
        for file in chain(ordered, again):
            compression = self._contents.compression_of(file.path)
            of = copies.get(file.state)
            is_known = of is not None and of in self._found
            found = CopyOf(of, is_dated=True) if of is not None and is_known else rotations.judge(file, compression)
            match found:
                case Follows(shard, archive, is_certain, is_dated, is_moved):
                    kind = compression if archive is not None else None
                    place, offset = self._places[shard], self._after[shard].offset
                    if offset and not (is_certain and (is_moved or self._is_certain(shard, file, archive))):
                        why = MatchReason.MOVED if is_moved else MatchReason.RENAMED
                        self._taken_for.append(Lookalike(file.path, file.state, place.path, offset, why, is_dated))
                    self._put(ShardFile(shard, file, offset, place, True, kind, archive, is_to_keep=is_moved))
                    self._torn.pop(shard, None)
                case Unpacked() if file.path not in self._new:
                    self._unpack(file, found)
                case Doubtful(shard, is_content_equal):
                    place, offset = self._places[shard], self._after[shard].offset
                    why = MatchReason.MAY_BE_MOVED if is_content_equal else MatchReason.MAY_BE_UNPACKED
                    self._taken_for.append(Lookalike(file.path, file.state, place.path, offset, why))
                case CopyOf(shard, is_dated):
                    self._taken.add(file.path)
                    own = self._found[shard]
                    if not is_known:
                        self._copied.append(Copied(file.path, own.file.path, is_dated, file.state))
                    self._found[shard] = replace(own, copies=(*own.copies, file.state))
                case Waits(left_s):
                    self._taken.add(file.path)
                    waits.append(left_s)
                case Misplaced(shard):
                    return None, shard
                case None:
                    # The log was read beyond its copy before it was truncated: the copy has no unread bytes.
                    if of is not None and self._content_size(file, compression) <= self._after[of].offset:
                        self._taken.add(file.path)
                    elif compression is None and file not in again and packed_names(file.path) & self._by_path.keys():
                        again.append(file)
        return min(waits, default=None), None

    def _is_certain(self, shard: str, file: FileInfo, archive: DecompressedContent | None) -> bool:
        """Whether a rotated file is the shard's, and not a later log with equal lines; see `is_later_copy`."""
        place, offset = self._places[shard], self._after[shard].offset
        own = self._by_path.get(place.path)
        is_truncated = own is not None and own.identity == place.identity and not reuses_inode(own, place)
        size = file.size if archive is None else archive.size
        return is_truncated or not is_later_copy(file, place, size - offset, is_packed=archive is not None)

    def _known(self) -> list[KnownShard]:
        return [
            KnownShard(shard, self._after[shard].offset, place, self._is_whole(place))
            for shard, place in self._places.items()
        ]

    def _unpack(self, file: FileInfo, found: Unpacked) -> None:
        """Begin a shard after the content of its archive."""
        shard = self._new_name(file)
        end = self._contents.read(file, found.size - 1, found.size)
        tail = self._contents.tail(file, found.size)
        place = FilePosition(file.path, file.identity, file.mtime_s, tail, fresh_line=end != b"\n")
        is_read = file.size == found.size
        self._found[shard] = ShardFile(shard, file, found.size, place, checked=True, is_to_keep=is_read)
        self._taken.add(file.path)
        of = self._found.get(found.shard)
        path = self._places[found.shard].path if of is None else of.file.path
        why = MatchReason.UNPACKED if found.is_compared else MatchReason.MUST_BE_UNPACKED
        self._taken_for.append(Lookalike(file.path, file.state, path, found.size, why))

    def _new_name(self, file: FileInfo) -> str:
        name = _free_name(self._location.name_of(file.path), self._names)
        self._names.add(name)
        return name

    def _content_size(self, file: FileInfo, compression: str | None) -> int:
        return file.size if compression is None else self._contents.archive(file, compression, ()).size

    def _is_whole(self, place: FilePosition) -> bool:
        return place.archive is None and self._contents.compression_of(place.path) is not None

    def result(self, settles_in_s: float | None, now_s: float) -> Matched:
        """All shards, with new ones for the remaining files."""
        new = [file for file in self._files if file.path not in self._taken]
        told = without_copies(self._contents, new, now_s)
        for file in new:
            if file.path in told.logs:
                shard = self._new_name(file)
                copies = tuple(copy.state for copy in told.logs[file.path])
                self._found[shard] = ShardFile(shard, file, checked=True, copies=copies)
        torn = [
            ReplacedFile(shard, file, self._after[shard], self._contents.begins_as(file, self._places[shard]))
            for shard, file in self._torn.items()
            if file.path not in self._taken
        ]
        shards = sorted(self._found.values(), key=lambda one: (one.file.mtime_s, one.file.path))
        waits = [*told.settles_in_s, *([] if settles_in_s is None else [settles_in_s])]
        gone = {
            shard: place
            for shard, place in self._places.items()
            if shard not in self._found and shard not in self._torn and not place.is_ended
        }
        rewritten = [one for one in self._rewritten if not one.is_read or one.path not in self._taken]
        taken = [one for one in self._taken_for if not one.why.is_read or one.path not in self._taken]
        copied = [*self._copied, *told.copied]
        return Matched(shards, torn, min(waits, default=None), copied, taken, gone, rewritten)


def _free_name(name: str, taken: set[str]) -> str:
    if name not in taken:
        return name
    number = 2
    while f"{name}#{number}" in taken:
        number += 1
    return f"{name}#{number}"
