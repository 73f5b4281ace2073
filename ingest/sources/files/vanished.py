"""Missing files that records were read from: which of them stop the job, and which cause a warning.

::

    with bytes that an epoch saw and did not take ──→ stop, or continue after a hole (source.on_truncate: restart)
    read to their end, as far as any epoch saw it:
        no file at all is below the source's root ──→ a warning: is it mounted?
        their folder is missing, no later beside it → a warning: is it mounted, was it moved?
        anything else, such as a rotation's last
        step, or the oldest of dated folders ───────→ nothing
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
    """A shard whose file is missing, with bytes that an epoch saw and none took.

    Attributes:
        shard: the shard's name.
        position: its committed position.
        folder: the outermost missing folder of its path; None where only the file is missing.
    """

    shard: str
    position: Position
    folder: str | None

    @property
    def found(self) -> str:
        """Description of the loss, human-readable."""
        return f"{FilePosition.of(self.position).path} is gone, and was not read to its end"

    @property
    def error(self) -> SourceChangedError:
        """The error that stops the job."""
        where = "" if self.folder is None else f" {self.folder} does not exist any more: is it mounted, was it moved?"
        return SourceChangedError(
            f"file {FilePosition.of(self.position).path} (shard {self.shard}) is gone, and was read up to byte "
            f"{self.position.offset} of more.{where} Bring it back, let path match where it is now (another path is "
            "another source: tideline run CONF --new-source, once), or set "
            "source.on_truncate: restart, which goes on and records on the timeline that the rest is lost"
        )


@dataclass
class LoggedOnce:
    """Messages that a source has logged, so that a job that plans every few seconds logs each once.

    Attributes:
        said: keys of logged messages.
        gone: folders that are known to be missing.
    """

    said: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)

    def warn(self, key: str, text: str, *args: object) -> None:
        """Log a warning, once per key.

        Args:
            key: identifies the message.
            text: format of the message.
            *args: the format's arguments.
        """
        self.log(logging.WARNING, key, text, *args)

    def log(self, level: int, key: str, text: str, *args: object) -> None:
        """Log a message, once per key.

        Args:
            level: one of `logging`.
            key: identifies the message.
            text: format of the message.
            *args: the format's arguments.
        """
        if key not in self.said:
            self.said.add(key)
            log.log(level, text, *args)


def unread(location: Location, gone: Mapping[str, FilePosition], after: Mapping[str, Position]) -> list[VanishedFile]:
    """Shards without a file whose unread bytes an epoch has seen.

    Args:
        location: the source's path.
        gone: file positions of shards without a file.
        after: committed positions.
    """
    return [
        VanishedFile(shard, after[shard], _gone_folder(location, place.path))
        for shard, place in gone.items()
        if place.has_more
    ]


def tell_of_gone(
    location: Location, files: Sequence[FileInfo], gone: Collection[FilePosition], told: LoggedOnce
) -> None:
    """Warn of a root without files and of missing folders; on local file systems only, others have no folders.

    Args:
        location: the source's path.
        files: as listed.
        gone: file positions of shards without a file, all read to their end.
        told: messages that were logged already.
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


def tell_of_links(location: Location, told: LoggedOnce) -> None:
    """Warn of links to folders, where nothing else was found: the user may mean their targets.

    Args:
        location: the source's path, of which no record was read yet.
        told: messages that were logged already.
    """
    if location.single is None and isinstance(location.fs, LocalFileSystem):
        for path in linked_folders(location.fs, location.root, location.glob):
            told.warn(path, "%s is a link to a folder and is not entered: name the folder in source.path", path)


def _has_later_beside(folder: str, newest_s: float, files: Sequence[FileInfo]) -> bool:
    """Whether another folder beside this one has later files: then the oldest was deleted, as with dated folders."""
    beside = f"{folder.rpartition('/')[0]}/"
    return any(
        file.mtime_s > newest_s and file.path.startswith(beside) and "/" in file.path[len(beside) :] for file in files
    )


def _gone_folders(
    location: Location, files: Sequence[FileInfo], gone: Collection[FilePosition], told: LoggedOnce
) -> dict[str, float]:
    """Outermost folders that are newly missing, each with the last modification time of its files that were read."""
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
