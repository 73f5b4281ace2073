"""Hudi's markers: every data file that can ever appear is announced before it is opened.

::

    .hoodie/.temp/<instant>/<folder>/<file>.marker.CREATE    put before <folder>/<file> is opened

So the possible files of an instant are known without listing the table, even if tasks died or are still writing.
Markers are deleted last: while one exists, a file may have to be deleted.

Two jobs may write one table, each with a timeline of its own, and their instants may have the same time. A file's id
identifies its job: the last group is derived from the job's key.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from timeline.epoch import EpochRef, Part, WrittenFile
from timeline.errors import StoreUnavailableError
from timeline.failpoints import reach
from timeline.stores.base import ObjectInfo, ObjectStore, Retry
from timeline.units import count

TEMP_FOLDER = ".hoodie/.temp"
"""Folder of all markers, below a lake target's root."""

_SUFFIX = ".marker.CREATE"
_DELETED_AT_ONCE = 4000
_PAGE = 1000


def owner_of(app_id: str) -> str:
    """The last group of the ids of a job's files: 12 hex digits."""
    return hashlib.sha256(app_id.encode()).hexdigest()[:12]


def draw_file_id() -> str:
    """The first four groups of a new UUID, which distinguish a job's files."""
    return str(uuid.uuid4())[:-13]


DATA_FILE = re.compile(
    r"(?:.*/)?[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-(?P<owner>[0-9a-f]{12})-0_\d+-\d+-\d+_(?P<instant>\d{17})\.parquet"
)
"""Names of data files of any job."""


def is_of_another(path: str, app_id: str) -> bool:
    """Whether a data file's name has another job or timeline as owner; False for a file without owner (compacted)."""
    match = DATA_FILE.fullmatch(path)
    return match is not None and match["owner"] != owner_of(app_id)


def file_id(app_id: str, drawn: str) -> str:
    """A data file's id, a UUID: the drawn groups and the owner."""
    return f"{drawn}-{owner_of(app_id)}"


def marker_path(instant: str, path: str) -> str:
    """The marker of a data file."""
    return f"{TEMP_FOLDER}/{instant}/{path}{_SUFFIX}"


@dataclass(frozen=True)
class Markers:
    """One job's markers in one table. Picklable if its store is.

    Attributes:
        store: the table's folder.
        app_id: the job's key; markers of other jobs are left alone.
        retry: bounds of every call.
        on_deleted: callback with number and bytes of deleted data files; None if nobody counts them: then no sizes are
            requested.
        already_cleaned: instants that this process has not released yet, but whose unreported files it has deleted:
            their release skips the listing.
    """

    store: ObjectStore
    app_id: str
    retry: Retry = field(default_factory=Retry)
    on_deleted: Callable[[int, int], None] | None = field(default=None, compare=False, repr=False)
    already_cleaned: set[str] = field(default_factory=set, compare=False)

    def announce(self, instant: str, path: str) -> None:
        """Put a data file's marker; the file may be opened once this has returned."""
        self.retry.call(partial(self.store.put, marker_path(instant, path), b""))
        reach("file-announced")

    def announced(self, instant: str) -> list[str]:
        """Paths of all data files that this job's tasks have announced for an instant, sorted."""
        folder = f"{TEMP_FOLDER}/{instant}"
        return [path for _, path in self._own(self.retry.call(partial(self.store.list, folder, recursive=True)))]

    def instants(self) -> list[str]:
        """Times of instants that still have markers of this job, sorted."""
        found: set[str] = set()
        after = ""
        while True:
            listing = partial(self.store.list, TEMP_FOLDER, recursive=True, after=after, limit=_PAGE)
            page = self.retry.call(listing)
            found |= {instant for instant, _ in self._own(page)}
            if len(page) < _PAGE:
                return sorted(found)
            last = page[-1].path
            instant = _instant_of(last)
            if last <= after:
                raise StoreUnavailableError(
                    f"{self.store.url}/{TEMP_FOLDER} cannot be listed: behind {after!r} it lists what is before"
                )
            # One marker of an instant is enough: its others are skipped ("0" sorts right behind "/").
            after = f"{TEMP_FOLDER}/{instant}0" if instant in found else last

    def damaged(self, files: Iterable[WrittenFile]) -> list[str]:
        """Damage of prepared files, human-readable: missing files and files of another size."""
        files = list(files)
        sizes = self.retry.call(partial(self.store.sizes, [file.path for file in files]))
        found: list[str] = []
        for file in files:
            size = sizes.get(file.path)
            if size is None:
                found.append(f"{file.path} is missing")
            elif size != file.size:
                found.append(f"{file.path} has {count(size, 'byte')}, expected {file.size}")
        return found

    def delete_unreported(self, instant: str, reported: Iterable[str]) -> Sequence[str]:
        """Delete files of lost attempts and speculative copies: announced, but in no report. Markers stay."""
        lost = self._unreported(instant, reported)
        self.delete_files(lost)
        self.already_cleaned.add(instant)
        return lost

    def abort(self, epoch: EpochRef, part: Part | None) -> Sequence[str]:
        """Delete every file that an epoch has announced or prepared; returns their paths. See `sinks.base.Sink`.

        A task that is still writing a file fails when it closes the file. A part that replays lost epochs also names
        files of those epochs, with their instants in the name: these stay.
        """
        self.retry.call(self.store.remove_stale_uploads)
        prepared = [file.path for file in part.files if epoch.instant in file.path] if part else []
        paths = sorted({*self.announced(epoch.instant), *prepared})
        self.delete_files(paths)
        self.already_cleaned.add(epoch.instant)
        return paths

    def release(self, epoch: EpochRef, part: Part | None, *, final: bool) -> None:
        """Delete late files, then the markers that are no longer needed. See `sinks.base.Sink`."""
        reported = [file.path for file in part.files] if part else []
        is_already_cleaned = epoch.instant in self.already_cleaned and not final
        self.already_cleaned.discard(epoch.instant)
        lost = [] if is_already_cleaned else self._unreported(epoch.instant, reported)
        if lost:
            self.retry.call(partial(self.store.abandon, lost))
            # Usually there is none: preparing or rolling back the epoch has deleted them.
            late = self.retry.call(partial(self.store.sizes, lost))
            self._delete_counted([*late], late)
        self._delete([marker_path(epoch.instant, path) for path in [*reported, *(lost if final else ())]])

    def delete_files(self, paths: Sequence[str]) -> None:
        """Delete data files that must not become visible, finished or not.

        Uploads are abandoned first: an upload that is closed later would create its file again.
        """
        if paths:
            self.retry.call(partial(self.store.abandon, paths))
            self._delete_counted(
                paths, {} if self.on_deleted is None else self.retry.call(partial(self.store.sizes, paths))
            )

    def _delete_counted(self, paths: Sequence[str], sizes: Mapping[str, int]) -> None:
        # In pieces, so that files deleted before an error are counted.
        for first in range(0, len(paths), _DELETED_AT_ONCE):
            some = paths[first : first + _DELETED_AT_ONCE]
            self._delete(some)
            gone = [sizes[path] for path in some if path in sizes]
            if gone and self.on_deleted is not None:
                self.on_deleted(len(gone), sum(gone))

    def _unreported(self, instant: str, reported: Iterable[str]) -> list[str]:
        keep = set(reported)
        return [path for path in self.announced(instant) if path not in keep]

    def _delete(self, paths: Sequence[str]) -> None:
        if paths:
            self.retry.call(partial(self.store.delete, paths))

    def _own(self, listed: Iterable[ObjectInfo]) -> Iterator[tuple[str, str]]:
        """Instant and data file of each of these markers that belongs to this job."""
        mine = f"{owner_of(self.app_id)}-0"
        for info in listed:
            instant = _instant_of(info.path)
            rest = info.path[len(TEMP_FOLDER) + len(instant) + 2 :]
            path = rest.removesuffix(_SUFFIX)
            if path != rest and path.rpartition("/")[2].partition("_")[0].endswith(mine):
                yield instant, path


def _instant_of(marker: str) -> str:
    return marker[len(TEMP_FOLDER) + 1 :].partition("/")[0]
