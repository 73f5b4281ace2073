"""Plan of a `files` source: ranges beyond the committed positions, within an epoch's limits; reads tails only.

A range of a line format is bytes and may begin and end anywhere: a line belongs to the range in
which it starts. Bytes count up to the last line end; an unterminated last line counts, whole,
once its file has settled, and bytes appended later begin a new line. Compressed and Parquet files
count whole, once settled.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from fsspec import AbstractFileSystem

from ingest.sources.base import SourcePlan
from ingest.sources.decode.options import RecordFormat
from ingest.sources.files.alike import tell_of_copies, tell_of_taken
from ingest.sources.files.contents import Archives, Contents, end_span, tail_span
from ingest.sources.files.creation_times import creation_time_s
from ingest.sources.files.file_position import HEAD_BYTES, FilePosition
from ingest.sources.files.listing import FileInfo, Location, head_hash, list_files, read_bytes, tail_hash
from ingest.sources.files.lookup_retry import retry_lookup
from ingest.sources.files.options import FilesOptions
from ingest.sources.files.rewritten import tell_of_rewritten
from ingest.sources.files.shards import Matched, ReplacedFile, ShardFile, known_paths, match_shards
from ingest.sources.files.vanished import LoggedOnce, VanishedFile, tell_of_gone, tell_of_links, unread
from timeline.epoch import Json, OffsetRange, Position
from timeline.errors import SourceChangedError, SourceError
from timeline.holes import Hole, holes_json
from timeline.units import count

_FIRST_CHUNK = 4 * 1024
_LEAST_SAMPLE = 64 * 1024
_LARGEST_CHUNK = 8 * 1024 * 1024


@dataclass(frozen=True)
class ShardRange:
    """The bytes of one shard that count now, and the share that this epoch takes.

    Attributes:
        until: end of the epoch's share; the shard's offset where the share is empty.
        limit: end of the bytes that count.
        tail: hash of the bytes before `until`; "" where the share is empty.
        closed: the bytes before `until` are an unterminated line that was closed.
        settles_in_s: seconds until bytes that do not count yet will; None where there are none.
    """

    until: int
    limit: int
    tail: str = ""
    closed: bool = False
    settles_in_s: float | None = None


def plan_files(
    location: Location,
    options: FilesOptions,
    after: Mapping[str, Position],
    now_s: float,
    archives: Archives,
    told: LoggedOnce,
) -> SourcePlan:
    """The next epoch's ranges; see `Source.plan`.

    A file that is rotated between listing and reading appears changed; retries tell the two
    apart, and only the last one lets the job continue without lost content.

    Args:
        location: the source's path.
        options: the job's.
        after: committed positions.
        now_s: seconds since 1970.
        archives: cache that is kept across plans.
        told: messages already logged, kept across plans.
    """
    plan_once = partial(_plan_once, _Look(location, options, after, now_s, archives, told))
    try:
        return retry_lookup(
            partial(plan_once, restarts=False),
            partial(plan_once, restarts=options.on_truncate == "restart"),
            SourceChangedError,
            FileNotFoundError,
        )
    except FileNotFoundError as failure:
        raise SourceError(f"a file vanished while it was planned: {failure}; start again") from failure


def split_range(offsets: OffsetRange, most: int) -> list[OffsetRange]:
    """Cut a range into about even pieces of at most `most` bytes; compressed files stay whole.

    Parquet is cut too: a row group belongs to the piece in which it starts.
    """
    size = offsets.until - offsets.start
    pieces = -(-size // max(1, most))
    if pieces <= 1 or offsets.detail["compression"] is not None:
        return [offsets]
    cuts = [offsets.start + size * piece // pieces for piece in range(pieces + 1)]
    return [
        OffsetRange(
            offsets.shard,
            start,
            until,
            {
                **offsets.detail,
                "fresh_line": offsets.detail["fresh_line"] is True and start == offsets.start,
                "mtime": offsets.after.get("mtime", offsets.detail.get("mtime")),
            },
            offsets.after if until == offsets.until else {},
        )
        for start, until in itertools.pairwise(cuts)
    ]


@dataclass(frozen=True)
class _Look:
    """Inputs of one plan; see `plan_files`."""

    location: Location
    options: FilesOptions
    after: Mapping[str, Position]
    now_s: float
    archives: Archives
    told: LoggedOnce


def _plan_once(look: _Look, misplaced: frozenset[str] = frozenset(), *, restarts: bool) -> SourcePlan:
    location, options, after, now_s = look.location, look.options, look.after, look.now_s
    contents = Contents(location.fs, look.archives, options.compression_of)
    files = list_files(location, known_paths(after))
    look.archives.keep(files)
    matched, misplaced = _match(look, files, contents, misplaced)
    for torn in matched.torn:
        if torn.still_begins or not restarts:
            raise torn.error
    gone = _gone(look, files, matched)
    if gone and not restarts:
        raise gone[0].error
    ranges: list[OffsetRange] = []
    settles: list[float] = [] if matched.settles_in_s is None else [matched.settles_in_s]
    where = _where(location)
    behind = behind_shards = 0
    budget = options.max_bytes_per_epoch
    for one in matched.shards:
        whole, size = _is_whole(options, one), one.end - one.offset
        if size == 0:
            continue
        if budget <= 0 or len(ranges) >= options.max_files_per_epoch or (whole and ranges and size > budget):
            behind, behind_shards, budget = behind + size, behind_shards + 1, 0
            continue
        if not _is_its_file(contents, one, after):
            return _plan_once(look, misplaced | {one.shard}, restarts=restarts)
        share = (_whole_file if whole else _lines)(contents, one, options, now_s, budget)
        if share.settles_in_s is not None:
            settles.append(share.settles_in_s)
        if share.until > one.offset:
            offsets = _range(contents, one, options, share)
            ranges.append(replace(offsets, detail={**offsets.detail, **where}))
            budget -= share.until - one.offset
            if share.until < share.limit:
                behind, behind_shards = behind + share.limit - share.until, behind_shards + 1
    tell_of_copies(matched.copied, look.told)
    tell_of_taken(matched.taken, look.told)
    tell_of_rewritten(matched.rewritten, look.told)
    ranges += [lost_range(torn) for torn in matched.torn] + [_gone_range(one) for one in gone]
    moved = [one for one in matched.shards if one.is_worth_a_position]
    if ranges or _has_successor(moved, files) or any(one.is_to_keep for one in moved):
        ranges += [_moved(contents, one, options) for one in moved]
    return SourcePlan(tuple(ranges), behind, behind_shards, min(settles, default=None))


def _has_successor(moved: Sequence[ShardFile], files: Sequence[FileInfo]) -> bool:
    """Whether another file is at the recorded path of one of these shards.

    Once a rotation deletes the shard's own file, it would look replaced: an epoch without records stores its new path.
    """
    left = {one.place.path for one in moved if one.place is not None and one.place.path not in _names(one.file)}
    return bool(left) and any(name in left for file in files for name in _names(file))


def _names(file: FileInfo) -> tuple[str, ...]:
    return file.names or (file.path,)


def _gone(look: _Look, files: Sequence[FileInfo], matched: Matched) -> list[VanishedFile]:
    """Shards whose files are missing with unread bytes; without any, warns of other missing files and folders."""
    if not files and not look.after:
        tell_of_links(look.location, look.told)
    # Such a shard may continue in an archive that is being written.
    gone = unread(look.location, matched.gone, look.after) if matched.settles_in_s is None else []
    if not gone:
        tell_of_gone(look.location, files, matched.gone.values(), look.told)
    return gone


def _match(
    look: _Look, files: Sequence[FileInfo], contents: Contents, misplaced: frozenset[str]
) -> tuple[Matched, frozenset[str]]:
    """The shards' files, compared where this epoch is likely to read them; and shards whose files hold other bytes."""
    while True:
        matched = match_shards(look.location, files, look.after, contents, look.now_s, misplaced)
        likely = _likely(matched.shards, look.options)
        contents.fetch(span for one in likely for span in _spans(one, look.options))
        wrong = {one.shard for one in likely if not _is_its_file(contents, one, look.after)}
        if not wrong:
            return matched, misplaced
        misplaced |= wrong


def _is_its_file(contents: Contents, one: ShardFile, after: Mapping[str, Position]) -> bool:
    """Whether a file that grew still has the bytes before the offset; read once."""
    return one.checked or contents.tail(one.file, one.offset) == after[one.shard].detail.get("tail")


def _likely(shards: Sequence[ShardFile], options: FilesOptions) -> list[ShardFile]:
    """Shards with new bytes that the next epoch may take, up to its limits."""
    found: list[ShardFile] = []
    budget = options.max_bytes_per_epoch
    for one in shards:
        if budget <= 0 or len(found) >= options.max_files_per_epoch:
            break
        if one.end > one.offset:
            found.append(one)
            budget -= one.end - one.offset
    return found


def _spans(one: ShardFile, options: FilesOptions) -> Iterator[tuple[FileInfo, int, int]]:
    """The spans of a file that planning reads."""
    yield (one.file, *end_span(one.file))
    if not one.checked:
        yield tail_span(one.file, one.offset)
    if _needs_head(one, options):
        yield one.file, 0, min(HEAD_BYTES, one.file.size)


def _is_whole(options: FilesOptions, one: ShardFile) -> bool:
    return options.format is RecordFormat.PARQUET or options.compression_of(one.file.path) is not None


def waits_for(one: ShardFile, options: FilesOptions, now_s: float) -> str:
    """The part of a file that does not count before it settles, human-readable; "" where none may. Reads no bytes.

    Args:
        one: the shard and its file.
        options: the job's.
        now_s: seconds since 1970.
    """
    left_s = _settles_in_s(one, options, now_s)
    if left_s is None or one.end <= one.offset:
        return ""
    what = "the whole file counts" if _is_whole(options, one) else "a last line without its end counts"
    return f"{what} once the file has not changed for close_after, {options.close_after:g} s: {left_s:.0f} s from now"


def _needs_head(one: ShardFile, options: FilesOptions) -> bool:
    """Whether the position after the next range hashes more of the file's first bytes than the position before it."""
    return not _is_whole(options, one) and (one.place is None or one.place.head_bytes < HEAD_BYTES)


def _settles_in_s(one: ShardFile, options: FilesOptions, now_s: float) -> float | None:
    """Seconds until a file has not changed for `close_after`, else None; a clock behind the store's waits longer."""
    left_s = options.close_after - (now_s - one.file.mtime_s)
    return left_s if left_s > 0 and options.close_after > 0 else None


def _whole_file(contents: Contents, one: ShardFile, options: FilesOptions, now_s: float, _budget: int) -> ShardRange:
    end = one.end
    if one.offset > 0 and one.content is None:
        raise SourceChangedError(
            f"file {one.file.path} (shard {one.shard}) was read whole at {count(one.offset, 'byte')} and now has "
            f"{end}: a compressed or Parquet file cannot be continued. Write new records to a new file; "
            "raise close_after if the file is written for longer"
        )
    settles_in_s = _settles_in_s(one, options, now_s)
    if settles_in_s is not None:
        return ShardRange(one.offset, one.offset, settles_in_s=settles_in_s)
    if one.content is None:
        return ShardRange(end, end, tail_hash(contents.end_of(one.file)))
    return ShardRange(end, end, tail_hash(one.content.end), closed=not one.content.end.endswith(b"\n"))


def _lines(contents: Contents, one: ShardFile, options: FilesOptions, now_s: float, budget: int) -> ShardRange:
    fs, size = contents.fs, one.file.size
    wanted = min(size, one.offset + budget)
    end = contents.end_of(one.file)
    terminated = end.endswith(b"\n")
    settles_in_s = None if terminated else _settles_in_s(one, options, now_s)
    if wanted == size and settles_in_s is None:
        return ShardRange(size, size, tail_hash(end), closed=not terminated)
    complete_until = size if terminated else _last_line_end(fs, one.file.path, one.offset, size)
    limit = size if settles_in_s is None else complete_until
    # A closed unterminated line is never cut: bytes appended later are not part of it.
    until = wanted if wanted <= complete_until else limit
    tail = contents.tail(one.file, until) if until > one.offset else ""
    return ShardRange(until, limit, tail, until > complete_until, settles_in_s)


def _last_line_end(fs: AbstractFileSystem, path: str, start: int, until: int) -> int:
    """The offset after the last line end in ``[start, until)``, found backwards in bounded chunks; else `start`."""
    chunk = _FIRST_CHUNK
    while until > start:
        begin = max(start, until - chunk)
        place = read_bytes(fs, path, begin, until).rfind(b"\n")
        if place >= 0:
            return begin + place + 1
        until, chunk = begin, min(chunk * 8, _LARGEST_CHUNK)
    return start


def _range(contents: Contents, one: ShardFile, options: FilesOptions, share: ShardRange) -> OffsetRange:
    place = _place(contents, one, options, share.until)
    place = replace(place, tail=share.tail, fresh_line=share.closed, has_more=share.until < one.end)
    detail: dict[str, Json] = {
        "path": one.file.path,
        "id": one.file.identity,
        "tail": share.tail,
        "tail_at": share.until,
        "limit": share.limit,
        "fresh_line": one.fresh_line,
        "compression": options.compression_of(one.file.path),
    }
    if one.archive is not None:
        # The offsets count decompressed bytes; the file itself is found by its own size and last bytes.
        detail |= {"archive_size": one.file.size, "archive_tail": contents.tail(one.file, one.file.size)}
    return OffsetRange(one.shard, one.offset, share.until, detail, place.to_json())


def _where(location: Location) -> dict[str, Json]:
    """Where a task searches for a file that was moved to another folder after planning."""
    if location.single is not None:
        return {}
    where: dict[str, Json] = {"root": location.root}
    return where if location.glob is None else where | {"glob": location.glob}


def _moved(contents: Contents, one: ShardFile, options: FilesOptions) -> OffsetRange:
    """Empty range that records the new path of a rotated shard, so that no later start compares its content."""
    place = _place(contents, one, options, one.offset)
    return OffsetRange(one.shard, one.offset, one.offset, {"compression": None}, place.to_json())


def lost_range(torn: ReplacedFile) -> OffsetRange:
    """Empty range that ends a shard whose file was truncated or replaced, perhaps before it was read to its end."""
    hole = Hole(torn.position.offset, None, f"{torn.file.path} {torn.found}: truncated or replaced")
    place = replace(FilePosition.of(torn.position), is_ended=True)
    offset = torn.position.offset
    return OffsetRange(torn.shard, offset, offset, {"compression": None}, place.to_json() | holes_json([hole]))


def _gone_range(gone: VanishedFile) -> OffsetRange:
    """Empty range with a hole for the rest of a missing file; if the file comes back, its shard continues."""
    offset = gone.position.offset
    place = replace(FilePosition.of(gone.position), has_more=False)
    hole = Hole(offset, None, gone.found)
    return OffsetRange(gone.shard, offset, offset, {"compression": None}, place.to_json() | holes_json([hole]))


def _place(contents: Contents, one: ShardFile, options: FilesOptions, until: int) -> FilePosition:
    """The file position after a range; its tail is that of the position before."""
    old = one.place or FilePosition("", None, 0.0, "")
    created_s = creation_time_s(one.file)
    if created_s is None and old.identity == one.file.identity:  # the file is being renamed
        created_s = old.created_s
    head, head_bytes = old.head, old.head_bytes
    if _needs_head(one, options) and until > head_bytes:
        head_bytes = min(HEAD_BYTES, until)
        head = head_hash(contents.read(one.file, 0, min(HEAD_BYTES, one.file.size))[:head_bytes])
    return FilePosition(
        one.file.path,
        one.file.identity,
        one.file.mtime_s,
        old.tail,
        old.fresh_line,
        head,
        head_bytes,
        one.archive,
        one.file.size if one.archive is not None else 0,
        one.copies,
        created_s=created_s,
    )


def first_bytes(ranges: Sequence[OffsetRange], most: int) -> list[OffsetRange]:
    """The beginning of a plan: ranges cut so that about `most` bytes are read in all."""
    sample: list[OffsetRange] = []
    for offsets in ranges:
        if most <= 0:
            break
        until = min(offsets.until, offsets.start + max(most, _LEAST_SAMPLE))
        sample.append(replace(offsets, until=until) if offsets.detail["compression"] is None else offsets)
        most -= until - offsets.start
    return sample
