"""Files that records were read from, and that are gone: which of them stop the job, and what is said of the others.

::

    gone with bytes that an epoch saw and did not take ──→ stop, or go on behind a hole (source.on_truncate: restart)
    gone, read to their end as far as any epoch saw it:
        no file at all is below the source's root ───────→ a warning: is it mounted?
        their folder is gone, and no later one beside it → a warning: is it mounted, was it moved?
        anything else, such as a rotation's last step, or
        the oldest of dated folders ─────────────────────→ nothing
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from fsspec.implementations.local import LocalFileSystem

from ingest.sources.files.file_position import FilePosition
from ingest.sources.files.listing import FileInfo, Location
from ingest.sources.files.walk import linked_folders, walk_files
from timeline.epoch import Position
from timeline.errors import SourceChangedError

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class VanishedFile:
    """A shard whose file is nowhere, with bytes that were there and that no epoch took.

    Attributes:
        shard: it.
        position: how far it was read.
        folder: the outermost folder of its path that is gone too; None where only the file is.
    """

    shard: str
    position: Position
    folder: str | None

    @property
    def found(self) -> str:
        """What happened, for people."""
        return f"{FilePosition.of(self.position).path} is gone, and was not read to its end"

    @property
    def error(self) -> SourceChangedError:
        """What stops the job."""
        where = "" if self.folder is None else f" {self.folder} does not exist any more: is it mounted, was it moved?"
        return SourceChangedError(
            f"file {FilePosition.of(self.position).path} (shard {self.shard}) is gone, and was read up to byte "
            f"{self.position.offset} of more.{where} Bring it back, let path match where it is now (another path is "
            "another source: tideline run CONF --new-source, once), or set "
            "source.on_truncate: restart, which goes on and records on the timeline that the rest is lost"
        )


@dataclass
class Told:
    """What a source has said already, so that a job that looks every few seconds says it once.

    Attributes:
        said: keys of warnings.
        gone: folders that are known to be gone.
    """

    said: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)

    def warn(self, key: str, text: str, *args: object) -> None:
        """Log a warning, if it is the first one of this key."""
        self.log(logging.WARNING, key, text, *args)

    def log(self, level: int, key: str, text: str, *args: object) -> None:
        """Log on any level, if it is the first of this key."""
        if key not in self.said:
            self.said.add(key)
            log.log(level, text, *args)


def unread(location: Location, gone: Mapping[str, FilePosition], after: Mapping[str, Position]) -> list[VanishedFile]:
    """Shards without a file whose rest an epoch has seen.

    Args:
        location: the source's path.
        gone: shards without a file.
        after: committed positions.
    """
    return [
        VanishedFile(shard, after[shard], _gone_folder(location, place.path))
        for shard, place in gone.items()
        if place.has_more
    ]


def tell_of_gone(location: Location, files: Sequence[FileInfo], gone: Collection[FilePosition], told: Told) -> None:
    """Warn of a root without files and of folders that are gone; on local file systems, others have no folders.

    Args:
        location: the source's path.
        files: as listed.
        gone: of shards without a file, all of them read.
        told: what was said already.
    """
    if not gone or not isinstance(location.fs, LocalFileSystem):
        return
    if not files and not any(walk_files(location.fs, location.root, None)):
        told.warn(
            location.root,
            "%s holds no file any more, though %d were read from there: is it mounted?",
            location.root,
            len(gone),
        )
        return
    for folder, newest_s in _gone_folders(location, files, gone, told).items():
        if not _has_later_beside(folder, newest_s, files):
            told.warn(
                folder,
                "%s does not exist any more, though records were read from there, to the end: is it mounted, was it "
                "moved? Nothing is wrong if it was deleted on purpose",
                folder,
            )


def tell_of_links(location: Location, told: Told) -> None:
    """Warn of links to folders, where nothing else was found: what is behind them may be what is meant.

    Args:
        location: the source's path, of which no record was read yet.
        told: what was said already.
    """
    if location.single is None and isinstance(location.fs, LocalFileSystem):
        for path in linked_folders(location.fs, location.root, location.glob):
            told.warn(path, "%s is a link to a folder and is not entered: name the folder in source.path", path)


def _has_later_beside(folder: str, newest_s: float, files: Sequence[FileInfo]) -> bool:
    """Whether another folder beside it has later files: then the oldest one was deleted, as with dated folders."""
    beside = f"{folder.rpartition('/')[0]}/"
    return any(
        file.mtime_s > newest_s and file.path.startswith(beside) and "/" in file.path[len(beside) :] for file in files
    )


def _gone_folders(
    location: Location, files: Sequence[FileInfo], gone: Collection[FilePosition], told: Told
) -> dict[str, float]:
    """Outermost folders whose absence is new, with the last change of a file that was read from each."""
    there = {file.path.rpartition("/")[0] for file in files} | told.gone
    folders: dict[str, float] = {}
    for place in gone:
        folder = place.path.rpartition("/")[0]
        if folder not in there:
            folders[folder] = max(folders.get(folder, 0.0), place.mtime_s)
    found: dict[str, float] = {}
    for folder, mtime_s in folders.items():
        missing = _gone_folder(location, f"{folder}/")
        if missing is not None:
            found[missing] = max(found.get(missing, 0.0), mtime_s)
            told.gone.add(folder)
    return found


def _gone_folder(location: Location, path: str) -> str | None:
    """The outermost folder of a path, below the source's root, that does not exist."""
    if not isinstance(location.fs, LocalFileSystem):
        return None
    folder, missing = path.rpartition("/")[0], None
    while folder.startswith(f"{location.root}/") and not location.fs.exists(folder):
        folder, missing = folder.rpartition("/")[0], folder
    return missing
