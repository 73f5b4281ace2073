"""Hudi's markers: every data file that can ever appear is announced before it is opened.

::

    .hoodie/.temp/<instant>/<folder>/<file>.marker.CREATE    put before <folder>/<file> is opened

So what an instant may have left is known without listing the table, whoever died or is still
writing. Markers go last: as long as one is there, something may have to be deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from timeline.epoch import WrittenFile
from timeline.failpoints import reach
from timeline.store import ObjectStore, Retry

TEMP_FOLDER = ".hoodie/.temp"
"""Folder of all markers, below a lake target's root."""

_SUFFIX = ".marker.CREATE"


def marker_path(instant: str, path: str) -> str:
    """The marker of a data file."""
    return f"{TEMP_FOLDER}/{instant}/{path}{_SUFFIX}"


def announce(store: ObjectStore, instant: str, path: str, retry: Retry) -> None:
    """Put a data file's marker; the file may be opened once this has returned."""
    retry.call(partial(store.put, marker_path(instant, path), b""))
    reach("file-announced")


def announced(store: ObjectStore, instant: str, retry: Retry) -> list[str]:
    """Paths of all data files that tasks of this instant have announced, sorted."""
    folder = f"{TEMP_FOLDER}/{instant}"
    listed = retry.call(partial(store.list, folder, recursive=True))
    return [info.path[len(folder) + 1 : -len(_SUFFIX)] for info in listed if info.path.endswith(_SUFFIX)]


def delete_files(store: ObjectStore, paths: Iterable[str], retry: Retry) -> None:
    """Delete data files; those that are gone already are no error."""
    for path in paths:
        retry.call(partial(store.delete, path))


def delete_unreported(store: ObjectStore, instant: str, reported: Iterable[str], retry: Retry) -> Sequence[str]:
    """Delete what lost attempts and speculative copies wrote: announced, but in no report. Markers stay."""
    keep = set(reported)
    lost = [path for path in announced(store, instant, retry) if path not in keep]
    delete_files(store, lost, retry)
    return lost


def drop_markers(store: ObjectStore, instant: str, paths: Iterable[str], retry: Retry) -> None:
    """Remove the markers of data files that are certainly closed; nobody looks for those files any more."""
    delete_files(store, [marker_path(instant, path) for path in paths], retry)


def instants_with_markers(store: ObjectStore, retry: Retry) -> list[str]:
    """Instant times of which markers are left, sorted."""
    listed = retry.call(partial(store.list, TEMP_FOLDER, recursive=True))
    return sorted({info.path[len(TEMP_FOLDER) + 1 :].partition("/")[0] for info in listed})


def damaged(store: ObjectStore, files: Iterable[WrittenFile], retry: Retry) -> list[str]:
    """What is wrong with prepared files, in words: those that are gone or have another size."""
    found: list[str] = []
    for file in files:
        size = retry.call(partial(store.size, file.path))
        if size is None:
            found.append(f"{file.path} is missing")
        elif size != file.size:
            found.append(f"{file.path} has {size} bytes, expected {file.size}")
    return found


def delete_all(store: ObjectStore, instant: str, files: Iterable[WrittenFile], retry: Retry) -> list[str]:
    """Delete every file that an instant has announced or prepared; returns them all, gone before or not."""
    paths = sorted({*announced(store, instant, retry), *(file.path for file in files)})
    delete_files(store, paths, retry)
    return paths
