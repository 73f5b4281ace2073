"""What the files have beyond the committed positions, within an epoch's limits; reads tails only.

A range of a line format is bytes and may begin and end anywhere: a line belongs to the range in
which it starts. Bytes count as far as the last line end; an unterminated last
line counts, whole, once its file has settled, and whatever is appended later is a line of its own.
Compressed and Parquet files count whole, once settled.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from fsspec import AbstractFileSystem

from ingest.sources.base import SourcePlan
from ingest.sources.decode.options import RecordFormat
from ingest.sources.files.listing import (
    TAIL_BYTES,
    FileInfo,
    Location,
    list_files,
    read_bytes,
    tail_before,
    tail_hash,
)
from ingest.sources.files.options import FilesOptions
from ingest.sources.files.shards import Place, ShardFile, known_paths, match_shards, require_same
from timeline.epoch import Json, OffsetRange, Position
from timeline.errors import SourceChangedError, SourceError

_FIRST_CHUNK = 4 * 1024
_LEAST_SAMPLE = 64 * 1024
_LARGEST_CHUNK = 8 * 1024 * 1024


@dataclass(frozen=True)
class Share:
    """What of one shard counts now, and how much of it this epoch takes.

    Attributes:
        until: end of what the epoch takes; the shard's offset where that is nothing.
        limit: end of all that counts.
        tail: hash of the bytes before `until`; empty where nothing is taken.
        closed: the bytes before `until` are an unterminated line that was closed.
        settles_in_s: when something that does not count yet will; None where there is nothing.
    """

    until: int
    limit: int
    tail: str = ""
    closed: bool = False
    settles_in_s: float | None = None


def plan_files(location: Location, options: FilesOptions, after: Mapping[str, Position], now_s: float) -> SourcePlan:
    """The next epoch's ranges; see `Source.plan`.

    A file that is rotated between being listed and being looked into reads as changed; a second
    look tells the two apart.
    """
    try:
        return _plan_once(location, options, after, now_s)
    except (SourceChangedError, FileNotFoundError):
        pass
    try:
        return _plan_once(location, options, after, now_s)
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


def _plan_once(location: Location, options: FilesOptions, after: Mapping[str, Position], now_s: float) -> SourcePlan:
    files = list_files(location, known_paths(after))
    ranges: list[OffsetRange] = []
    settles: list[float] = []
    behind = behind_shards = 0
    budget = options.max_bytes_per_epoch
    shards = match_shards(location, files, after)
    tails = _Tails(location.fs, _likely(shards, options))
    for one in shards:
        if one.unchanged or one.file.size == 0 == one.offset:
            continue
        if one.file.size < one.offset:
            require_same(location.fs, one.shard, one.file, after[one.shard])
        whole = _is_whole(options, one)
        size = one.file.size - one.offset
        if size == 0:
            require_same(location.fs, one.shard, one.file, after[one.shard])
            continue
        if budget <= 0 or len(ranges) >= options.max_files_per_epoch or (whole and ranges and size > budget):
            behind, behind_shards, budget = behind + size, behind_shards + 1, 0
            continue
        if not one.checked:
            require_same(location.fs, one.shard, one.file, after[one.shard])
        share = (_whole_file if whole else _lines)(tails, one, options, now_s, budget)
        if share.settles_in_s is not None:
            settles.append(share.settles_in_s)
        if share.until > one.offset:
            ranges.append(_range(one, options, share))
            budget -= share.until - one.offset
            if share.until < share.limit:
                behind, behind_shards = behind + share.limit - share.until, behind_shards + 1
    return SourcePlan(tuple(ranges), behind, behind_shards, min(settles, default=None))


def _likely(shards: Sequence[ShardFile], options: FilesOptions) -> list[FileInfo]:
    """The files that the next epoch will most likely take from: those that have something new, up to its limits."""
    files: list[FileInfo] = []
    budget = options.max_bytes_per_epoch
    for one in shards:
        if budget <= 0 or len(files) >= options.max_files_per_epoch:
            break
        if not one.unchanged and one.file.size > one.offset:
            files.append(one.file)
            budget -= one.file.size - one.offset
    return files


class _Tails:
    """The last bytes of files, fetched ahead side by side: an object store answers one by one a hundred times slower.

    Attributes:
        fs: the store.
    """

    def __init__(self, fs: AbstractFileSystem, ahead: Sequence[FileInfo]) -> None:
        self.fs = fs
        starts = [max(0, file.size - TAIL_BYTES) for file in ahead]
        found = fs.cat_ranges([file.path for file in ahead], starts, [file.size for file in ahead], on_error="return")
        # What could not be fetched is asked for again when it is needed, and says then what is wrong.
        self._fetched = {file: tail for file, tail in zip(ahead, found, strict=True) if isinstance(tail, bytes)}

    def of(self, file: FileInfo) -> bytes:
        """The file's last bytes."""
        tail = self._fetched.get(file)
        return read_bytes(self.fs, file.path, max(0, file.size - TAIL_BYTES), file.size) if tail is None else tail


def _is_whole(options: FilesOptions, one: ShardFile) -> bool:
    return options.format is RecordFormat.PARQUET or options.compression_of(one.file.path) is not None


def waits_for(one: ShardFile, options: FilesOptions, now_s: float) -> str:
    """What of a file does not count before it has settled, for people; "" where nothing may. No byte of it is read."""
    left_s = _settles_in_s(one, options, now_s)
    if left_s is None or one.file.size <= one.offset:
        return ""
    what = "the whole file counts" if _is_whole(options, one) else "a last line without its end counts"
    return f"{what} once the file has not changed for close_after, {options.close_after:g} s: {left_s:.0f} s from now"


def _settles_in_s(one: ShardFile, options: FilesOptions, now_s: float) -> float | None:
    """None once the file has not changed for `close_after`; a clock that is behind the store's only waits longer."""
    left_s = options.close_after - (now_s - one.file.mtime_s)
    return left_s if left_s > 0 and options.close_after > 0 else None


def _whole_file(tails: _Tails, one: ShardFile, options: FilesOptions, now_s: float, _budget: int) -> Share:
    size = one.file.size
    if one.offset > 0:
        raise SourceChangedError(
            f"file {one.file.path} (shard {one.shard}) was read whole at {one.offset} bytes and now has "
            f"{size}: a compressed or Parquet file cannot be continued. Write new records to a new file; "
            "raise close_after if the file is written for longer"
        )
    settles_in_s = _settles_in_s(one, options, now_s)
    if settles_in_s is not None:
        return Share(0, 0, settles_in_s=settles_in_s)
    return Share(size, size, tail_hash(tails.of(one.file)))


def _lines(tails: _Tails, one: ShardFile, options: FilesOptions, now_s: float, budget: int) -> Share:
    fs, size = tails.fs, one.file.size
    wanted = min(size, one.offset + budget)
    end = tails.of(one.file)
    terminated = end.endswith(b"\n")
    settles_in_s = None if terminated else _settles_in_s(one, options, now_s)
    if wanted == size and settles_in_s is None:
        return Share(size, size, tail_hash(end), closed=not terminated)
    complete_until = size if terminated else _last_line_end(fs, one.file.path, one.offset, size)
    limit = size if settles_in_s is None else complete_until
    # A closed unterminated line is never cut: what is appended later is not part of it.
    until = wanted if wanted <= complete_until else limit
    tail = tail_before(fs, one.file.path, until) if until > one.offset else ""
    return Share(until, limit, tail, until > complete_until, settles_in_s)


def _last_line_end(fs: AbstractFileSystem, path: str, start: int, until: int) -> int:
    """The offset behind the last line end in ``[start, until)``, found backwards in bounded chunks; else `start`."""
    chunk = _FIRST_CHUNK
    while until > start:
        begin = max(start, until - chunk)
        place = read_bytes(fs, path, begin, until).rfind(b"\n")
        if place >= 0:
            return begin + place + 1
        until, chunk = begin, min(chunk * 8, _LARGEST_CHUNK)
    return start


def _range(one: ShardFile, options: FilesOptions, share: Share) -> OffsetRange:
    place = Place(one.file.path, one.file.identity, one.file.mtime_s, share.tail, fresh_line=share.closed)
    detail: dict[str, Json] = {
        "path": one.file.path,
        "id": one.file.identity,
        "tail": share.tail,
        "tail_at": share.until,
        "limit": share.limit,
        "fresh_line": one.fresh_line,
        "compression": options.compression_of(one.file.path),
    }
    return OffsetRange(one.shard, one.offset, share.until, detail, place.to_json())


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
