"""Instants that Hudi has moved out of the active timeline, and their bodies.

::

    layout 2  .hoodie/timeline/history/   _version_ ─► manifest_<version> ─► <first>_<last>_<level>.parquet …
    layout 1  .hoodie/archived/           .commits_.archive.<number>_<token> …

Opening an archive reads its instants; bodies are read on demand, because those of an old table do not fit into
memory. Unreadable parts are reported in `Archive.unreadable`, and the rest is read.
Source: ``LSMTimeline``, ``HoodieTimelineArchiver`` and ``ArchivedTimelineV1`` of Apache Hudi 1.x.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from timeline.errors import FormatError, NotFoundError
from timeline.hudi.archived import Archived, Parse
from timeline.hudi.layout import read_properties
from timeline.instant import META_FOLDER, TIMELINE_FOLDER, Instant, InstantKey, TimelineLayout
from timeline.stores.base import ObjectStore, Retry, read_or_none

_LOG_PREFIX = ".commits_.archive."


@dataclass(frozen=True)
class Archive:
    """The archived instants of one timeline.

    Attributes:
        store: the store of the archive.
        retry: retry bounds.
        parse: parser of its files.
        files: keys of the instants in each file, by path.
        instants: each in its furthest archived state, in order of their times.
        unreadable: read errors, one message each.
    """

    store: ObjectStore
    retry: Retry
    parse: Parse
    files: Mapping[str, frozenset[InstantKey]]
    instants: tuple[Instant, ...]
    unreadable: tuple[str, ...] = ()

    @classmethod
    def load(cls, store: ObjectStore, layout: TimelineLayout, retry: Retry) -> Archive:
        """Read the archived instants without bodies; an absent archive is empty.

        Args:
            store: the timeline's store.
            layout: the timeline's layout.
            retry: retry bounds.

        Raises:
            StoreUnavailableError: the store does not answer.
        """
        properties = read_properties(store, retry) or {}
        parse, paths, unreadable = _find(store, layout, properties, retry)
        found: dict[InstantKey, Archived] = {}
        files: dict[str, frozenset[InstantKey]] = {}
        for path in paths:
            records, problem = _read(store, path, parse, retry, bodies=False)
            _merge_into(found, records)
            files[path] = frozenset(record.instant.key for record in records)
            unreadable += [problem] if problem else []
        return cls(store, retry, parse, files, tuple(found[key].instant for key in sorted(found)), tuple(unreadable))

    def __contains__(self, instant: Instant) -> bool:
        return instant in self._held

    @cached_property
    def _held(self) -> frozenset[Instant]:
        return frozenset(self.instants)

    def without(self, keys: Collection[InstantKey]) -> Archive:
        """The archive without the instants of these keys."""
        return replace(self, instants=tuple(each for each in self.instants if each.key not in keys))

    def only(self, instants: Collection[Instant]) -> Archive:
        """The archive reduced to these instants and the files that hold them."""
        kept = tuple(instant for instant in instants if instant in self)
        keys = {instant.key for instant in kept}
        files = {path: held & keys for path, held in self.files.items() if not held.isdisjoint(keys)}
        return replace(self, instants=kept, files=files, unreadable=())

    def read(self, instants: Collection[Instant]) -> Mapping[Instant, Archived]:
        """Bodies of these archived instants; reads every file that holds one of them.

        Raises:
            StoreUnavailableError: the store does not answer.
        """
        wanted = {instant.key: instant for instant in instants}
        found: dict[InstantKey, Archived] = {}
        for path, held in self.files.items():
            if not held.isdisjoint(wanted):
                # If a file became unreadable or was merged into another one, only its bodies are missing.
                records, _ = _read(self.store, path, self.parse, self.retry, bodies=True)
                _merge_into(found, [record for record in records if record.instant.key in wanted])
        gone = "the archive's file is no longer there, or no longer readable"
        return {
            instant: found.get(key) or Archived(instant, problems=(f"instant {instant.time}: {gone}",))
            for key, instant in wanted.items()
        }


def _merge_into(found: dict[InstantKey, Archived], records: Sequence[Archived]) -> None:
    for record in records:
        known = found.get(record.instant.key)
        found[record.instant.key] = record if known is None else known.merged(record)


def _read(
    store: ObjectStore, path: str, parse: Parse, retry: Retry, *, bodies: bool
) -> tuple[Sequence[Archived], str | None]:
    """The readable records of one file, and the error that ended the read, or None."""
    records: list[Archived] = []
    try:
        body = retry.call(lambda: store.get(path))
        for record in parse(path, body, bodies):
            records.append(record)
    except (FormatError, NotFoundError) as error:
        return records, str(error) if path in str(error) else f"{path}: {error}"
    return records, None


def _find(
    store: ObjectStore, layout: TimelineLayout, properties: Mapping[str, str], retry: Retry
) -> tuple[Parse, Sequence[str], list[str]]:
    """The archive's parser, the paths of its files, and the errors of reading their list."""
    if layout is TimelineLayout.ONE:
        from timeline.hudi.log import parse_log

        folder = f"{META_FOLDER}/{properties.get('hoodie.archivelog.folder') or 'archived'}"
        paths = [info.path for info in retry.call(lambda: store.list(folder))]
        return parse_log, [path for path in paths if path.rpartition("/")[2].startswith(_LOG_PREFIX)], []

    from timeline.hudi.lsm import parse_lsm

    folder = f"{TIMELINE_FOLDER}/{properties.get('hoodie.timeline.history.path') or 'history'}"
    try:
        return parse_lsm, [f"{folder}/{name}" for name in _manifest(store, folder, retry)], []
    except FormatError as error:
        return parse_lsm, [], [f"archived instants: {error}"]


def _manifest(store: ObjectStore, folder: str, retry: Retry) -> Sequence[str]:
    """Names of the files in the newest manifest; other files are being written, or about to be deleted."""
    body = read_or_none(store, f"{folder}/_version_", retry)
    if body is None:
        return ()
    version = body.decode("ascii", "replace").strip()
    if not version.isdecimal():
        raise FormatError(f"{folder}/_version_: {version[:40]!r}, expected the number of a manifest")
    path = f"{folder}/manifest_{version}"
    listed = read_or_none(store, path, retry)
    if listed is None:
        raise FormatError(f"{path}: does not exist, but {folder}/_version_ names it: try again")
    try:
        return [_plain_name(each["fileName"]) for each in json.loads(listed)["files"]]
    except (ValueError, LookupError, TypeError) as error:
        raise FormatError(f"{path}: not a manifest: {error}") from error


def _plain_name(name: str) -> str:
    if "/" in name:
        raise ValueError(f"file name {name!r} leads elsewhere")
    return name
