"""Compares a Delta table with the timeline: files that are missing, changed, late, or visible though undecided."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sinks.audit import Audit, Expected, Finding, InstantState, Problem
from sinks.delta.contents import DeltaContents
from sinks.parquet.markers import DATA_FILE, Markers, owner_of
from timeline.epoch import WrittenFile
from timeline.stores.base import ObjectInfo
from timeline.units import count

_IN_FOLDER = re.compile(r"(?P<instant>\d{17})-(?P<owner>[0-9a-f]{12})/.+")
"""A file in a folder that Spark writes for an instant; see `sinks.delta.spark_files`."""


@dataclass(frozen=True)
class Table:
    """Contents of a table as readers see them.

    Attributes:
        applied: the newest epoch of this job in the table; None where it has none.
        files: number of rows of each visible data file, by path; None where the log does not record it.
        removed: returns the paths of all files ever removed from the table; None where the log no longer has them.
    """

    applied: int | None
    files: Mapping[str, int | None]
    removed: Callable[[], frozenset[str] | None]


@dataclass(frozen=True)
class LakeAuditor:
    """Compares one Delta table with the timeline; see `sinks.audit.TargetAuditor`.

    Attributes:
        app_id: the job's key in the table.
        contents: reads the table.
        markers: delete files of the job.
    """

    app_id: str
    contents: DeltaContents
    markers: Markers

    def audit(self, expected: Expected) -> Audit:
        """See TargetAuditor."""
        contents, retry = self.contents, self.contents.retry
        # The table first: the listing then has every file that a commit makes visible meanwhile.
        snapshot = retry.call(contents.load)
        table = None
        if snapshot is not None:
            table = Table(snapshot.applied, contents.log.files(snapshot), lambda: retry.call(contents.log.removed))
        listed = {info.path: info for info in retry.call(lambda: contents.store.list("", recursive=True))}
        return LakeAudit(contents.target, self.app_id, listed, table, self._damage).compare(expected)

    def delete(self, findings: Sequence[Finding]) -> None:
        """See TargetAuditor."""
        self.markers.delete_files([finding.what for finding in findings if finding.is_fixable])

    def _damage(self, file: WrittenFile) -> str | None:
        from sinks.damage import damage_of

        store = self.contents.store
        return damage_of(self.contents.retry.call(lambda: store.get(file.path)), file)


@dataclass(frozen=True)
class LakeAudit:
    """One comparison of a table with the timeline.

    Attributes:
        target: the target's name.
        app_id: the job's key in the table; files of other jobs are ignored.
        listed: every object below the target's folder, by path.
        table: contents as readers see them; None where there is no table.
        damage: checks the bytes of a data file, returns what is wrong with them; called for a deep audit only.
    """

    target: str
    app_id: str
    listed: Mapping[str, ObjectInfo]
    table: Table | None
    damage: Callable[[WrittenFile], str | None]

    def compare(self, expected: Expected) -> Audit:
        """All differences."""
        files = {file.path: file for part in expected.parts for file in part.files}
        own = dict(self._own_files())
        with_part = {part.epoch.instant for part in expected.parts}
        findings = [
            *self._not_applied(expected),
            *(finding for file in self._needed(files, expected) for finding in self._of_committed(file, expected)),
            *self._lost_from_table(expected),
            *(
                finding
                for path, instant in own.items()
                if path not in files
                for finding in self._of_other(path, instant, expected, with_part)
            ),
            *self._gone(files),
        ]
        size = sum(self.listed[path].size for path in own)
        return Audit(f"{count(len(own), 'file')} of {count(size, 'byte')}", findings)

    def _own_files(self) -> Iterator[tuple[str, str]]:
        owner = owner_of(self.app_id)
        for path in self.listed:
            match = DATA_FILE.fullmatch(path) or _IN_FOLDER.fullmatch(path)
            if match is not None and match["owner"] == owner:
                yield path, match["instant"]

    def _not_applied(self, expected: Expected) -> Iterator[Finding]:
        """Completed epochs newer than the epoch of the table's marker."""
        applied = self.table.applied if self.table is not None else None
        for part in expected.parts:
            is_expected = part.rows and part.epoch.instant not in expected.settled
            if is_expected and (applied is None or applied < part.epoch.epoch):
                yield self._finding(
                    Problem.NOT_APPLIED,
                    part.epoch.instant,
                    f"epoch {part.epoch.epoch} is completed, but the table has "
                    f"{'no epoch' if applied is None else f'epochs up to {applied} only'}: was it restored to an older "
                    "version, or made anew?",
                )

    def _needed(self, files: Mapping[str, WrittenFile], expected: Expected) -> Iterator[WrittenFile]:
        """Files that must exist: visible ones, and those of epochs that are neither replayed nor given up."""
        parts = (part for part in expected.parts if part.epoch.instant not in expected.settled)
        needed = {file.path for part in parts for file in part.files} | self._visible.keys()
        return (file for path, file in files.items() if path in needed)

    def _of_committed(self, file: WrittenFile, expected: Expected) -> Iterator[Finding]:
        there = self.listed.get(file.path)
        visible = self._visible
        if there is None:
            if file.path in visible:
                yield self._finding(
                    Problem.MISSING, file.path, f"{count(file.rows, 'row')}: the table names it, and it is gone"
                )
            return  # removed from the table by others: compaction, DELETE
        if there.size != file.size:
            yield self._finding(
                Problem.WRONG_SIZE,
                file.path,
                f"{count(there.size, 'byte')}, and {file.size:,} were written",
                there.size,
            )
        told = visible.get(file.path)
        if told is not None and told != file.rows:
            yield self._finding(
                Problem.WRONG_ROWS, file.path, f"the table says {count(told, 'row')}, the manifest {file.rows:,}"
            )
        if expected.is_deep and there.size == file.size:
            damage = self.damage(file)
            if damage is not None:
                yield self._finding(Problem.DAMAGED, file.path, damage, there.size)

    def _lost_from_table(self, expected: Expected) -> Iterator[Finding]:
        """Files of completed epochs that readers do not see although nobody removed them from the table."""
        parts = (part for part in expected.parts if part.epoch.instant not in expected.settled)
        files = {file.path: file for part in parts for file in part.files}
        unseen = [path for path in files if path in self.listed and path not in self._visible]
        removed = self.table.removed() if unseen and self.table is not None else None
        if removed is not None:
            for path in unseen:
                if path not in removed:
                    yield self._finding(
                        Problem.NOT_APPLIED, path, f"{count(files[path].rows, 'row')} that no reader sees"
                    )

    def _of_other(self, path: str, instant: str, expected: Expected, with_part: Container[str]) -> Iterator[Finding]:
        """A data file of this job that no completed epoch's manifest names."""
        fate = expected.fates.get(instant)
        size = self.listed[path].size
        if fate is InstantState.COMMITTED and instant not in with_part:
            # Without the part, late copies cannot be told from committed files.
            why = f"instant {instant} is committed, and its manifest has nothing of {self.target}: was it renamed?"
            yield self._finding(Problem.UNKNOWN, path, why, size)
        elif path in self._visible and fate is not InstantState.PENDING:
            yield self._finding(Problem.UNDECIDED, path, f"readers see it, but {_told(fate)}", size)
        elif fate is None:
            yield self._finding(Problem.UNKNOWN, path, f"instant {instant} is not on the timeline", size)
        elif fate is not InstantState.PENDING:
            why = (
                "decided against"
                if fate is InstantState.ROLLED_BACK
                else "not in the manifest of its instant: a late copy"
            )
            yield self._finding(Problem.ORPHAN, path, why, size, is_fixable=True)

    def _gone(self, files: Mapping[str, WrittenFile]) -> Iterator[Finding]:
        """Visible files of any writer that do not exist."""
        for path in self._visible:
            if path not in self.listed and path not in files:
                yield self._finding(Problem.MISSING, path, "the table names it, and it is gone; another writer's")

    @property
    def _visible(self) -> Mapping[str, int | None]:
        return self.table.files if self.table is not None else {}

    def _finding(self, problem: Problem, what: str, detail: str, size: int = 0, *, is_fixable: bool = False) -> Finding:
        return Finding(problem, self.target, what, detail, size, is_fixable)


def _told(fate: InstantState | None) -> str:
    match fate:
        case InstantState.ROLLED_BACK:
            return "its instant was rolled back"
        case InstantState.COMMITTED:
            return "the manifest of its instant does not name it"
        case _:
            return "its instant is not on the timeline"
